# Everything starts from `make`; nothing needs to be set up by hand.
.DEFAULT_GOAL := help
BIN := .venv/bin
# Compiled tests are kept whatever the environment says: to compile them all takes half a minute.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
# One worker more than cores (tests/conftest.py), since many tests wait. A worker takes whole files, so that what the tests of a file share is set up once.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder

help: ## this list
	@echo "Sexton: a verdict on the Linux node you are on, with its evidence."
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

diagnose: core ## the verdict on this machine (sets itself up first)
	@scripts/verdict

demo: core ## makes 2,000 zombies; shows the verdict before, during and after (root); then the explorer
	@$(BIN)/python -m lab.demo
	@echo
	@if [ -t 0 ] && [ -t 1 ]; then scripts/setup web && exec $(BIN)/sexton demo; \
	else echo "A whole incident in the explorer, with a tour of two minutes: sexton demo (make demo on a terminal ends there)"; fi

# $(1) says which tests: in parallel first, then, one by one, those that need the machine alone. Only the
# files of the latter are collected, which takes a second instead of six.
define run-tests
	@status=0; \
	$(PYTEST) $(PARALLEL) -m "($(1)) and not (alone or lab)" --durations=20 --durations-min=5 || status=$$?; \
	$(PYTEST) -m "($(1)) and alone and not lab" $$(grep -rl --include='test_*.py' 'mark\.alone' tests) || status=$$?; \
	exit $$status
endef

test: dev ## the tests, on every core: about 12 minutes on two
	@scripts/system-packages
	$(call run-tests,not whole and not fuzz)

test-whole: export SEXTON_WHOLE = 1
test-whole: dev ## what make test leaves out: statistics, hundreds of kills, all examples, fuzzing
	@scripts/system-packages
	$(call run-tests,whole or hypothesis or fuzz)

test-all: export SEXTON_WHOLE = 1
test-all: dev ## make test and make test-whole in one pass
	@scripts/system-packages
	$(call run-tests,not lab)

# Nothing may be left out here: a skipped test is a failure.
check: export SEXTON_NOTHING_LEFT_OUT = 1
check: lint test-all diagnose lab ## everything: style, types, imports, every test, a verdict, the lab

lint: dev ## ruff, mypy, import-linter
	@$(BIN)/ruff check src tests bench lab deploy
	@$(BIN)/ruff format --check --quiet src tests bench lab deploy
	@$(BIN)/mypy
	@$(BIN)/lint-imports

lab: dev ## a real incident and a healthy machine, on two kernels and both hierarchies, in VMs: is each diagnosed correctly? (root, QEMU)
	@scripts/system-packages lab
	@$(BIN)/python -m lab.vm run 6.1 v2 whole_chain --live --deadline 600 --out lab/out
	@$(BIN)/python -m lab.vm run 5.10 v1 idle --live --deadline 600 --out lab/out

lab-all: dev ## every scene on every kernel and hierarchy, each in a VM of its own (hours)
	@scripts/system-packages lab
	@$(BIN)/python -m lab.vm matrix check_freeing check_cure --boot-each --deadline 900 --out lab/out \
		--on 5.10-v1 5.10-hybrid 6.1-v1 6.1-hybrid 6.1-v2 6.12-v2
	@$(BIN)/python -m lab.vm matrix check_held --boot-each --deadline 3000 --out lab/out --on 5.10-v1 6.1-v2
	@$(BIN)/python -m lab.vm matrix all --boot-each --live --out lab/out

golden: dev ## compare all outputs of the recorded incidents with the expected ones
	@$(BIN)/python -m lab.golden

golden-update: dev ## rewrite the expected outputs, for review
	@$(BIN)/python -m lab.golden --update
	@$(BIN)/python -m lab.accuracy --update

fuzz: dev ## fuzz every parser of untrusted input, ten minutes per target
	@SEXTON_FUZZ_S=$${SEXTON_FUZZ_S:-600} $(PYTEST) -q -m fuzz tests/fuzz

bench: dev ## benchmarks beside peers, as ratios; updates docs/bench.md and README.md (root)
	@scripts/system-packages
	@$(BIN)/python -m bench

docs: dev ## write the pages that are made from docstrings: detectors, man pages
	@$(BIN)/python -m sexton.reports.pages
	@$(BIN)/python -m sexton.cli.manual

dashboards: dev ## write the Grafana boards (deploy/grafana/*.json) from their code
	@$(BIN)/python -m deploy.grafana.boards

clean: ## remove the environment and every cache
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests bench lab -name __pycache__ -prune -exec rm -rf {} +

core:
	@scripts/setup core

dev:
	@scripts/setup dev

# `make -j check`: one after the other all the same, since the tests use every core.
.NOTPARALLEL:
.PHONY: help diagnose demo test test-whole test-all check lint lab lab-all golden golden-update fuzz bench docs dashboards clean core dev

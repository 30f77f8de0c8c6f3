# Everything starts from `make`; nothing needs to be set up by hand.
.DEFAULT_GOAL := help
BIN := .venv/bin
# Compiled tests are kept whatever the environment says: to compile them all takes half a minute.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

help: ## this list
	@echo "Sexton: a verdict on the Linux node you are on, with its evidence."
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

diagnose: core ## the verdict on this machine (sets itself up first)
	@scripts/verdict

demo: core ## 2,000 real zombies: the verdict turns and turns back (root); then an incident in the explorer
	@$(BIN)/python -m lab.demo
	@echo
	@if [ -t 0 ] && [ -t 1 ]; then scripts/setup web && exec $(BIN)/sexton demo; \
	else echo "A whole incident in the explorer, with a tour of two minutes: sexton demo (make demo on a terminal ends there)"; fi

test: dev ## the whole test suite, with progress
	@scripts/system-packages
	@$(PYTEST) -m "not lab" --durations=30 --durations-min=5

check: dev ## what CI runs: style, types, imports, every test; nothing may be left out
	@scripts/system-packages
	@$(MAKE) --no-print-directory lint
	@rm -f .pytest_cache/v/cache/lastfailed
	@SEXTON_NOTHING_LEFT_OUT=1 SEXTON_FUZZ_S=$${SEXTON_FUZZ_S:-20} $(MAKE) --no-print-directory test || scripts/once-more

check-fast: dev ## for every day: style, types, imports, the tests without root, a fifth of the junk
	@$(MAKE) --no-print-directory lint
	@PYTHONDONTWRITEBYTECODE= scripts/tests-of-the-day

lint: dev ## ruff, mypy, import-linter
	@$(BIN)/ruff check src tests bench lab
	@$(BIN)/ruff format --check --quiet src tests bench lab
	@$(BIN)/mypy
	@$(BIN)/lint-imports

lab: dev ## real incidents on two kernels and both hierarchies, in a VM, and is each diagnosed right? (root, QEMU)
	@scripts/system-packages lab
	@$(BIN)/python -m lab.vm matrix whole_chain idle --on 6.1-v2 5.10-v1 --live --deadline 600 --out lab/out

lab-all: dev ## every scene on every kernel and hierarchy, each in a VM of its own (hours)
	@scripts/system-packages lab
	@$(BIN)/python -m lab.vm matrix check_freeing check_cure --boot-each --deadline 900 --out lab/out \
		--on 5.10-v1 5.10-hybrid 6.1-v1 6.1-hybrid 6.1-v2 6.12-v2
	@$(BIN)/python -m lab.vm matrix all --boot-each --live --out lab/out

golden: dev ## the recorded incidents: does every surface still say the same?
	@$(BIN)/python -m lab.golden

golden-update: dev ## write what they say now, for review
	@$(BIN)/python -m lab.golden --update
	@$(BIN)/python -m lab.accuracy --update

fuzz: dev ## junk for every reader of hostile bytes, ten minutes a target
	@SEXTON_FUZZ_S=$${SEXTON_FUZZ_S:-600} $(PYTEST) -q -m fuzz tests/fuzz

bench: dev ## benchmarks beside the peers, as ratios; writes bench/out/table.md
	@scripts/system-packages
	@$(BIN)/python -m bench

docs: dev ## write the pages that are made from docstrings
	@$(BIN)/python -m sexton.reports.pages

clean: ## remove the environment and every cache
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests bench lab -name __pycache__ -prune -exec rm -rf {} +

core:
	@scripts/setup core

dev:
	@scripts/setup dev

.PHONY: help diagnose demo test check check-fast lint lab lab-all golden golden-update fuzz bench docs clean core dev

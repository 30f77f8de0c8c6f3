"""Links joined into chains; nothing is dropped."""

from hypothesis import given
from hypothesis import strategies as st

from sexton.explain.chains import find_chains, unexplained
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding, Severity, Verdict


def link(cause, effect, strength=Strength.PROVEN):
    return Link(f"{cause}_{effect}", cause, effect, strength, "")


def test_links_end_to_end_are_one_chain_as_strong_as_its_weakest():
    (chain,) = find_chains([link("b", "c", Strength.LIKELY), link("a", "b"), link("c", "d")])
    assert chain.findings == ("a", "b", "c", "d")
    assert (chain.root, chain.symptom, chain.strength) == ("a", "d", Strength.LIKELY)


def test_two_causes_of_one_symptom_are_two_chains_the_stronger_first():
    chains = find_chains([link("x", "z", Strength.POSSIBLE), link("y", "z")])
    assert [chain.root for chain in chains] == ["y", "x"]


def test_of_two_that_explain_as_much_the_unit_comes_before_the_churn_it_makes():
    chains = find_chains(
        [link("cgroup_churn", "zombie_memcgs"), link("crash_looping_unit", "zombie_memcgs")]
    )
    assert [chain.root for chain in chains] == ["crash_looping_unit", "cgroup_churn"]


def test_a_short_cut_is_not_a_chain_of_its_own():
    (chain,) = find_chains([link("a", "b"), link("b", "c"), link("a", "c")])
    assert chain.findings == ("a", "b", "c")


def test_a_problem_that_no_chain_holds_is_listed():
    findings = [
        Finding(name, Verdict.PRESENT, Severity.WARNING, "") for name in ("a", "b", "alone")
    ]
    noted = Finding("noted", Verdict.PRESENT, Severity.INFO, "")
    assert unexplained([*findings, noted], find_chains([link("a", "b")])) == ("alone",)


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde")), max_size=8))
def test_any_tangle_of_links_ends(pairs):
    links = [link(cause, effect) for cause, effect in pairs if cause != effect]
    for chain in find_chains(links):
        assert len(set(chain.findings)) == len(chain.findings)

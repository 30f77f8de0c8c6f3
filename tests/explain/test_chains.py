"""Links joined into chains; nothing is dropped."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sexton.explain.chains import find_chains, unexplained
from sexton.model.chain import Link, Strength
from sexton.model.finding import Evidence, Finding, Severity, Verdict


def link(cause, effect, strength=Strength.PROVEN):
    return Link(f"{cause}_{effect}", cause, effect, strength, "")


def test_a_marked_death_is_unexplained_where_no_chain_holds_it_though_it_is_no_problem():
    death = Finding("job_deaths", Verdict.PRESENT, Severity.INFO, '"job 17 died"')
    noted = Finding("direct_reclaim", Verdict.PRESENT, Severity.INFO, "some")
    assert unexplained([death, noted], ()) == ("job_deaths",)
    chains = find_chains([link("nic_resets", "job_deaths")])
    assert unexplained([death, noted], chains) == ()
    assert unexplained([replace(death, verdict=Verdict.NOT_APPLICABLE)], ()) == ()


def test_links_end_to_end_are_one_chain_as_strong_as_its_weakest():
    (chain,) = find_chains([link("b", "c", Strength.LIKELY), link("a", "b"), link("c", "d")])
    assert chain.findings == ("a", "b", "c", "d")
    assert (chain.root, chain.symptom, chain.strength) == ("a", "d", Strength.LIKELY)


def test_two_causes_of_one_symptom_are_two_chains_the_stronger_first():
    chains = find_chains([link("x", "z", Strength.LIKELY), link("y", "z")])
    assert [chain.root for chain in chains] == ["y", "x"]


def test_a_possible_cause_gives_way_to_a_surer_one_and_stays_where_it_is_alone():
    possible = link("x", "z", Strength.POSSIBLE)
    assert [chain.root for chain in find_chains([possible, link("y", "z")])] == ["y"]
    assert [chain.root for chain in find_chains([possible])] == ["x"]
    two = [possible, link("y", "z", Strength.POSSIBLE)]
    assert [chain.root for chain in find_chains(two)] == ["x", "y"]


def test_proof_comes_before_length_where_the_longer_one_rests_on_a_possible_link():
    long = [link("a", "b", Strength.POSSIBLE), link("b", "c"), link("c", "z")]
    assert [chain.root for chain in find_chains([*long, link("y", "z", Strength.LIKELY)])] == [
        "y",
        "a",
    ]


def test_length_comes_before_proof_where_all_of_it_is_likely():
    long = [link("a", "b", Strength.LIKELY), link("b", "z", Strength.LIKELY)]
    assert [chain.root for chain in find_chains([*long, link("y", "z")])] == ["a", "y"]


def test_a_chain_about_another_symptom_does_not_lose_its_place_to_a_shorter_one():
    long = [link("a", "b", Strength.POSSIBLE), link("b", "c"), link("c", "d"), link("d", "e")]
    assert [chain.root for chain in find_chains([*long, link("y", "z")])] == ["a", "y"]


def test_a_detour_over_a_possible_link_does_not_hide_the_sure_way():
    links = [link("a", "b", Strength.POSSIBLE), link("b", "c", Strength.LIKELY), link("a", "c")]
    first = find_chains(links)[0]
    assert (first.findings, first.strength) == (("a", "c"), Strength.PROVEN)


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


def test_what_stacks_have_weighed_and_found_wanting_is_not_unexplained():
    findings = [Finding(name, Verdict.PRESENT, Severity.WARNING, "") for name in ("a", "b", "c")]
    shown = (Evidence("samples", "95 %", "", "", "perf record", 95.0),)
    links = [link("a", "b"), replace(link("c", "b", Strength.POSSIBLE), evidence=shown)]
    assert unexplained(findings, find_chains(links), links) == ()
    unseen = [link("a", "b"), link("c", "b", Strength.POSSIBLE)]
    assert unexplained(findings, find_chains(unseen), unseen) == ("c",)


tangles = st.lists(
    st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde"), st.sampled_from(Strength)),
    max_size=8,
)


@given(tangles)
def test_any_tangle_of_links_ends_and_no_doubtful_chain_comes_before_a_sure_one(triples):
    links = [link(cause, effect, sure) for cause, effect, sure in triples if cause != effect]
    sure_of = {}
    for chain in find_chains(links):
        assert len(set(chain.findings)) == len(chain.findings)
        before = sure_of.setdefault(chain.symptom, True)
        assert before or chain.strength is Strength.POSSIBLE
        sure_of[chain.symptom] = chain.strength is not Strength.POSSIBLE

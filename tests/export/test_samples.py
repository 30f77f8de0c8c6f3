"""Values by name and labels, and their text."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from sexton.export import families as f
from sexton.export.exposition import MOST_REMEMBERED, Page, Totals
from sexton.export.samples import MOST_LABEL, Counts, Samples, in_buckets, label
from tests.support.recordings import HOSTILE

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def test_names_are_unique_and_no_node_has_more_than_400_series():
    names = [family.name for family in f.FAMILIES]
    assert len(set(names)) == len(names)
    assert f.most_series() <= 400
    declared = {value.name for value in vars(f).values() if isinstance(value, f.Family)}
    assert declared == set(names)


def test_counters_end_in_total_and_nothing_else_does():
    for family in f.FAMILIES:
        assert family.name.endswith("_total") == (family.kind is f.Kind.COUNTER), family.name


def test_what_is_unknown_is_not_there():
    samples = Samples()
    samples.add(f.DYING, None)
    samples.add(f.LIVE, 0)
    text = Page(samples).body("", False)[0].decode()
    assert "sexton_memcgs_dying" not in text
    assert "sexton_memcgs_live 0.0" in text


def test_a_family_keeps_no_more_than_it_declares_and_the_first_ones():
    samples = Samples()
    for number in range(1000):
        samples.add(f.UNIT_RESTARTS, number, f"u{number}.service")
    kept = [labels[0] for labels, _ in samples.of(f.UNIT_RESTARTS)]
    assert kept == [f"u{number}.service" for number in range(f.UNIT_RESTARTS.most)]


def test_labels_must_be_those_of_the_family():
    with pytest.raises(ValueError, match="sexton_finding"):
        Samples().add(f.FINDING, 1, "zombie_memcgs")


@pytest.mark.parametrize(
    "name", [*HOSTILE, 'a"b', "a\\", "{x=1}", b"\xff\xfe".decode("utf-8", "surrogateescape")]
)
@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_any_name_survives_the_text_and_back(name, accept):
    samples = Samples()
    samples.add(f.OWNERS, 7, name)
    content, kind = Page(samples).body(accept, False)
    text = content.decode("utf-8")
    parse = openmetrics if "openmetrics" in kind else plain
    (family,) = parse(text)
    (sample,) = family.samples
    assert sample.labels == {"owner": label(name)}
    assert sample.value == 7
    assert len(label(name)) <= MOST_LABEL
    assert "\n" not in label(name)


def test_two_names_that_look_the_same_stay_two():
    names = ["\x1b", "\\x1b", "x" * 5000, "x" * 5001, "\udcff", "\\xff"]
    assert len({label(name) for name in names}) == len(names)


def test_a_histogram_is_cumulative_and_whole():
    samples = Samples()
    samples.add(f.CORE_KERNEL, in_buckets([0.01, 0.2, 0.93, 1.0], f.KERNEL_RATIOS))
    (family,) = plain(Page(samples).body("", False)[0].decode())
    buckets = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    assert buckets == {
        "0.05": 1, "0.1": 1, "0.25": 2, "0.5": 2, "0.75": 2, "0.9": 2, "0.95": 3, "1.0": 4,
        "+Inf": 4,
    }  # fmt: skip
    named = {s.name: s.value for s in family.samples if not s.labels}
    assert named == {
        "sexton_core_kernel_ratio_count": 4,
        "sexton_core_kernel_ratio_sum": pytest.approx(2.14),
    }


def test_histograms_add_up():
    assert Counts((1, 2), 3).plus(Counts((4, 0), 1)) == Counts((5, 2), 4)


def _restarts(value: float) -> Samples:
    samples = Samples()
    samples.add(f.UNIT_RESTARTS, value, "a.service")
    return samples


def test_a_total_never_falls_and_counts_only_increases():
    totals, seen = Totals(), []
    for value in (5, 7, 2, 2, 3):  # cleared after 7
        samples = _restarts(value)
        totals.apply(samples)
        seen.append(samples.value(f.UNIT_RESTARTS, "a.service"))
    assert seen == [5, 7, 7, 7, 8]


def test_a_histogram_never_falls_either():
    """A core that is taken offline, or a probe that is attached again, takes its counts along."""
    totals, seen = Totals(), []
    for buckets, total in (((5, 1), 3.0), ((2, 0), 1.0), ((3, 1), 2.0)):
        samples = Samples()
        samples.add(f.SOFTIRQ_WAIT, Counts(buckets, total), "NET_RX")
        totals.apply(samples)
        seen.append(samples.value(f.SOFTIRQ_WAIT, "NET_RX"))
    assert seen == [Counts((5, 1), 3.0), Counts((5, 1), 3.0), Counts((6, 2), 4.0)]


def test_ten_thousand_units_that_come_and_go_are_not_remembered():
    totals = Totals()
    for number in range(10_000):
        samples = Samples()
        samples.add(f.OOM_KILLS, 1000 - number)
        samples.add(f.UNIT_RESTARTS, number, "lasting.service")
        samples.add(f.UNIT_RESTARTS, 3, f"{number}.service")
        totals.apply(samples)
    assert len(totals) == MOST_REMEMBERED
    assert samples.value(f.UNIT_RESTARTS, "lasting.service") == 9_999
    assert samples.value(f.OOM_KILLS) == 1000  # seen each time, so never forgotten


def test_a_counter_that_comes_back_goes_on():
    totals, seen = Totals(), []
    for value in (5, None, 6):
        samples = Samples()
        if value is not None:
            samples.add(f.UNIT_RESTARTS, value, "a.service")
        totals.apply(samples)
        seen.append(samples.value(f.UNIT_RESTARTS, "a.service"))
    assert seen == [5, None, 6]


def test_formats_that_clients_make_up_are_not_kept():
    page = Page(_restarts(5))
    kinds = {
        page.body(f"application/openmetrics-text; version={version}", False)[1]
        for version in ("1.0.0", "abc", "1.0.0-x", "9" * 9000, *map(str, range(2, 1000)))
    }
    kinds |= {page.body(f"text/plain;version={version}", False)[1] for version in ("x.y", "7", "")}
    assert len(kinds) == 2
    assert len(page._made) == 2
    assert page.body("application/openmetrics-text", False)[1].startswith("application/openm")


def test_a_page_is_compressed_on_request():
    import gzip

    page = Page(_restarts(5))
    text, kind = page.body("", False)
    packed, same = page.body("", True)
    assert gzip.decompress(packed) == text
    assert kind == same == "text/plain; version=0.0.4; charset=utf-8"

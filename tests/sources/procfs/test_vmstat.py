"""`/proc/vmstat`."""

import pytest

from sexton.errors import SourceMalformed
from sexton.sources.procfs.vmstat import parse
from tests.support.fixtures import kernel_text


@pytest.mark.parametrize("kernel", ["5.10", "6.1", "6.18"])
def test_the_names_that_detectors_ask_for_are_there(kernel):
    values = {row.name: row.value for row in parse(kernel_text("procfs.vmstat", kernel))}
    assert values["nr_free_pages"] > 0
    assert {"pgscan_direct", "pgscan_kswapd", "allocstall_normal", "pgmajfault"} <= set(values)


@pytest.mark.parametrize("line", ["pgscan_direct", "pgscan_direct x", "pgscan_direct 1 2"])
def test_a_broken_line_is_named(line):
    with pytest.raises(SourceMalformed) as caught:
        list(parse(f"nr_free_pages 1\n{line}\n"))
    assert caught.value.line == 2

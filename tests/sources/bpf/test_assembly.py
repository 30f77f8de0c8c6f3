"""Instructions against encodings that were worked out by hand from the kernel's document."""

from __future__ import annotations

import pytest

from sexton.sources.bpf.assembly import FP, R0, R1, R2, R6, R7, WORD, Assembly, Operand


def code(assembly: Assembly) -> str:
    return assembly.encode().hex(" ", 8)


@pytest.mark.parametrize(
    ("assembly", "expected"),
    [
        (Assembly("little").move(R0, 0), "b700000000000000"),
        (Assembly("little").move(R6, Operand(R1)), "bf16000000000000"),
        (Assembly("little").add(R2, -4), "07020000fcffffff"),
        (Assembly("little").add(R6, Operand(R2)), "0f26000000000000"),
        (Assembly("little").subtract(R6, 2), "1706000002000000"),
        (Assembly("little").multiply(R6, 272), "2706000010010000"),
        (Assembly("little").mask(R2, 1), "5702000001000000"),
        (Assembly("little").left(R2, 3), "6702000003000000"),
        (Assembly("little").right(R1, 35), "7701000023000000"),
        (Assembly("little").load(R6, R1, 0), "7916000000000000"),
        (Assembly("little").load(R1, R6, 64), "7961400000000000"),
        (Assembly("little").store(FP, -4, 0, WORD), "620afcff00000000"),
        (Assembly("little").store(R6, 8, 0), "7a06080000000000"),
        (Assembly("little").store(R6, 16, Operand(R1)), "7b16100000000000"),
        (Assembly("little").load_map(R1, 5), "1811000005000000 0000000000000000"),
        (Assembly("little").call(5), "8500000005000000"),
        (Assembly("little").exit(), "9500000000000000"),
    ],
)
def test_an_instruction_is_encoded_as_the_kernel_defines_it(assembly: Assembly, expected: str):
    assert code(assembly) == expected


def test_a_big_endian_machine_has_the_registers_and_the_bytes_the_other_way_round():
    assert code(Assembly("big").move(R6, Operand(R1))) == "bf61000000000000"
    assert code(Assembly("big").add(R2, -4)) == "0720" + "0000" + "fffffffc"


@pytest.mark.parametrize(
    ("jump", "opcode"),
    [
        (lambda code: code.jump("end"), "05000200 00000000"),
        (lambda code: code.if_equal(R7, 0, "end"), "15070200 00000000"),
        (lambda code: code.if_above(R7, 1, "end"), "25070200 01000000"),
        (lambda code: code.if_not_below(R7, Operand(R1), "end"), "3d170200 00000000"),
        (lambda code: code.if_unequal(R7, 0, "end"), "55070200 00000000"),
        (lambda code: code.if_not_negative(R7, "end"), "75070200 00000000"),
    ],
)
def test_a_jump_counts_from_the_instruction_behind_it(jump, opcode):
    assembly = jump(Assembly("little")).call(5).call(5).label("end").exit()
    assert code(assembly).startswith(opcode.replace(" ", ""))


def test_a_jump_over_a_map_counts_its_two_places():
    assembly = Assembly("little").jump("end").load_map(R1, 3).label("end").exit()
    assert code(assembly).startswith("0500020000000000")


def test_what_the_kernel_could_not_take_is_refused_here():
    with pytest.raises(ValueError, match="no 32-bit immediate"):
        Assembly().add(R0, 1 << 31)
    with pytest.raises(ValueError, match="there twice"):
        Assembly().label("out").label("out")
    with pytest.raises(KeyError):
        Assembly().jump("nowhere").encode()

"""A Program in which every op of the table computes: what the library of each platform would compute otherwise."""

from __future__ import annotations

from codegen.program import Floats, Program
from micrograd import ops
from micrograd.engine import Value
from micrograd.functional import total

WIDTH = 32  # of a loop over lanes: some vectors of every SIMD level
SCALES = (1e-7, 0.1, 1.0, 15.0, 300.0, 1e9)  # an input is within -1 and 1, an operand within about twice that


def program() -> Program:
    """Of each op, a loop over lanes with a parameter for each operand, a single call, and outputs for wild operands.

    Only the first two enter the loss. Their operands are around 1, where no op gives nan or overflows, so that training
    goes on; one input moves them.
    """
    inputs = [Value(0.0) for _ in range(WIDTH)]
    parameters: dict[str, list[list[Value]]] = {}
    losses: list[Value] = []
    outputs: dict[str, list[Value]] = {}
    for row in ops.ROWS:
        if row.is_registered:
            continue
        own = [[Value(0.75 + i / 64 + 0.2 * k) for i in range(WIDTH)] for k in range(row.arity)]
        parameters[row.name] = own
        calm = [[p + 0.125 * x for p, x in zip(operands, inputs, strict=True)] for operands in own]
        lanes = [row(*operands) for operands in zip(*calm, strict=True)]
        losses += [total(lanes), row(*(operands[0] * operands[1] for operands in own))]
        outputs[row.name] = [
            *lanes,
            *(row(*operands) for scale in SCALES for operands in _wild(inputs, scale, row.arity)),
        ]
    mean = total(losses) * (1 / WIDTH)
    return Program(Floats(inputs), None, parameters, mean, outputs, description="every op of the table")


def _wild(inputs: list[Value], scale: float, arity: int) -> list[list[Value]]:
    """Operands of both signs; none is 0 where an input is, as most of them are."""
    first = [(x + (2 * i + 1 - WIDTH) / WIDTH) * scale for i, x in enumerate(inputs)]
    return [[a, b][:arity] for a, b in zip(first, [*first[7:], *first[:7]], strict=True)]

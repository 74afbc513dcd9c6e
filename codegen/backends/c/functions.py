"""Blocks of C -> functions of bounded size, and one function for each pass that calls them in order.

Example input: the blocks of the groups 0 to 2, which the loss needs, and of group 3, which is a parameter's gradient,
become `groups_0_to_2(w)`, `group_3(images, count, part, parts)` and the passes compute_loss(w), compute_prediction(w),
compute_gradients(images, count, part, parts) and so on, each of which calls those that it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from codegen.backends.arithmetic import Arithmetic
from codegen.reroll.groups import Need

MAX_FUNCTION = 150  # lines: compilers are super-linear in the length of a function
INDENT = "    "

WORKSPACE = "struct workspace *restrict w"
IMAGES = "const struct workspace *images, int count, int part, int parts"
PASSES = {
    "compute_loss": (Need.LOSS, WORKSPACE),
    "compute_adjoints": (Need.GRADIENTS, WORKSPACE),
    "compute_gradients": (Need.DENSE_GRADIENTS, IMAGES),
    "compute_prediction": (Need.PREDICTION, WORKSPACE),
    "compute_outputs": (Need.OUTPUTS, WORKSPACE),
    "compute_evaluation": (Need.LOSS | Need.PREDICTION, WORKSPACE),
}


@dataclass
class Block:
    """A group in C: its lines, which passes need it, and the tables that it reads."""

    number: int
    need: Need
    comment: str
    lines: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)


def functions(blocks: list[Block], arithmetic: Arithmetic) -> tuple[list[str], list[tuple[Need, str]]]:
    """The blocks as C functions, and the calls in order. Neighbours that the same passes need share a function.

    Gradients of row tensors need none: csrc/rows.h computes them from the table of row tensors.
    """
    blocks = [block for block in blocks if block.need != Need.ROW_GRADIENTS]
    text: list[str] = []
    calls: list[tuple[Need, str]] = []
    i = 0
    while i < len(blocks):
        j = i
        body: list[str] = []
        need = blocks[i].need
        while j < len(blocks) and blocks[j].need == need and len(body) < MAX_FUNCTION:
            body += [f"{INDENT}/* {blocks[j].comment} */"]
            body += [INDENT + line for line in blocks[j].lines]
            j += 1
        first, last = blocks[i].number, blocks[j - 1].number
        name = f"group_{first}" if first == last else f"groups_{first}_to_{last}"
        parameters, unused = WORKSPACE, [f"{INDENT}(void)value;"]
        start = [f"{INDENT}{arithmetic.type} *restrict const value = w->value;"]
        if need == Need.DENSE_GRADIENTS:
            parameters, start, unused = IMAGES, [], [f"{INDENT}(void)images;"]
        if not any("value[" in line for line in body):  # made of parameters alone
            start += unused
        text += [f"static void AT_LEVEL({name})({parameters})", "{", *start, *body, "}", ""]
        calls.append((need, name))
        i = j
    return text, calls


def passes(calls: list[tuple[Need, str]], names: Iterable[str] = PASSES) -> list[str]:
    """One function for each pass, which calls the others in order."""
    lines: list[str] = []
    for function in names:
        need, parameters = PASSES[function]
        skip = Need.LOSS if need == Need.GRADIENTS else Need(0)  # forward has left these behind
        arguments = [part.split()[-1].lstrip("*") for part in parameters.split(",")]
        listed = ", ".join(arguments)
        body = [f"{INDENT}AT_LEVEL({name})({listed});" for has, name in calls if has & need and not has & skip]
        unused = [] if body else [f"{INDENT}(void){name};" for name in arguments]
        lines += [f"static void AT_LEVEL({function})({parameters})", "{", *body, *unused, "}", ""]
    return lines

"""Rules -> Python: a loop over parameters for each rule, and what a step computes once.

Example: sgd(momentum=0.9) becomes

    def rule_0(p, grad, state, first, end, size, number):
        number_0 = number[0]
        state_0 = state[0]
        for i in range(first, end):
            g = grad[i] / size
            next_0 = 0.9 * state_0[i] + g
            next_p = p[i] + number_0 * next_0 * -1.0
            p[i] = next_p
            state_0[i] = next_0
"""

from collections.abc import Sequence
from struct import pack

from codegen.backends.python.kernels import INDENT, body_text, expr_text, literal
from codegen.backends.updates import conditions, each_body, once_body
from codegen.passes.updates import Update, Updates
from codegen.program import Program
from codegen.reroll.layout import TensorPlace
from micrograd import optim


def update_lines(
    updates: Updates | None, program: Program, row_offsets: Sequence[int], tensors: Sequence[TensorPlace]
) -> list[str]:
    """The functions and tables that runtime/optimizer.py uses."""
    if updates is None:
        return []
    state = {
        f"{tensor.name}.{slot}": (tensor.name, k, first)
        for t, tensor in enumerate(program.tensors)
        for k, (slot, first) in enumerate(updates.of(t).rule.state.items())
    }
    rules = ", ".join(f"rule_{update.number}" for update in updates.rules)
    cuts = optim.norm_cuts(len(program.parameter_values)) if updates.takes_norm else None
    numbers = {place.offset: updates.of_tensor[t] for t, place in enumerate(tensors)}
    return [
        *(line for update in updates.rules for line in _rule(update)),
        *_prepare_step(updates),
        *_rows_stay([updates.rules[k] for k in sorted({numbers[offset] for offset in row_offsets})]),
        "",
        "",
        f"RULES = [{rules}]",
        f"TENSOR_RULES = {numbers}",
        "STATE = {",
        *(f"{INDENT}{name!a}: ({tensor!a}, {k}, {literal(first)})," for name, (tensor, k, first) in state.items()),
        "}",
        f"STATE_SLOTS = {updates.slots}",
        f"NORM_CUTS = {cuts}",
    ]


def _rule(update: Update) -> list[str]:
    inner = [f"number_{k} = number[{update.first_number + k}]" for k in range(update.numbers)]
    inner += [f"state_{k} = state[{k}]" for k in range(len(update.slots))]
    lets, stores = each_body(update)
    loop = ["g = grad[i] / size", *body_text((*lets, *stores))]
    return [
        "",
        "",
        f"def rule_{update.number}(p, grad, state, first, end, size, number):",
        *(INDENT + line for line in inner),
        f"{INDENT}for i in range(first, end):",
        *(INDENT * 2 + line for line in loop),
    ]


def _prepare_step(updates: Updates) -> list[str]:
    lines, numbers = [], []
    for update in updates.rules:
        body, found = once_body(update)
        lines += body_text(body)
        numbers += [expr_text(number) for number in found]
    head = ["", "", "def prepare_step(step, rate, norm):"]
    return [*head, *(INDENT + line for line in lines), f"{INDENT}return [{', '.join(numbers)}]"]


def _rows_stay(updates: Sequence[Update]) -> list[str]:
    """Whether rows whose gradients are 0 stay as they are: numbers are compared by their bits."""
    head = ["", "", "def rows_stay(number):"]
    if any(update.kept is None for update in updates):
        return [*head, f"{INDENT}return False"]
    lines: list[str] = []
    for update in updates:
        lines += [f"number_{k} = number[{update.first_number + k}]" for k in range(update.numbers)]
        statements, equal = conditions(update)
        lines += body_text(statements)
        for value, constant in equal:
            lines += [f'if struct.pack("<d", {expr_text(value)}) != {pack("<d", constant)!r}:', f"{INDENT}return False"]
    return [*head, *(INDENT + line for line in lines), f"{INDENT}return True"]

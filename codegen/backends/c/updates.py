"""Rules -> C: a loop over parameters for each rule, and what a step computes once.

Example: sgd(momentum=0.9) becomes a function for a span of parameters, at each SIMD level, whose loop is

    for (ptrdiff_t i = 0; i < count; i++) {
        const real g = divides ? gradient[i] / batch : gradient[i] * share;
        const real next_0 = 0x1.ccccccccccccdp-1 * state_0[i] + g;
        const real next_p = p[i] + number_0 * next_0 * -1.0;
        p[i] = next_p;
        state_0[i] = next_0;
        nonfinite |= nonfinite_bits(next_p);
    }

and prepare_step() sets number_0 to the learning rate. What a step computes once is computed in double, also in a model
of floats; the learning rate of Adam would have few right digits otherwise.
"""

from collections.abc import Sequence

import numpy as np

from codegen.backends.c.printer import INDENT, expression_text, statement_lines
from codegen.backends.expressions import PRIMARY, Arithmetic
from codegen.backends.shared import comment_text, indices
from codegen.backends.updates import conditions, each_body, once_body
from codegen.ir.graph import used_rows
from codegen.passes.updates import Update, Updates
from codegen.program import Program
from codegen.reroll.layout import TensorPlace
from micrograd import optim
from micrograd.definitions import c_definitions, c_names

RULE = "ptrdiff_t at, const real *restrict gradient, ptrdiff_t count,"


def rule_functions(updates: Updates, arithmetic: Arithmetic) -> list[str]:
    """The loops of all rules, for one SIMD level, and a table of them."""
    lines: list[str] = []
    for update in updates.rules:
        lines += _rule(update, arithmetic)
    names = ", ".join(f"AT_LEVEL(rule_{update.number})" for update in updates.rules)
    return [*lines, f"static update_function *const AT_LEVEL(rules)[] = {{{names}}};", ""]


def _rule(update: Update, arithmetic: Arithmetic) -> list[str]:
    states, (lets, stores) = range(len(update.slots)), each_body(update)
    name = f"AT_LEVEL(rule_{update.number})"
    parameters = "".join(f" real *restrict state_{k}," for k in states)
    numbers = number_lines(update, "step->number")
    body = [
        "const real g = divides ? gradient[i] / batch : gradient[i] * share;",
        "(void)g;",
        *statement_lines((*lets, *stores), arithmetic, in_lanes=True),
        "nonfinite |= nonfinite_bits(next_p);",
    ]
    arguments = "".join(f" state[{k}] + at," for k in states)
    about = comment_text(f"{update.rule.name}, with the state {', '.join(update.slots) or 'none'}")
    return [
        f"/*{about} */",
        f"SPECIALISED int AT_LEVEL(any_{update.number})(real *restrict p, const real *restrict gradient,{parameters}",
        f"{INDENT * 6}ptrdiff_t count, const struct step *step, int divides)",
        "{",
        f"{INDENT}const real share = (real)step->share, batch = (real)step->batch;",
        *(INDENT + line for line in numbers),
        f"{INDENT}real_bits nonfinite = 0;",
        f"{INDENT}for (ptrdiff_t i = 0; i < count; i++) {{",
        *(INDENT * 2 + line for line in body),
        f"{INDENT}}}",
        f"{INDENT}return top_bit(nonfinite);",
        "}",
        "",
        f"static int {name}({RULE}",
        f"{INDENT * 6}const struct step *step)",
        "{",
        f"{INDENT}if (step->share == 0)",
        f"{INDENT * 2}return AT_LEVEL(any_{update.number})(data + at, gradient,{arguments} count, step, 1);",
        f"{INDENT}return AT_LEVEL(any_{update.number})(data + at, gradient,{arguments} count, step, 0);",
        "}",
        "",
    ]


def number_lines(update: Update, array: str) -> list[str]:
    """The numbers that a rule computes once a step, from an array of those of all rules."""
    numbers = range(update.numbers)
    lines = [f"const real number_{k} = {array}[{update.first_number + k}];" for k in numbers]
    return [*lines, *(f"(void)number_{k};" for k in numbers)]


def step_functions(updates: Updates, arithmetic: Arithmetic, row_tensors: Sequence[int]) -> list[str]:
    """prepare_step() and rows_stay(). `row_tensors` are the numbers of the Program's tensors that have rows."""
    return [
        *prepare_function(updates, arithmetic, "#include <in_double.h>"),
        *_rows_stay(updates, arithmetic, row_tensors),
    ]


def prepare_function(updates: Updates, arithmetic: Arithmetic, in_double: str) -> list[str]:
    """prepare_step(), in double: `in_double` is the text of that header, or includes it."""
    once: list[str] = []
    for update in updates.rules:
        body, numbers = once_body(update)
        once += statement_lines(body, Arithmetic())
        for k, number in enumerate(numbers, update.first_number):
            once.append(f"number[{k}] = ({arithmetic.type}){expression_text(number, Arithmetic(), PRIMARY)};")
    prepare = [
        "/* What the rules compute once a step. */",
        f"static void prepare_step(double step, double rate, double norm, {arithmetic.type} *number)",
        "{",
        f"{INDENT}(void)step;",
        f"{INDENT}(void)rate;",
        f"{INDENT}(void)norm;",
        f"{INDENT}(void)number;",
        *(INDENT + line for line in once),
        "}",
        "",
    ]
    return _in_double(updates, prepare, in_double) if arithmetic.is_float32 else prepare


def _in_double(updates: Updates, lines: list[str], header: str) -> list[str]:
    """Code whose `real` is double, with definitions of its own, in a model of floats."""
    rows = used_rows(*(update.once for update in updates.rules))
    names = c_names(rows)
    return [
        header,
        *(f"#define {name} double_{name}" for name in names),
        "",
        *c_definitions(rows, Arithmetic().literal),
        *lines,
        *(f"#undef {name}" for name in names),
        header,
        "",
    ]


def _rows_stay(updates: Updates, arithmetic: Arithmetic, row_tensors: Sequence[int]) -> list[str]:
    """Whether rows whose gradients are 0 stay as they are."""
    rules = sorted({updates.of_tensor[tensor] for tensor in row_tensors})
    body: list[str] = []
    answer = "1"
    for update in (updates.rules[k] for k in rules):
        if update.kept is None:
            body, answer = [], "0"
            break
        statements, equal = conditions(update)
        inner = number_lines(update, "number")
        inner += statement_lines(statements, arithmetic)
        for value, constant in equal:
            text = expression_text(value, arithmetic)
            inner.append(f"if (to_bits({text}) != to_bits({arithmetic.literal(constant)}))")
            inner.append(f"{INDENT}return 0;")
        body += ["{", *(INDENT + line for line in inner), "}"]
    return [
        "/* Whether rows whose gradients are 0 stay as they are. */",
        "static int rows_stay(const real *number)",
        "{",
        f"{INDENT}(void)number;",
        *(INDENT + line for line in body),
        f"{INDENT}return {answer};",
        "}",
        "",
    ]


def gradient_rows(tensors: Sequence[TensorPlace]) -> list[str]:
    """The gradients of all tensors as rows, without the padding between them: for csrc/update.h."""
    rows = []
    for place in tensors:
        where = np.sort(indices(place))
        starts = np.flatnonzero(np.diff(where, prepend=where[0] - 2) != 1)
        counts = np.diff(starts, append=len(where))
        pitch = int(where[starts[1]] - where[starts[0]]) if len(starts) > 1 else 0
        if len(set(counts.tolist())) == 1 and (np.diff(where[starts]) == pitch).all():
            rows.append((int(where[0]), len(starts), int(counts[0]), pitch))
        else:
            rows += [(int(where[s]), 1, int(c), 0) for s, c in zip(starts, counts, strict=True)]
    return [
        "struct gradient_rows {",
        "    int offset, rows, count, length;",
        "};",
        "static const struct gradient_rows gradient_rows[] = {",
        *(f"    {{{', '.join(map(str, row))}}}," for row in [*rows, (0, 0, 0, 0)]),
        "};",
        "",
    ]


def rule_constants(program: Program, updates: Updates | None) -> list[tuple[str, object]]:
    """What csrc/ requires of every model that trains."""
    if updates is None:
        return []
    high, low = optim.norm_cuts(len(program.parameter_values))
    literal = Arithmetic().literal
    return [
        ("RULES", len(updates.rules)),
        ("STATE_SLOTS", updates.slots),
        ("STEP_NUMBERS", max(sum(update.numbers for update in updates.rules), 1)),
        ("TAKES_NORM", int(updates.takes_norm)),
        *([("NORM_HIGH", literal(high)), ("NORM_LOW", literal(low))] if updates.takes_norm else []),
    ]

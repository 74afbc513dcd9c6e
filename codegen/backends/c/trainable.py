"""A model with a loss -> NAME.h and NAME.c: plain C11 that trains, without Python, allocation or a C library.

Example: of the model digits, with the output probabilities, the header declares

    struct digits_model { ... };
    void digits_init(struct digits_model *model);
    double digits_forward(struct digits_model *model, const unsigned char *inputs, const unsigned char *targets);
    void digits_backward(struct digits_model *model);
    void digits_update(struct digits_model *model, double learning_rate, double batch_size);
    void digits_probabilities(struct digits_model *model, const unsigned char *inputs, double *result);

and more of the kind. All that a model has is in the struct, which belongs to the caller. The source is an amalgamation,
as in standalone.py. It is small rather than fast: one level, few passes, no loop twice; lanes still become vectors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from codegen.backends.c.inference import exact_weights
from codegen.backends.c.kernels import Kernels
from codegen.backends.c.module import defines, offsets, spans_of, table
from codegen.backends.c.plain_header import OWN, Model, declarations, header, wrapped
from codegen.backends.c.plain_kernels import pass_functions
from codegen.backends.c.printer import INDENT, statement_lines
from codegen.backends.c.standalone import (
    WORD,
    amalgamated,
    arguments,
    function_names,
    prefix_of,
    put_numbers,
    source_head,
)
from codegen.backends.c.updates import number_lines, prepare_function, rule_constants
from codegen.backends.expressions import Arithmetic
from codegen.backends.shared import drawn_from, indices, noise_rows
from codegen.backends.updates import each_body
from codegen.passes.updates import Update
from codegen.program import Program
from codegen.reroll.layout import TensorPlace
from micrograd.engine import Value

STRICT = """\
/* Every operation is rounded on its own. */
#if defined(__FAST_MATH__) || defined(_M_FP_FAST)
#error "compile without -ffast-math"
#elif defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ == 2 || (FLOAT32 && __FLT_EVAL_METHOD__ == 1))
#error "more digits than the type has: compile with -fexcess-precision=fast, or on x86 with -msse2 -mfpmath=sse"
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__) && !defined(__TINYC__) /* and no calls of memset() and memcpy() */
#pragma GCC optimize("fp-contract=off,no-loop-interchange,no-tree-loop-distribute-patterns")
#elif defined(_M_FP_CONTRACT)
#error "compile without /fp:contract"
#endif
#if defined(__GNUC__) || defined(__clang__) /* not every model needs every function */
#pragma GCC diagnostic ignored "-Wunused-function"
#elif defined(_MSC_VER)
#pragma warning(disable : 4505 4756 4056)
#endif
#ifdef __cplusplus
#define restrict __restrict
#endif
""".splitlines()


Drawn = tuple[float, float, float, float]  # a distribution: low, high, deviation and limit


def trained_program(program: Program) -> Program:
    """The Program as plain C trains it: in strict mode, without metrics."""
    return replace(program, fma=False, reorder=False, metrics={})


def trainable_files(program: Program, kernels: Kernels, name: str, digest: str) -> dict[str, str]:
    """NAME.h and NAME.c of a Program with a loss."""
    prefix = prefix_of(name)
    model = Model(program, kernels, prefix, {}, *(arguments(program, kind) for kind in ("inputs", "targets")))
    inside = _inside(model)
    model = replace(model, functions=function_names(program, prefix, OWN, set(WORD.findall("\n".join(inside)))))
    source = [*source_head(name, digest), *inside, *_definitions(model)]
    return {f"{name}.h": header(model, digest), f"{name}.c": "\n".join(source) + "\n"}


def _inside(model: Model) -> list[str]:
    """Everything in the source but the functions that the header declares."""
    kernels, program, arithmetic = model.kernels, model.program, model.arithmetic
    updates = kernels.updates
    axes = [_axes(place) for place in kernels.tensors]
    depth = max(map(len, axes), default=1)
    constants: list[tuple[str, object]] = [
        ("FREESTANDING", 1),
        ("FLOAT32", int(arithmetic.is_float32)),
        ("MODEL", f"{model.name}_model"),
        ("DATA_COUNT", max(kernels.data_count, 1)),
        ("TENSOR_COUNT", len(kernels.tensors)),
        ("AXES", depth),
        *rule_constants(program, updates),
    ]
    if updates is None:
        constants.append(("TAKES_NORM", 0))
    in_double = amalgamated(("in_double.h",), set())
    passes = ["compute_loss", "compute_gradients"]
    passes += ["compute_gradients_by_inputs"] * bool(kernels.metrics)
    passes += ["compute_prediction"] * (program.prediction is not None) + ["compute_outputs"] * bool(program.outputs)
    return [
        *defines(constants),
        "",
        *STRICT,
        *offsets(kernels),
        "".join(amalgamated(("ops.h",), set())),
        *_tensors(kernels, axes, depth),
        "".join(amalgamated(("plain.h",), {"ops.h"})),
        *kernels.definitions,
        *_weights(model),
        *_random(model),
        *kernels.tables,
        *(prepare_function(updates, arithmetic, "".join(in_double)) if updates is not None else []),
        *_rules(model),
        *kernels.functions.lines,
        *pass_functions(kernels.functions.calls, passes),
        *_setters(model),
    ]


def _axes(place: TensorPlace) -> list[tuple[int, int]]:
    """The sizes and strides of a tensor, with axes joined where they can be."""
    axes: list[tuple[int, int]] = []
    for size, stride in zip(place.tensor.shape, place.strides, strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            axes[-1] = (axes[-1][0] * size, stride)
        else:
            axes.append((size, stride))
    return axes or [(1, 1)]


def _tensors(kernels: Kernels, axes: list[list[tuple[int, int]]], depth: int) -> list[str]:
    rows = []
    for place, name, found in zip(kernels.tensors, kernels.tensor_names, axes, strict=True):
        filled = [*[(1, 0)] * (depth - len(found)), *found]
        sizes, strides = (", ".join(map(str, numbers)) for numbers in zip(*filled, strict=True))
        rows.append(f"{INDENT}{{{name}, {place.size}, {{{sizes}}}, {{{strides}}}}},")
    return [
        "/* A tensor of parameters: where it begins in data[] and grad[], and its axes. */",
        "struct tensor {",
        f"{INDENT}int32_t offset, size, shape[AXES], strides[AXES];",
        "};",
        "static const struct tensor tensors[] = {",
        *(rows or [f"{INDENT}{{0, 0, {{1}}, {{0}}}},"]),
        "};",
        "",
    ]


def _weights(model: Model) -> list[str]:
    """The weights as a table of constants."""
    if model.program.initial is not None:
        return []
    kind, numbers = exact_weights(model.program, model.kernels, 0)
    lines = table(f"static const {kind} weights", numbers or ["0"])
    return [f"#ifndef {model.name.upper()}_NO_WEIGHTS", *lines[:-1], "#endif", ""]


def _random(model: Model) -> list[str]:
    """What is drawn: first weights, noise, and by how much images are moved."""
    if not model.has_random:
        return []
    program, kernels, literal = model.program, model.kernels, Arithmetic().literal
    shift = program.shift or (0, 0, 0)
    constants: list[tuple[str, object]] = [
        ("random_state", f"{model.name}_random"),
        ("HAS_DISTRIBUTIONS", int(program.initial is not None)),
        ("NOISE_COUNT", sum(row.size for row in noise_rows(model.noises))),
        ("TARGET_COUNT", len(program.target_values)),
        ("INPUT_COUNT", len(program.input_values)),
        *zip(("SHIFT", "IMAGE_HEIGHT", "IMAGE_WIDTH"), shift, strict=True),
    ]
    lines = defines(constants)
    if program.initial is not None:
        given = [drawn_from(tensor.initial or (0.0, 0.0)) for tensor in program.tensors]
        distinct = list(dict.fromkeys(given))
        rows = [f"{INDENT}{{{', '.join(map(literal, row))}}}," for row in distinct]
        lines += ["static const double distributions[][4] = {", *rows, "};"]
        lines += ["static const struct {", f"{INDENT}int32_t place, step, count, distribution;", "} runs[] = {"]
        lines += [f"{INDENT}{{{', '.join(map(str, run))}}}," for run in _runs(program, kernels, given, distinct)]
        lines += ["};"]
    if model.noises:
        lines += ["static const struct noise {", f"{INDENT}int count;"]
        lines += [f"{INDENT}double low, high, deviation, limit, probability, mean;", "} noises[] = {"]
        lines += [f"{INDENT}{{{r.size}, {', '.join(map(literal, r[1:]))}}}," for r in noise_rows(model.noises)]
        lines += ["};"]
    return [*lines, "", "".join(amalgamated(("plain_random.h",), {"plain.h", "ops.h"}))]


def _runs(
    program: Program, kernels: Kernels, given: Sequence[Drawn], distinct: Sequence[Drawn]
) -> Iterator[tuple[int, int, int, int]]:
    """Place, step, count and distribution of the parameters in order."""
    count = len(program.parameter_values)
    places, kinds = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for place in kernels.tensors:
        numbers = list(place.tensor.numbers)
        places[numbers] = indices(place)
        kinds[numbers] = distinct.index(given[program.tensors.index(place.tensor)])
    cuts = np.flatnonzero(np.diff(kinds)) + 1
    for part, kind in zip(np.split(places, cuts), np.split(kinds, cuts), strict=True):
        yield from ((first, step, n, int(kind[0])) for first, step, n in spans_of(part))


def _rules(model: Model) -> list[str]:
    """A function for each rule, which takes a step with `count` parameters."""
    updates = model.kernels.updates
    if updates is not None:
        return [line for update in updates.rules for line in _rule(update, model.arithmetic)]
    return _loop("rule_0", "real rate", ["const real next_p = p[i] - divided(rate * grad[i], by);"], ())


def _rule(update: Update, arithmetic: Arithmetic) -> list[str]:
    lets, (_, *states) = each_body(update)  # _loop() stores the parameter
    body = ["const real g = divided(grad[i], by);", "(void)g;", *statement_lines((*lets, *states), arithmetic)]
    numbers = number_lines(update, "number") or ["(void)number;"]
    return _loop(f"rule_{update.number}", "const real *number", body, update.slots, numbers)


def _loop(name: str, parameter: str, body: list[str], slots: Sequence[str], before: Sequence[str] = ()) -> list[str]:
    head = f"static void {name}(struct MODEL *w, ptrdiff_t at, ptrdiff_t count, struct divisor by, {parameter})"
    states = [f"real *restrict const state_{k} = w->state[{k}] + at;" for k in range(len(slots))]
    lines = [
        "real *restrict const p = w->data + at;",
        "const real *restrict const grad = w->grad + at;",
        *states,
        *before,
        "real_bits nonfinite = 0;",
        "for (ptrdiff_t i = 0; i < count; i++) {",
        *(INDENT + line for line in [*body, "p[i] = next_p;", "nonfinite |= nonfinite_bits(next_p);"]),
        "}",
        "w->nonfinite |= top_bit(nonfinite);",
    ]
    return [head, "{", *(INDENT + line for line in lines), "}", ""]


def _setters(model: Model) -> list[str]:
    """set_inputs() and set_targets(): numbers of an example -> value[]."""
    lines: list[str] = []
    for function, start, given in (("inputs", "INPUT", model.inputs), ("targets", "TARGET", model.targets)):
        parameters = ", ".join(["struct MODEL *w", *(argument.declared() for argument in given)])
        lines += [f"static void set_{function}({parameters})", "{"]
        lines += put_numbers(given, f"w->value[{start} + ", model.arithmetic) or [f"{INDENT}(void)w;"]
        lines += ["}", ""]
    return lines


def _definitions(model: Model) -> list[str]:
    """The functions that the header declares."""
    bodies = _bodies(model)
    lines: list[str] = []
    for function, (_, declared) in declarations(model, "w").items():
        lines += [*wrapped(declared), "{", *(INDENT + line for line in bodies[function]), "}", ""]
    return lines[:-1]


def seeds_of(model: Model) -> Sequence[Value]:
    """What an output's elements are multiplied by, for its gradients."""
    return [value for noise in model.program.noises[len(model.noises) :] for value in noise.values]


def _bodies(model: Model) -> dict[str, list[str]]:
    """function -> its statements."""
    name, kernels = model.name, model.kernels
    every = [*model.inputs, *model.targets]
    inputs, targets, given = (
        ", ".join(["w", *(argument.name for argument in some)]) for some in (model.inputs, model.targets, every)
    )
    ith = ", ".join(["w", *(f"{argument.name} + {argument.part.numbers} * (ptrdiff_t)i" for argument in every)])
    leaves, seeds = range(len(model.program.input_values)), seeds_of(model)
    given_inputs = [f"set_inputs({inputs});", *(["set_noise(w, 0);"] if model.noises else [])]
    bodies = {
        "init": _init(model) if model.program.initial is None else [f"{name}_reset(w, {model.program.seed}U);"],
        "reset": _init(model),
        "set_parameters": ["copy_in(w, parameters);"],
        "get_parameters": ["copy_out(w->data, parameters);"],
        "get_gradients": ["copy_out(w->grad, gradients);"],
        "forward": [
            f"set_inputs({inputs});",
            f"set_targets({targets});",
            *(["move_image(w);"] if model.program.shift else []),
            *(["set_noise(w, 1);"] if model.noises else []),
            "compute_loss(w);",
            "return w->value[LOSS];",
        ],
        "backward": ["compute_gradients(w);"],
        "zero_grad": ["fill(w->grad, DATA_COUNT, 0);"],
        "update": _update(model),
        "accumulate": [
            "double total = 0.0;",
            "for (int i = 0; i < count; i++) {",
            f"{INDENT}total += {name}_forward({ith});",
            f"{INDENT}{name}_backward(w);",
            "}",
            "return total;",
        ],
        "train_batch": [
            "if (count <= 0)",
            f"{INDENT}return 0.0;",
            f"{name}_zero_grad(w);",
            f"const double total = {name}_accumulate({given}, count);",
            f"{name}_update(w, learning_rate, count);",
            "return total;",
        ],
        "input_grad": [
            *([] if kernels.input_gradients else ["(void)w;"]),
            *_copied([kernels.input_gradients.get(i, -1) for i in leaves]),
        ],
        "input_gradients": [
            *given_inputs,
            f"for (ptrdiff_t i = 0; i < {len(seeds)}; i++)",
            f"{INDENT}w->value[TARGET + {len(model.program.target_leaves) - len(seeds)} + i] = weights[i];",
            "compute_gradients_by_inputs(w);",
            *_copied([kernels.metrics.get(str(i), -1) for i in leaves]),
        ],
    }
    if model.program.prediction is not None:
        places = kernels.outputs[model.program.prediction]
        bodies["predict"] = [*given_inputs, "compute_prediction(w);", *_class(model, places)]
    found = {f"{name}_{word}": body for word, body in bodies.items()}
    for output, function in model.functions.items():
        found[function] = [*given_inputs, "compute_outputs(w);", *_copied(kernels.outputs[output])]
    return found


def _init(model: Model) -> list[str]:
    """init() with a table of weights, or reset()."""
    kernels, updates = model.kernels, model.kernels.updates
    if model.program.initial is not None:
        own = ["struct random_state random;", "random_seed(&random, seed);", "draw_weights(w, &random);"]
        lines = ["random_seed(&w->random, seed);", "draw_weights(w, &w->random);"] if model.draws else own
    else:
        lines = [
            f"#ifdef {model.name.upper()}_NO_WEIGHTS",
            "fill(w->data, DATA_COUNT, 0);",
            "#else",
            "for (ptrdiff_t i = 0; i < DATA_COUNT; i++)",
            f"{INDENT}w->data[i] = weights[i];",
            "#endif",
            *([f"random_seed(&w->random, {model.program.seed}U);"] if model.draws else []),
        ]
    lines += ["fill(w->grad, DATA_COUNT, 0);", f"fill(w->value, {max(kernels.value_count, 1)}, 0);"]
    for slot in range(updates.slots if updates is not None else 0):
        lines.append(f"fill(w->state[{slot}], DATA_COUNT, 0);")
    for t, place in enumerate(kernels.tensors if updates is not None else ()):
        assert updates is not None
        for slot, first in enumerate(updates.of(t).rule.state.values()):
            number = model.arithmetic.literal(first)
            lines += [f"fill(w->state[{slot}] + {place.offset}, {place.extent}, {number});"] * (first != 0)
    return [*lines, "w->steps = 0.0;", "w->nonfinite = !all_finite(w->data, DATA_COUNT);"]


def _update(model: Model) -> list[str]:
    updates = model.kernels.updates
    count = "w->steps += w->steps < MAX_STEPS;"
    if not model.kernels.tensors:
        return ["(void)batch_size;", "(void)learning_rate;", count, "w->nonfinite = 0;"]
    lines = ["const struct divisor by = divisor_of(batch_size);", count]
    number = "(real)learning_rate"
    if updates is not None:
        norm = "gradient_norm(w->grad, by)" if updates.takes_norm else "0.0"
        number = "number"
        lines += ["real number[STEP_NUMBERS];", f"prepare_step(w->steps, learning_rate, {norm}, number);"]
    lines.append("w->nonfinite = 0;")
    of_tensor = updates.of_tensor if updates is not None else (0,) * len(model.kernels.tensors)
    places = sorted(zip(model.kernels.tensors, of_tensor, strict=True), key=lambda pair: pair[0].offset)
    runs: list[list[int]] = []  # rule, first and end: neighbours with the same rule
    for place, rule in places:
        if runs and (runs[-1][0], runs[-1][2]) == (rule, place.offset):
            runs[-1][2] = place.offset + place.extent
        else:
            runs.append([rule, place.offset, place.offset + place.extent])
    lines += [f"rule_{rule}(w, {first}, {end - first}, by, {number});" for rule, first, end in runs]
    return lines


def _copied(places: Sequence[int]) -> list[str]:
    """Elements of value[] -> `result`; 0 for -1."""
    lines: list[str] = []
    for is_missing, some in groupby(places, lambda place: place < 0):
        for first, step, count in spans_of(np.array([*some], dtype=np.int64)):
            at = f"{first} + {step} * i" if step != 1 else f"{first} + i"
            lines += [f"for (ptrdiff_t i = 0; i < {count}; i++)"]
            lines += [f"{INDENT}*result++ = {'0' if is_missing else f'w->value[{at}]'};"]
    return lines


def _class(model: Model, places: Sequence[int]) -> list[str]:
    """The index of the largest element, the first one on a tie; or whether the only one is above the threshold."""
    if model.program.threshold is not None:
        return [f"return w->value[{places[0]}] > {model.arithmetic.literal(model.program.threshold)};"]
    lines = [f"real largest = w->value[{places[0]}];", "int best = 0, element = 0;"]
    for first, step, count in spans_of(np.array(places, dtype=np.int64)):
        lines += [
            f"for (ptrdiff_t i = 0; i < {count}; i++, element++)",
            f"{INDENT}if (w->value[{first} + {step} * i] > largest) {{",
            f"{INDENT * 2}largest = w->value[{first} + {step} * i];",
            f"{INDENT * 2}best = element;",
            f"{INDENT}}}",
        ]
    return [*lines, "return best;"]

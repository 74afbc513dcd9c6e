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

from __future__ import annotations

import random
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from codegen.backends.arithmetic import Arithmetic
from codegen.backends.c.inference import fits_float32
from codegen.backends.c.kernels import INDENT, Kernels, statement_lines
from codegen.backends.c.module import SLACK, defines, offsets, spans_of, table, weights_text
from codegen.backends.c.plain_kernels import pass_functions
from codegen.backends.c.standalone import WORD, amalgamated, no_macros
from codegen.backends.c.updates import prepare_function, rule_constants
from codegen.backends.shared import comment_text, drawn_from
from codegen.backends.updates import each_body
from codegen.kinds import Part
from codegen.passes.updates import Update
from codegen.program import Program
from codegen.reroll.layout import TensorPlace
from codegen.reroll.names import c_identifier, unique_names

OWN = (
    *("init", "set_parameters", "get_parameters", "get_gradients", "forward", "backward", "zero_grad", "update"),
    *(
        "accumulate",
        "train_batch",
        "predict",
        "input_grad",
        "input_gradients",
        "model",
        "inputs",
        "targets",
        "parameters",
    ),
    *("no_weights", "h_included"),
)  # functions, constants and macros of every model
MAX_LINE = 112
NUMBER_TYPES = {"pixels": "unsigned char", "label": "unsigned char", "tokens": "int32_t"}

NOTES = (
    " * No call allocates, can fail, or keeps anything outside of the struct. All processors that round as IEEE 754",
    " * says give the same bits, which are those of the module in Python.",
)
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
#pragma GCC optimize("fp-contract=off,no-tree-loop-distribute-patterns")
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


class Argument(NamedTuple):
    """A pointer that a caller passes: to the numbers of one part of the inputs or of the targets."""

    name: str
    part: Part
    type: str

    def declared(self) -> str:
        return f"const {self.type} *{self.name}"


@dataclass(frozen=True)
class Model:
    """What all texts of one model need."""

    program: Program
    kernels: Kernels
    name: str
    functions: dict[str, str]  # output -> its function
    inputs: list[Argument]
    targets: list[Argument]

    @property
    def arithmetic(self) -> Arithmetic:
        return Arithmetic.of(self.program)

    @property
    def real(self) -> str:
        return self.arithmetic.type

    @property
    def first(self) -> str:
        return f"struct {self.name}_model *model"


def trained_program(program: Program) -> Program:
    """The Program as plain C trains it: in strict mode, without metrics. Raises ValueError for what it cannot do."""
    if program.noises or program.shift:
        what = "noise" if program.noises else "shifted pixels"
        raise ValueError(f"plain C draws no random numbers, but this program has {what}")
    return replace(program, fma=False, reorder=False, metrics={})


def trainable_files(program: Program, kernels: Kernels, name: str, digest: str) -> dict[str, str]:
    """NAME.h and NAME.c of a Program with a loss."""
    prefix = f"model{name}" if name.startswith("_") else name  # C reserves names that begin with _
    model = Model(program, kernels, prefix, {}, *(_arguments(program, kind) for kind in ("inputs", "targets")))
    inside = _inside(model)
    model = replace(model, functions=_function_names(program, prefix, set(WORD.findall("\n".join(inside)))))
    head = [f"/* Generated by codegen from the graph {digest[:16]}: see {name}.h. */", "", f'#include "{name}.h"', ""]
    source = [*head, *inside, *_definitions(model)]
    return {f"{name}.h": _header(model, digest), f"{name}.c": "\n".join(source) + "\n"}


def _arguments(program: Program, kind: str) -> list[Argument]:
    parts = program.input_parts if kind == "inputs" else program.target_parts
    names = unique_names(f"{kind}_{c_identifier(part.name)}" if part.name else kind for part in parts)
    real = Arithmetic.of(program).type
    return [Argument(name, part, NUMBER_TYPES.get(part.kind, real)) for name, part in zip(names, parts, strict=True)]


def _function_names(program: Program, prefix: str, used: set[str]) -> dict[str, str]:
    own = [f"{prefix}_{word}" for word in OWN]
    names = [f"{prefix}_{c_identifier(output).lower()}" for output in program.outputs]
    names = [f"{name}_output" if name == name.upper() else name for name in names]
    taken = used | {*own, *map(str.upper, own)}
    return dict(zip(program.outputs, unique_names(names, taken, in_capitals=True), strict=True))


# The header


def _declarations(model: Model) -> dict[str, tuple[str, str]]:
    """The functions in order: what they do, and their declarations without a semicolon."""
    name, real, first = model.name, model.real, model.first
    inputs = [argument.declared() for argument in model.inputs]
    example = [*inputs, *(argument.declared() for argument in model.targets)]
    found = {
        "init": ("The exported weights, without gradients or steps.", f"void {name}_init({first})"),
        "set_parameters": (
            "All parameters, one tensor after the other, each in C order. Gradients and steps stay.",
            f"void {name}_set_parameters({first}, const {real} *parameters)",
        ),
        "get_parameters": ("", f"void {name}_get_parameters(const {first}, {real} *parameters)"),
        "get_gradients": ("", f"void {name}_get_gradients(const {first}, {real} *gradients)"),
        "forward": ("The loss of one example.", f"double {name}_forward({', '.join([first, *example])})"),
        "backward": ("Adds the gradients of the last call, a forward().", f"void {name}_backward({first})"),
        "zero_grad": ("", f"void {name}_zero_grad({first})"),
        "update": (
            "A step, with the gradients divided by batch_size.",
            f"void {name}_update({first}, double learning_rate, double batch_size)",
        ),
        "accumulate": (
            "Adds the gradients of `count` examples, in order; returns the sum of their losses.",
            f"double {name}_accumulate({', '.join([first, *example, 'int count'])})",
        ),
        "train_batch": (
            "The same between zero_grad() and update().",
            f"double {name}_train_batch({', '.join([first, *example, 'int count', 'double learning_rate'])})",
        ),
    }
    if model.program.prediction is not None:
        found["predict"] = ("The most likely class.", f"int {name}_predict({', '.join([first, *inputs])})")
    if model.program.input_gradients:
        about = "The gradients of the loss by the inputs of the last call, a backward()."
        found["input_grad"] = (about, f"void {name}_input_grad(const {first}, {real} *result)")
    if model.kernels.metrics:
        about = "The gradient of the sum of an output's elements, each times its weight, by the inputs."
        arguments = ", ".join([first, *inputs, f"const {real} *weights", f"{real} *result"])
        found["input_gradients"] = (about, f"void {name}_input_gradients({arguments})")
    for output, function in model.functions.items():
        declared = f"void {function}({', '.join([first, *inputs, f'{real} *result'])})"
        found[f"output {output}"] = (f"Fills `result` with {function.upper()} numbers.", declared)
    return found


def _header(model: Model, digest: str) -> str:
    program, name, real = model.program, model.name, model.real
    capitals, updates = name.upper(), model.kernels.updates
    sizes = {
        f"{capitals}_INPUTS": sum(part.numbers for part in program.input_parts),
        f"{capitals}_TARGETS": sum(part.numbers for part in program.target_parts),
        f"{capitals}_PARAMETERS": len(program.parameter_values),
        **{function.upper(): len(program.outputs[output]) for output, function in model.functions.items()},
    }
    declared = _declarations(model)
    public = [*sizes, f"{name}_model", *model.functions.values(), *(f"{name}_{word}" for word in declared)]
    data, guard = max(model.kernels.data_count, 1), f"{capitals}_H_INCLUDED"
    state = [f"{INDENT}{real} state[{updates.slots}][{data}];"] if updates is not None and updates.slots else []
    lines = [
        f"/* Generated by codegen from the graph {digest[:16]}.",
        f" *{comment_text(program.description)}" if program.description else " *",
        " *",
        *NOTES,
        " */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        *no_macros(sorted(word for word in public if " " not in word)),
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "/* Elements of the arrays of one example. */",
        "enum {",
        *(f"{INDENT}{size} = {count}," for size, count in sizes.items()),
        "};",
        "",
        "/* A model. Its members are for the functions below; a copy of the struct is another model. */",
        f"struct {name}_model {{",
        f"{INDENT}double steps;",
        f"{INDENT}int nonfinite;",
        f"{INDENT}{real} data[{data}];",
        f"{INDENT}{real} grad[{data}];",
        *state,
        f"{INDENT}{real} value[{max(model.kernels.value_count, 1)}];",
        "};",
        "",
    ]
    for about, text in declared.values():
        lines += [*([f"/* {about} */"] if about else []), *_wrapped(f"{text};"), ""]
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "", "#endif"]) + "\n"


def _wrapped(declaration: str) -> list[str]:
    """A declaration on as many lines as it takes."""
    indent = " " * (declaration.index("(") + 1)
    return textwrap.wrap(declaration, MAX_LINE, subsequent_indent=indent, break_long_words=False)


# The source


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
    passes = ["compute_loss", "compute_gradients"]
    passes += ["compute_input_gradients"] * bool(kernels.metrics)
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
        *kernels.tables,
        *(_expanded(prepare_function(updates, arithmetic)) if updates is not None else []),
        *_rules(model),
        *kernels.functions,
        *pass_functions(kernels.calls, f"{model.name}_model", passes),
        *_setters(model),
    ]


def _expanded(lines: Iterable[str]) -> Iterator[str]:
    """Headers of csrc/ in their place."""
    for line in lines:
        if line.startswith("#include <"):
            yield "".join(amalgamated((line[len("#include <") : -1],), set()))
        else:
            yield line


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
    """The weights as a table of constants: of floats if they are exact, in half the memory."""
    program = model.program
    if program.initial is not None:
        _draw(program)
    is_float = program.dtype == "float32" or fits_float32(program)
    literal = Arithmetic("float32" if is_float else "float64").literal
    texts = weights_text(program, model.kernels, literal)[:-SLACK]
    declaration = f"static const {'float' if is_float else 'double'} weights"
    return [f"#ifndef {model.name.upper()}_NO_WEIGHTS", *table(declaration, texts or ["0"])[:-1], "#endif", ""]


def _draw(program: Program) -> None:
    """The weights of a fresh module: those that the declared distributions and the seed give."""
    source = random.Random(program.seed)
    declared = {i: drawn_from(tensor.initial or (0.0, 0.0)) for tensor in program.tensors for i in tensor.numbers}
    for number, value in enumerate(program.parameter_values):
        low, high, deviation, limit = declared[number]
        z = source.normalvariate(0.0, 1.0) if deviation else 0.0
        while abs(z) > limit:
            z = source.normalvariate(0.0, 1.0)
        value.data = low + z * deviation if low == high else source.uniform(low, high)


def _rules(model: Model) -> list[str]:
    """A function for each rule, which takes a step with `count` parameters."""
    updates = model.kernels.updates
    if updates is not None:
        return [line for update in updates.rules for line in _rule(update, model.arithmetic)]
    return _loop("rule_0", "real rate", ["const real next_p = p[i] - divided(rate * grad[i], by);"], ())


def _rule(update: Update, arithmetic: Arithmetic) -> list[str]:
    numbers = [f"const real number_{k} = number[{update.first_number + k}];" for k in range(update.numbers)]
    body = ["const real g = divided(grad[i], by);", "(void)g;", *statement_lines(each_body(update), arithmetic)]
    unused = [f"(void)number_{k};" for k in range(update.numbers)] or ["(void)number;"]
    stores = [line for line in body if not line.startswith("p[i] = ")]
    return _loop(f"rule_{update.number}", "const real *number", stores, update.slots, [*numbers, *unused])


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
    literal = model.arithmetic.literal
    lines: list[str] = []
    for function, start, arguments in (("inputs", "INPUT", model.inputs), ("targets", "TARGET", model.targets)):
        parameters = ", ".join(["struct MODEL *w", *(argument.declared() for argument in arguments)])
        lines += [f"static void set_{function}({parameters})", "{"]
        for name, part, _ in arguments:
            to = f"{start} + {part.first}" if part.first else start
            if part.kind in ("pixels", "floats"):
                scaled = f"{name}[i] * {literal(part.scale)}" if part.kind == "pixels" else f"{name}[i]"
                lines += [f"{INDENT}for (ptrdiff_t i = 0; i < {part.count}; i++)"]
                lines += [f"{INDENT * 2}w->value[{to} + i] = {scaled};"]
            else:
                lines += [f"{INDENT}for (ptrdiff_t t = 0; t < {part.numbers}; t++)"]
                lines += [f"{INDENT * 2}for (int32_t i = 0; i < {part.classes}; i++)"]
                lines += [f"{INDENT * 3}w->value[{to} + {part.classes} * t + i] = {name}[t] == i;"]
        lines += [f"{INDENT}(void)w;"] if not arguments else []
        lines += ["}", ""]
    return lines


def _definitions(model: Model) -> list[str]:
    """The functions that the header declares."""
    bodies = _bodies(model)
    lines: list[str] = []
    for word, (_, declared) in _declarations(model).items():
        lines += [
            *_wrapped(declared.replace(" *model", " *w", 1)),
            "{",
            *(INDENT + line for line in bodies[word]),
            "}",
            "",
        ]
    return lines[:-1]


def _bodies(model: Model) -> dict[str, list[str]]:
    name, kernels = model.name, model.kernels
    every = [*model.inputs, *model.targets]
    inputs, targets, given = (
        ", ".join(["w", *(argument.name for argument in some)]) for some in (model.inputs, model.targets, every)
    )
    ith = ", ".join(["w", *(f"{argument.name} + {argument.part.numbers} * (ptrdiff_t)i" for argument in every)])
    leaves = range(len(model.program.input_values))
    bodies = {
        "init": _init(model),
        "set_parameters": ["copy_in(w, parameters);"],
        "get_parameters": ["copy_out(w->data, parameters);"],
        "get_gradients": ["copy_out(w->grad, gradients);"],
        "forward": [f"set_inputs({inputs});", f"set_targets({targets});", "compute_loss(w);", "return w->value[LOSS];"],
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
        "input_grad": _copied([kernels.input_gradients.get(i, -1) for i in leaves]),
        "input_gradients": [
            f"set_inputs({inputs});",
            f"for (ptrdiff_t i = 0; i < {len(model.program.noise_values)}; i++)",
            f"{INDENT}w->value[TARGET + {len(model.program.target_values)} + i] = weights[i];",
            "compute_input_gradients(w);",
            *_copied([kernels.metrics.get(str(i), -1) for i in leaves]),
        ],
    }
    for output in model.functions:
        copied = _copied(kernels.outputs[output])
        bodies[f"output {output}"] = [f"set_inputs({inputs});", "compute_outputs(w);", *copied]
    if model.program.prediction is not None:
        places = kernels.outputs[model.program.prediction]
        bodies["predict"] = [f"set_inputs({inputs});", "compute_prediction(w);", *_class(model, places)]
    return bodies


def _init(model: Model) -> list[str]:
    kernels, updates = model.kernels, model.kernels.updates
    lines = [
        f"#ifdef {model.name.upper()}_NO_WEIGHTS",
        "fill(w->data, DATA_COUNT, 0);",
        "#else",
        "for (ptrdiff_t i = 0; i < DATA_COUNT; i++)",
        f"{INDENT}w->data[i] = weights[i];",
        "#endif",
        "fill(w->grad, DATA_COUNT, 0);",
        f"fill(w->value, {max(kernels.value_count, 1)}, 0);",
    ]
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
    lines = ["const struct divisor by = divisor_of(batch_size);", "w->steps += w->steps < MAX_STEPS;"]
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
    for first, step, count in spans_of(np.array(places, dtype=np.int64)):
        at = f"{first} + {step} * i" if step != 1 else f"{first} + i"
        lines += [f"for (ptrdiff_t i = 0; i < {count}; i++)"]
        lines += [f"{INDENT}*result++ = {'0' if first < 0 else f'w->value[{at}]'};"]
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

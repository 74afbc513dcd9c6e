"""NAME.h of plain C that trains: the struct that a model is, and the functions that it has."""

import textwrap
from dataclasses import dataclass

from codegen.backends.c.kernels import Kernels
from codegen.backends.c.printer import INDENT
from codegen.backends.c.standalone import Argument, header_text
from codegen.backends.expressions import Arithmetic
from codegen.program import Program
from micrograd.noise import Noise

OWN = (
    *("init", "reset", "set_parameters", "get_parameters", "get_gradients", "forward", "backward", "zero_grad"),
    *("update", "accumulate", "train_batch", "predict", "input_grad", "input_gradients", "model", "random"),
    *("inputs", "targets", "parameters", "no_weights", "h_included"),
)  # functions, constants and macros of every model
MAX_LINE = 112

NOTES = (
    " * No call allocates, can fail, or keeps anything outside of the struct. All processors that round as IEEE 754",
    " * says give the same bits, which are those of the module in Python.",
)


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
    def noises(self) -> tuple[Noise, ...]:
        """Those that examples draw, without the seeds of an output's gradients, which are behind them."""
        return self.program.noises[:-1] if self.kernels.metrics else self.program.noises

    @property
    def draws(self) -> bool:
        """Whether training draws random numbers."""
        return bool(self.noises or self.program.shift)

    @property
    def has_random(self) -> bool:
        return self.draws or self.program.initial is not None


def declarations(model: Model, first: str) -> dict[str, tuple[str, str]]:
    """The functions in order: what they do, and their declarations without a semicolon. `first` is the model's name."""
    name, real, first = model.name, model.real, f"struct {model.name}_model *{first}"
    inputs = [first, *(argument.declared() for argument in model.inputs)]
    example = [*inputs, *(argument.declared() for argument in model.targets)]
    result = f"{real} *result"
    found = {
        "init": ("The exported weights, without gradients or steps.", "void", [first]),
        "reset": (
            "The weights that a seed gives, as those of a fresh module, without gradients or steps.",
            "void",
            [first, "uint64_t seed"],
        ),
        "set_parameters": (
            "All parameters, one tensor after the other, each in C order. Gradients and steps stay.",
            "void",
            [first, f"const {real} *parameters"],
        ),
        "get_parameters": ("", "void", [f"const {first}", f"{real} *parameters"]),
        "get_gradients": ("", "void", [f"const {first}", f"{real} *gradients"]),
        "forward": ("The loss of one example.", "double", example),
        "backward": ("Adds the gradients of the last call, a forward().", "void", [first]),
        "zero_grad": ("", "void", [first]),
        "update": (
            "A step, with the gradients divided by batch_size.",
            "void",
            [first, "double learning_rate", "double batch_size"],
        ),
        "accumulate": (
            "Adds the gradients of `count` examples, in order; returns the sum of their losses.",
            "double",
            [*example, "int count"],
        ),
        "train_batch": (
            "The same between zero_grad() and update().",
            "double",
            [*example, "int count", "double learning_rate"],
        ),
    }
    if model.program.initial is None:
        del found["reset"]
    if model.program.prediction is not None:
        found["predict"] = ("The most likely class.", "int", inputs)
    if model.program.input_gradients:
        about = "The gradients of the loss by the inputs of the last call, a backward()."
        found["input_grad"] = (about, "void", [f"const {first}", result])
    if model.kernels.metrics:
        about = "The gradient of the sum of an output's elements, each times its weight, by the inputs."
        found["input_gradients"] = (about, "void", [*inputs, f"const {real} *weights", result])
    named = {f"{name}_{word}": row for word, row in found.items()}
    for function in model.functions.values():
        named[function] = (f"Fills `result` with {function.upper()} numbers.", "void", [*inputs, result])
    return {
        function: (about, f"{kind} {function}({', '.join(takes)})") for function, (about, kind, takes) in named.items()
    }


def header(model: Model, digest: str) -> str:
    program, name, real = model.program, model.name, model.real
    capitals, updates = name.upper(), model.kernels.updates
    sizes = {
        f"{capitals}_INPUTS": sum(part.numbers for part in program.input_parts),
        f"{capitals}_TARGETS": sum(part.numbers for part in program.target_parts),
        f"{capitals}_PARAMETERS": len(program.parameter_values),
        **{function.upper(): len(program.outputs[output]) for output, function in model.functions.items()},
    }
    declared = declarations(model, "model")
    public = [*sizes, f"{name}_model", *declared]
    data = max(model.kernels.data_count, 1)
    state = [f"{INDENT}{real} state[{updates.slots}][{data}];"] if updates is not None and updates.slots else []
    random = [
        "/* Python's generator of random numbers. */",
        f"struct {name}_random {{",
        f"{INDENT}uint32_t word[624];",
        f"{INDENT}int position;",
        "};",
        "",
    ]
    lines = [
        "/* Elements of the arrays of one example. */",
        "enum {",
        *(f"{INDENT}{size} = {count}," for size, count in sizes.items()),
        "};",
        "",
        *(random if model.has_random else []),
        "/* A model. Its members are for the functions below; a copy of the struct is another model. */",
        f"struct {name}_model {{",
        f"{INDENT}double steps;",
        f"{INDENT}int nonfinite;",
        f"{INDENT}{real} data[{data}];",
        f"{INDENT}{real} grad[{data}];",
        *state,
        *([f"{INDENT}struct {name}_random random;"] if model.draws else []),
        f"{INDENT}{real} value[{max(model.kernels.value_count, 1)}];",
        "};",
        "",
    ]
    for about, text in declared.values():
        lines += [*([f"/* {about} */"] if about else []), *wrapped(f"{text};"), ""]
    origin = f"the graph {digest[:16]}"
    return header_text(name, origin, program, NOTES, ("stddef", "stdint"), public, lines)


def wrapped(declaration: str) -> list[str]:
    """A declaration on as many lines as it takes."""
    indent = " " * (declaration.index("(") + 1)
    return textwrap.wrap(declaration, MAX_LINE, subsequent_indent=indent, break_long_words=False)

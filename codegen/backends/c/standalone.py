"""Kernels of a model that only predicts -> NAME.h and NAME.c: plain C11 without Python, without malloc, without state.

Example: of the model nn_infer, with the outputs logits and probabilities, the header declares

    struct nn_infer_workspace { ... };
    int nn_infer_predict(struct nn_infer_workspace *w, const unsigned char *inputs);
    void nn_infer_probabilities(struct nn_infer_workspace *w, const unsigned char *inputs, double *result);

and the source is an amalgamation: the constants and the weights, the headers of csrc/ that kernels need, each once and
unchanged, and the kernels of the extension module.

Names. What a user names gets a prefix: NAME_ before the functions, NAME in capitals before the constants. If that
gives a word of the source itself, such as `op_relu`, the function's name gets a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from codegen.backends.arithmetic import Arithmetic
from codegen.backends.c.inference import weights_digest, weights_table
from codegen.backends.c.kernels import PREDICTION_PASSES, Kernels, pass_functions
from codegen.backends.c.module import SLACK, defines, input_constants, offsets, output_tables
from codegen.backends.shared import comment_text
from codegen.files import csrc
from codegen.program import Pixels, Program
from codegen.reroll.names import c_identifier

BEFORE_KERNELS, AFTER_KERNELS = ("ops.h", "workspace.h"), ("scan.h",)  # headers of csrc/
INCLUDE = re.compile(r'#include "(\w+\.h)"\n')
WORD = re.compile(r"[A-Za-z_]\w*")
NUMBERED = re.compile(r"(group|part|output)_\d+|groups_\d+_to_\d+|table_\d+_\d+")  # names that the compiler generates
OWN = ("predict", "workspace", "inputs", "h_included")  # functions and constants of every model
KEYWORDS = ("static_assert", "thread_local", "const_cast", "static_cast", "dynamic_cast", "reinterpret_cast")

NOTES = (
    " * No call allocates, keeps state or can fail. A workspace is scratch space of any content, one for each",
    " * thread. Compile with -ffp-contract=off: then all processors that round as IEEE 754 says give the same bits.",
)


def standalone_files(program: Program, kernels: Kernels, name: str, digest: str, operations: int) -> dict[str, str]:
    """NAME.h and NAME.c of a Program without a loss. `operations` is for the other printers of files alone."""
    included: set[str] = set()
    before, after = ("".join(_amalgamated(names, included)) for names in (BEFORE_KERNELS, AFTER_KERNELS))
    used = set(WORD.findall("\n".join([before, after, *kernels.definitions]))) | {
        "data",
        "weights",
        *KEYWORDS,
        *(f"{name}_{own}" for own in OWN),
    }
    used |= {*kernels.tensor_names, *(offset for offset, _ in kernels.offsets), *PREDICTION_PASSES}
    functions = _function_names(program, name, used | {word.upper() for word in used})
    source = _source(program, kernels, name, digest, functions, before, after)
    return {f"{name}.h": _header(program, kernels, name, digest, functions), f"{name}.c": source}


def _function_names(program: Program, name: str, used: set[str]) -> dict[str, str]:
    """output -> its function, which in capitals is also the number of its elements."""
    functions: dict[str, str] = {}
    for output in program.outputs:
        first = function = f"{name}_{c_identifier(output).lower()}"
        n = 2
        while function in used or function.upper() in used or NUMBERED.fullmatch(function):
            function, n = f"{first}_{n}", n + 1
        used |= {function, function.upper()}
        functions[output] = function
    return functions


def _amalgamated(headers: tuple[str, ...], included: set[str]) -> Iterator[str]:
    """Headers of csrc/ with those that they include in their place, each of them once."""
    for header in headers:
        if header not in included:
            included.add(header)
            start, *parts = INCLUDE.split(Path(csrc(), header).read_text(encoding="utf-8"))
            yield start
            for other, text in zip(parts[::2], parts[1::2], strict=True):
                yield from _amalgamated((other,), included)
                yield text
            yield "\n"


def _types(program: Program) -> tuple[str, str]:
    """The C types of an input and of all other numbers."""
    real = Arithmetic.of(program).type
    return "unsigned char" if isinstance(program.inputs, Pixels) else real, real


def _declarations(program: Program, name: str, functions: dict[str, str]) -> dict[str, str]:
    """output, or "" for the prediction -> the function's declaration, without a semicolon."""
    input_type, real = _types(program)
    first = f"struct {name}_workspace *w, const {input_type} *inputs"
    declared = {"": f"int {name}_predict({first})"} if program.prediction is not None else {}
    return declared | {output: f"void {function}({first}, {real} *result)" for output, function in functions.items()}


def _header(program: Program, kernels: Kernels, name: str, digest: str, functions: dict[str, str]) -> str:
    guard, real, count = f"{name.upper()}_H_INCLUDED", _types(program)[1], len(program.inputs.values)
    declared = _declarations(program, name, functions)
    lines = [
        f"/* Generated by codegen from the graph {digest[:16]} and the weights {weights_digest(program)[:16]}.",
        f" *{comment_text(program.description)}" if program.description else " *",
        " *",
        *NOTES,
        " */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "/* Elements of the arrays. */",
        "enum {",
        f"    {name.upper()}_INPUTS = {count},",
        *(f"    {function.upper()} = {len(program.outputs[output])}," for output, function in functions.items()),
        "};",
        "",
        f"struct {name}_workspace {{",
        f"    {real} value[{kernels.value_count + SLACK}];",
        "    int active_count;",
        f"    int active[{count + 1}];",
        f"    {real} active_value[{count + 1}];",
        "};",
        "",
    ]
    if "" in declared:
        lines += ["/* The most likely class. */", f"{declared.pop('')};", ""]
    for output, text in declared.items():
        lines += [f"/* Fills `result` with {functions[output].upper()} numbers. */", f"{text};", ""]
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "", "#endif"]) + "\n"


def _source(
    program: Program, kernels: Kernels, name: str, digest: str, functions: dict[str, str], before: str, after: str
) -> str:
    arithmetic = Arithmetic.of(program)
    multiply_add = f"fma{'f' if arithmetic.is_float32 else ''}(a, b, c)" if arithmetic.fma else "((a) * (b) + (c))"
    constants = [
        ("STANDALONE", 1),
        ("FROZEN", 1),
        *input_constants(program, kernels),
        ("AT_LEVEL(name)", "name"),
        ("MULTIPLY_ADD(a, b, c)", multiply_add),
        ("workspace", f"{name}_workspace"),
    ]
    lines = [
        f"/* Generated by codegen from the graph {digest[:16]}: see {name}.h. */",
        "",
        f'#include "{name}.h"',
        "",
        "/* Not every model needs every function. */",
        "#if defined(__GNUC__) || defined(__clang__)",
        '#pragma GCC diagnostic ignored "-Wunused-function"',
        "#elif defined(_MSC_VER)",
        "#pragma warning(disable : 4505)",
        "#endif",
        "",
        *defines(constants),
        "",
        *offsets(kernels),
        before,
        *weights_table(program, kernels),
        "#define data weights",
        "",
        *kernels.definitions,
        *output_tables(kernels),
        *kernels.tables,
        *kernels.functions,
        *pass_functions(kernels.calls, PREDICTION_PASSES if program.prediction is not None else PREDICTION_PASSES[1:]),
        after,
        *_definitions(program, name, functions),
    ]
    return "\n".join(lines) + "\n"


def _definitions(program: Program, name: str, functions: dict[str, str]) -> list[str]:
    lines: list[str] = []
    for output, declaration in _declarations(program, name, functions).items():
        lines += [declaration, "{", "    set_inputs(w, inputs);"]
        if output == "":
            number = list(program.outputs).index(program.prediction or "")
            lines += ["    compute_prediction(w);", f"    return argmax(w, &outputs[{number}]);"]
        else:
            number, count = list(program.outputs).index(output), len(program.outputs[output])
            element = f"result[i] = output_element(w, &outputs[{number}], i);"
            lines += ["    compute_outputs(w);", f"    for (int i = 0; i < {count}; i++)", f"        {element}"]
        lines += ["}", ""]
    return lines[:-1]

"""micrograd freeze: a model with its weights becomes a module that only predicts, plain C, or a wheel."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from micrograd.commands.build import WRITTEN, program_of, shared
from micrograd.commands.errors import UsageError
from micrograd.commands.freeze_check import TOLERANCE, Check
from micrograd.commands.inputs import add_matching, compiler, compiling, matching_of, shapes_of
from micrograd.files import identity
from micrograd.matching import matched

if TYPE_CHECKING:
    from codegen import Program

STORAGES = ("float16", "bfloat16", "int8")
NOTHING_COMPILED = ("standalone", "wheel")


def add_parsers(commands: Any) -> None:
    """`commands`: what the tree adds parsers to."""
    parser = commands.add_parser(
        "freeze",
        parents=[shared("nn_infer")],
        description="Compile a model with trained weights as constants: a module that only predicts, without labels "
        "and gradients, or with --standalone a C file, or with --wheel a wheel.",
    )
    add = parser.add_argument
    add("weights", type=Path, metavar="WEIGHTS", help="a safetensors file with the parameters")
    form = parser.add_mutually_exclusive_group().add_argument
    form("--standalone", action="store_true", help="NAME.h and NAME.c for C programs, instead of a Python module")
    form("--wheel", action="store_true", help="a wheel with the module and its type stubs, for pip install")
    add("--wheel-version", default="0.1.0", metavar="VERSION", help="of the wheel (default: 0.1.0)")
    narrow = parser.add_mutually_exclusive_group().add_argument
    for storage in STORAGES:
        what = (
            "one byte for each weight, and a scale for each row" if storage == "int8" else "two bytes for each weight"
        )
        narrow(f"--{storage}", dest="storage", action="store_const", const=storage, help=f"{what}; computes in float32")
    add(
        "--check",
        nargs=2,
        type=Path,
        metavar=("X.npy", "Y.npy"),
        help="compare with these outputs of these inputs, or, where Y has whole numbers, with these classes",
    )
    add("--check-output", metavar="OUTPUT", help="that Y has the numbers of (default: the prediction, or what fits)")
    add(
        "--tolerance",
        type=tolerance,
        metavar="T",
        help="exit with 1 if an output differs by more, or if narrow weights lose more accuracy, as 0.001 for 0.1 %% "
        f"(default: {TOLERANCE} for outputs of weights that are not narrow, else any)",
    )
    add_matching(add)
    parser.set_defaults(command=freeze)


def tolerance(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number from 0 on, got {text}")
    return number


def freeze(options: argparse.Namespace) -> int:
    for form in NOTHING_COMPILED:
        if getattr(options, form) and options.compiler is not None:
            why = "compiles nothing" if form == "standalone" else "takes that of CC"
            raise UsageError(f"--{form} excludes --compiler: it {why}")
    if options.wheel and options.name == "nn_infer":
        raise UsageError("--wheel needs --name NAME: nn_infer is a module of micrograd-nn itself")
    codegen = compiler()
    program = program_of(options)
    weights = weights_of(options, program)
    check = Check.of(options, program)
    if options.storage is not None:
        if check is not None and check.has_classes:
            check.before = check.classes_of(_compiled(options, program, weights))
        program = replace(program, storage=options.storage, dtype=options.dtype or "float32")
    if options.wheel:
        from micrograd.commands.freeze_wheel import wheel

        path = wheel(options, program, weights)
    else:
        target = "c" if options.standalone else "extension"
        with compiling(options.model):
            path = codegen.freeze(
                program,
                weights,
                options.output,
                options.name,
                target=target,
                compiler=options.compiler,
                ir=options.ir,
            )
    if options.storage is not None:
        print(f"weights   {weight_bytes(program):,} bytes ({options.storage})")
    is_module = not (options.standalone or options.wheel)
    passed = True
    if check is not None:
        model = codegen.load_extension(path) if is_module else _compiled(options, program, weights)
        passed = check.report(model, options)
    if options.standalone:
        print(path.with_suffix(".h"))
    print(path)
    return 0 if passed else 1


def _compiled(options: argparse.Namespace, program: Program, weights: dict[str, Any]) -> Any:
    """The frozen model in this process."""
    from codegen.passes.freeze import frozen_program

    with compiling(options.model):
        return compiler().compile(frozen_program(program, weights))


def weights_of(options: argparse.Namespace, program: Program) -> dict[str, Any]:
    """The tensors of a file. Raises UsageError for one that is damaged, or that would be written over."""
    from codegen.weights import read_weights

    if identity(options.weights) in (identity(options.output / f"{options.name}{end}") for end in WRITTEN):
        raise UsageError(f"the weights must be no file that is written, got {options.weights}")
    try:
        tensors = read_weights(options.weights)
    except ValueError as error:
        raise UsageError(str(error)) from error
    how = matching_of(options, options.weights, "WEIGHTS")
    return matched(tensors, shapes_of(program), how, str(options.weights))


def weight_bytes(program: Program) -> int:
    """What the weights take: two bytes each, or one each and a float32 for each row."""
    count = len(program.parameter_values)
    if program.storage != "int8":
        return 2 * count
    return count + 4 * sum(tensor.shape[0] if len(tensor.shape) > 1 else 1 for tensor in program.tensors)

"""What is legal, and yet hardly meant: a warning for each kind of mistake that a forward graph shows.

Example: with w of two elements, and loss = (w[0] * x[0] + bias - y)**2, where nobody declares bias,

    1 leaf is declared nowhere and becomes a constant: Value(data=0.5, grad=0) labelled 'bias'. ...
    the loss does not depend on 1 parameter, which training never changes: w[1]
    nothing reads 1 of 2 inputs: inputs[1]
"""

import os
import sys
import tracemalloc
import warnings
from collections.abc import Sequence

import numpy as np

from codegen.ir.graph import Graph, Op
from codegen.kinds import element, leaf_names
from codegen.program import Program
from micrograd.engine import Value

SHOWN = 3  # of many


class ModelWarning(UserWarning):
    """A Program that compiles, but hardly does what was meant."""


def expect_program(program: object, function: str) -> None:
    """Raises TypeError for anything but a Program, and says how to make one of what came instead."""
    if isinstance(program, Program):
        return
    name = program.__name__ if isinstance(program, type) else type(program).__name__
    advice = ""
    if isinstance(program, Value):
        advice = (
            ". A Program says what its leaves are: "
            "codegen.Program(inputs=..., targets=..., parameters={...}, loss=the Value)"
        )
    elif isinstance(program, str | os.PathLike):
        advice = f", a path. Load the file first: codegen.{function}(codegen.load({os.fspath(program)!r}))"
    elif isinstance(program, type):
        advice = ", the class itself"
    elif callable(program):
        called = getattr(program, "__name__", "function")
        advice = f". Call it, if it returns a Program: codegen.{function}({called}())"
    raise TypeError(f"the program must be a codegen.Program, not {name}{advice}")


def warn_of_mistakes(program: Program, graph: Graph, undeclared: Sequence[Value]) -> None:
    """`undeclared`: the leaves that trace() has made constants."""
    meant = set(map(id, program.constant_values))
    forgotten = [value for value in undeclared if id(value) not in meant]
    for message in (_undeclared(forgotten), _unused_parameters(program, graph), *_unread_inputs(program, graph)):
        if message:
            warnings.warn(message, ModelWarning, stacklevel=_outside())


def _undeclared(values: Sequence[Value]) -> str:
    if not values:
        return ""
    several = len(values) > 1
    return (
        f"{len(values)} lea{'ves are' if several else 'f is'} declared nowhere and become{'s' * (not several)} "
        f"{'constants' if several else 'a constant'}: {_some([_description(value) for value in values])}. "
        "Declare them as parameters, inputs or targets, or in constants=[...] if that is what they are"
    )


def _description(value: Value) -> str:
    """A Value, its label or kind, and the line that made it if tracemalloc runs and knows (from Python 3.12 on)."""
    label = value.label or str(value._op)
    trace = tracemalloc.get_object_traceback(value)
    frames = [frame for frame in trace or () if not _is_ours(frame.filename)]
    return f"{value!r}{f' labelled {label!r}' if label else ''}" + (
        f" made in {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    )


def _unused_parameters(program: Program, graph: Graph) -> str:
    if program.loss is None:
        return ""
    used = _leaves(graph, Op.PARAM, [graph.loss])
    places = [
        element(tensor.name, tensor.shape, i)
        for tensor in program.tensors
        if not used.issuperset(tensor.numbers)
        for i, number in enumerate(tensor.numbers)
        if number not in used
    ]
    if not places:
        return ""
    which = "1 parameter" if len(places) == 1 else f"{len(places)} parameters"
    return f"the loss does not depend on {which}, which training never changes: {_some(places)}"


def _unread_inputs(program: Program, graph: Graph) -> list[str]:
    count = len(program.input_values)
    if not count:
        return []
    read = _leaves(graph, Op.INPUT, list(graph.roots()))
    unread = [name for i, name in enumerate(leaf_names("inputs", program.input_parts)) if i not in read]
    if unread:
        return [f"nothing reads {len(unread)} of {count} input{'s' * (count > 1)}: {_some(unread)}"]
    if program.loss is not None and not _leaves(graph, Op.INPUT, [graph.loss]):
        return ["the loss does not depend on any input, only the outputs do"]
    return []


def _leaves(graph: Graph, op: int, roots: Sequence[int]) -> set[int]:
    """The indices of the leaves of a kind that one of the roots depends on."""
    seen = np.frombuffer(graph.reachable(*roots), np.uint8)
    ops, index, _ = graph.columns()
    return set(index[(ops == op) & (seen == 1)].tolist())


def _some(texts: Sequence[str]) -> str:
    rest = len(texts) - SHOWN
    return ", ".join(texts[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _is_ours(filename: str) -> bool:
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return filename.startswith((os.path.join(folder, "codegen", ""), os.path.join(folder, "micrograd", "")))


def _outside() -> int:
    """The stacklevel of the line that called the compiler."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    return level

"""Gradients where the derivative is a matter of convention: the table in docs/functions.md, row by row."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from codegen.passes.autodiff import differentiate
from codegen.passes.trace import trace
from codegen.program import Floats, Program
from codegen.reference.interpret import interpret
from micrograd.engine import Value

PAGE = Path(__file__).resolve().parent.parent / "docs" / "functions.md"
ROW = re.compile(r"^\| `(.+?)` at `(.+?)` \| `(.+?)` \|", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8").split("## Gradient conventions")[1])


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(", ")]


def same(found: list[float], expected: list[float]) -> bool:
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(("expression", "at", "gradients"), ROWS, ids=[f"{e} at {at}" for e, at, _ in ROWS])
def test_a_row_of_the_table(expression: str, at: str, gradients: str):
    """Of the engine, and of the ir that is compiled."""
    leaves = [Value(x) for x in numbers(at)]
    loss = eval(expression, {}, dict(zip("abc", leaves, strict=False)))
    loss.backward()
    assert same([leaf.grad for leaf in leaves], numbers(gradients))
    graph = trace(Program(inputs=Floats([]), targets=None, parameters={"p": leaves}, loss=loss))
    differentiate(graph)
    found = interpret(graph, numbers(at), [0.0] * len(leaves), [], [])
    assert same(
        [found[graph.gradients[i]] if i in graph.gradients else 0.0 for i in range(len(leaves))], numbers(gradients)
    )


def test_the_table_has_every_kink_and_pole():
    text = " ".join(expression for expression, _, _ in ROWS)
    assert all(name in text for name in ("relu", "max", "min", "abs", "**", "sqrt", "log", "/", "leaky_relu"))

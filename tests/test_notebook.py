"""A bare Value at the end of a notebook's cell: a picture that fits a page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from xml.etree import ElementTree

import models
import pytest

from micrograd import dot, draw
from micrograd.draw import LIMIT, statements
from micrograd.engine import Value
from micrograd.nn import MLP

pytest.importorskip("graphviz")
needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz's program dot")


def long_sum(terms: int) -> Value:
    out = Value(0.0)
    for i in range(terms):
        out = out + Value(i, label=f"x{i}") * 2.0
    return out


def size(svg: str) -> tuple[int, int]:
    found = re.search(r'<svg width="(\d+)pt" height="(\d+)pt"', svg)
    assert found
    return int(found[1]), int(found[2])


@needs_dot
def test_a_value_is_a_picture():
    a, b = Value(2.0, label="a"), Value(-3.0, label="b")
    bundle = (a * b)._repr_mimebundle_()
    assert bundle["text/plain"] == "Value(data=-6, grad=0)"
    texts = [e.text for e in ElementTree.fromstring(bundle["image/svg+xml"]).iter("{http://www.w3.org/2000/svg}text")]
    assert {"a", "b", "data -6", "*"} <= set(texts)


def test_without_the_package_it_is_its_repr(run_python: Callable):
    script = """
import sys
sys.modules["graphviz"] = sys.modules["numpy"] = sys.modules["codegen"] = None
from micrograd.engine import Value
print((Value(1.0) + 2.0)._repr_mimebundle_(include=None, exclude=None))
print(list(sum(Value(1.0) for _ in range(200))._repr_mimebundle_()))
"""
    assert run_python(script).splitlines() == ["{'text/plain': 'Value(data=3, grad=0)'}", "['text/plain']"]


def test_without_dot_it_is_its_repr(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert Value(1.0)._repr_mimebundle_() == {"text/plain": "Value(data=1, grad=0)"}


@needs_dot
@pytest.mark.parametrize("make", [lambda: long_sum(49), lambda: MLP(3, [6, 4, 1])([1.0, 2.0, 3.0])])
def test_two_hundred_nodes_fit_a_page(make: Callable[[], Value]):
    """At the width of a page, the text of a box is as large as a footnote's superscript, or larger."""
    out = make()
    assert 150 < len(out.topo()) <= LIMIT
    width, height = size(out._repr_mimebundle_()["image/svg+xml"])
    assert width < 2800
    assert 0.4 < width / height < 2.8
    plain, _ = size(dot.render(statements([out]), "svg").decode())
    assert width < plain


@needs_dot
def test_beyond_the_limit_groups_are_shown(monkeypatch: pytest.MonkeyPatch):
    out = models.chain(200)
    assert "as groups" in out._repr_mimebundle_()["image/svg+xml"]
    monkeypatch.setattr("micrograd.draw.UNASKED", 300)
    assert list(out._repr_mimebundle_()) == ["text/plain"]  # it would take seconds, unasked
    monkeypatch.undo()
    foreign = Value(1.0, (out,), "unheard_of")
    assert list(foreign._repr_mimebundle_()) == ["text/plain"]


def test_the_rows():
    a, b, c = Value(1.0), Value(2.0), Value(3.0)
    first = a + b
    second = first * c
    third = second.tanh()
    out = third.exp()
    nodes = out.topo()
    rows = draw.in_rows(nodes, 2)
    assert [rows[id(v)] for v in (a, b, first, c, second, third, out)] == [0, 0, 0, 0, 0, 1, 1]
    assert set(draw.in_rows(nodes, 4).values()) == {0}
    assert draw.in_rows([a]) == {id(a): 0}


def test_a_term_stands_beside_the_sum_that_uses_it():
    out = long_sum(30)
    nodes = out.topo()
    rows = draw.in_rows(nodes)
    assert max(rows.values()) == 5
    for node in nodes:
        assert all(rows[id(child)] <= rows[id(node)] for child in node._prev)
        if node._op == "*":
            (user,) = (v for v in nodes if node in v._prev)
            assert {rows[id(v)] for v in (user, node, *node._prev)} == {rows[id(user)]}


def test_every_node_and_edge_is_drawn_once():
    out = long_sum(30)
    plain, wrapped = statements([out]), statements([out], rows=draw.in_rows(out.topo()))

    def bare(lines: list[str]) -> list[str]:
        found = [line.strip().split(" [constraint")[0] for line in lines]
        return sorted(line for line in found if not re.match(r'subgraph|style="invis"|\}', line))

    assert bare(wrapped) == bare(plain)
    assert sum("constraint" in line for line in wrapped) == 5
    assert statements([out.tanh()._prev[0]], rows=dict.fromkeys(map(id, out.topo()), 0)) == plain

"""Graphs that lose structure or numbers on their way to JSON."""

from __future__ import annotations

import json
import math

import models
import pytest

from micrograd.draw import to_json
from micrograd.engine import Value
from micrograd.names import plain


def rebuilt(document: dict) -> list[Value]:
    """The graph of a JSON document, made anew: its nodes in the order of their ids."""
    entries: dict[int, dict] = {}
    waiting = [document, *document.get("deeper", [])]
    while waiting:
        entry = waiting.pop()
        if "operation" in entry:
            assert entry["id"] not in entries
            entries[entry["id"]] = entry
            waiting += entry["children"]
    values: list[Value] = []
    for i in range(len(entries)):
        entry = entries[i]
        children = tuple(values[child["id"]] for child in entry["children"])
        op = entry["operation"] + (plain(float(entry["exponent"])) if "exponent" in entry else "")
        value = Value(float(entry["value"]), children, op, entry.get("label", ""))
        value.grad = float(entry["gradient"])
        values.append(value)
    return values


def test_json_nests_value_operation_and_children():
    a, b = Value(2.0, _op="weight", label="a"), Value(3)
    out = a * b
    out.backward()
    assert json.loads(out.to_json()) == {
        "id": 2,
        "operation": "*",
        "value": 6.0,
        "gradient": 1.0,
        "children": [
            {"id": 0, "operation": "weight", "value": 2.0, "gradient": 3.0, "label": "a", "children": []},
            {"id": 1, "operation": "", "value": 3.0, "gradient": 2.0, "children": []},
        ],
    }


def test_a_shared_node_is_written_once():
    x = Value(1.5)
    for _ in range(60):  # as a tree it would have 2**60 leaves
        x = x + x
    text = x.to_json()
    assert len(text) < 100 * 61
    document = json.loads(text)
    assert document["children"][1] == {"id": 59}
    assert document["children"][0]["children"][1] == {"id": 58}


def test_json_has_no_number_that_is_none():
    out = Value(math.inf) * Value(math.nan) + Value(-math.inf) ** math.inf
    document = json.loads(out.to_json(), parse_constant=pytest.fail)
    assert document["value"] == "nan"
    assert document["children"][1]["exponent"] == "inf"
    assert document["children"][1]["children"][0]["value"] == "-inf"


GRAPHS = {
    "short chain": lambda: models.chain(10),
    "long chain": lambda: models.chain(5_000),
    "irregular": lambda: models.irregular(1000),
    "mlp": lambda: models.mlp().loss,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_graph_can_be_made_again_from_its_json(name: str):
    out = GRAPHS[name]()
    out.backward()
    text = to_json(out)
    order = out.topo()
    assert len(text) < 300 * len(order)
    values = rebuilt(json.loads(text))
    assert len(values) == len(order)
    numbers, new_numbers = ({id(node): i for i, node in enumerate(nodes)} for nodes in (order, values))
    for i, (old, new) in enumerate(zip(order, values, strict=True)):
        assert repr(new) == repr(old), i
        assert (new._op, new._exponent, new.label) == (old._op, old._exponent, old.label)
        assert [numbers[id(child)] for child in old._prev] == [new_numbers[id(child)] for child in new._prev]
    assert repr(values[-1].recompute()) == repr(out.recompute())

"""ONNX's own tests of single nodes, run on codegen.onnx: `python -m tools.onnx_nodes [OP ...]`.

Each test has a model of a node or a few, inputs, and the expected outputs. Inputs of floats become Values, those that
say a shape, indices or a condition become constants, and so do floats that a node needs as numbers. The interpreted
graph's numbers are compared with the tolerance that the test names.

    AveragePool    passed   20 of   20, skipped 0

Tests beyond what docs/onnx.md promises are skipped, with the reason. With --markdown comes the table of that page. The
exit code is 1 where one of the others fails.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import warnings
from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from codegen.onnx.graph import run
from codegen.onnx.ops import OPS
from codegen.onnx.prepare import prepared
from codegen.onnx.reader import package, read_model
from codegen.onnx.shapes import TYPES
from codegen.onnx.tensors import LIMIT, OnnxError, limited
from micrograd.arrays import array, data

OF_NUMBERS = {"ArgMax", "Dropout", "Resize", "Range", "Floor", "Ceil", "Round", "Mod"}  # which take constants
UNSUPPORTED = "not supported"
# What errors say, and why such a test is skipped
EXCUSES = {
    "must be constant": "rounds or counts computed numbers",
    "would be decided when": "casts computed numbers to integers",
    "training mode": "training mode",
    "of its outputs are supported": "a second output",
    "is too old": "written for a version before 7",
    "the type ": "numbers of 8 bits or fewer, or strings",
    "is not a tensor": "a sequence or an optional",
    "with ...": "an einsum with ...",
    "a resize": "not of nearest elements",
}


@dataclass
class Row:
    """The tests of one op. `skipped`: reason -> names, `failed`: name -> what is wrong."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


@cache
def all_cases() -> list[Any]:
    """ONNX's tests of nodes; it makes them anew in each process."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return collect_testcases(None)


def cases(ops: set[str]) -> list[Any]:
    """ONNX's tests whose model has a node of one of these ops, of all if none is named."""
    return [case for case in all_cases() if not ops or op_of(case) in ops]


def op_of(case: Any) -> str:
    """The op that a test is of: that of its only node, or the test's name where ONNX has written an op as several."""
    nodes = case.model.graph.node
    return nodes[0].op_type if len(nodes) == 1 else "(expanded)"


def reason(case: Any) -> str | None:
    """Why a test is not one of what is supported."""
    graph = case.model.graph
    for node in graph.node:
        if (domain := node.domain.replace("ai.onnx.ml", "ml")) not in ("", "ml"):
            return f"the domain {domain}"
        key = ("ai.onnx.ml" if domain else "", node.op_type)
        if key not in OPS and node.op_type not in ("LinearClassifier", "Constant"):
            return UNSUPPORTED
    types = {each.type.tensor_type.elem_type for each in graph.output}
    if 16 in types or (10 in types and len(graph.node) > 1):
        return "rounded to 16 bits"
    return None


def outcome(case: Any) -> str | None:
    """What is wrong with a test; None where it passes. Raises OnnxError."""
    file = read_model(case.model, Path(case.name))
    kinds = {each.name: each for each in file.inputs}
    file = prepared(replace(file, inputs=[]))
    for given, wanted in case.data_sets:
        tensors: dict[str, Any] = dict(file.initializers)
        named = [each.name for each in case.model.graph.input]
        for name, numbers in zip(named, given, strict=False):
            numbers = as_array(name, numbers)
            is_value = name in kinds and numbers.dtype.kind == "f" and not is_number(case, name)
            tensors[name] = np.asarray(array(numbers.astype(float)), object) if is_value else numbers
        with limited(LIMIT):
            graph = run(file, tensors)
        for name, expected in zip(file.outputs, wanted, strict=False):
            found = graph.tensors[name]
            assert isinstance(found, np.ndarray)
            expected = as_array(name, expected)
            numbers = data(found) if found.dtype == object else found
            if numbers.shape != np.shape(expected):
                return f"{name} has the shape {numbers.shape}, expected {np.shape(expected)}"
            if numbers.dtype.kind in "biu" and numbers.dtype != expected.dtype:
                return f"{name} is of {numbers.dtype}, expected {expected.dtype}"
            if not np.allclose(numbers, expected, rtol=case.rtol, atol=case.atol, equal_nan=True):
                return f"{name} is off by {np.abs(numbers.astype(float) - expected).max()}"
    return None


def as_array(name: str, given: Any) -> np.ndarray[Any, Any]:
    """What a test has for a tensor. Raises OnnxError for a sequence or nothing."""
    if hasattr(given, "data_type"):
        if given.data_type not in TYPES:
            raise OnnxError(f"the type {given.data_type} is not supported")
        return package().numpy_helper.to_array(given).astype(TYPES[given.data_type])  # type: ignore[no-any-return]
    if not isinstance(given, np.ndarray | np.generic):
        raise OnnxError(f"{name} is not a tensor")
    if np.asarray(given).dtype.kind in "OSU":
        raise OnnxError("the type of strings is not supported")
    return np.asarray(given)


def is_number(case: Any, name: str) -> bool:
    """Whether a float is a bound or a ratio, which a model has as a constant."""
    return any(
        name in list(node.input)[1 if node.op_type in ("Dropout", "Resize") else 0 :]
        for node in case.model.graph.node
        if node.op_type in OF_NUMBERS
    )


def table(ops: set[str], without: Container[str] = ()) -> dict[str, Row]:
    """The row of each op, or of these. `without`: names of tests that are left out."""
    rows: dict[str, Row] = defaultdict(Row)
    for case in cases(ops):
        if case.name in without:
            continue
        row = rows[op_of(case)]
        why = reason(case)
        if why is not None:
            row.skipped[why].append(case.name)
            continue
        try:
            wrong = outcome(case)
        except OnnxError as error:
            why = next((why for said, why in EXCUSES.items() if said in str(error)), None)
            if why is None:
                row.failed[case.name] = str(error)
            else:
                row.skipped[why].append(case.name)
        else:
            if wrong is None:
                row.passed.append(case.name)
            else:
                row.failed[case.name] = wrong
    return dict(sorted(rows.items()))


def markdown(rows: dict[str, Row]) -> str:
    """The table of docs/onnx.md: what is supported op by op, then what is not and why."""
    lines = ["| op | passed | supported | skipped, and why |", "|---|--:|--:|---|"]
    for op, row in rows.items():
        if count := len(row.passed) + len(row.failed):
            lines.append(f"| {op} | {len(row.passed)} | {count} | {reasons(row)} |")
    rest = {op: row for op, row in rows.items() if not row.passed and not row.failed}
    missing = [op for op, row in rest.items() if set(row.skipped) == {UNSUPPORTED}]
    others = [f"{op} ({reasons(row)})" for op, row in rest.items() if op not in missing]
    sums = [sum(len(getattr(row, field)) for row in rows.values()) for field in ("passed", "failed")]
    skipped = sum(len(names) for row in rows.values() for names in row.skipped.values())
    lines.append(f"| all | {sums[0]} | {sum(sums)} | {skipped} |")
    texts = [f"Skipped altogether: {', '.join(others)}.", f"Not supported: {', '.join(missing)}."]
    folded = [textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False) for text in texts]
    return "\n".join([*lines, "", "\n\n".join(folded)])


def reasons(row: Row) -> str:
    return ", ".join(f"{len(names)} {why}" for why, names in sorted(row.skipped.items()))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.onnx_nodes", description="ONNX's own tests of nodes.")
    parser.add_argument("ops", nargs="*", metavar="OP", help="of these ops (default: of all)")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/onnx.md")
    options = parser.parse_args(arguments)
    rows = table(set(options.ops))
    failed = sum(len(row.failed) for row in rows.values())
    if options.markdown:
        print(markdown(rows))
        return int(bool(failed))
    for op, row in rows.items():
        print(
            f"{op:26} passed {len(row.passed):4} of {len(row.passed) + len(row.failed):4}, skipped {reasons(row) or 0}"
        )
        for name, why in row.failed.items():
            print(f"    {name}: {why}")
    passed = sum(len(row.passed) for row in rows.values())
    skipped = sum(len(names) for row in rows.values() for names in row.skipped.values())
    print(f"passed {passed} of {passed + failed}, {skipped} skipped")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

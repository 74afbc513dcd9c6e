"""Sums of a kernel that no loop over roots joins -> some of them at a time.

Example input, two nests:

    let sum = grad[3]                           let sum = grad[4]
    images image < 64:                          images image < 64:
        for k < 49:                                 for k < 49:
            sum += value[7 + table_1[k]]                sum += value[7 + table_2[k]]
    grad[3] = sum                               grad[4] = sum

becomes one:

    let sum = grad[3]
    let sum_1 = grad[4]
    images image < 64:
        for k < 49:
            sum += value[7 + table_1[k]]
            sum_1 += value[7 + table_2[k]]
    grad[3] = sum
    grad[4] = sum_1

An addition has to wait for the one before in its own sum, but not for those of other sums. Each sum keeps its order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from codegen.ir.loops import Accumulate, Body, Expr, For, Kernel, Kind, Let, Loops, Name, Stmt, Store, map_body

MAX_SUMS = 8  # at a time: about as many as a processor adds before the first one is done


def interleave_sums(loops: Loops) -> Loops:
    def change(kernel: Kernel) -> Kernel:
        nests = [nest for _, same in groupby(kernel.nests, key=_shape) for nest in _joined([*same])]
        return kernel.with_nests(tuple(nests))

    return loops.with_kernels([change(kernel) if len(kernel.nests) > 1 else kernel for kernel in loops.kernels])


def _shape(nest: Body) -> tuple[object, ...]:
    """Equal for nests that can be joined: a single sum, and the same loops over its terms."""
    match nest:
        case (Let(), *inner, Store()) if any(isinstance(stmt, For) for stmt in inner):
            return tuple(_loops_of(inner))
    return (id(nest),)


def _loops_of(body: Sequence[Stmt]) -> Iterator[object]:
    for stmt in body:
        if not isinstance(stmt, For):
            yield type(stmt), isinstance(stmt, Accumulate) and isinstance(stmt.target, Name)
        elif stmt.kind in (Kind.SEQUENTIAL, Kind.IMAGES):
            yield stmt.counter, stmt.count, stmt.kind, tuple(_loops_of(stmt.body))
        else:
            yield id(stmt)


def _joined(nests: list[Body]) -> Iterator[Body]:
    """Nests of one shape, in parts of about equal size."""
    parts = -(-len(nests) // MAX_SUMS)
    for part in range(parts):
        some = nests[len(nests) * part // parts : len(nests) * (part + 1) // parts]
        yield _side_by_side([_renamed(nest, number) for number, nest in enumerate(some)]) if len(some) > 1 else some[0]


def _renamed(nest: Body, number: int) -> Body:
    start = nest[0]
    assert isinstance(start, Let)
    name = f"{start.name}_{number}" if number else start.name

    def change(expr: Expr) -> Expr:
        return Name(name) if expr == Name(start.name) else expr

    return (Let(name, start.value), *map_body(nest[1:], change))


def _side_by_side(bodies: Sequence[Body]) -> Body:
    result: list[Stmt] = []
    for stmts in zip(*bodies, strict=True):
        first = stmts[0]
        if isinstance(first, For):
            result.append(replace(first, body=_side_by_side([stmt.body for stmt in stmts])))
        else:
            result += stmts
    return tuple(result)

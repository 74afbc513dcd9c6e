"""Lanes that lie side by side in memory -> lanes that the C compiler must turn into vectors, not unroll.

Example input:

    for k < 3:
        lanes i < 8:
            sum[i] += mul(value[10 + i + k], x)

becomes:

    for k < 3:
        vectors i < 8:
            sum[i] += mul(value[10 + i + k], x)

Left alone, gcc unrolls short lanes and the terms around them into single statements, and then rarely finds the vectors
again. Lanes that are read with a stride or through a table stay: as scalars they are better unrolled.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.ir.loops import Body, For, Kernel, Kind, Loops, Stmt, reads, writes
from codegen.schedule.nest import each_nest

MIN_LANES = 4  # fewer do not fill a vector
MAX_LANES = 16  # gcc does not unroll more before it makes vectors


def mark_vectors(loops: Loops) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        return _marked(nest)

    return each_nest(loops, change)


def _marked(body: Body) -> Body:
    return tuple([_loop(stmt) if isinstance(stmt, For) else stmt for stmt in body])


def _loop(loop: For) -> For:
    if loop.kind != Kind.LANES or any(isinstance(stmt, For) for stmt in loop.body):
        return replace(loop, body=_marked(loop.body))
    is_vector = MIN_LANES <= loop.count <= MAX_LANES and all(_is_contiguous(stmt, loop.counter) for stmt in loop.body)
    return replace(loop, kind=Kind.VECTORS) if is_vector else loop


def _is_contiguous(stmt: Stmt, lane: str) -> bool:
    target = writes(stmt)
    places = [*reads(stmt), *([target] if target is not None else [])]
    return all(place.index.is_contiguous(lane) for place in places)

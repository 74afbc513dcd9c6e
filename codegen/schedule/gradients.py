"""Gradients of one image -> gradients summed over a block of images, in order; then in registers.

Example input:

    for i < 50:
        for j < 10:
            grad[12i + j] += mul(value[800 + i], value[920 + j])

becomes:

    for i < 50:
        for j < 10:
            images image:
                grad[12i + j] += mul(value[800 + i], value[920 + j])

and then:

    for i < 50:
        for j < 10:
            let sum = grad[12i + j]
            images image:
                sum += mul(value[800 + i], value[920 + j])
            grad[12i + j] = sum

Each gradient adds the images in order, so it has the same bits as with one image at a time. What a batch computes once
is read in the workspace of its first image, which is shared[], and a term that no value of another image is part of, as
the one of an L2 penalty, is computed once:

    let sum = grad[12i + j]
    let term = mul(shared[40 + 12i + j], 0.002)
    images image:
        sum += term


Short rows of gradients, of which each would fill a part of a vector -> columns.

Example input, a layer of three roots:

    for i < 32:
        for j < 3:
            let sum = grad[3i + j]
            images image:
                sum += mul(value[i], value[32 + j])
            grad[3i + j] = sum

becomes:

    for j < 3:
        for i < 32:
            let sum = grad[3i + j]
            ...

The innermost loop becomes lanes. Now what they read of each image lies side by side, and their sums do so in registers;
gradients far apart are read and written once a block of images.


Loops over gradients -> parallel loops, divided among threads.

Example input:

    for i < 50:
        local sum[12]
        ...

becomes:

    parallel i < 50:
        local sum[12]
        ...

Of several loops over roots, the longest is divided. A nest that does not begin with a loop over roots goes to one
thread as a whole: it becomes the body of a parallel loop of one iteration. One thread computes each number, adding in
the same order as a single thread would.
"""

from collections.abc import Callable
from dataclasses import replace

from codegen.ir.loops import (
    PARAMETER_GRADIENTS,
    SHARED,
    VALUE,
    Accumulate,
    Body,
    Const,
    Expr,
    For,
    Kernel,
    Kind,
    Let,
    Loops,
    Name,
    Pass,
    Phase,
    Place,
    Stmt,
    Store,
    map_body,
    reads,
    statements,
    uses,
)
from codegen.schedule.nest import around, counts_of, each_nest, result, root_loops, roots_and_body
from codegen.schedule.phases import indices_of, written_in
from codegen.schedule.target import Target

MAX_IMAGES = 64  # in a block: an upper bound of the iterations
SUM, TERM = "sum", "term"
GAIN = 2  # so many times fewer vectors of terms are worth reading and writing gradients that lie apart


def add_images(loops: Loops) -> Loops:
    return _inside_roots(loops, lambda body: (For("image", MAX_IMAGES, body, Kind.IMAGES),), straight=True)


def read_in_first(loops: Loops) -> Loops:
    is_shared = written_in(loops, Phase.ONCE)

    def change(kernel: Kernel, nest: Body) -> Body:
        counts = counts_of(nest)

        def place(expr: Expr) -> Expr:
            if type(expr) is Place and expr.array == VALUE and is_shared[indices_of(loops, expr.index, counts)].all():
                return replace(expr, array=SHARED)
            return expr

        return map_body(nest, place) if kernel.passes == Pass.DENSE_GRADIENTS else nest

    return each_nest(loops, change) if is_shared.any() else loops


def keep_in_registers(loops: Loops) -> Loops:
    def change(body: Body) -> Body:
        place = result(body)
        terms: list[Stmt] = []

        def to_sum(expr: Expr) -> Expr:
            return Name(SUM) if expr == place else expr

        def once(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Accumulate) or type(stmt.value) is Const or uses((stmt,), VALUE):
                return stmt
            name = f"{TERM}_{len(terms)}" if terms else TERM
            terms.append(Let(name, stmt.value))
            return replace(stmt, value=Name(name))

        inner = map_body(body, to_sum)
        match inner:
            case (For(kind=Kind.IMAGES) as images,):
                inner = (images.with_body(tuple([once(stmt) for stmt in images.body])),)
        return Let(SUM, place), *terms, *inner, Store(place, Name(SUM))

    return _inside_roots(loops, change)


def interchange_loops(loops: Loops, target: Target) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        found, body = roots_and_body(nest)
        if kernel.passes != Pass.DENSE_GRADIENTS or any(loop.kind != Kind.SEQUENTIAL for loop in found):
            return nest
        long = [loop for loop in reversed(found) if loop.count >= target.cache_line]
        best = min(long, key=lambda loop: _vectors(loop, body, target), default=None)
        if best is None or GAIN * _vectors(best, body, target) > _vectors(found[-1], body, target):
            return nest
        return around([*[loop for loop in found if loop is not best], best], body)

    return each_nest(loops, change)


def _vectors(lane: For, body: Body, target: Target) -> float:
    """Vectors of terms for each gradient, if the iterations of a loop are lanes; one if they lie apart."""
    read = [place.index for stmt in statements(body) for place in reads(stmt) if place.array == VALUE]
    is_contiguous = all(index.is_contiguous(lane.counter) for index in read)
    return -(-lane.count // target.cache_line) / lane.count if is_contiguous else 1.0


def _inside_roots(loops: Loops, change: Callable[[Body], Body], straight: bool = False) -> Loops:
    """The loops with what each root of a gradient does changed; `straight`: see each_nest()."""

    def changed(kernel: Kernel, nest: Body) -> Body:
        if kernel.passes not in (Pass.DENSE_GRADIENTS, Pass.SUM_GRADIENTS):
            return nest
        found, body = roots_and_body(nest)
        return around(found, change(body))

    return each_nest(loops, changed, straight)


def share_gradients(loops: Loops) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        if kernel.passes not in PARAMETER_GRADIENTS:
            return nest
        found = [loop for loop in root_loops(nest) if loop.kind == Kind.SEQUENTIAL]
        if not found:
            return (For("all", 1, nest, Kind.PARALLEL),)
        longest = max(found, key=lambda loop: loop.count)
        divided = [replace(loop, kind=Kind.PARALLEL) if loop is longest else loop for loop in found]
        return around(divided, found[-1].body)

    return each_nest(loops, change, straight=True)

"""Sums that may be reordered -> several sums, so that additions do not wait for one another.

Example input:

    let sum = data[9]
    for k < 102:
        sum += mul(data[10 + k], value[k])
    value[200] = sum

becomes:

    let sum = data[9]
    let sum_1 = -0
    let sum_2 = -0
    let sum_3 = -0
    for from < 25:
        sum += mul(data[10 + 4from], value[4from])
        sum_1 += mul(data[11 + 4from], value[1 + 4from])
        sum_2 += mul(data[12 + 4from], value[2 + 4from])
        sum_3 += mul(data[13 + 4from], value[3 + 4from])
    for k < 2:
        sum += mul(data[110 + k], value[100 + k])
    value[200] = add(add(sum, sum_1), add(sum_2, sum_3))

With lanes, each sum has one element per lane. Only long loops with few lanes gain from this, and only a Program with
reorder=True allows it.


Sums of a kernel that no loop over roots joins -> some of them at a time.

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

from collections.abc import Iterator, Sequence
from itertools import groupby

from codegen.ir.graph import Op
from codegen.ir.loops import (
    Accumulate,
    Apply,
    Body,
    Const,
    Expr,
    For,
    Index,
    Kernel,
    Kind,
    Let,
    Local,
    Loops,
    Name,
    Place,
    Stmt,
    Store,
    has_loop,
    map_body,
    statements,
    substituted,
)
from codegen.schedule.nest import each_nest
from codegen.schedule.target import Target

PARTS = 4  # additions in flight at a time
MAX_SUMS = 8  # of a kernel at a time: about as many as a processor adds before the first one is done


def split_sums(loops: Loops, target: Target) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        if (
            kernel.is_gradient
            or has_loop([nest], Kind.IN_ORDER)
            or not any(_is_splittable(stmt, target) for stmt in statements(nest))
        ):
            return nest
        return _split_at_sum(nest, target)

    return each_nest(loops, change)


def _is_splittable(stmt: Stmt, target: Target) -> bool:
    """A long innermost loop of additions, around too few lanes to keep the processor busy."""
    if type(stmt) is not For or stmt.kind != Kind.SEQUENTIAL or stmt.count < 2 * PARTS or len(stmt.body) != 1:
        return False
    (inner,) = stmt.body
    if type(inner) is For and inner.kind == Kind.LANES:
        return inner.count <= 2 * target.cache_line and _adds(inner.body)
    return _adds(stmt.body)


def _adds(body: Body) -> bool:
    (stmt,) = body
    return type(stmt) is Accumulate and stmt.op == Op.ADD


def _split_at_sum(body: Body, target: Target) -> Body:
    """Descends to the declaration of the sum and splits it there."""
    declaration = body[0]
    if not isinstance(declaration, Let | Local):
        (loop,) = body
        assert isinstance(loop, For)
        return (loop.with_body(_split_at_sum(loop.body, target)),)
    name = declaration.name
    starts = 1 if isinstance(declaration, Let) else 2  # a Local is filled by a loop over lanes
    result: list[Stmt] = list(body[:starts])
    for part in range(1, PARTS):
        if isinstance(declaration, Let):
            result.append(Let(_part(name, part), Const(-0.0)))
        else:
            fill = _renamed(body[1:2], name, part)
            result += [Local(_part(name, part), declaration.length), *_filled(fill)]
    result += _runs(body[starts:-1], name, target)
    return (*result, _with_total(body[-1], name))


def _part(name: str, part: int) -> str:
    return f"{name}_{part}" if part else name


def _renamed(body: Body, name: str, part: int) -> Body:
    """The body as it adds to one part."""

    def change(expr: Expr) -> Expr:
        if expr == Name(name):
            return Name(_part(name, part))
        if type(expr) is Place and expr.array == name:
            return Place(_part(name, part), expr.index)
        return expr

    return map_body(body, change)


def _filled(body: Body) -> Body:
    """The loop that fills a Local, with what changes no sum."""
    (loop,) = body
    assert isinstance(loop, For)
    (stmt,) = loop.body
    assert isinstance(stmt, Store)
    return (For(loop.counter, loop.count, (Store(stmt.target, Const(-0.0)),), loop.kind),)


def _runs(body: Body, name: str, target: Target) -> Body:
    """Runs of terms, in parts where they are long."""
    result: list[Stmt] = []
    for stmt in body:
        if not isinstance(stmt, For) or stmt.kind == Kind.LANES:
            result.append(stmt)
        elif _is_splittable(stmt, target):
            count, rest = divmod(stmt.count, PARTS)
            parts = [
                substituted(_renamed(stmt.body, name, part), stmt.counter, Index(part, ((PARTS, "from"),)))
                for part in range(PARTS)
            ]
            result.append(For("from", count, tuple([inner for part in parts for inner in part])))
            if rest:
                tail = substituted(stmt.body, stmt.counter, Index(count * PARTS, ((1, stmt.counter),)))
                result.append(For(stmt.counter, rest, tail))
        else:
            result.append(stmt.with_body(_runs(stmt.body, name, target)))
    return tuple(result)


def _with_total(stmt: Stmt, name: str) -> Stmt:
    """The last statement, with the sum of all parts."""

    def part_of(expr: Name | Place, part: int) -> Name | Place:
        return Name(_part(name, part)) if isinstance(expr, Name) else Place(_part(name, part), expr.index)

    def change(expr: Expr) -> Expr:
        if not isinstance(expr, Name | Place) or (expr.name if isinstance(expr, Name) else expr.array) != name:
            return expr
        a, b, c, d = (part_of(expr, part) for part in range(PARTS))
        return Apply(Op.ADD, (Apply(Op.ADD, (a, b)), Apply(Op.ADD, (c, d))))

    (changed,) = map_body((stmt,), change)
    return changed


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
        yield _side_by_side([_numbered(nest, number) for number, nest in enumerate(some)]) if len(some) > 1 else some[0]


def _numbered(nest: Body, number: int) -> Body:
    """A nest with names of its own."""
    start = nest[0]
    assert isinstance(start, Let)
    names = {stmt.name: f"{stmt.name}_of_{number}" for stmt in statements(nest) if isinstance(stmt, Let)}
    names[start.name] = f"{start.name}_{number}"

    def change(expr: Expr) -> Expr:
        return Name(names.get(expr.name, expr.name)) if isinstance(expr, Name) else expr

    def renamed(body: Body) -> Body:
        inner = [stmt.with_body(renamed(stmt.body)) if isinstance(stmt, For) else stmt for stmt in body]
        return tuple([Let(names[stmt.name], stmt.value) if isinstance(stmt, Let) else stmt for stmt in inner])

    return renamed(map_body(nest, change)) if number else nest


def _side_by_side(bodies: Sequence[Body]) -> Body:
    result: list[Stmt] = []
    for stmts in zip(*bodies, strict=True):
        first = stmts[0]
        if isinstance(first, For):
            result.append(first.with_body(_side_by_side([stmt.body for stmt in stmts])))
        else:
            result += stmts
    return tuple(result)

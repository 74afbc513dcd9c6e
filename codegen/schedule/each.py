"""Long functions of many numbers -> loops of their own, which C runs in stages: see micrograd.stages.

Example input:

    for i < 10:
        let x = data[i]
        lanes j < 32:
            value[500 + 32i + j] = tanh(mul(x, value[j]))

becomes:

    for i < 10:
        let x = data[i]
        lanes j < 32:
            value[500 + 32i + j] = mul(x, value[j])
    each j < 320:
        value[500 + j] = tanh(value[500 + j])

and with images side by side:

    each i < 10:
        side by side image < 8:
            value[500 + i][image] = tanh(value[500 + i][image])

The numbers of an array need not fill its last cache line: what follows them there is padding, which may hold anything.
Short functions too become loops of their own where lanes would leave much of a vector empty, again in each row, and
where a constant multiplies them.

What a value needs besides the function is computed in a third loop: mul(sigmoid(x), y) reads sigmoid(x) from its own
place. No kernel reads what it writes itself, so nothing sees the number in between. Loops over kernels have been made
before: whether there are enough numbers may differ from step to step.
"""

from collections.abc import Sequence
from dataclasses import replace

from codegen.ir.graph import Op
from codegen.ir.loops import (
    VALUE,
    Apply,
    Body,
    Const,
    Expr,
    For,
    Index,
    Kind,
    Let,
    Loops,
    Name,
    Nest,
    Place,
    Region,
    Regions,
    Stmt,
    Store,
    all_expressions,
    map_expr,
    statements,
    subexpressions,
    writes,
)
from codegen.reroll.layout import aligned
from codegen.schedule.nest import each_nest
from codegen.schedule.target import Target
from micrograd import ops
from micrograd.definitions import chain_of

FEWEST_LINES = 4  # cache lines of numbers: fewer are done before a second stage would start
CHAIN = 29  # additions, of a function and its argument: expm1 has 29 by itself, and exp 28, which hardly gains
RAGGED = 1.25  # so many times more vectors are worth a loop of its own
KINDS = (Kind.SEQUENTIAL, Kind.LANES, Kind.VECTORS, Kind.SIDE_BY_SIDE)


def apply_to_each(loops: Loops, target: Target) -> Loops:
    regions = loops.regions[VALUE]
    return each_nest(loops, lambda _, nest: _apart(nest, target, regions))


def _apart(body: Body, target: Target, regions: Regions) -> Body:
    changed: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For():
                changed += _loops(stmt, target, regions)
            case Nest():
                changed.append(stmt.with_body(_apart(stmt.body, target, regions)))
            case _:
                changed.append(stmt)
    return tuple(changed)


def _loops(loop: For, target: Target, regions: Regions) -> Body:
    """A loop, or the same without its function, the loop of that, and what is left to do with its results."""
    path, store = _path(loop)
    fewest = 1 if _is_ragged(path, target) or (store is not None and _is_scaled(store.value, target)) else CHAIN
    function = None if store is None else _long_function(store.value, target, fewest)
    if store is not None and function is not None and _is_alone(loop):
        assert isinstance(store.target, Place)
        place, is_all = store.target, store.value == function
        each = _each(path, place, function.op, target, regions)
        if each and (is_all or _is_short(path)):
            before = _loops(_with_value(loop, function.operands[0]), target, regions)
            rest = map_expr(store.value, lambda expr: place if expr == function else expr)
            return (*before, *each) if is_all else (*before, *each, _with_value(loop, rest))
    return (loop.with_body(_apart(loop.body, target, regions)),)


def _path(loop: For) -> tuple[list[For], Store | None]:
    """The loops around the store at the end of a loop, outermost first."""
    path: list[For] = []
    stmt: Stmt = loop
    while type(stmt) is For and stmt.kind in KINDS and not (stmt.steps or stmt.last):
        path.append(stmt)
        stmt = stmt.body[-1]
    is_value = type(stmt) is Store and type(stmt.target) is Place and stmt.target.array == VALUE
    return path, stmt if is_value else None  # type: ignore[return-value]


def _is_ragged(path: Sequence[For], target: Target) -> bool:
    """Whether lanes in rows leave much of their vectors empty: of a rest, compilers make one for each power of two."""
    if len(path) < 2 or path[-1].kind not in (Kind.LANES, Kind.VECTORS):
        return False
    whole, rest = divmod(path[-1].count, target.cache_line)
    return (whole + rest.bit_count()) * target.cache_line >= RAGGED * path[-1].count


def _is_scaled(expr: Expr, target: Target) -> bool:
    """Whether a function is multiplied by a constant: gcc 12 multiplies what each of its branches returns instead, and
    may make no vectors of them."""
    products = [part.operands for part in subexpressions(expr) if type(part) is Apply and part.op == Op.MUL]
    pairs = [pair for a, b in products for pair in ((a, b), (b, a))]
    return any(type(a) is Const and type(b) is Apply and _chains(b, target) for a, b in pairs)


def _long_function(expr: Expr, target: Target, fewest: int) -> Apply | None:
    """The expression itself, or the only part of it, that is a function with stages."""
    found = [part for part in subexpressions(expr) if type(part) is Apply and _chains(part, target) >= fewest]
    return found[0] if found and (found[0] is expr or len({*found}) == 1) else None


def _chains(function: Apply, target: Target) -> int:
    """The chain of a function with stages, and of its argument: a processor waits for each addition. 0 for others."""
    own = chain_of(ops.row(function.op), target.is_float32) if function.op >= ops.FIRST else 0
    return own + _chain(function.operands[0]) if own else 0


def _chain(expr: Expr) -> int:
    return 1 + max(map(_chain, expr.operands)) if type(expr) is Apply else 0


def _is_short(path: Sequence[For]) -> bool:
    """Whether loops compute nothing but what they store, so that another loop can do so too."""
    return all(type(stmt) is Let for loop in path for stmt in loop.body[:-1])


def _is_alone(loop: For) -> bool:
    targets = [writes(stmt) for stmt in statements(loop.body)]
    return sum(target is not None and target.array == VALUE for target in targets) == 1


def _each(path: Sequence[For], first: Place, op: int, target: Target, regions: Regions) -> Body:
    """The loop of a function over all numbers of these loops; none if they are few, or not side by side."""
    images = [loop for loop in path if loop.kind == Kind.SIDE_BY_SIDE]
    roots = [loop for loop in path if loop.kind != Kind.SIDE_BY_SIDE]
    index, count = first.index, 1
    if not roots or any(index.looks_up(loop.counter) for loop in roots):
        return ()
    for loop in sorted(roots, key=lambda loop: index.stride(loop.counter)):
        if index.stride(loop.counter) != count:
            return ()
        count *= loop.count
    counter = roots[-1].counter
    steps = tuple([step for step in index.steps if step[1] not in {loop.counter for loop in roots}])
    if not images and count % target.cache_line:
        # Of arrays whose sizes differ, which follow one another without padding, the last one alone has room.
        starts, whole = [index.base, *[index.base + stride for stride, _ in steps]], aligned(count, target.cache_line)
        if index.tables or not all(_has_room(regions.at(start), start, count, whole) for start in starts):
            return ()
        count = whole
    if count * (target.cache_line if images else 1) < FEWEST_LINES * target.cache_line:
        return ()
    place = replace(first, index=Index(index.base, ((1, counter), *steps), index.tables))
    each: Body = (Store(place, Apply(op, (place,))),)
    for loop in images:
        each = (loop.with_body(each),)
    return (For(counter, count, each, Kind.EACH),)


def _has_room(region: Region, start: int, count: int, whole: int) -> bool:
    """Whether so many numbers are an array, and so many with the padding behind them."""
    return start == region.start and count == region.row and whole <= region.row_length


def _with_value(loop: For, value: Expr) -> For:
    """The loop with another value in its last store, and of what it reads before that what this one needs."""
    *before, last = loop.body
    if isinstance(last, For):
        body: Body = (_with_value(last, value),)
    else:
        assert isinstance(last, Store)
        body = (Store(last.target, value),)
    for stmt in reversed(before):
        if type(stmt) is not Let or isinstance(stmt.value, Index) or _reads_name(body, stmt.name):
            body = (stmt, *body)
    return loop.with_body(body)


def _reads_name(body: Body, name: str) -> bool:
    return any(type(part) is Name and part.name == name for stmt in statements(body) for part in all_expressions(stmt))

"""Of a box, which a mask leaves in part, what nobody needs is not computed where images lie side by side.

Example input: scores of four tokens, of which token t needs 1 + t (see reroll.boxes)

    for i < 4:
        for j < 4:
            side by side image < 8:
                value[500 + j + 4i][image] = mul(value[100 + i][image], value[200 + j][image])

becomes:

    for row < 4:
        for j < 1 + row:
            side by side image < 8:
                value[500 + j + 4row][image] = mul(value[100 + row][image], value[200 + j][image])

If several rows need the same, as those of a token's heads, there is a loop `part` of them. Rows that do not advance as
others do, as those at the end of a window, are loops of their own. Of a single image whole rows are as fast: lanes that
fill a vector.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from codegen.ir.loops import Body, Const, For, Index, Kind, Let, Loops, Nest, Stmt, Store, is_rolled, substituted
from codegen.schedule.nest import each_nest, result, root_loops

ROW, PART = "row", "part"
MOST_PARTS = 4  # of a box, each a loop
MOST_NEEDED = 0.75  # of a box that is worth it; functions that have loops of their own always are

Axes = dict[str, dict[str, int]]  # of a box: those that each loop goes along, innermost first, with their strides


def compute_needed(loops: Loops) -> Loops:
    return each_nest(loops, lambda kernel, nest: _needed(nest, kernel.box))


def computed_share(box: Sequence[range]) -> float:
    """Of the numbers of a box, if loops over them do what this pass looks for."""
    share = sum(map(len, box)) / (len(box) * _length(box)) if box else 1.0
    return share if share <= MOST_NEEDED else 1.0


def _length(box: Sequence[range]) -> int:
    return max(places.stop for places in box)


def _needed(body: Body, box: Sequence[range]) -> Body:
    changed: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Nest():
                changed.append(stmt.with_body(_needed(stmt.body, stmt.box)))
            case For() if is_rolled((stmt,)):
                changed.append(stmt.with_body(_needed(stmt.body, ())))
            case For() if box:
                changed += _parts(stmt, box)
            case _:
                changed.append(stmt)
    return tuple(changed)


def _parts(loop: For, box: Sequence[range]) -> Body:
    """The loops of each part of the box, or the loop itself."""
    roots, parts = root_loops((loop,)), [*_rows(box)]
    if not roots or not _is_short(roots[-1]) or len(parts) > MOST_PARTS:
        return (loop,)
    if computed_share(box) == 1 and roots[-1].kind != Kind.EACH:
        return (loop,)
    length, alike = _length(box), parts[0].alike
    axes = _axes(roots, result((loop,)).index, {roots[-1].counter: length, PART: alike, ROW: len(box) // alike})
    return tuple([_of_rows(rows, roots, axes, length) for rows in parts]) if axes else (loop,)


def _is_short(loop: For) -> bool:
    """Whether a value of each image is stored, and nothing added up; zeros of a margin are none of the box."""
    match loop.body:
        case (*before, For(body=(Store() as store,), kind=Kind.SIDE_BY_SIDE)):
            return type(store.value) is not Const and all(type(stmt) is Let for stmt in before)
    return False


def _axes(roots: Sequence[For], index: Index, extents: Mapping[str, int]) -> Axes:
    """{} unless the loops go over the whole box, row by row. `extents`: of its axes, the innermost first."""
    found: Axes = {}
    rest = [axis for axis, extent in extents.items() if extent > 1]
    done = 1
    for loop in reversed(roots):
        if index.stride(loop.counter) != done or index.looks_up(loop.counter):
            return {}
        found[loop.counter], size = {}, 1
        while rest and size < loop.count:
            found[loop.counter][rest[0]] = size
            size *= extents[rest.pop(0)]
        if size != loop.count:
            return {}
        done *= size
    return {} if rest else found


@dataclass(frozen=True)
class _Rows:
    """Rows of a box from the row `first` on, which need some `places`: as many as are `alike`, `count` times.

    Of the next ones the places begin `later`, and they are `more`.
    """

    first: int
    count: int
    alike: int
    places: range
    later: int
    more: int


def _rows(box: Sequence[range]) -> Iterator[_Rows]:
    """The rows of a box, those together whose places advance evenly."""
    alike = math.gcd(*[len([*same]) for _, same in groupby(box)])
    blocks = box[::alike]
    start = 0
    while start < len(blocks):
        steps = [(b.start - a.start, len(b) - len(a)) for a, b in pairwise(blocks[start:])]
        count = 1 + next((i for i, step in enumerate(steps) if step != steps[0]), len(steps))
        later, more = steps[0] if count > 1 else (0, 0)
        yield _Rows(start * alike, count, alike, blocks[start], later, more)
        start += count


def _of_rows(rows: _Rows, roots: Sequence[For], axes: Axes, length: int) -> Stmt:
    """The loops over what is needed of some rows."""
    last, column = roots[-1], roots[-1].counter
    if len(roots) == 1 and len(rows.places) == length and not rows.more:
        whole = substituted(last.body, column, Index(rows.first * length, ((1, column),)))
        return replace(last, count=rows.count * rows.alike * length, body=whole)
    first = {column: rows.places.start, PART: 0, ROW: rows.first // rows.alike}
    body = last.body
    for counter, strides in axes.items():
        base = sum([stride * first[axis] for axis, stride in strides.items()])
        steps = strides | ({ROW: strides.get(ROW, 0) + rows.later} if column in strides else {})
        body = substituted(body, counter, Index(base, tuple([(step, axis) for axis, step in steps.items() if step])))
    stmt: Stmt = replace(last, count=len(rows.places), steps=((rows.more, ROW),) if rows.more else (), body=body)
    for axis, count in ((PART, rows.alike), (ROW, rows.count)):
        stmt = For(axis, count, (stmt,)) if count > 1 else substituted((stmt,), axis, Index(0))[0]
    return stmt

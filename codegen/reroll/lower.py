"""Groups -> loop nests: every index as base + sum(stride * counter).

Example input: 50 roots relu(sum(P, 784 x mul(P, X))), with the storage indices of their leaves, becomes:

    loops    lane: 50 times     result +1, bias +1, weight +1, input +0
    terms    1 x P              no loop
             784 x mul(P, X)    term: 784 times, weight +50, input +1

Instances whose terms advance differently (a border, a gather) are separate nests of the same group. A sum whose terms
come from one array and then from another has a loop for each, and one over terms that alternate: see runs.py.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Hashable
from dataclasses import dataclass, replace
from itertools import chain, groupby

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import Graph, Op
from codegen.reroll.affine import Loop, Piece, fit, most_pieces, peel
from codegen.reroll.groups import Ints
from codegen.reroll.layout import GroupLayout, Layout
from codegen.reroll.runs import MIN_TURNS, Run, Segment, TermList, equal_rows
from codegen.reroll.trees import ROOT_KIND

Floats = npt.NDArray[np.float64]
FAR = 8  # numbers for each term, between two halves of a sum: a cache line
RESULT = 0  # the first column of an instance's row; the leaves of the first term of each run follow


@dataclass(frozen=True)
class Terms:
    """One run of a sum: `columns[k]` is the instance column of leaf k, `pieces` walk the terms from the first on."""

    run: Run
    columns: range
    offsets: Ints  # terms x leaves, relative to the first term
    pieces: list[Piece]


@dataclass(frozen=True)
class Nest:
    """One loop nest of a group; without loops, a single instance."""

    first: Ints  # the first instance's row of indices: result, then leaves
    loops: list[Loop]  # the innermost last
    terms: list[tuple[Terms, ...]]  # runs whose terms alternate are together
    tables: dict[int, Floats]  # column of Group.leaves -> the constants of all instances and terms
    literals: dict[int, float]  # column of Group.leaves -> the one constant


def lower(graph: Graph, layout: Layout, stored: GroupLayout) -> list[Nest]:
    """The loop nests that compute a group, each root once."""
    group = stored.group
    indices = layout.index[group.leaves]
    tables, literals, indices = _constants(graph, stored, indices)
    results = _results(layout, stored)

    def key(term: Run) -> tuple[object, ...]:
        """Equal for terms of one shape whose constants are the same, or in the same table."""
        columns = range(term.column, term.column + len(term.kinds))
        return term.shape, *(id(tables[c]) if c in tables else repr(literals.get(c)) for c in columns)

    parts, relative, patterns = _segments(stored.runs, indices, results, key)
    instances = _instances(parts, indices, results)
    nests: list[Nest] = []
    for rows in patterns:
        instance = instances[rows]
        if stored.box and len(patterns) == 1:
            whole = stored.box.filled(instance)
            instance = instance if whole is None else whole
        found: list[Terms] = []
        column = RESULT + 1
        for run, advance in zip(chain.from_iterable(parts), relative, strict=True):
            offsets = advance[rows[0]]
            columns = range(column, column + len(run.kinds))
            pieces = _apart(loops_over_terms(offsets), run, offsets, layout, stored)
            if group.kind >= 0 and run.count <= 2 and run in stored.runs:
                pieces = _as_longer(pieces, run, offsets, layout, stored)
            found.append(Terms(run, columns, offsets, pieces))
            column += len(run.kinds)
        left = iter(found)
        terms = [tuple([next(left) for _ in part]) for part in parts]
        for piece in fit(instance, shorten=True) if len(instance) > 1 else [Piece(0, 1, [])]:
            loops = _ordered(piece.loops, stored.grid is not None)
            nests.append(Nest(instance[piece.start], loops, terms, tables, literals))
    return nests


def loops_over_terms(offsets: Ints) -> list[Piece]:
    """The terms of a run as loops. Two terms are one only if they are neighbours: else their distance says nothing."""
    found: list[Piece] = []
    for piece in fit(offsets) if len(offsets) > 1 else [Piece(0, 1, [])]:
        if piece.length == 2 and np.abs(offsets[piece.start + 1] - offsets[piece.start]).max() > 1:
            found += [Piece(piece.start, 1, []), Piece(piece.start + 1, 1, [])]
        else:
            found.append(piece)
    return found


def _apart(pieces: list[Piece], run: Run, offsets: Ints, layout: Layout, stored: GroupLayout) -> list[Piece]:
    """The pieces, those of two equal halves as two, if they are elsewhere in the parts before and behind.

    As where each token reads what two recurrences say of it, one of which comes from the end of the sequence.
    """
    found: list[Piece] = []
    for piece in pieces:
        half = piece.length // 2
        halves = piece.start, piece.start + half
        if len(piece.loops) > 1 and piece.loops[-1].count == 2:
            distance = offsets[halves[1]] - offsets[halves[0]]
            families = run.columns(layout.family[stored.group.leaves[:1]])[0]
            is_root = np.array(run.kinds) == ROOT_KIND
            is_apart = (families[halves[0]] != families[halves[1]]) & (np.abs(distance) > FAR * half) & is_root
            if is_apart.any():
                found += [Piece(start, half, piece.loops[:-1]) for start in halves]
                continue
            moving = [kind != Op.CONST for kind in run.kinds]
            others = [run.columns(layout.index[other.group.leaves[:1]])[0] for other in _alike(layout, stored)]
            if others and all((other[halves[1]] - other[halves[0]] != distance)[moving].any() for other in others):
                found += [Piece(start, half, piece.loops[:-1]) for start in halves]
                continue
        found.append(piece)
    return found


def _as_longer(pieces: list[Piece], run: Run, offsets: Ints, layout: Layout, stored: GroupLayout) -> list[Piece]:
    """One or two terms as a loop that advances as those of longer sums of their kind do."""
    place = stored.runs.index(run)
    kind = stored.group.kind  # which few others have
    alike = [other for other in layout.groups if other.group.kind == kind and _sum(other) == _sum(stored)]
    alike = [other for other in alike if other.runs[place].count > 2]
    if not alike:
        return pieces
    nearest = min(alike, key=lambda other: abs(other.number - stored.number))
    rows = nearest.runs[place].columns(layout.index[nearest.group.leaves[:1]])[0]
    step = np.where(np.array(run.kinds) == Op.CONST, 0, rows[1] - rows[0])
    if run.count == 2 and (offsets[1] - offsets[0] != step).any():
        return pieces
    return [Piece(0, run.count, [Loop(run.count, step)])]


def _sum(stored: GroupLayout) -> tuple[object, ...]:
    """What is the same in sums that differ in numbers of terms."""
    return stored.group.kind, stored.group.passes, stored.post, *[run.shape for run in stored.runs]


def _alike(layout: Layout, stored: GroupLayout) -> list[GroupLayout]:
    """The parts of the same group, or the steps of the same recurrence, right before and behind."""
    chain = layout.chains[stored.group.chain]
    at = bisect_left(chain, stored.number)
    return [layout.groups[n] for n in (*chain[max(at - 1, 0) : at], *chain[at + 1 : at + 2])]


Key = Callable[[Run], Hashable]


def _segments(runs: list[Run], indices: Ints, results: Ints, key: Key) -> tuple[list[Segment], list[Ints], list[Ints]]:
    """The loops over terms, how their terms advance, and the rows of instances that advance alike."""
    parts: list[Segment] = [(run,) for run in runs]
    relative, patterns = _relative(parts, indices)
    if len(patterns) > 1:
        terms = TermList(runs, indices, key)
        cut = terms.segments(terms.alike)
        if len(cut) - len(parts) < len(patterns):
            other = _relative(cut, indices)
            before, after = _instances(parts, indices, results), _instances(cut, indices, results)
            if _count(after, other[1]) < _count(before, patterns):
                parts, (relative, patterns) = cut, other
    if len(patterns) == 1:
        finer: list[Segment] = []
        for alternate, group in groupby(parts, key=lambda part: len(part) > 1):
            some = [*group]
            finer += some if alternate else _alternating([run for (run,) in some], indices, key)
        if finer != parts:
            parts = finer
            relative, patterns = _relative(parts, indices)
    return parts, relative, patterns


def _alternating(runs: list[Run], indices: Ints, key: Key) -> list[Segment]:
    """Terms that would be many loops, or look up a table, as terms that alternate, if those are fewer."""
    parts: list[Segment] = [(run,) for run in runs]
    before = _statements(parts, indices)
    if before < MIN_TURNS:
        return parts
    terms = TermList(runs, indices, key)
    places = terms.places[0]
    found = terms.segments(lambda start: peel(places[start : start + terms.rest(start)])[1])
    found = _joined(found, {run.column for run in runs})
    return found if _statements(found, indices) < before else parts


def _joined(parts: list[Segment], starts: Container[int]) -> list[Segment]:
    """Neighbours that are parts of one run, as one. `starts`: the columns where runs begin."""
    found: list[Segment] = []
    for part in parts:
        if found and len(found[-1]) == len(part) == 1 and part[0].column not in starts:
            (last,) = found[-1]
            found[-1] = (replace(last, count=last.count + part[0].count),)
        else:
            found.append(part)
    return found


def _statements(parts: list[Segment], indices: Ints) -> int:
    """How many terms are written down. A loop over a table counts as many as it may be instead of."""
    count = 0
    for part in parts:
        for run in part:
            places = run.columns(indices)[0]
            pieces = loops_over_terms(places - places[0])
            looks_up = any(loop.rows is not None for piece in pieces for loop in piece.loops)
            count += most_pieces(run.count) if looks_up else len(pieces)
    return count


def _instances(parts: list[Segment], indices: Ints, results: Ints) -> Ints:
    """The result of each instance and the leaves of its first terms: see RESULT."""
    return np.hstack([results[:, None], *(run.columns(indices)[:, 0] for part in parts for run in part)])


def _count(instances: Ints, patterns: list[Ints]) -> int:
    """How many nests compute them."""
    return sum(len(fit(instances[rows], shorten=True)) for rows in patterns)


def _relative(parts: list[Segment], indices: Ints) -> tuple[list[Ints], list[Ints]]:
    """How the terms of each run advance from the first one, and the rows that advance alike."""
    columns = [run.columns(indices) for part in parts for run in part]
    relative = [places - places[:, :1] for places in columns]
    if len(indices) == 1:  # as in most groups of an irregular graph
        return relative, [np.arange(1)]
    return relative, equal_rows(np.hstack([part.reshape(len(indices), -1) for part in relative]))


def _results(layout: Layout, stored: GroupLayout) -> Ints:
    """The index of each root in value[] or, for gradients, in grad[]."""
    roots = stored.group.roots
    return layout.index[roots] if stored.group.is_gradient else stored.places + stored.offset


def _constants(graph: Graph, stored: GroupLayout, indices: Ints) -> tuple[dict[int, Floats], dict[int, float], Ints]:
    """Constant leaves: a literal if the constant is the same everywhere, else a table, and where in it each one is.

    Where a group fills a part of a box, the table has as many rows as the box, and one of its constants in the others.
    """
    tables: dict[int, Floats] = {}
    literals: dict[int, float] = {}
    indices = indices.copy()
    places = stored.box.places if stored.box else np.arange(len(indices))
    for run in stored.runs:
        width = len(run.kinds)
        for k, kind in enumerate(run.kinds):
            if kind != Op.CONST:
                continue
            columns = range(run.column + k, run.column + run.count * width, width)
            numbers = indices[:, columns]
            if (numbers == numbers[0, 0]).all():
                literals.update(dict.fromkeys(columns, graph.constants[int(numbers[0, 0])]))
                indices[:, columns] = 0
            else:
                constants = np.array([graph.constants[i] for i in numbers.ravel().tolist()])
                table = np.full((stored.size, len(columns)), constants[0])
                table[places] = constants.reshape(numbers.shape)
                tables.update(dict.fromkeys(columns, table.ravel()))
                indices[:, columns] = np.arange(table.size).reshape(table.shape)[places]
    return tables, literals, indices


def _ordered(loops: list[Loop], is_grid: bool) -> list[Loop]:
    """The loop over lanes, where most indices advance by 1 or 0 and the result by 1, goes innermost (last).

    Two results side by side are no lanes in a grid, where others may be between those of a longer loop.
    """

    def score(loop: Loop) -> tuple[bool, int, int]:
        return (
            bool(loop.strides[RESULT] == 1 and loop.count > 2 * is_grid),
            int(np.isin(loop.strides, (0, 1)).sum()),
            loop.count,
        )

    if not loops:
        return []
    lane = max(loops, key=score)
    return [*(loop for loop in reversed(loops) if loop is not lane), lane]

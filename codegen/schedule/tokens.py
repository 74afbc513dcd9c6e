"""Sums over the words of a vocabulary -> the row of a table that a token selects.

Example: three tokens out of five words share a table of rows of two numbers. Declared as 1 among zeros, they are

    for i < 3:
        for j < 2:
            let sum = -0
            for k < 5:
                sum += mul(token[5i + k], data[j + 2k])
            value[24 + 2i + j] = sum

and this becomes

    for i < 3:
        for j < 2:
            value[24 + 2i + j] = value[96 + 2i + j]

after a kernel that stores the same sums in value[96 + 2i + j]. That one is not printed: run-time code, csrc/tokens.h,
copies the row data[2 * token + j], because adding a word that is 0 changes nothing. Where all rows of a table are only
copied, as here, it stores them in value[24 + 2i + j] at once, and these loops go. The gradient of the table

    for i < 5:
        for j < 2:
            for k < 3:
                grad[2i + j] += mul(token[10 + i - 5k], value[69 + j - 2k])

adds value[69 ...] to the row of token 2, then value[67 ...] to that of token 1, and so on, and is hand-written too.
Only 0 * inf and 0 * nan are not 0, so the run-time code knows which rows and which factors are not finite.

Tokens of which anything else is read stay 1 among zeros in value[]: `refused` says which.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import Op
from codegen.ir.loops import (
    DATA,
    LEAVES,
    TOKEN,
    VALUE,
    Accumulate,
    Apply,
    Body,
    Const,
    For,
    Holds,
    Index,
    Kernel,
    Let,
    Loops,
    Name,
    Pass,
    Place,
    Region,
    Regions,
    Stmt,
    Store,
    map_body,
    moved,
    reads,
    statements,
)
from codegen.kinds import Part
from codegen.reroll.layout import FIRST_TOKEN, Layout, TensorPlace, aligned
from codegen.reroll.loops import SUM, is_neutral, neutral
from codegen.schedule.nest import around, counts_of, result, root_loops
from codegen.schedule.rows import factors

Ints = npt.NDArray[np.int64]
Counts = Mapping[str, int]  # of iterations, by counter


@dataclass(frozen=True)
class TokenTable:
    """A tensor as one row for each word: data[place.offset + row_length * word + lane].

    `tokens` tokens from `first` on have their rows in value[rows + lanes * (token - first) + lane]. A backward pass
    adds value[factor + i] to lanes lane + i, i < span, of the row of a token, for each (token, factor, lane) of
    `gradients`, in this order. Other factors may belong to each `span` lanes.
    """

    place: TensorPlace
    words: int
    lanes: int
    row_length: int
    first: int
    tokens: int
    gradients: tuple[tuple[int, int, int], ...] = ()
    span: int = 0
    rows: int = -1


@dataclass(frozen=True)
class _Read:
    """A loop over words that reads `lanes` of rows that `tokens` select, for all values of the counters around it."""

    passes: Pass
    loop: For
    words: int
    row_length: int
    around: Counts
    tokens: Ints
    lanes: Ints


def read_by_index(
    loops: Loops, layout: Layout, parts: Sequence[Part], is_trained: bool
) -> tuple[Loops, list[TokenTable], set[Part]]:
    """The loops with rows instead of sums over words, the tables, and the parts of which anything else is read.

    `parts` are those whose inputs are in token[]. If one is refused, the loops are what they were.
    """
    finder = _Finder(loops, layout, parts, is_trained)
    for kernel in loops.kernels:
        for nest in kernel.nests if not kernel.is_gradient else ():
            finder.find_reads(kernel, nest)
    finder.find_tables()
    if finder.refused:
        return loops, [], finder.refused
    tables = finder.placed({})
    found = finder.with_rows(tables)
    copies = {table.place.offset: at for table in tables if (at := _copied_to(found, table)) is not None}
    if copies:
        tables = finder.placed(copies)
        found = finder.with_rows(tables)
    return found, tables, set()


class _Finder:
    def __init__(self, loops: Loops, layout: Layout, parts: Sequence[Part], is_trained: bool) -> None:
        self.loops, self.layout, self.is_trained = loops, layout, is_trained
        self.part_of = [part for part in parts for _ in range(part.numbers)]  # each token
        self.start = np.cumsum([0, *(part.classes for part in self.part_of)])  # of its words in token[]
        self.reads: dict[int, list[_Read]] = {}  # by the offset of the tensor
        self.tables: dict[int, TokenTable] = {}
        self.refused: set[Part] = set()

    def refuse(self, stmts: Iterable[Stmt]) -> None:
        """The parts of all tokens that some statements read."""
        for stmt in stmts:
            for place in reads(stmt):
                if place.array == TOKEN:
                    self.refused.add(self.part_of[self.token_at(place.index.base)])
                if place.array in (TOKEN, VALUE) and _is_mixed(place.index, self.loops):
                    self.refused.update(self.part_of)

    def token_at(self, index: int) -> int:
        return int(np.searchsorted(self.start, index, side="right")) - 1

    # Forward

    def find_reads(self, kernel: Kernel, nest: Body) -> None:
        """Sums over words, and what else is read of tokens."""
        counts = counts_of(nest)
        inside: set[int] = set()
        for stmt in statements(nest):
            read = self.row_read(kernel, stmt, counts) if type(stmt) is For else None
            if read is not None:
                inside |= {id(term) for term in read.loop.body}
                self.reads.setdefault(self.tensor_of(read).offset, []).append(read)
        self.refuse(stmt for stmt in statements(nest) if id(stmt) not in inside)

    def tensor_of(self, read: _Read) -> TensorPlace:
        (term,) = read.loop.body
        return self.layout.tensor_at(next(place for place in reads(term) if place.array == DATA).index.base)

    def row_read(self, kernel: Kernel, loop: For, counts: Counts) -> _Read | None:
        """What `for k < words: sum += mul(token[words * t + k], data[offset + row_length * k + lane])` reads."""
        term = loop.body[0] if len(loop.body) == 1 else None
        if type(term) is not Accumulate or type(term.target) is not Name or term.op != Op.ADD:
            return None
        places = factors(term.value, _is_token)
        if places is None or places[1].array != DATA or any(place.index.looks_up(loop.counter) for place in places):
            return None
        token, weight = (moved(place.index, loop.counter, Index(0)) for place in places)
        if places[0].index.stride(loop.counter) != 1 or _is_mixed(token, self.loops):
            return None
        around = {counter: counts[counter] for _, counter in (*token.steps, *weight.steps)}
        around |= {x: count for x, count in counts.items() if token.looks_up(x) or weight.looks_up(x)}
        at = dict(zip(around, np.indices([*around.values()]), strict=True))
        starts, tensor = np.asarray(_at(token, at, self.loops)), self.layout.tensor_at(weight.base)
        lanes = np.asarray(_at(weight, at, self.loops) - tensor.offset)
        tokens = np.searchsorted(self.start[:-1], starts, side="right") - 1
        words, row_length = self.part_of[int(tokens.min())].classes, places[1].index.stride(loop.counter)
        is_word = loop.count == words and np.array_equal(self.start[tokens], starts)
        if not is_word or lanes.min() < 0 or lanes.max() >= min(row_length, tensor.size / words):
            return None
        return _Read(kernel.passes, loop, words, row_length, around, tokens, lanes)

    # Tables

    def find_tables(self) -> None:
        """A tensor whose reads agree, and whose gradient has nothing but the rows of tokens, becomes a table."""
        gradients: dict[int, list[Body]] = {}
        for kernel in self.loops.kernels:
            for nest in kernel.nests if kernel.is_gradient else ():
                gradients.setdefault(self.layout.tensor_at(result(nest).index.base).offset, []).append(nest)
        for offset, found in self.reads.items():
            table = self.table(self.layout.tensor_at(offset), found, gradients.get(offset, []))
            if table is None:
                self.refuse(stmt for read in found for stmt in read.loop.body)
            else:
                self.tables[offset] = table
        others = [nest for offset, nests in gradients.items() if offset not in self.tables for nest in nests]
        self.refuse(stmt for nest in others for stmt in statements(nest))

    def table(self, tensor: TensorPlace, found: list[_Read], gradients: list[Body]) -> TokenTable | None:
        words, row_length = found[0].words, found[0].row_length
        first, end = (int(limit([limit(read.tokens.ravel()) for read in found])) for limit in (min, max))
        end += 1
        even = all(words == self.start[token + 1] - self.start[token] for token in range(first, end))
        if not even or tensor.size % words or any(read.row_length != row_length for read in found):
            return None
        table = TokenTable(tensor, words, tensor.size // words, row_length, first, end - first)
        if not self.is_trained:
            return table
        added = self.gradients(table, gradients)
        if added is None:
            return None
        begun = [lane for lane in range(1, table.lanes) if added[lane] != [(t, at + 1) for t, at in added[lane - 1]]]
        span = gcd(table.lanes, *begun)
        pieces = [(token, at, lane) for lane in range(0, table.lanes, span) for token, at in added[lane]]
        return replace(table, gradients=tuple(pieces), span=span)

    def gradients(self, table: TokenTable, nests: list[Body]) -> list[list[tuple[int, int]]] | None:
        """The tokens and factors that are added to each lane of a table, in order; None if it is not that."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(table.lanes)]
        for nest in nests:
            target, roots = result(nest).index, root_loops(nest)
            stride = {loop.counter: target.stride(loop.counter) for loop in roots}
            words = [loop for loop in roots if loop.count == table.words and stride[loop.counter] == table.row_length]
            if not words or target.looks_up(words[0].counter):
                return None
            word = words[0].counter
            across = [loop for loop in roots if loop.counter != word]
            for numbers in product(*[range(loop.count) for loop in across]):
                start = {word: 0, **{loop.counter: i for loop, i in zip(across, numbers, strict=True)}}
                lane = _at(target, start, self.loops) - table.place.offset
                if not 0 <= lane < table.lanes or found[lane]:
                    return None
                for term, at in _terms(roots[-1].body, start):
                    factor = self.factor(table, term, word, at)
                    if factor is None:
                        return None
                    found[lane].append(factor)
        return found if any(found) else None

    def factor(self, table: TokenTable, term: Accumulate, word: str, at: Mapping[str, int]) -> tuple[int, int] | None:
        """The token and the place of the adjoint whose product is a term for each word."""
        places = factors(term.value, _is_token)
        if places is None or places[1].array != VALUE:
            return None
        token, factor = (place.index for place in places)
        if factor.depends_on(word) or token.stride(word) != 1 or token.looks_up(word):
            return None
        start, place = (_at(index, at, self.loops) for index in (token, factor))
        number = self.token_at(start)
        if self.start[number] != start or self.part_of[number].classes != table.words:
            return None
        return (number, place) if self.loops.region(VALUE, place).holds not in LEAVES else None

    # Loops

    def placed(self, copies: Mapping[int, int]) -> list[TokenTable]:
        """The tables, with rows behind all values or, by the offset of the tensor, where they would be copied to."""
        end, found = self.layout.value_count, []
        for offset, table in self.tables.items():
            rows = copies.get(offset, aligned(end, self.layout.cache_line))
            end = max(end, rows + table.tokens * table.lanes)
            found.append(replace(table, rows=rows))
        return found

    def with_rows(self, tables: list[TokenTable]) -> Loops:
        """The loops with rows for sums over words."""
        rows = {table.place.offset: table for table in tables}
        places: dict[int, Place] = {}
        indices: dict[str, list[int]] = {}
        for offset, found in self.reads.items():
            for read in found:
                index, numbers = _row_index(rows[offset], read, f"table_rows_{len(indices)}")
                places[id(read.loop)] = Place(VALUE, index)
                indices |= {name: numbers for name, _ in index.tables}
        changed: list[Kernel] = []
        for kernel in self.loops.kernels:
            if not kernel.is_gradient:
                nests = [_with_rows(nest, places) for nest in kernel.nests]
                kernel = kernel.with_nests(tuple([nest for nest in nests if not _changes_nothing(nest)]))
            elif self.layout.tensor_at(result(kernel.nests[0]).index.base).offset in rows:
                kernel = replace(kernel, passes=Pass.ROW_GRADIENTS)
            changed += [kernel] if kernel.nests else []
        number = max((kernel.number for kernel in changed), default=-1) + 1
        copies = [self.row_kernel(number + i, table) for i, table in enumerate(tables)]
        regions = {region.start: region for region in self.loops.regions[VALUE]}
        length = self.loops.length(VALUE)
        for i, table in enumerate(tables):
            size = table.tokens * table.lanes
            name, title = f"TOKEN_ROWS_{i}", f"{table.place.tensor.name}.rows"
            regions[table.rows] = Region(table.rows, name, title, size, size, size, Holds.TOKEN_ROWS)
            length = max(length, table.rows + size)
        return replace(
            self.loops,
            kernels=(*copies, *changed),
            tables={**self.loops.tables, **indices},
            lengths={**self.loops.lengths, VALUE: length},
            regions={**self.loops.regions, VALUE: Regions(regions.values())},
        )

    def row_kernel(self, number: int, table: TokenTable) -> Kernel:
        """What run-time code does for a table, as loops."""
        passes = Pass.TOKEN_ROWS
        for read in self.reads[table.place.offset]:
            passes |= read.passes
        start, lanes = int(self.start[table.first]), table.lanes
        token = Place(TOKEN, Index(start, ((table.words, "i"), (1, "k"))))
        weight = Place(DATA, Index(table.place.offset, ((1, "j"), (table.row_length, "k"))))
        nest: Body = (
            Let(SUM, Const(neutral(Op.ADD))),
            For("k", table.words, (Accumulate(Name(SUM), Op.ADD, Apply(Op.MUL, (token, weight))),)),
            Store(Place(VALUE, Index(table.rows, ((lanes, "i"), (1, "j")))), Name(SUM)),
        )
        loops = [For("i", table.tokens, ()), For("j", lanes, ())]
        return Kernel(number, passes, (around(loops, nest),), (0, 0), table.tokens * lanes)


def _copied_to(loops: Loops, table: TokenTable) -> int | None:
    """Where a kernel copies all rows of a table, one after the other, if they alone are a region."""
    for kernel in loops.kernels:
        match [stmt for stmt in statements(kernel.nests[0]) if type(stmt) is not For]:
            case [Store(Place(array, to), Place(index=source))] if array == VALUE and source.base == table.rows:
                region = loops.region(VALUE, to.base)
                is_all = kernel.roots == region.row == table.tokens * table.lanes and region.start == to.base
                if is_all and source.steps == to.steps:
                    return to.base
    return None


def _row_index(table: TokenTable, read: _Read, name: str) -> tuple[Index, list[int]]:
    """Where what a loop reads is in value[]; where steps do not lead there, from a table of this name and numbers."""
    places = table.rows + table.lanes * (read.tokens - table.first) + read.lanes
    counts = [*read.around.values()]
    base = int(places.flat[0])
    one = np.eye(len(counts), dtype=int) * (np.array(counts, int) > 1)
    strides = [int(places[tuple(at)]) - base for at in one]
    if np.array_equal(places, base + sum(s * at for s, at in zip(strides, np.indices(counts), strict=True))):
        steps = [(stride, counter) for stride, counter in zip(strides, read.around, strict=True) if stride]
        return Index(base, tuple(steps)), []
    steps = [(prod(counts[i + 1 :]), counter) for i, counter in enumerate(read.around)]
    return Index(0, (), ((name, Index(0, tuple(steps))),)), places.ravel().tolist()


def _with_rows(body: Body, places: Mapping[int, Place]) -> Body:
    """The body with one term for each sum over words that `places` has by its identity."""
    changed: list[Stmt] = []
    for stmt in body:
        if type(stmt) is For and id(stmt) in places:
            (term,) = stmt.body
            assert type(term) is Accumulate
            changed.append(replace(term, value=places[id(stmt)]))
        else:
            changed.append(stmt.with_body(_with_rows(stmt.body, places)) if type(stmt) is For else stmt)
    return _simplified(tuple(changed)) if tuple(changed) != body else body


def _changes_nothing(nest: Body) -> bool:
    return all(type(stmt) is For or (type(stmt) is Store and stmt.value == stmt.target) for stmt in statements(nest))


def _simplified(body: Body) -> Body:
    """Without the start of a sum that is neutral, and without a sum of one term."""
    match body:
        case (Let(name, start), Accumulate(target, Op.ADD, first), *rest) if is_neutral(start, Op.ADD):
            if len(rest) > 1:
                return (Let(name, first), *rest)
            return map_body(tuple(rest), lambda expr: first if expr == target else expr)
    return body


def _is_token(place: Place) -> bool:
    return place.array == TOKEN


def _is_mixed(index: Index, loops: Loops) -> bool:
    """Whether it walks from value[] into token[], which storage has far behind it."""
    numbers = [stride for stride, _ in index.steps]
    for table, inner in index.tables:
        numbers += [int(number) for number in (min(loops.tables[table]), max(loops.tables[table]))]
        numbers += [FIRST_TOKEN] if _is_mixed(inner, loops) else []
    return any(abs(number) >= FIRST_TOKEN // 2 for number in numbers)


def _terms(body: Body, at: Mapping[str, int]) -> Iterator[tuple[Accumulate, Mapping[str, int]]]:
    """Each term that is added, in order, and where the counters are."""
    for stmt in body:
        if type(stmt) is For:
            for i in range(stmt.count):
                yield from _terms(stmt.body, {**at, stmt.counter: i})
        else:
            assert type(stmt) is Accumulate
            yield stmt, at


def _at(index: Index, at: Mapping[str, Any], loops: Loops) -> Any:
    """An index where the counters are: numbers, or arrays of them."""
    total = index.base + sum(stride * at[counter] for stride, counter in index.steps)
    for table, inner in index.tables:
        place = _at(inner, at, loops)
        total = total + (loops.tables[table][place] if isinstance(place, int) else np.array(loops.tables[table])[place])
    return total

"""Sums of one and two terms, where others have more -> sums as well, not expressions.

Example input: under a causal mask, tokens divide by the sum of what they see, which is one number, two, three ...

    %20 = div %10 %10
    %21 = add %11 %12    %22 = div %11 %21
    %23 = add %13 %14    %24 = add %23 %15    %25 = div %13 %24

becomes a sum of one term, a copy (no bit changes), where the first token reads the number itself

    %20 = detach %10     %21 = div %10 %20 ...

and this copy, the sum of two terms and that of three are in `Graph.sums`: loops over one, two and three terms, which
later passes make one. Else the first two tokens would be apart from the others, and so would all that reads them.

Nodes have the same *colour* if they are computed alike, whatever the numbers of terms: the colour of a sum of alike
terms is that of its terms. A *place* is what the users of one colour read as one operand. Where that is a sum of two
terms, of three, and of one or of four, it is a place of sums, and what is no sum there is one of one term.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import CHAINS, LEAVES, Graph, Op, linked, with_copies
from micrograd import ops

MANY, FEW = 3, 2  # terms, of sums that there must be
DEPTH = 2  # of operands that tell kinds of sums apart
Use = tuple[int, bool]  # a node, and whether it is its first operand


@dataclass
class _Place:
    """What stands in a place, by node, with its uses there; and which of it are sums by an op, with their lengths."""

    uses: dict[int, list[Use]]
    op: int
    sums: dict[int, int]

    @cached_property
    def counts(self) -> Counter[int]:
        """How many sums of each length there are."""
        return Counter(self.sums.values())

    @cached_property
    def ends(self) -> dict[int, list[Use]]:
        """The sums of one term: no more than there are of two."""
        bare = {n: uses for n, uses in self.uses.items() if n not in self.sums}
        return bare if len(bare) <= self.counts[FEW] else {}

    @cached_property
    def is_of_sums(self) -> bool:
        counts = self.counts
        is_triangle = bool(self.ends) and (counts[FEW] == counts[MANY] or len(self.ends) == counts[FEW] < counts[MANY])
        return bool(counts[FEW] and counts[MANY] and (counts[MANY + 1] or is_triangle))


def mark_short_sums(graph: Graph) -> Graph:
    """The graph itself if there are none."""
    inner = graph.inner_terms(graph.used_once())
    if not _has_lengths(graph, inner):
        return graph
    found = _Places(graph, inner.tolist())
    kinds: dict[tuple[int, int], int] = {}  # of a sum, and its op
    uses: dict[tuple[int, int], list[Use]] = defaultdict(list)
    numbers: dict[Hashable, int] = {}
    for place in found.places():
        for n, kind in found.kinds(place):
            kinds.setdefault((n, place.op), numbers.setdefault(kind, len(numbers)))
        for n, some in place.ends.items():
            uses[n, place.op] += some
    if not kinds:
        return graph
    count = graph.use_counts(len(graph))
    # What is read as a sum alone needs no copy, if its tree has no sum: that of an op with two operands.
    is_alone = {key: count[key[0]] == len(some) and graph.b[key[0]] >= 0 for key, some in uses.items()}
    copied = {key: some for key, some in uses.items() if not is_alone[key] or graph.op[key[0]] in CHAINS}
    out, new, copies = with_copies(graph, np.array([n for n, _ in copied], np.int64))
    for (key, some), copy in zip(copied.items(), copies.tolist(), strict=True):
        out.sums[copy] = key[1], kinds[key]
        for user, is_first in some:
            (out.a if is_first else out.b)[new[user]] = copy
    out.sums |= {int(new[n]): (op, kind) for (n, op), kind in kinds.items() if (n, op) not in copied}
    out.stored = {int(new[n]) for n in found.stored(count)}
    return out


def _has_lengths(graph: Graph, inner: npt.NDArray[np.bool_]) -> bool:
    """Whether there are sums, or maxima, of two and of three terms."""
    op, a, _ = graph.columns()
    for chain in CHAINS:
        first = a[(op == chain) & ~inner]  # operands of sums; the `a` of a leaf is no node
        if (~inner[first]).any() and (~inner[a[first[inner[first]]]]).any():
            return True
    return False


class _Places:
    """The colours of a graph, and its places. `inner`: whether a node is inside of a spine of a sum."""

    def __init__(self, graph: Graph, inner: list[bool]) -> None:
        self.graph, self.inner = graph, inner
        self.colour = [0] * len(graph)
        self.length = [1] * len(graph)
        self.kind = [0] * len(graph)  # the same for those of one op whose operands have the same colours
        self.signature = cache(self._signature)
        numbers: dict[Hashable, int] = {}
        read: dict[int, set[tuple[int, int]]] = defaultdict(set)  # by kind, the sums of few terms among the operands
        colour, length = self.colour, self.length
        for n, (op, a, b) in enumerate(zip(graph.op, graph.a, graph.b, strict=True)):
            key: Hashable = op
            operands: Sequence[int] = ()
            if op not in LEAVES:
                if inner[n]:
                    continue
                operands = self.terms(n) if op in CHAINS else (a, b) if b >= 0 else (a,)
                colours = [colour[operand] for operand in operands]
                key = op, frozenset(colours) if op in CHAINS else tuple(colours)
            number = self.kind[n] = colour[n] = numbers.setdefault(key, len(numbers))
            if op in CHAINS:
                length[n] = len(operands)
                if colours.count(colours[0]) == len(colours):
                    colour[n] = colours[0]
            for operand in operands:
                if 1 < length[operand] <= MANY:
                    read[number].add((graph.op[operand], length[operand]))
        self.may_be = {kind for kind, found in read.items() if any({(op, FEW), (op, MANY)} <= found for op in CHAINS)}

    def uses(self) -> dict[Hashable, dict[int, list[Use]]]:
        """What stands in each place, and its uses there."""
        found: dict[Hashable, dict[int, list[Use]]] = defaultdict(lambda: defaultdict(list))
        for n, kind in enumerate(self.kind):
            if kind in self.may_be:
                is_chain = self.graph.op[n] in CHAINS
                for use in self.spine(n) if is_chain else [(n, True), (n, False)][: 1 + (self.graph.b[n] >= 0)]:
                    operand = self.operand(use)
                    found[kind, self.colour[operand] if is_chain else use[1]][operand].append(use)
        return found

    def operand(self, use: Use) -> int:
        return (self.graph.a if use[1] else self.graph.b)[use[0]]

    def spine(self, n: int) -> list[Use]:
        """Where the terms of a sum are, in order."""
        uses = [(n, False)]
        while self.inner[self.graph.a[n]] and self.graph.op[self.graph.a[n]] == self.graph.op[n]:
            n = self.graph.a[n]
            uses.append((n, False))
        return [(n, True), *reversed(uses)]

    def terms(self, n: int) -> list[int]:
        return [self.operand(use) for use in self.spine(n)]

    def places(self) -> Iterator[_Place]:
        """Those of sums, or of maxima, in the order of their first users."""
        for uses in self.uses().values():
            for op in CHAINS:
                place = _Place(uses, op, {n: self.length[n] for n in uses if self.graph.op[n] == op})
                if place.is_of_sums:
                    yield place
                    break

    def kinds(self, place: _Place) -> Iterator[tuple[int, Hashable]]:
        """The sums of a place, each with what it has in common with others.

        In a triangle, where each length but the longest is there equally often, sums that have the same first term as
        longer ones are another kind than those that have the same last one: rows and columns, as the gradients of
        queries and of keys.
        """
        sums = {n: self.terms(n) for n in place.sums} | {n: [n] for n in place.ends}
        number = Counter(map(len, sums.values()))
        shorter = sorted(number)[:-1]
        first = shorter[0]
        is_triangle = first <= FEW and shorter == [*range(first, first + len(shorter))]
        is_triangle = is_triangle and len({number[length] for length in shorter}) == 1
        starts, ends = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
        for terms in sums.values():
            starts[self.first(terms[0])].add(len(terms))
            ends[self.first(terms[-1])].add(len(terms))
        root = linked([[*map(self.first, terms)] for terms in sums.values()] if is_triangle else [])
        sides: Counter[int] = Counter()  # of sums that share operands: those in the middle of a window have none alone
        for terms in sums.values():
            first, last = self.first(terms[0]), self.first(terms[-1])
            sides[root(first)] += len(starts[first]) - len(ends[last])
        for n, terms in sums.items():
            side = sides[root(self.first(terms[0]))] if is_triangle else 0
            yield n, (place.op, self.signature(terms[-1], DEPTH), (side > 0) - (side < 0))

    def first(self, n: int) -> int:
        """The first operand of a product."""
        return self.graph.a[n] if self.graph.b[n] >= 0 else n

    def _signature(self, n: int, depth: int) -> Hashable:
        """What a node is computed from, to some depth, whatever the numbers of terms: the same in all layers."""
        op = self.graph.op[n]
        if op in LEAVES or not depth:
            return op if op in (Op.PARAM, Op.CONST) else None
        if op in CHAINS:
            terms = self.terms(n)
            found = {self.signature(t, depth - (self.graph.op[t] in CHAINS)) for t in (terms[0], terms[-1])}
            return found.pop() if len(found) == 1 else (op, frozenset(found))
        operands = [self.graph.a[n], self.graph.b[n]]
        return op, *[self.signature(operand, depth - 1) for operand in operands if operand >= 0]

    def stored(self, uses: npt.NDArray[np.int64]) -> list[int]:
        """What is used once where others of its colour are used twice and three times: stored as these are."""
        op, _, _ = self.graph.columns()
        nodes = np.flatnonzero(~(np.isin(op, [*LEAVES]) | self.inner))
        _, alike = np.unique(np.array(self.colour)[nodes] * ops.MAX_OPS + op[nodes], return_inverse=True)
        once, twice, thrice = [np.bincount(alike[uses[nodes] == n], minlength=len(nodes)) for n in (1, 2, 3)]
        found: list[int] = nodes[(uses[nodes] == 1) & ((thrice > 0) & (once <= twice))[alike]].tolist()
        return found

"""Groups -> families: groups whose results are read by one group as if they were one array.

Example input: under a causal mask, four tokens mix what they see by sums of one, two, three and four terms

    group 3: 8 roots, mul(R, R)                     group 5: 8 roots, sum(3 x mul(R, R))
    group 4: 8 roots, add(mul(R, R), mul(R, R))     group 6: 8 roots, sum(4 x mul(R, R))
    group 7: 32 roots, sum(8 x mul(P, R)), 8 of which read group 3, 8 read group 4 ...

becomes the family (3, 4, 5, 6). Its members are stored one after the other, in the order of their nodes, an equal
distance apart, so one index formula serves group 7: value[base + 8 * token + k].
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from codegen.ir.graph import linked
from codegen.ir.loops import Pass
from codegen.reroll.groups import Group, Ints, computed_by


@dataclass(frozen=True)
class Part:
    """A part of a group that takes `size` elements. `kind`: its shape, without the number of its terms."""

    group: Group
    size: int
    kind: object

    @property
    def key(self) -> tuple[int, int]:
        return self.group.key


def find_families(size: int, groups: list[Group], parts: list[Part]) -> list[list[Part]]:
    """The parts of groups that are read by one group together, in families of two or more; see _in_order().

    Parts of different sizes are families of one kind each. Steps of a recurrence, three or more of one shape, are in
    none, but for parts of one step: they are stored in the order in which they run. So are two of one shape, and
    different steps alone. Under a causal mask, a token whose sum has as many terms as another product looks like a
    step, and other tokens do not.
    """
    found: list[list[Part]] = []
    for family in read_together(size, groups, parts):
        if len({part.size for part in family}) == 1:
            found.append(family)
        else:
            kinds: dict[object, list[Part]] = {}
            for part in family:
                kinds.setdefault(part.kind, []).append(part)
            found += kinds.values()
    found = _alike([family for family in found if len(family) > 1], parts)
    return sorted(found, key=lambda family: max(part.key for part in family))


def _alike(families: list[list[Part]], parts: list[Part]) -> list[list[Part]]:
    """The families, and parts that stand to one another as those of a family do, though nothing reads them together.

    As in the last layer of a stack, which has no gradients of inputs: all layers are stored alike then. Families that
    have some of such parts become one.
    """
    position = {part.key: i for i, part in enumerate(parts)}
    kinds = [(part.group.shape, part.group.passes, part.size, part.kind) for part in parts]
    starts: dict[object, list[int]] = {}
    for i, kind in enumerate(kinds):
        starts.setdefault(kind, []).append(i)
    found = {number: [position[part.key] for part in family] for number, family in enumerate(families)}
    family_of = {i: number for number, places in found.items() for i in places}
    known = {(*[(kinds[i], i - places[0]) for i in places],): places for places in found.values()}
    for places in sorted(known.values(), key=len, reverse=True):
        pattern = [kinds[i] for i in places]
        for start in starts[pattern[0]]:
            alike = [start + i - places[0] for i in places]
            if min(alike) < 0 or max(alike) >= len(parts) or [kinds[i] for i in alike] != pattern:
                continue
            others = {family_of[i] for i in alike if i in family_of}
            if all(len(found[number]) < len(alike) and set(found[number]) <= set(alike) for number in others):
                for number in others:
                    del found[number]
                number = len(parts) + start  # of none before
                found[number] = alike
                family_of |= dict.fromkeys(alike, number)
    return [[parts[i] for i in places] for places in found.values()]


def read_together(size: int, groups: list[Group], parts: list[Part]) -> list[list[Part]]:
    """The parts in families that groups read as one array, most of a single part."""
    owner = computed_by(size, [part.group for part in parts])
    chains: dict[object, set[int]] = {}
    for part in parts:
        chains.setdefault(part.group.chain, set()).add(part.group.step)
    repeated = {part.group.shape for part in parts if len(chains[part.group.chain]) >= 3}
    recurrent = {i for i, part in enumerate(parts) if part.group.step >= 0 and part.group.shape in repeated}

    def together() -> Iterator[list[int]]:
        for group in groups:
            read = owner[group.leaves]
            for column in np.flatnonzero((read != read[0]).any(axis=0)).tolist():
                found = [i for i in np.unique(read[:, column]).tolist() if i >= 0]
                if len({(parts[i].group.place, parts[i].group.step) for i in found}) > 1:
                    found = [i for i in found if i not in recurrent]
                steps = {parts[i].group.number: parts[i].group for i in found if parts[i].group.step >= 0}
                shapes, times = {group.shape for group in steps.values()}, {group.step for group in steps.values()}
                if len(shapes) < len(steps) or (len(steps) == len(found) and len(times) > 1):
                    found = [i for i in found if parts[i].group.step < 0]
                yield found

    root = linked(together())
    members: dict[int, list[Part]] = {}
    for i, part in enumerate(parts):
        members.setdefault(root(i), []).append(part)
    return [_in_order(family) for family in members.values()]


def _in_order(family: list[Part]) -> list[Part]:
    """In the order of their nodes; on the way back in the reverse, that of the values whose gradients they are.

    So tokens of an example follow one another in both. Equally many parts of several kinds take turns: the gradients of
    a token's value, key and query are as far apart as those of the next token, though other nodes are their last ones.
    """
    found = sorted(family, key=lambda part: part.key, reverse=family[0].group.passes == Pass.GRADIENTS)
    kinds: dict[object, list[Part]] = {}
    for part in found:
        kinds.setdefault(part.kind, []).append(part)
    if len({len(some) for some in kinds.values()}) == 1:
        return [part for some in zip(*kinds.values(), strict=True) for part in some]
    return found


def distances(members: list[Part], padded: int, cache_line: int) -> list[int] | None:
    """How far each member of a family is from the first, and how far the end is; None to keep them apart.

    Members of one size are `padded` apart. Others follow each other without padding, if they consist of rows of one
    size: the smallest member's. A row of one is one in sums that differ in numbers of terms.
    """
    sizes = [part.size for part in members]
    row = min(sizes)
    are_rows = row > 1 or max(sizes) < cache_line or len({part.group.kind for part in members} - {-1}) == 1
    if len(set(sizes)) == 1:
        steps = [padded] * len(sizes)
    elif all(size % row == 0 for size in sizes) and are_rows:
        steps = sizes
    else:
        return None
    ends: Ints = np.cumsum([0, *steps])
    found: list[int] = ends.tolist()
    return found

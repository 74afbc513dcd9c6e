"""The names that generated C uses for its offsets, in one place."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

from codegen.reroll.layout import Layout

DATA, GRAD, VALUE = "data", "grad", "value"


def tensor_names(names: Iterable[str]) -> list[str]:
    """C names for named tensors: `layers.0.weight` is P_LAYERS_0_WEIGHT; names that would clash get a number."""
    return unique_names("P_" + c_identifier(name).upper() for name in names)


def c_identifier(name: str) -> str:
    """A name with everything replaced that cannot stand inside a C identifier."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def unique_names(names: Iterable[str], reserved: Iterable[str] = ()) -> list[str]:
    taken = set(reserved)
    result: list[str] = []
    for name in names:
        unique, n = name, 2
        while unique in taken:
            unique, n = f"{name}_{n}", n + 1
        taken.add(unique)
        result.append(unique)
    return result


def group_name(number: int) -> str:
    return f"GROUP_{number}"


class Offsets:
    """Turns an index into data[], grad[] or value[] into `NAME + rest`."""

    def __init__(self, layout: Layout) -> None:
        names = tensor_names(place.tensor.name for place in layout.tensors)
        self.data = [(place.offset, name) for place, name in zip(layout.tensors, names, strict=True)]
        self.value = [(0, "INPUT"), (layout.target_offset, "TARGET")]
        self.value += [(p.offset, group_name(p.number)) for p in layout.placed if p.offset >= 0]
        self._starts = {False: [start for start, _ in self.data], True: [start for start, _ in self.value]}

    def text(self, array: str, index: int) -> str:
        table = self.value if array == VALUE else self.data
        start, name = table[bisect_right(self._starts[array == VALUE], index) - 1]
        return name if start == index else f"{name} + {index - start}"

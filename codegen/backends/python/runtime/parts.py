"""Inputs and targets that come as a mapping of names to parts, or as tokens.

They are converted to a list of numbers for each example: bytes times a scale and numbers as they are, classes and
tokens as 1 among zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from codegen.backends.python.runtime.buffers import (
        PIXELS,
        REALS,
        Elements,
        check_classes,
        classes_below,
        get_buffer,
    )


class Part(NamedTuple):
    """Numbers that are passed together; `what` and `one`, a class, are for messages."""

    name: str  # empty if there is no mapping
    what: str
    one: str
    kind: str
    numbers: int  # that are passed for an example
    classes: int
    scale: float
    shape: tuple[int, ...]

    @property
    def elements(self) -> Elements:
        if self.classes:
            return classes_below(self.classes, self.one)
        return (PIXELS if self.kind == "pixels" else REALS)._replace(shape=self.shape)

    def leaves(self, found: Any) -> list[float]:
        """One example, as the model has it."""
        if self.kind == "pixels":
            return [byte * self.scale for byte in found]
        if not self.classes:
            return list(found)
        return [float(number == hot) for hot in found for number in range(self.classes)]


class RowCount:
    """How many examples there are, 0 if that is not known yet, and what says so."""

    def __init__(self, rows: int = 0, known_from: str = "") -> None:
        self.rows, self.known_from = rows, known_from

    def check(self, part: Part, numbers: int) -> None:
        if not numbers or numbers % part.numbers:
            needed = f"a multiple of {part.numbers} {part.elements.noun}, and at least one row"
            raise ValueError(f"{part.what} must hold {needed}, got {numbers}")
        rows = numbers // part.numbers
        if not self.rows:
            self.rows, self.known_from = rows, part.what
        elif rows != self.rows:
            expected = f"as many rows as {self.known_from}, {self.rows}"
            raise ValueError(f"{part.what} must have {expected}, got {rows} of {part.numbers}")


def get_parts(what: str, table: Any, thing: Any, count: RowCount | None) -> list[list[float]]:
    """A list for each example. `table` has the fields of parts. Without a count, it is one example, of any shape."""
    parts = [Part(*fields) for fields in table]
    found = []
    for part, item in zip(parts, _arguments(what, parts, thing)):
        if count is None:
            flat = get_buffer(item, part.what, part.elements, part.numbers)
        else:
            flat = get_buffer(item, part.what, part.elements, per_row=part.numbers)
            count.check(part, len(flat))
        if part.classes:
            check_classes(flat, part.elements)
        found.append(flat)
    rows = 1 if count is None else count.rows
    return [
        [
            number
            for part, flat in zip(parts, found)
            for number in part.leaves(flat[row * part.numbers : (row + 1) * part.numbers])
        ]
        for row in range(rows)
    ]


def _arguments(what: str, parts: list[Part], thing: Any) -> list[Any]:
    if not parts[0].name:
        return [thing]
    names = f"the names {', '.join(repr(part.name) for part in parts)}"
    if not hasattr(thing, "keys"):
        raise TypeError(f"{what} must be a mapping with {names}, got {type(thing)!r}")
    for key in thing.keys():
        if key not in [part.name for part in parts]:
            raise ValueError(f"{what} must have {names}: {key!r} is none of them")
    found = []
    for part in parts:
        try:
            found.append(thing[part.name])
        except KeyError:
            raise ValueError(f"{what} must have {names}: {part.name!r} is missing") from None
    return found

"""What csrc/parts.h requires of inputs and targets: their names, types, shapes and places, as constants and a table."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.backends.expressions import Arithmetic
from codegen.kinds import Part, types_text
from codegen.program import Program

Constants = list[tuple[str, object]]


def part_constants(prefix: str, parts: Sequence[Part]) -> Constants:
    """What csrc/parts.h requires of inputs or targets that are converted."""
    if not parts:
        return []
    names = ", ".join(repr(part.name) for part in parts)
    return [
        (f"{prefix}_PARTS", len(parts)),
        (f"{prefix}_NAMES", string(names)),
        (f"{prefix}_TYPE", string(types_text(parts))),
    ]


def part_table(prefix: str, parts: Sequence[Part], program: Program, by_index: Sequence[Part] = ()) -> list[str]:
    """The parts for csrc/parts.h. An example is stored as all that is not by index, and then what is."""
    literal = Arithmetic.of(program).literal
    kinds = {"pixels": "PIXEL_PART", "floats": "REAL_PART", "label": "CLASS_PART", "tokens": "CLASS_PART"}
    rows: list[str] = []
    first: dict[Part, int] = {}
    for part in [*(part for part in parts if part not in by_index), *by_index]:
        first[part] = sum(p.numbers if p in by_index else p.count for p in first)
    for part in parts:
        names = [string(part.name) if part.name else "NULL", string(part.what(prefix)), string(part.one(prefix))]
        numbers = [first[part], part.numbers, part.classes, int(part in by_index), literal(part.scale)]
        entries = [*names, kinds[part.kind], *numbers, _shape(part), part.first, part.count]
        rows.append(f"    {{{', '.join(map(str, entries))}}},")
    return [f"static const struct argument_part {prefix}_parts[] = {{", *rows, "};", ""] if rows else []


def _shape(part: Part) -> str:
    """A struct example_shape."""
    return f"{{{len(part.shape)}, {braces(part.shape)}}}"


def declared_shape(prefix: str, parts: Sequence[Part]) -> Constants:
    return [(f"{prefix}_SHAPE", _shape(parts[0]))] if len(parts) == 1 and parts[0].shape else []


def string(text: str) -> str:
    """A C string literal. Everything but plain ASCII is written as octal escapes of its UTF-8."""
    plain = (chr(c) if 32 <= c < 127 and c not in b'"\\?' else f"\\{c:03o}" for c in text.encode())
    return f'"{"".join(plain)}"'


def braces(numbers: Sequence[int]) -> str:
    return f"{{{', '.join(map(str, numbers)) or '0'}}}"

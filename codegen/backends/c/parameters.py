"""What generated C functions take, by the kernels that they run.

Example: the kernels of a few active inputs are functions

    static void AT_LEVEL(group_0_rows)(struct workspace *restrict w, int first, int end)

and a function that calls them passes on `w, first, end`: ROWS.text and ROWS.names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from codegen.backends.c.printer import INDENT, MAX_COMMENT, apart
from codegen.backends.expressions import Arithmetic
from codegen.ir.loops import (
    APART,
    IMAGE_COUNT,
    SHARED,
    VALUE,
    VALUES,
    Body,
    Name,
    all_expressions,
    statements,
    uses,
    writes,
)


@dataclass(frozen=True)
class Parameters:
    """The types and names of parameters. `suffix`: the end of the names of functions that take them."""

    declared: tuple[tuple[str, str], ...]
    suffix: str = ""

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.declared]

    @property
    def text(self) -> str:
        return ", ".join(type_ + name for type_, name in self.declared)

    def followed_by(self, *declared: tuple[str, str], suffix: str = "") -> Parameters:
        return replace(self, declared=self.declared + declared, suffix=suffix or self.suffix)

    def head(self, function: str, result: str = "static void") -> list[str]:
        """The head of a function, on as many lines as it takes."""
        head = f"{result} AT_LEVEL({function})("
        if len(head + self.text) < MAX_COMMENT:
            return [f"{head}{self.text})"]
        first, rest = (replace(self, declared=some).text for some in (self.declared[:1], self.declared[1:]))
        return [f"{head}{first},", f"{' ' * len(head)}{rest})"]


SHARE = ("int ", "part"), ("int ", "parts")  # of what threads divide among themselves

WORKSPACE = Parameters((("struct workspace *restrict ", "w"),))
ROWS = WORKSPACE.followed_by(("int ", "first"), ("int ", "end"))  # some of the active inputs
STEPS = Parameters(
    (("const struct workspace *restrict ", "w"), *SHARE, ("const real *restrict ", "step")), suffix="_as_steps"
)
SUMS = WORKSPACE.followed_by(("real ", IMAGE_COUNT), suffix="_of_sums")
SUM_GRADIENTS = SUMS.followed_by(*SHARE)
IMAGES = Parameters((("const struct workspace *", "images"), ("int ", "count"), *SHARE))
DENSE_ROWS = Parameters(  # some of the inputs, all of which are active
    (("struct workspace *restrict ", "images"), ("int ", "first"), ("int ", "end")), suffix="_dense_rows"
)
BESIDE = Parameters(
    (("struct images *restrict ", "images"), ("const struct workspace *restrict ", "once")), suffix="_side_by_side"
)
GROUPS = Parameters(
    (
        ("const struct images *", "images"),
        ("struct workspace *", "once"),
        ("int ", "groups"),
        ("int ", "count"),
        *SHARE,
    ),
    suffix="_in_groups",
)


def array_lines(parameters: Parameters, nests: list[Body], arithmetic: Arithmetic) -> list[str]:
    """value[] and shared[] of a function, and what it does not use."""
    used = {array for array in VALUES if any(uses(nest, array) for nest in nests)}
    is_written = any((place := writes(stmt)) and place.array == SHARED for nest in nests for stmt in statements(nest))
    const = "" if is_written else "const "
    shared = [f"{const}{arithmetic.type} *restrict const shared = once->value;" if SHARED in used else "(void)once;"]
    if parameters == DENSE_ROWS:
        lines = []
    elif parameters in (IMAGES, GROUPS):
        lines = [] if VALUE in used else ["(void)images;"]
        lines += shared if parameters == GROUPS else []
        if parameters == IMAGES and SHARED in used:
            lines = [f"const {arithmetic.type} *const shared = images->value;"]
    elif parameters in (WORKSPACE, ROWS, STEPS, SUMS, SUM_GRADIENTS):
        const = "const " if parameters == STEPS else ""
        lines = [f"{const}{arithmetic.type} *restrict const value = w->value;" if VALUE in used else "(void)w;"]
        lines += [apart(arithmetic)] if APART in used else []
        if parameters in (SUMS, SUM_GRADIENTS) and not any(map(_counts_images, nests)):
            lines.append(f"(void){IMAGE_COUNT};")
    else:
        value = f"{arithmetic.type}(*restrict const value)[SIDE_BY_SIDE] = images->value;"
        lines = [value if VALUE in used else "(void)images;", *shared]
    return [INDENT + line for line in lines]


def _counts_images(nest: Body) -> bool:
    return any(Name(IMAGE_COUNT) in all_expressions(stmt) for stmt in statements(nest))

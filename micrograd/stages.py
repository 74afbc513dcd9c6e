"""Long functions of one number -> C functions that apply them to many numbers, stage by stage.

Example: of tanh, 52 operations in a chain of 95 cycles, becomes

    NOT_INLINED void AT_LEVEL(each_tanh)(real *restrict numbers, ptrdiff_t lines)
    {
        real shifted_of[STAGED], main_of[STAGED], ...;
        for (ptrdiff_t blocks = (lines - 1) / STAGED_LINES + 1; blocks > 0; blocks--) {
            const ptrdiff_t count = lines / blocks * CACHE_LINE;
            STAGE for (ptrdiff_t i = 0; i < count; i++) {
                const real x = numbers[i];
                const real size = FABS(x);
                ...
                shifted_of[i] = shifted;
            }
            STAGE for (ptrdiff_t i = 0; i < count; i++) {
                const real shifted = shifted_of[i];
                ...

A processor looks ahead some hundred operations. In a loop over the whole function these are of two vectors, and it
waits for their chains; in a loop over a stage they are of six. tanh and softplus then take two thirds of the time.
What takes one operation on numbers that a later stage has anyway is computed there again: some processors store half a
vector a cycle.
"""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from micrograd.translate import CONDITION, INDENT, MAX_LINE, Line, Term, bare

OPERATIONS = 20  # of a stage
CUT = 3  # what a stage costs, as storing and loading so many numbers does


@dataclass(frozen=True)
class Stage:
    """Lines of a function, and the names that it leaves to later stages."""

    lines: list[Line]
    kept: list[Line]


def chain_of(lines: Iterable[Line], result: Term) -> int:
    """How many additions take as long as the function's longest chain of operations."""
    chains: dict[str, int] = {}

    def chain(term: Term) -> int:
        return term.chain + max((chains.get(name, 0) for name in term.reads), default=0)

    for line in lines:
        chains[line.name] = chain(line.value)
    return chain(result)


def stages_of(lines: Sequence[Line], result: Term, parameter: str) -> list[Stage]:
    """The cheapest stages of at most OPERATIONS operations, where a line by itself may have more."""
    last = Line("", result)
    every = [*lines, last]

    @cache
    def read(cut: int) -> list[Line]:
        names = frozenset[str]().union(*(line.value.reads for line in every[cut:]))
        return [line for line in every[:cut] if line.name in names]

    best: list[tuple[int, int]] = [(0, 0)]  # of the first lines: what their stages cost, and where the last one starts
    for end in range(1, len(every) + 1):
        cost = CUT + len(read(end)) if end < len(every) else 0
        starts, operations = [], 0
        for start in range(end - 1, -1, -1):
            operations += every[start].value.operations
            if operations > OPERATIONS and start < end - 1:
                break
            starts.append((best[start][0] + cost, start))
        best.append(min(starts))
    stages: list[Stage] = []
    end = len(every)
    while end:
        start = best[end][1]
        known = {parameter, *(line.name for line in read(end))}
        kept = [x for x in read(end) if max(x.value.operations, x.value.chain) > 1 or not x.value.reads <= known]
        stages.append(Stage(every[start:end], kept))
        end = start
    return stages[::-1]


def staged(title: str, parameter: str, lines: Sequence[Line], result: Term) -> list[str]:
    """The C function each_TITLE(), which replaces some cache lines of numbers by what a function gives for them."""
    arrays, loops = _loops(stages_of(lines, result, parameter), parameter)
    block = [
        "const ptrdiff_t count = lines / blocks * CACHE_LINE;",
        *loops,
        "numbers += count;",
        "lines -= lines / blocks;",
    ]
    return [
        f"/* {title} of each of the numbers, in stages: see micrograd/stages.py. */",
        f"NOT_INLINED void AT_LEVEL(each_{title})(real *restrict numbers, ptrdiff_t lines)",
        "{",
        *(INDENT + line for line in arrays),
        f"{INDENT}for (ptrdiff_t blocks = (lines - 1) / STAGED_LINES + 1; blocks > 0; blocks--) {{",
        *(2 * INDENT + line for line in block),
        f"{INDENT}}}",
        "}",
        "",
    ]


def _loops(stages: Sequence[Stage], parameter: str) -> tuple[list[str], list[str]]:
    """Arrays for what stages leave to later ones, and a loop for each stage."""
    loops: list[str] = []
    known = [Line(parameter, Term("numbers[i]", "real"))]
    arrays: dict[str, str] = {}  # the kinds of what is stored, all of one size, by name
    for stage in stages:
        known += stage.lines
        new = [line for line in stage.kept if line.name not in arrays]
        read = frozenset(line.name for line in new)
        body = [f"{line.name}_of[i] = {line.name};" for line in new[::-1]]
        for line in reversed(known):
            if line.name in read and line.name in arrays:
                body.append(f"const {arrays[line.name]} {line.name} = {line.name}_of[i];")
            elif line.name in read or not line.name:
                body.append(str(line) if line.name else f"numbers[i] = {bare(line.value.text)};")
                read |= line.value.reads
        arrays |= {line.name: "real_bits" if line.value.kind == CONDITION else line.value.kind for line in new}
        loops += ["STAGE for (ptrdiff_t i = 0; i < count; i++) {", *(INDENT + text for text in reversed(body)), "}"]
    kinds = {kind: [f"{name}_of[STAGED]" for name in arrays if arrays[name] == kind] for kind in arrays.values()}
    texts = [f"{kind} {', '.join(names)};" for kind, names in kinds.items()]
    return [line for text in texts for line in textwrap.wrap(text, MAX_LINE)], loops

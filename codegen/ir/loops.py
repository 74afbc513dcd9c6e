"""The loop language: what a program computes, as loops over arrays.

    kernel = nest*                           one group: roots of one shape
    nest   = stmt*
    stmt   = For(counter, count, body, kind) kind: see below
           | Let(name, expr)                 a number; Accumulate may change it
           | Local(name, length, images)     an array in registers, filled before it is read
           | Store(target, expr)
           | Accumulate(target, op, expr)    target = target op expr, where op is add or max
           | Nest(number, body)              a nest of that kernel, in a loop over kernels: see schedule.roll
           | Prefetch(place, counter, ahead) into the cache, for an iteration to come
    target = place | name
    place  = array[base + sum(stride * counter) + sum(table[index])], and [image] where images lie side by side
    expr   = place | name | constant | op(expr, ...)

Arrays: `data` (parameters), `grad`, `value` (inputs, targets, results), tables of constants or indices, Locals,
`shared`: the part of `value` that is the same for all images of a batch, `token`: the tokens that a model reads by
index, as one 1 among zeros, which C never stores, and `step`, the numbers of a step: see schedule.steps.
`reroll` makes the language from groups, the passes in `schedule` decide how the loops run, and the backends print it.
Counters, Lets and Locals are in scope from their statement to the end of the enclosing body. The name `image_count` is
in scope where sums over images are read: see schedule.sums_of_images. In a loop over kernels the count of a loop inside
may grow with its counter: `steps`.

The kind of a loop says what is known about its iterations:

    sequential   they run one after another
    in order     the same, and the C compiler must not vectorise them
    lanes        they are independent: elements of a vector register
    vectors      the same, side by side in memory: the C compiler must not unroll them before it makes vectors
    transposed   the same, of columns that C transposes in registers
    each         they apply a long function to numbers that lie side by side, in place: see schedule.each
    images       they are the images of a batch, in order; `value` is the array of the image
    few images   the same, as many as the loop says, which share its body's other loops
    side by side they are images whose values lie side by side: value[...][image]
    active       as sequential, over inputs; an input is skipped if it is 0 and its row of weights is finite
    parallel     they are independent, and divided among threads
    groups       they are groups of images side by side; `value` is the array of the group
    added        they are images side by side, whose numbers are added, in pairs, to what the statement adds to
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntFlag
from operator import is_not
from typing import TypeAlias

DATA, GRAD, VALUE, SHARED, TOKEN, STEP = "data", "grad", "value", "shared", "token", "step"
IMAGE_COUNT = "image_count"
INPUTS = "inputs"  # of an image, where all of them are active
APART = "apart"  # another name of value[]: see schedule.in_registers
VALUES = (VALUE, SHARED, APART)  # have one layout
SAME_LAYOUT = {GRAD: DATA, SHARED: VALUE, APART: VALUE}
MULTIPLY_ADD = -1  # a pseudo-op: a * b + c, rounded once where the processor can
WIDENED = -2  # and another one: the number that a float16 or a bfloat16 is


class Kind(Enum):
    SEQUENTIAL = "for"
    IN_ORDER = "for in order"
    LANES = "lanes"
    VECTORS = "vectors"
    TRANSPOSED = "transposed"
    EACH = "each"
    IMAGES = "images"
    FEW_IMAGES = "few images"
    SIDE_BY_SIDE = "side by side"
    ACTIVE = "active"
    PARALLEL = "parallel"
    GROUPS = "groups"
    ADDED = "added"


# Iterations that a vector register holds together.
BESIDE = (Kind.LANES, Kind.VECTORS, Kind.TRANSPOSED, Kind.SIDE_BY_SIDE)
Holds = Enum("Holds", "RESULTS INPUTS TARGETS NOISE TOKEN_ROWS")  # whose numbers a region of value[] has
LEAVES = (Holds.INPUTS, Holds.TARGETS, Holds.NOISE)  # which no kernel computes


class Phase(Enum):
    """How a kernel runs in a batch."""

    ONCE = "once"  # it depends on parameters alone
    BY_IMAGE = "image by image"
    SIDE_BY_SIDE = "images side by side"
    SUMMED = "images side by side, or their sums"


class Pass(IntFlag):
    """Which of the generated functions run a kernel."""

    LOSS = 1
    PREDICTION = 2
    OUTPUTS = 4
    GRADIENTS = 8  # the adjoints
    DENSE_GRADIENTS = 16  # the gradients of parameters, from adjoints
    ROW_GRADIENTS = 32  # those of row tensors, which run-time code computes on demand: see schedule.rows
    ROW_STARTS = 64  # where sums over active inputs begin: see schedule.skip_zeros
    ROW_SUMS = 128  # and their terms, which may be added for some inputs at a time
    METRICS = 256
    TOKEN_ROWS = 512  # rows of tables that tokens select, which run-time code copies: see schedule.tokens
    STEPS = 1024  # gradients of one image, and steps with them: see schedule.steps
    DENSE_ROWS = 2048  # row sums of a few images, for inputs that are active in all: see schedule.skip_zeros
    FROM_SUMS = 4096  # adjoints that follow from sums over images: see schedule.sums_of_images
    SUM_GRADIENTS = 8192  # and the gradients of parameters, from these
    MORE_DENSE_ROWS = 16384  # the same as DENSE_ROWS, of more images


PARAMETER_GRADIENTS = (Pass.DENSE_GRADIENTS, Pass.STEPS, Pass.SUM_GRADIENTS)
ROWS_OF_IMAGES = Pass.DENSE_ROWS | Pass.MORE_DENSE_ROWS


@dataclass(frozen=True, slots=True)
class Index:
    """base + sum(stride * counter) + sum(table[index]), plus the index that `origin` names, if any."""

    base: int
    steps: tuple[tuple[int, str], ...] = ()
    tables: tuple[tuple[str, Index], ...] = ()
    origin: str = ""

    def stride(self, counter: str) -> int:
        return sum([stride for stride, name in self.steps if name == counter])

    def looks_up(self, counter: str) -> bool:
        """Whether the counter selects an entry of a table."""
        return any(index.depends_on(counter) for _, index in self.tables)

    def is_contiguous(self, counter: str) -> bool:
        """Whether iterations of the counter find their numbers side by side in memory, or all find the same one."""
        return self.stride(counter) in (0, 1) and not self.looks_up(counter)

    def depends_on(self, counter: str) -> bool:
        return any(name == counter for _, name in self.steps) or (bool(self.tables) and self.looks_up(counter))


@dataclass(frozen=True, slots=True)
class Place:
    """An element of an array. `image` counts the images whose values lie side by side, if they do."""

    array: str
    index: Index
    image: str = ""

    def depends_on(self, counter: str) -> bool:
        return self.image == counter or self.index.depends_on(counter)


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Const:
    value: float


@dataclass(frozen=True, slots=True)
class Apply:
    op: int
    operands: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class For:
    counter: str
    count: int
    body: Body
    kind: Kind = Kind.SEQUENTIAL
    input: str = ""  # in a loop over active inputs, the name of the input's value
    steps: tuple[tuple[int, str], ...] = ()  # of loops around it: sum(step * counter) more iterations
    near: tuple[Expr, ...] = ()  # arguments of functions that have short forms: see schedule.marks
    unrolled: bool = False  # its sums would be in memory otherwise: see schedule.in_registers
    last: int = 0  # in a loop over kernels, how many statements the last iteration has; 0 if it has all of them

    @property
    def halves(self) -> tuple[Body, Body]:
        """What every iteration runs, and what the last one leaves out."""
        end = self.last or len(self.body)
        return self.body[:end], self.body[end:]

    def with_body(self, body: Body) -> For:
        """What replace() makes, in less than half the time."""
        steps = self.input, self.steps, self.near, self.unrolled, self.last
        return For(self.counter, self.count, body, self.kind, *steps)


@dataclass(frozen=True, slots=True)
class Let:
    """Names a number or, if `value` is an Index, an index that others can have as their origin."""

    name: str
    value: Expr | Index


@dataclass(frozen=True, slots=True)
class Local:
    """An array of `length` numbers; with `images`, of as many for each of the images side by side."""

    name: str
    length: int
    images: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    target: Target
    value: Expr


@dataclass(frozen=True, slots=True)
class Accumulate:
    target: Target
    op: int
    value: Expr


@dataclass(frozen=True, slots=True)
class Nest:
    """A nest of the kernel `number`, which tells none apart, in a loop over kernels. Its names are its own. `box`: see
    Kernel."""

    number: int = field(compare=False)
    body: Body
    box: tuple[range, ...] = ()

    def with_body(self, body: Body) -> Nest:
        return Nest(self.number, body, self.box)


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Begins to load the cache line of a place, as it will be `ahead` iterations of a loop later, if there are any."""

    place: Place
    counter: str
    ahead: int


Expr: TypeAlias = "Place | Name | Const | Apply"
Target: TypeAlias = "Place | Name"
Stmt: TypeAlias = "For | Let | Local | Store | Accumulate | Nest | Prefetch"
Body: TypeAlias = "tuple[Stmt, ...]"


@dataclass(frozen=True)
class Kernel:
    """A group as loops. It computes `roots` nodes, `nodes` being the first and the last.

    If it fills a part of a box (reroll.boxes), `box` has the places in each row that are needed.
    """

    number: int
    passes: Pass
    nests: tuple[Body, ...]
    nodes: tuple[int, int]
    roots: int
    is_gradient: bool = False
    phase: Phase = Phase.BY_IMAGE
    box: tuple[range, ...] = ()

    def with_nests(self, nests: tuple[Body, ...]) -> Kernel:
        return Kernel(self.number, self.passes, nests, self.nodes, self.roots, self.is_gradient, self.phase, self.box)


@dataclass(frozen=True)
class Region:
    """A part of an array: rows of `row` numbers and padding, `row_length` apart. Padding may hold anything.

    `name` is the name of its start in generated code, `title` its name in explanations.
    """

    start: int
    name: str
    title: str
    row: int
    row_length: int
    extent: int
    holds: Holds = Holds.RESULTS

    def is_padding(self, index: int) -> bool:
        return (index - self.start) % self.row_length >= self.row


class Regions(tuple[Region, ...]):
    """The regions of an array, by their start."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self.starts = [region.start for region in self]

    def at(self, index: int) -> Region:
        """The one that an element belongs to."""
        return self[bisect_right(self.starts, index) - 1]


@dataclass(frozen=True)
class Loops:
    """All kernels in the order in which they run, and the arrays that they use.

    `regions` are the parts of `data` (and of `grad`, which has the same), of `value` and of `token`, by their start:
    value[] begins with `inputs` inputs.
    """

    kernels: tuple[Kernel, ...]
    lengths: Mapping[str, int]
    tables: Mapping[str, Sequence[float]]
    regions: Mapping[str, Regions]
    inputs: int

    def with_kernels(self, kernels: Iterable[Kernel]) -> Loops:
        return replace(self, kernels=tuple(kernels))

    def region(self, array: str, index: int) -> Region:
        """The region that an element of data[], grad[] or value[] belongs to."""
        return self.regions[SAME_LAYOUT.get(array, array)].at(index)

    def length(self, array: str) -> int:
        """The number of elements of data[], grad[], value[] or shared[]."""
        return self.lengths[SAME_LAYOUT.get(array, array)]


# Walking and rebuilding


def statements(body: Body) -> Iterator[Stmt]:
    """Every statement, outer ones before those inside."""
    for stmt in body:
        yield stmt
        if type(stmt) is For or type(stmt) is Nest:
            yield from statements(stmt.body)


def has_loop(nests: Iterable[Body], kind: Kind) -> bool:
    """Whether there is a loop of a kind."""
    return any(type(stmt) is For and stmt.kind == kind for nest in nests for stmt in statements(nest))


def is_over_terms(loop: For) -> bool:
    """Whether a loop adds to sums, which are Locals or names, and stores nothing elsewhere."""
    inside = [*statements(loop.body)]
    targets = [stmt.target for stmt in inside if isinstance(stmt, Accumulate | Store)]
    is_local = all(not isinstance(target, Place) or target.array not in (DATA, GRAD, VALUE) for target in targets)
    return is_local and any(map(adds, inside)) and not any(isinstance(stmt, Nest) for stmt in inside)


def adds(stmt: Stmt) -> bool:
    """Whether a statement adds to its target; as a Store, with a product that is not rounded."""
    return isinstance(stmt, Accumulate) or (isinstance(stmt, Store) and stmt.target in subexpressions(stmt.value))


def applied_to_each(loop: For) -> tuple[int, Place]:
    """The op that a loop of kind `each` applies, and the first place. Raises ValueError if it does anything else."""
    match loop.body:
        case (For(body=(Store() as stmt,), kind=Kind.SIDE_BY_SIDE),) | (Store() as stmt,):
            target, value, counter = stmt.target, stmt.value, loop.counter
            if type(target) is Place and type(value) is Apply and value.operands == (target,):
                index = target.index
                if index.stride(counter) == 1 and not index.looks_up(counter):
                    return value.op, replace(target, index=moved(index, counter, Index(0)))
    raise ValueError("no function of numbers side by side")


def is_rolled(nest: Body) -> bool:
    """Whether a nest is a loop over kernels: see schedule.roll."""
    return (
        len(nest) == 1
        and type(nest[0]) is For
        and any(type(stmt) is Nest or is_rolled((stmt,)) for stmt in nest[0].body)
    )


def subexpressions(expr: Expr) -> Iterator[Expr]:
    yield expr
    if type(expr) is Apply:
        for operand in expr.operands:
            yield from subexpressions(operand)


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """The expressions that a statement itself evaluates."""
    if type(stmt) in (Let, Store, Accumulate) and not isinstance(stmt.value, Index):  # type: ignore[union-attr]
        yield stmt.value  # type: ignore[union-attr]


def all_expressions(stmt: Stmt) -> Iterator[Expr]:
    """The expressions that a statement itself evaluates, with all inside of them."""
    for expr in expressions(stmt):
        yield from subexpressions(expr)


def reads(stmt: Stmt) -> Iterator[Place]:
    """The places that a statement itself reads, except the target of an Accumulate; or prefetches."""
    if type(stmt) is Prefetch:
        yield stmt.place
    yield from (part for part in all_expressions(stmt) if type(part) is Place)


def writes(stmt: Stmt) -> Place | None:
    """The place that a statement itself writes."""
    return stmt.target if type(stmt) in (Store, Accumulate) and type(stmt.target) is Place else None  # type: ignore[union-attr]


def places(body: Body) -> Iterator[Place]:
    """Every place that a body reads or writes."""
    for stmt in statements(body):
        target = writes(stmt)
        yield from reads(stmt) if target is None else (target, *reads(stmt))


def all_places(loops: Loops) -> Iterator[Place]:
    """Every place that the kernels read or write."""
    for kernel in loops.kernels:
        for nest in kernel.nests:
            yield from places(nest)


def uses(body: Body, array: str) -> bool:
    """Whether anything in a body reads or writes an array."""
    return any(place.array == array for place in places(body))


def map_expr(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with every part changed, operands first. What stays as it was is the same object."""
    if type(expr) is Apply:
        operands = tuple([map_expr(operand, change) for operand in expr.operands])
        if any(map(is_not, operands, expr.operands)):
            expr = Apply(expr.op, operands)
    return change(expr)


def map_body(body: Body, change: Callable[[Expr], Expr]) -> Body:
    """The body with every expression and every target changed. What stays as it was is the same object."""
    changed = tuple([_map_stmt(stmt, change) for stmt in body])
    return changed if any(map(is_not, changed, body)) else body


def _map_stmt(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    match stmt:
        case For() | Nest():
            body = map_body(stmt.body, change)
            return stmt if body is stmt.body else stmt.with_body(body)
        case Let():
            if isinstance(stmt.value, Index):
                return stmt
            value = map_expr(stmt.value, change)
            return stmt if value is stmt.value else Let(stmt.name, value)
        case Store() | Accumulate():
            target, value = _target(change(stmt.target)), map_expr(stmt.value, change)
            if target is stmt.target and value is stmt.value:
                return stmt
            return Store(target, value) if type(stmt) is Store else replace(stmt, target=target, value=value)
        case Prefetch():
            place = change(stmt.place)
            assert isinstance(place, Place)
            return replace(stmt, place=place)
    return stmt


def _target(expr: Expr) -> Target:
    assert isinstance(expr, Place | Name)
    return expr


def moved(index: Index, counter: str, to: Index) -> Index:
    """The index with a counter replaced: counter = to.base + sum(stride * counter)."""
    if not index.depends_on(counter):
        return index
    stride = index.stride(counter)
    steps = tuple([step for step in index.steps if step[1] != counter])
    if stride:
        steps += tuple([(stride * step, name) for step, name in to.steps])
    tables = tuple([(table, moved(inner, counter, to)) for table, inner in index.tables])
    return Index(index.base + stride * to.base, steps, tables, index.origin)


def substituted(body: Body, counter: str, to: Index) -> Body:
    """The body with a counter replaced in every index and in every count; see moved()."""

    def change(expr: Expr) -> Expr:
        if type(expr) is not Place or (index := moved(expr.index, counter, to)) is expr.index:
            return expr
        return replace(expr, index=index)

    return tuple([_with_count(stmt, counter, to) for stmt in map_body(body, change)])


def _with_count(stmt: Stmt, counter: str, to: Index) -> Stmt:
    match stmt:
        case For():
            count = moved(Index(stmt.count, stmt.steps), counter, to)
            body = tuple([_with_count(inner, counter, to) for inner in stmt.body])
            return replace(stmt, count=count.base, body=body, steps=count.steps)
        case Nest():
            return stmt.with_body(tuple([_with_count(inner, counter, to) for inner in stmt.body]))
    return stmt

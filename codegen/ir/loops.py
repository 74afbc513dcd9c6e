"""The loop language: what a program computes, as loops over arrays.

    kernel = nest*                           one group: roots of one shape
    nest   = stmt*
    stmt   = For(counter, count, body, kind) kind: sequential | in order | lanes | vectors | images | side by side
                                                   | each | active | parallel | groups | added
           | Let(name, expr)                 a number; Accumulate may change it
           | Local(name, length, images)     an array in registers, filled before it is read
           | Store(target, expr)
           | Accumulate(target, op, expr)    target = target op expr, where op is add or max
           | Nest(number, body)              a nest of that kernel, in a loop over kernels: see schedule.roll
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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntFlag
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
    in_order: bool = False  # C would add its terms in another order: see schedule.marks
    last: int = 0  # in a loop over kernels, how many statements the last iteration has; 0 if it has all of them

    @property
    def halves(self) -> tuple[Body, Body]:
        """What every iteration runs, and what the last one leaves out."""
        end = self.last or len(self.body)
        return self.body[:end], self.body[end:]


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
    """A nest of the kernel `number`, in a loop over kernels. Its names are its own. `box`: see Kernel."""

    number: int
    body: Body
    box: tuple[range, ...] = ()


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

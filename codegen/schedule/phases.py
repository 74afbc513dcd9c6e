"""How each kernel runs in a batch: once, image by image, or with images side by side.

Example input, a perceptron whose weights have an L2 term, and rows of weights that inputs of 0 skip:

    kernel 0: value[800 + i] = relu(data[i] + sum of mul(data[...], value[k]) over active k)
    kernel 1: value[900] = sum of mul(data[k], data[k])
    kernel 2: value[904 + i] = tanh(sum of mul(data[...], value[800 + k]))

becomes:

    kernel 0 image by image         each image has active inputs of its own
    kernel 1 once                   it depends on parameters alone
    kernel 2 images side by side    value[904 + i][image], which the next pass writes down

What runs image by image comes first: it reads only inputs, targets and parameters. The values of images side by side
are copied from and to the workspaces of single images: see csrc/side_by_side.h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.ir.loops import (
    DATA,
    VALUE,
    Body,
    For,
    Index,
    Kernel,
    Kind,
    Loops,
    Phase,
    Place,
    has_loop,
    reads,
    statements,
    writes,
)
from codegen.schedule.nest import counts_of, is_copy, root_loops
from codegen.schedule.rows import RowTensor
from codegen.schedule.skip_zeros import skip_zeros
from codegen.schedule.target import Target
from codegen.schedule.unroll import unroll

ORDER = (Phase.ONCE, Phase.BY_IMAGE, Phase.SIDE_BY_SIDE)  # an element of value[] is known after one of these
MANY_BYTES = 2**18  # of rows: a part of a second-level cache
SHARED_ROWS = 1.25  # so many times more vector operations are worth it that rows are shared by a few images
IN_FLIGHT = 5  # vectors at a time: additions take 4 cycles, of which processors begin one or two in each
STREAMED = 2  # so many times longer operations take on what is read once: images side by side fill more than L1
FIRST_LEVEL = 2**15  # bytes that stay in a first-level cache
FROM_SECOND = 3  # so many times longer a vector takes to load that does not
STARTED = 5  # operations in the time that it takes to start the loops of a nest
STORED = 20  # operations in the time that it takes to store a number and load it again
COPY_OPERATIONS = 8  # for one element of as many images as fill a vector: loads, shuffles, stores
INPUT = 1  # in terms of ORDER: inputs and targets differ from image to image

States = npt.NDArray[np.int8]
Ints = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]  # of the elements of value[]


@dataclass(frozen=True)
class Cost:
    """Vector operations for as many images as lie side by side: one after the other, or all at once."""

    by_image: float = 0.0
    side_by_side: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.by_image + other.by_image, self.side_by_side + other.side_by_side)


def set_phases(loops: Loops, rows: dict[int, RowTensor], target: Target, observed: Iterable[int]) -> Loops:
    """`rows`: the tensors of which an image can skip rows. `observed`: places in value[] that are read from outside."""
    skipping = skip_zeros(loops, rows)
    outside = np.zeros(loops.lengths[VALUE] + 1, bool)
    outside[[*observed]] = True
    together: set[int] = set()  # numbers of kernels that must run side by side
    while True:
        phases, mixed = _phases(skipping, target, outside, together)
        if not mixed:
            break
        together |= mixed
    kernels = []
    for plain, kernel in zip(loops.kernels, skipping.kernels, strict=True):
        phase = phases[kernel.number]
        kernels.append(replace(plain if phase == Phase.SIDE_BY_SIDE else kernel, phase=phase))
    return loops.with_kernels(kernels)


def _phases(
    loops: Loops, target: Target, outside: npt.NDArray[np.bool_], together: set[int]
) -> tuple[dict[int, Phase], set[int]]:
    """The phase of each kernel, and those whose values are read together with values of images side by side."""
    states: States = np.full(loops.lengths[VALUE] + 1, INPUT, dtype=np.int8)
    writer = np.full(loops.lengths[VALUE] + 1, -1, dtype=np.int64)
    phases: dict[int, Phase] = {}
    mixed: set[int] = set()

    def mixed_in(found: Iterable[Ints]) -> set[int]:
        """The kernels that compute a part of these values once, where each image has others of its own."""
        both = [indices for indices in found if states[indices].min() == 0 and states[indices].max() > 0]
        return {number for indices in both for number in writer[indices][states[indices] == 0].tolist()}

    for kernel, unrolled in zip(loops.kernels, unroll(loops, single_roots_only=False).kernels, strict=True):
        found = [*indices_read(loops, unrolled)]  # each term of a short sum by itself, as it will be read
        read = [states[indices] for indices in found]
        state = max((int(one.max()) for one in read), default=0)
        written = [*indices_written(loops, kernel)]
        is_once = state == 0 and not any(outside[indices].any() for indices in written)
        is_by_image = state == INPUT and all(one.min() == INPUT for one in read) and has_loop(kernel.nests, Kind.ACTIVE)
        if kernel.number in together or not (is_once or (state == INPUT and is_by_image and _pays(kernel, target))):
            phases[kernel.number] = Phase.SIDE_BY_SIDE
            mixed |= mixed_in(found)
        else:
            phases[kernel.number] = ORDER[state]
        for indices in written:
            states[indices] = ORDER.index(phases[kernel.number])
            writer[indices] = kernel.number
    return phases, mixed - {-1}


def with_phases(loops: Loops, phases: Mapping[int, Phase]) -> Loops:
    return loops.with_kernels([replace(k, phase=phases.get(k.number, k.phase)) for k in loops.kernels])


def once_first(loops: Loops) -> Loops:
    """Of neighbours that the same passes need, what a batch computes once before the others, as in the batch.

    So it does not stand between steps of a recurrence that repeat without it: see roll.py.
    """
    kernels: list[Kernel] = []
    for _, together in groupby(loops.kernels, key=lambda kernel: (kernel.passes, kernel.is_gradient)):
        kernels += sorted(together, key=lambda kernel: kernel.phase != Phase.ONCE)
    return loops.with_kernels(kernels)


def indices_read(loops: Loops, kernel: Kernel, array: str = VALUE) -> Iterator[Ints]:
    """The elements of value[], or data[], that each place of a kernel reads; some may come more than once."""
    for nest in kernel.nests:
        counts = counts_of(nest)
        for stmt in statements(nest):
            if type(stmt) is For and stmt.input and array == VALUE:
                yield np.arange(stmt.count)
            for place in reads(stmt):
                if place.array == array:
                    yield indices_of(loops, place.index, counts).ravel()


def indices_written(loops: Loops, kernel: Kernel) -> Iterator[Ints]:
    for nest in kernel.nests:
        counts = counts_of(nest)
        for stmt in statements(nest):
            place = writes(stmt)
            if place is not None and place.array == VALUE:
                yield indices_of(loops, place.index, counts).ravel()


def written_in(loops: Loops, phase: Phase) -> Marks:
    """What kernels of a phase compute."""
    kernels = [kernel for kernel in loops.kernels if kernel.phase == phase]
    return marked(loops, (found for kernel in kernels for found in indices_written(loops, kernel)))


def marked(loops: Loops, indices: Iterable[Ints], array: str = VALUE) -> Marks:
    marks = np.zeros(loops.lengths[array], bool)
    for found in indices:
        marks[found] = True
    return marks


def indices_of(loops: Loops, index: Index, counts: Mapping[str, int]) -> Ints:
    """Every value of an index, with an axis for each counter that it depends on."""
    counters = [counter for counter in counts if index.depends_on(counter)]

    def values(index: Index) -> Ints:
        total = np.array(index.base, dtype=np.int64)
        for axis, counter in enumerate(counters):
            steps = index.stride(counter) * np.arange(counts[counter])
            total = total + steps.reshape([-1 if a == axis else 1 for a in range(len(counters))])
        for table, inner in index.tables:
            total = total + np.array(loops.tables[table], dtype=np.int64)[values(inner)]
        return total

    return values(index)


def _pays(kernel: Kernel, target: Target) -> bool:
    """Whether image by image, without the inputs that are 0, is no slower than images side by side.

    Where no input is expected to be 0, a few images share the rows that they read: see schedule.skip_zeros. It pays if
    these rows are many: images side by side read a few lanes of all rows at a time.
    """
    cost = kernel_cost(kernel, target)
    if not target.is_dense:
        return cost.by_image <= cost.side_by_side
    return cost.by_image <= cost.side_by_side * SHARED_ROWS and _row_bytes(kernel, target) >= MANY_BYTES


def _row_bytes(kernel: Kernel, target: Target) -> int:
    lanes = max([loop.count for nest in kernel.nests for loop in root_loops(nest)], default=1)
    loops = [stmt for nest in kernel.nests for stmt in statements(nest) if type(stmt) is For]
    return sum([loop.count for loop in loops if loop.kind == Kind.ACTIVE]) * lanes * target.bytes


def are_far(loops: Loops, kernels: Iterable[Kernel], target: Target) -> bool:
    """Whether the parameters that these kernels read are more than a first-level cache holds from image to image."""
    marks = marked(loops, (found for kernel in kernels for found in indices_read(loops, kernel, DATA)), DATA)
    return int(marks.sum()) * target.bytes > FIRST_LEVEL


def kernel_cost(kernel: Kernel, target: Target, is_far: bool = False) -> Cost:
    """Operations of all nests. Gradients of parameters are sums over images. `is_far`: so are_far(), which by image
    counts wherever a nest reads each parameter once; images side by side share what they load.
    """
    total = Cost()
    for nest in kernel.nests:
        cost = _operations(nest, target, is_far)
        side_by_side = cost.side_by_side * (1 if kernel.is_gradient or _has_sums(nest) else STREAMED)
        total += Cost(cost.by_image, side_by_side)
    return total


def longest_chain(loops: Loops, kernels: Iterable[Kernel], target: Target) -> float:
    """Operations that fit into the time in which kernels of one image wait for one another.

    All vectors of a kernel are computed at a time, and each addition waits for the one before in its sum.
    """
    ends = np.zeros(loops.lengths[VALUE] + 1)
    for kernel in kernels:
        start = max([float(ends[indices].max()) for indices in indices_read(loops, kernel)], default=0.0)
        end = start + sum([_latency(nest, target) for nest in kernel.nests])
        for indices in indices_written(loops, kernel):
            ends[indices] = np.maximum(ends[indices], end)
    return float(ends.max())


def _latency(nest: Body, target: Target) -> float:
    found = root_loops(nest)
    roots, lanes = prod(loop.count for loop in found), found[-1].count if found else 1
    vectors = roots // lanes * -(-lanes // target.cache_line)
    operations = _operations(nest, target).by_image / vectors * (IN_FLIGHT if _has_sums(nest) else 1)
    return operations + STORED * target.cache_line


def _has_sums(nest: Body) -> bool:
    """Whether it has loops over terms."""
    return sum(type(stmt) is For for stmt in statements(nest)) > len(root_loops(nest))


def _operations(nest: Body, target: Target, is_far: bool = False) -> Cost:
    """Operations of a nest. Lanes fill vectors, and what they read contiguously, or transpose_rows() copies, is loaded
    as vectors; all else one by one.
    """
    width, found = target.cache_line, root_loops(nest)
    lane = found[-1] if found else None
    lanes = lane.count if lane is not None else 1
    vectors = -(-lanes // width)
    apart = lanes / vectors if not is_copy(nest) else 1.0  # loads of what lanes read far apart

    def weight(place: Place) -> float:
        is_near = lane is None or place.array not in (DATA, VALUE) or place.index.is_contiguous(lane.counter)
        has_one_use = is_far and place.array == DATA and all(place.depends_on(loop.counter) for loop in found)
        return max(1.0 if is_near else apart, FROM_SECOND if has_one_use else 1.0)

    by_image = _work(nest, target.density, weight) / lanes * vectors * width
    return Cost(by_image, _work(nest, 1.0, lambda place: 1.0))


def _work(body: Body, density: float, weight: Callable[[Place], float]) -> float:
    """How often statements run, each weighted by the places that it reads."""
    total = 0.0
    for stmt in body:
        if type(stmt) is For:
            share = density if stmt.kind == Kind.ACTIVE else 1.0
            total += stmt.count * share * _work(stmt.body, density, weight)
        else:
            total += 1 + sum(weight(place) for place in reads(stmt))
    return total

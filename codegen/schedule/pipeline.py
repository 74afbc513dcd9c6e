"""The passes of each target, in order. Each can be switched off, and the loops compute the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from codegen.ir import loops as ir
from codegen.ir.graph import Graph
from codegen.ir.loops import Body, For, Kernel, Kind, Loops, Phase, has_loop
from codegen.kinds import Part
from codegen.reroll.layout import Layout
from codegen.reroll.trees import Shapes
from codegen.schedule.columns import copy_columns
from codegen.schedule.dots import add_terms_in_vectors
from codegen.schedule.each import apply_to_each
from codegen.schedule.gradients import add_images, interchange_loops, keep_in_registers, read_in_first, share_gradients
from codegen.schedule.groups_of_images import add_groups
from codegen.schedule.hoist import collect, hoist, name_addresses
from codegen.schedule.in_registers import mark_tiles, read_apart
from codegen.schedule.lanes import pad_lanes, split_into_lanes
from codegen.schedule.marks import keep_order, mark_near, mark_vectors
from codegen.schedule.needed import compute_needed
from codegen.schedule.parts import interleave_sums, split_sums
from codegen.schedule.phases import once_first, set_phases, with_phases
from codegen.schedule.prefetch import prefetch
from codegen.schedule.roll import roll
from codegen.schedule.rows import RowTensor
from codegen.schedule.side_by_side import put_side_by_side
from codegen.schedule.skip_zeros import rows_of_images, skip_zeros, split_row_sums
from codegen.schedule.steps import gradients_from_zero, take_steps
from codegen.schedule.sums_of_images import Sums, put_sums_last
from codegen.schedule.target import Target
from codegen.schedule.tile import tile_lanes, tile_rows, tile_values
from codegen.schedule.tokens import TokenTable
from codegen.schedule.transpose import transpose
from codegen.schedule.unroll import fuse_products, unroll
from codegen.schedule.widen import widen_weights


@dataclass
class Rerolled:
    """The input of a schedule: plain loops, and the storage that they use."""

    graph: Graph
    shapes: Shapes
    layout: Layout
    loops: Loops
    rows: dict[int, RowTensor]
    tokens: list[TokenTable] = field(default_factory=list)
    by_index: tuple[Part, ...] = ()  # the inputs that are in token[]

    def place_of(self, n: int) -> int:
        """The index of an observed node in value[]; -1 for -1, a missing loss."""
        copies = self.layout.copies
        return -1 if n < 0 else copies[n] if n in copies else int(self.layout.index[n])

    @property
    def observed(self) -> list[int]:
        """The places in value[] that are read from outside after a batch."""
        return [self.place_of(n) for n in (self.graph.loss, *chain(*self.graph.outputs.values())) if n >= 0]

    @property
    def row_factors(self) -> list[tuple[int, int]]:
        """What the gradients of rows read in value[]: first elements, and how many."""
        factors = [(row.factor, row.lanes) for row in self.rows.values()]
        return factors + [(factor, table.span) for table in self.tokens for _, factor, _ in table.gradients]

    @property
    def read_outside(self) -> list[int]:
        """The places in value[] that no kernel alone reads."""
        factors = [place for first, count in self.row_factors for place in range(first, first + count)]
        return [*self.observed, *factors, *self.input_gradients.values()]

    def with_kernels(self, kernels: Iterable[Kernel]) -> Rerolled:
        return replace(self, loops=self.loops.with_kernels(kernels))

    @property
    def input_gradients(self) -> dict[int, int]:
        """Where the gradients of inputs are in value[]."""
        return {i: self.place_of(n) for i, n in self.graph.input_gradients.items()}


Pass = Callable[[Loops], Loops]


def single_images(found: Rerolled, target: Target, phases: Mapping[int, Phase]) -> Rerolled:
    """What c_passes() are for in a module, whose batches have `phases`: with rows instead of columns."""
    return replace(found, loops=copy_columns(with_phases(found.loops, phases), target.cache_line, phases))


def c_passes(
    found: Rerolled, target: Target, in_module: bool = False, scales: Sequence[float] | None = None
) -> dict[str, Pass]:
    """The passes of C, by name, in order. Kernels of a module have their phases in a batch.

    With `scales` weights are widened where they are read. They have no padding, so no row is read past its end.
    """
    tiles = Kind.TRANSPOSED if in_module else Kind.VECTORS
    passes: dict[str, Pass] = {
        "skip zeros": lambda loops: skip_zeros(loops, found.rows),  # rows of weights of inputs that are 0
        "row sums": lambda loops: split_row_sums(loops, target),  # sums over active inputs apart, for tiles of rows
        "unroll": unroll,  # short sums into one expression
        "images": add_images,  # gradients go over the images of a batch
        "shared": read_in_first,  # and read in one place what a batch computes once
        "registers": keep_in_registers,  # and accumulate in registers
        "interchange": lambda loops: interchange_loops(loops, target),  # of gradients, where rows are short
        "interleave": interleave_sums,  # single sums, some at a time
        "dots": lambda loops: add_terms_in_vectors(loops, target),  # terms side by side
        "lanes": split_into_lanes,  # roots side by side in vector registers
        "pad": lambda loops: pad_lanes(loops, target),  # whole vectors
        "tile values": lambda loops: tile_values(loops, target),  # sums that read some numbers together
        "parts": lambda loops: split_sums(loops, target),  # several sums at a time
        "transpose": lambda loops: transpose(loops, target, tiles),  # columns of a matrix as rows
        "tile rows": lambda loops: tile_rows(loops, target),  # gradients in several rows at a time
        "tile": lambda loops: tile_lanes(loops, target),  # no more lanes than registers can hold
        "hoist": hoist,  # reads out of the lanes
        "collect": collect,  # what lanes with functions read far apart
        "in order": keep_order,  # loops that gcc would vectorise wrongly
        "vectors": mark_vectors,  # lanes that gcc would unroll
        "parallel": share_gradients,  # a part of the gradients for each thread
        "fuse": fuse_products,  # multiply and add with one rounding
        "once first": once_first,  # as in a batch
        # Narrow weights; roll takes the indices of their scales as it takes others.
        "widen": lambda loops: widen_weights(loops, found.layout.tensors, scales or ()),
        "roll": roll,  # time steps, blocks and tokens
        "each": lambda loops: apply_to_each(loops, target),  # long functions of many numbers
        "near": mark_near,  # short forms of functions
        "apart": read_apart,  # values at distances that gcc would mix up
        "prefetch": lambda loops: prefetch(loops, target),  # terms in other pages, and values of other images
    }
    optional = {"dots": target.reorder, "parts": target.reorder, "fuse": target.fma}
    optional |= {"each": in_module, "apart": in_module, "prefetch": in_module}
    optional |= {"pad": scales is None, "widen": scales is not None}
    return {name: run for name, run in passes.items() if optional.get(name, True)}


def batch_passes(found: Rerolled, target: Target) -> dict[str, Pass]:
    """The passes of C for the images of a batch; gradients are those of c_passes()."""
    passes: dict[str, Pass] = {
        "values": _values,
        # What runs once, image by image, and with images side by side.
        "phases": lambda loops: set_phases(loops, found.rows, target, found.observed),
        "unroll": lambda loops: unroll(loops, single_roots_only=False),
        "side by side": lambda loops: put_side_by_side(loops, target),  # images in vector registers
        "hoist": hoist,
        "in order": keep_order,
        "fuse": fuse_products,
    }
    return {name: run for name, run in passes.items() if name != "fuse" or target.fma}


def gradient_passes(target: Target, batch: Loops, sums: Sums) -> dict[str, Pass]:
    """The passes of C for gradients that groups of images side by side add; `batch` are their other kernels."""
    always = [*sums.changed, *(kernel.number for kernel in sums.added)]
    passes: dict[str, Pass] = {
        "groups": lambda loops: add_groups(loops, batch, target, always),
        "hoist": hoist,
        "in order": keep_order,
        "parallel": share_gradients,
        "fuse": fuse_products,
    }
    return {name: run for name, run in passes.items() if name != "fuse" or target.fma}


def beside_passes(target: Target, sums: Sums) -> dict[str, Pass]:
    """The passes of C for what computes all images of a batch side by side, after batch_passes()."""
    return {
        "sums last": lambda loops: put_sums_last(loops, sums),  # what groups of images can do without
        "roll": lambda loops: roll(loops, unrolled=True),
        "each": lambda loops: apply_to_each(loops, target),
        "needed": compute_needed,  # no places of boxes that nobody reads
        "near": mark_near,
        "tiles": mark_tiles,  # loops that gcc must unroll
        "prefetch": lambda loops: prefetch(loops, target),
    }


def group_passes() -> dict[str, Pass]:
    """The passes of C for gradients of groups of images, after gradient_passes()."""
    return {"roll": roll, "tiles": mark_tiles}


def step_passes(found: Rerolled, target: Target) -> dict[str, Pass]:
    """The passes of C for gradients of a single image that become steps at once."""
    return {
        "from zero": gradients_from_zero,
        **{name: run for name, run in sum_passes(found, target).items() if name != "registers"},
        "apart": read_apart,
        "steps": take_steps,
    }


def sum_passes(found: Rerolled, target: Target) -> dict[str, Pass]:
    """The passes of C for what follows from sums over images, as from a single image."""
    skipped = ("skip zeros", "row sums", "images", "interchange")
    return {name: run for name, run in c_passes(found, target).items() if name not in skipped}


def dense_passes(found: Rerolled, target: Target) -> dict[str, Pass]:
    """The passes of C for sums over inputs that are active in all of a few images."""
    passes = c_passes(found, target)
    passes["dense rows"] = lambda loops: rows_of_images(loops, target)
    passes["prefetch"] = lambda loops: prefetch(loops, target)
    order = ("skip zeros", "row sums", "dense rows", "in order", "vectors", "fuse", "prefetch")
    return {name: passes[name] for name in order if name in passes}


def python_passes(found: Rerolled) -> dict[str, Pass]:
    """The passes of Python: no lanes, except where rows are skipped for all of them at once."""
    return {
        "skip zeros": lambda loops: skip_zeros(loops, found.rows),
        "unroll": lambda loops: unroll(loops, single_roots_only=False),
        "lanes": lambda loops: split_into_lanes(loops, where=_skips_zeros),
        "hoist": lambda loops: hoist(loops, tuple(Kind), at_top=True),
        "addresses": name_addresses,
    }


def stages(found: Rerolled, passes: Mapping[str, Pass], without: Container[str] = ()) -> Iterator[tuple[str, Loops]]:
    """The loops after each pass, with the pass's name. Passes named in `without` are switched off."""
    loops = _without_rows(found.loops)
    yield "plain", loops
    for name, run in passes.items():
        if name not in without:
            loops = run(loops)
            yield name, loops


def schedule(found: Rerolled, passes: Mapping[str, Pass], without: Container[str] = ()) -> Loops:
    """The loops after all passes but those named in `without`."""
    *_, (_, loops) = stages(found, passes, without)
    return loops


def _without_rows(loops: Loops) -> Loops:
    """Gradients and copies of rows are hand-written: csrc/rows.h, tokens.h, and the Python backend's runtime."""
    by_hand = ir.Pass.ROW_GRADIENTS | ir.Pass.TOKEN_ROWS
    return loops.with_kernels([kernel for kernel in loops.kernels if not kernel.passes & by_hand])


def _values(loops: Loops) -> Loops:
    """The kernels that run for each image of a batch."""
    needed = ir.Pass.LOSS | ir.Pass.GRADIENTS | ir.Pass.PREDICTION | ir.Pass.OUTPUTS
    return loops.with_kernels([kernel for kernel in loops.kernels if kernel.passes & needed])


def _skips_zeros(nest: Body) -> bool:
    return type(nest[0]) is For and has_loop([nest], Kind.ACTIVE)

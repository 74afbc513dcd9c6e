"""Which passes a target has, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.ir.graph import Graph
from codegen.ir.loops import Body, For, Kind, Loops, Pass, statements
from codegen.reroll.layout import Layout
from codegen.reroll.trees import Shapes
from codegen.schedule.addresses import name_addresses
from codegen.schedule.fuse import fuse_products
from codegen.schedule.hoist import hoist
from codegen.schedule.images import add_images
from codegen.schedule.in_order import keep_order
from codegen.schedule.lanes import split_into_lanes
from codegen.schedule.pad import pad_lanes
from codegen.schedule.parallel import share_gradients
from codegen.schedule.parts import split_sums
from codegen.schedule.registers import keep_in_registers
from codegen.schedule.rows import RowTensor
from codegen.schedule.skip_zeros import skip_zeros
from codegen.schedule.target import Target
from codegen.schedule.tile import tile_lanes
from codegen.schedule.unroll import unroll


@dataclass
class Rerolled:
    """What is scheduled: plain loops, and what is known about where they keep things."""

    graph: Graph
    shapes: Shapes
    layout: Layout
    loops: Loops
    rows: dict[int, RowTensor]

    def place_of(self, n: int) -> int:
        """Where an observed node stands in value[]; -1 if there is no loss."""
        copies = self.layout.copies
        return -1 if n < 0 else copies[n] if n in copies else int(self.layout.index[n])


def schedule_c(found: Rerolled, target: Target) -> Iterator[tuple[str, Loops]]:
    """The loops after each pass, with the pass's name, the last ones being those that C is printed from."""
    yield (
        "skip zeros",
        (loops := skip_zeros(_without_rows(found.loops), found.rows)),
    )  # rows of weights
    yield "unroll", (loops := unroll(loops))  # short sums into one expression
    yield "images", (loops := add_images(loops))  # gradients go over the images of a batch
    yield "registers", (loops := keep_in_registers(loops))  # and are kept in registers meanwhile
    yield "lanes", (loops := split_into_lanes(loops))  # roots side by side in vector registers
    yield "pad", (loops := pad_lanes(loops))  # whole vectors
    if target.reorder:
        yield "parts", (loops := split_sums(loops, target))  # several sums at a time
    yield "tile", (loops := tile_lanes(loops, target))  # no more lanes than there are registers for
    yield "hoist", (loops := hoist(loops))  # reads out of the lanes
    yield "in order", (loops := keep_order(loops))  # loops that no compiler shall touch
    yield "parallel", (loops := share_gradients(loops))  # a part of the gradients for each thread
    if target.fma:
        yield "fuse", (loops := fuse_products(loops))  # multiply and add with one rounding


def schedule_python(found: Rerolled) -> Iterator[tuple[str, Loops]]:
    """The same for Python: no lanes but where rows are skipped for all of them at once."""
    yield "skip zeros", (loops := skip_zeros(_without_rows(found.loops), found.rows))
    yield "unroll", (loops := unroll(loops, single_roots_only=False))
    yield "lanes", (loops := split_into_lanes(loops, where=_skips_zeros))
    yield "hoist", (loops := hoist(loops, tuple(Kind), at_top=True))
    yield "addresses", (loops := name_addresses(loops))


def _without_rows(loops: Loops) -> Loops:
    """Gradients of row tensors are hand-written: csrc/rows.h, and the Python backend's runtime."""
    return loops.with_kernels([kernel for kernel in loops.kernels if kernel.passes != Pass.ROW_GRADIENTS])


def _skips_zeros(nest: Body) -> bool:
    return type(nest[0]) is For and any(type(stmt) is For and stmt.kind == Kind.ACTIVE for stmt in statements(nest))

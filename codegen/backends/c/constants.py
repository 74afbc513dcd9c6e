"""What csrc/ requires of a module as constants: images of a block, threads, and the parts of inputs and targets."""

from collections.abc import Sequence

from codegen.backends.c.kernels import Kernels
from codegen.backends.expressions import Arithmetic
from codegen.kinds import Part, types_text
from codegen.program import Program

MAX_BLOCK = 256  # images of a batch that are processed at a time
SMALL_BLOCK = 64  # if the workspaces of more do not fit into BLOCK_BYTES, about the L2 caches of two processors
FEWER_IMAGES = 32  # if gradients read groups of images, and SMALL_BLOCK of them do not fit there either
BLOCK_BYTES = 2**22
ROWS_BYTES = 2**17  # of row tensors that do not fit a first-level cache
LARGE_ROWS = 2**20  # nor a second-level one
WORKER_IMAGES = 16  # of a block, if SMALL_BLOCK do not fit into WORKER_BYTES; half if 16 do not fit into twice that
WORKER_BYTES = 2**20
MAX_WORKSPACES = 2**26  # bytes

Constants = list[tuple[str, object]]


def workspaces(kernels: Kernels) -> int:
    """For how many threads there is room."""
    images = 2 * kernels.batch.images if kernels.batch is not None else 0
    return MAX_WORKSPACES // (8 * (kernels.value_count + images * kernels.batch_values))


def block_images(kernels: Kernels) -> int:
    """How many images of a batch are processed at a time.

    The more images add to a row while it is in the cache, the better, if rows do not fit; and the fewer times threads
    wait for one another. For all else, the values of the images should stay in the cache, unless all gradients together
    do not, or those of rows: each block reads and writes them.
    """
    workspace = kernels.batch_values * 8
    rows = 8 * sum(row.place.extent for row in kernels.row_tensors)
    gradients = 8 * kernels.data_count
    most = 4 * BLOCK_BYTES if gradients > BLOCK_BYTES // 2 or rows > LARGE_ROWS else BLOCK_BYTES
    if MAX_BLOCK * workspace <= most and rows >= ROWS_BYTES:
        return MAX_BLOCK
    is_large = kernels.functions.group_calls and SMALL_BLOCK * workspace > BLOCK_BYTES
    images = FEWER_IMAGES if is_large and not kernels.row_tensors else SMALL_BLOCK
    return max(min(images, MAX_WORKSPACES // (kernels.value_count * 8)), 1)


def images_of_a_worker(kernels: Kernels) -> int:
    """How many images of a block each worker has at most, where gradients add image after image; 0 for any number.

    Then neither a block's size nor the number of workers changes a bit. Gradients read the values of all images of a
    block once for each tile of sums; parameters with rows add whole blocks to a row at a time.
    """
    workspace = kernels.batch_values * 8
    if SMALL_BLOCK * workspace <= WORKER_BYTES or kernels.row_tensors or kernels.functions.group_calls:
        return 0
    is_large = kernels.batch is None and WORKER_IMAGES * workspace > 2 * WORKER_BYTES
    return WORKER_IMAGES // 2 if is_large else WORKER_IMAGES


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

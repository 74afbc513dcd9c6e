"""How many images of a batch are processed at a time, and how many threads can have workspaces of their own."""

from __future__ import annotations

from codegen.backends.c.kernels import Kernels

MAX_BLOCK = 256  # images of a batch that are processed at a time
SMALL_BLOCK = 64  # if the workspaces of more do not fit into BLOCK_BYTES, about the L2 caches of two processors
FEWER_IMAGES = 32  # if gradients read groups of images, and SMALL_BLOCK of them do not fit there either
BLOCK_BYTES = 2**22
ROWS_BYTES = 2**17  # of row tensors that do not fit a first-level cache
LARGE_ROWS = 2**20  # nor a second-level one
WORKER_IMAGES = 16  # of a block, if SMALL_BLOCK do not fit into WORKER_BYTES; half if 16 do not fit into twice that
WORKER_BYTES = 2**20
MAX_WORKSPACES = 2**26  # bytes


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

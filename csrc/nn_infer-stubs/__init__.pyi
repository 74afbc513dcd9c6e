"""A trained micrograd model, compiled: MLP 784-50-10, relu, softmax cross-entropy.

predict(pixels), probabilities(pixels) and outputs(pixels) take one image; info() describes the model.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, SupportsIndex, TypeAlias, TypedDict, type_check_only

from typing_extensions import Buffer

__version__: str

# NumPy's arrays have been Buffers all along, but its types say so from Python 3.12 on.
@type_check_only
class _Array(Protocol):
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

_Buffer: TypeAlias = Buffer | _Array

@type_check_only
class _Info(TypedDict):
    architecture: str
    version: str
    dtype: Literal["float64", "float32"]
    mode: Literal["strict", "fast"]
    fma: bool
    reorder: bool
    simd: str
    compiler: str
    lowering: str
    parameters: int
    weight_type: Literal["float64", "float32", "float16", "bfloat16", "int8"]
    inputs: int
    input_type: str
    outputs: dict[str, int]
    digest: str
    weights: str

def predict(pixels: _Buffer, /) -> int:
    """The most likely class of one image, as an int; the first one on a tie.

    pixels: a C-contiguous buffer of 784 unsigned bytes, read in place: bytes, bytearray, memoryview or a NumPy array.

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    """

def probabilities(pixels: _Buffer, /) -> tuple[float, ...]:
    """The probability of each class for one image, as a tuple of floats.

    pixels: a C-contiguous buffer of 784 unsigned bytes, read in place: bytes, bytearray, memoryview or a NumPy array.

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    Raises RuntimeError if no output of the model is named 'probabilities'.
    """

def outputs(pixels: _Buffer, /) -> dict[str, tuple[float, ...]]:
    """Every named output for one image: {name: tuple of floats}. info()['outputs'] has their lengths.

    pixels: a C-contiguous buffer of 784 unsigned bytes, read in place: bytes, bytearray, memoryview or a NumPy array.

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    """

def predict_batch(
    images: _Buffer,
    *,
    threads: SupportsIndex | None = 1,
    progress: Callable[[int, int, None], object] | None = None,
) -> bytes:
    """The most likely class of each of n images, as n bytes. The GIL is released.

    images: a C-contiguous buffer of n * 784 unsigned bytes, n >= 1, read in place:
        bytes, bytearray, memoryview or a NumPy array.
    threads: an int, 1 <= threads <= 64. Results do not depend on it.
    progress: a callable, called periodically with (images done, n, None).

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    """

def outputs_batch(
    images: _Buffer,
    *,
    out: Mapping[str, _Buffer] | None = None,
    threads: SupportsIndex | None = 1,
    progress: Callable[[int, int, None], object] | None = None,
) -> dict[str, Any]:
    """The named outputs of n images, as a dict {name: a memoryview of n rows of float64}, which numpy.asarray()
    reads without a copy. The GIL is released.

    images: a C-contiguous buffer of n * 784 unsigned bytes, n >= 1, read in place:
        bytes, bytearray, memoryview or a NumPy array.
    out: {name: a writable C-contiguous buffer of float64} for the outputs that are wanted; default: new memory.
    threads: an int, 1 <= threads <= 64. Results do not depend on it.
    progress: a callable, called periodically with (images done, n, None).

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    What an interrupted call has written into `out` stays there.
    """

def probabilities_batch(
    images: _Buffer,
    *,
    out: _Buffer | None = None,
    threads: SupportsIndex | None = 1,
    progress: Callable[[int, int, None], object] | None = None,
) -> Any:
    """The probabilities of the classes of n images, as a memoryview of n rows of float64. The GIL is released.

    images: a C-contiguous buffer of n * 784 unsigned bytes, n >= 1, read in place:
        bytes, bytearray, memoryview or a NumPy array.
    out: a writable C-contiguous buffer for them, which is then returned; default: new memory.
    threads: an int, 1 <= threads <= 64. Results do not depend on it.
    progress: a callable, called periodically with (images done, n, None).

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    Raises RuntimeError if no output of the model is named 'probabilities'.
    """

def info() -> _Info:
    """Describes this module, as a dict: architecture, dtype, mode, SIMD level, compiler, digest of the graph."""

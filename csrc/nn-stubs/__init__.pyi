"""A micrograd model, compiled: MLP 784-50-10, relu, softmax cross-entropy.

zero_grad(), forward(label, pixels), backward(), update() is one training step; train() runs whole epochs.
predict(pixels), probabilities(pixels) and outputs(pixels) take one image; info() describes the model.

The parameters are layers.0.weight (50, 784), layers.0.bias (50,), layers.1.weight (10, 50) and layers.1.bias (10,).
"""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypedDict, type_check_only

from typing_extensions import Buffer

__version__: str

# NumPy's arrays have been Buffers all along, but its types say so from Python 3.12 on.
@type_check_only
class _Array(Protocol):
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

_Buffer: TypeAlias = Buffer | _Array
_Number: TypeAlias = SupportsFloat | SupportsIndex
_Rate: TypeAlias = _Number | _Buffer | Sequence[_Number] | Callable[[int], _Number]

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
    inputs: int
    input_type: str
    targets: int
    target_type: str
    noise: int
    outputs: dict[str, int]
    learning_rate: float
    seed: int
    digest: str

def forward(label: SupportsIndex, pixels: _Buffer, /) -> float:
    """Computes and returns the loss of one image, as a float; backward() starts from it.

    label: an int, 0 <= label < 10.
    pixels: a C-contiguous buffer of 784 unsigned bytes, read in place: bytes, bytearray, memoryview or a NumPy array.

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    """

def backward() -> None:
    """Adds the gradients of the last forward() to those of the parameters. Returns None.

    Raises RuntimeError if forward() has not run since the import or the last reset().
    """

def input_grad() -> tuple[float, ...]:
    """The gradients of the loss by the inputs of the last forward(), after backward(), as a tuple of floats; as a dict
    of them if the inputs have names. They are of this image alone: unlike those of parameters, they do not add up.

    Raises RuntimeError without Program(input_gradients=True), and before a backward().
    """

def zero_grad() -> None:
    """Sets the parameters' gradients to 0. Returns None."""

def update(
    step: SupportsIndex = 0,
    batch_size: SupportsIndex = 1,
    *,
    learning_rate: _Rate | None = None,
) -> None:
    """data -= learning_rate * grad / batch_size for each parameter. Returns None.

    step: an int >= 0, the number of the step, with which a learning rate may change. What else counts steps counts
        by itself: see optimizer_state().
    batch_size: an int >= 1, the number of images whose gradients were added up.
    learning_rate: a finite float, a sequence of them that has the step's, or a function of the step (see
        micrograd.schedules); None means the model's own, info()['learning_rate'].

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    """

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

def evaluate(
    images: _Buffer,
    labels: _Buffer | Sequence[SupportsIndex],
    *,
    threads: SupportsIndex | None = 1,
    progress: Callable[[int, int, float], object] | None = None,
) -> tuple[float, float]:
    """(mean loss, accuracy) over n images, as floats; the accuracy is None if the model has no classes. The GIL is
    released.

    images: a C-contiguous buffer of n * 784 unsigned bytes, n >= 1, read in place:
        bytes, bytearray, memoryview or a NumPy array.
    labels: n ints, each below 10: a buffer of bytes is read in place, others are converted.
    threads: an int, 1 <= threads <= 64. Results do not depend on it.
    progress: a callable, called periodically with (images done, n, mean loss so far).

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    """

def metrics(
    images: _Buffer,
    labels: _Buffer,
    *,
    threads: SupportsIndex | None = 1,
    progress: Callable[[int, int, None], object] | None = None,
) -> dict[str, float]:
    """{name: mean over n images} of the metrics that the model declares, as floats. The GIL is released.

    images: a C-contiguous buffer of n * 784 unsigned bytes, n >= 1, read in place:
        bytes, bytearray, memoryview or a NumPy array.
    labels: n ints, each below 10: a buffer of bytes is read in place, others are converted.
    threads: an int, 1 <= threads <= 64. Results do not depend on it.
    progress: a callable, called periodically with (images done, n, None).

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    Raises RuntimeError if the model declares no metrics.
    """

def accumulate(
    images: _Buffer,
    labels: _Buffer,
    *,
    threads: SupportsIndex | None = 1,
    progress: Callable[[int, int, float], object] | None = None,
) -> float:
    """Adds the gradients of n images to those of the parameters, and returns the sum of their losses, as a float. The
    GIL is released.

    The same bits as forward() and backward() for each image in order; zero_grad() and update() are the caller's.

    images: a C-contiguous buffer of n * 784 unsigned bytes, n >= 1, read in place:
        bytes, bytearray, memoryview or a NumPy array.
    labels: n ints, each below 10: a buffer of bytes is read in place, others are converted.
    threads: an int, 1 <= threads <= 64. Results do not depend on it.
    progress: a callable, called periodically with (images done, n, mean loss so far). It may read the model;
        changing it raises RuntimeError. If it raises, the gradients of the images done stay.

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    """

def train(
    images: _Buffer,
    labels: _Buffer | Sequence[SupportsIndex],
    *,
    batch_size: SupportsIndex = 1,
    learning_rate: _Rate | None = None,
    epochs: SupportsIndex = 1,
    seed: SupportsIndex | None = None,
    threads: SupportsIndex | None = 1,
    progress: Callable[[int, int, float], object] | None = None,
    check_finite: bool = False,
) -> list[float]:
    """Runs whole epochs of gradient descent over n images. Returns the mean loss of each epoch, as a list of floats.
    The GIL is released.

    For each batch: zero_grad(), forward() and backward() for each image, update() with the batch's actual size.

    images: a C-contiguous buffer of n * 784 unsigned bytes, n >= 1, read in place:
        bytes, bytearray, memoryview or a NumPy array.
    labels: n ints, each below 10: a buffer of bytes is read in place, others are converted.
    batch_size: an int >= 1.
    learning_rate: a finite float, a sequence of one for each step of all epochs, or a function of the step, 0, 1, ...
        (see micrograd.schedules), called for all steps before the first; None means the model's own,
        info()['learning_rate'].
    epochs: an int, 0 <= epochs <= 1000000000.
    seed: an int, 0 <= seed < 2**64, to shuffle the images before each epoch, as random.Random(seed).shuffle
        does; None keeps their order.
    threads: an int, 1 <= threads <= 64. Results do not depend on it.
        Threads share the images of a batch, so they cannot speed up batches of one image.
    progress: a callable, called periodically with (images done, n * epochs, mean loss of the epoch so far). It
        may read the model; changing it raises RuntimeError. In other threads, evaluate(), predict_batch() and
        calls that change the model wait until train() is done: a progress() that waits for one of them deadlocks.
    check_finite: if True, FloatingPointError stops train() before a step that would make a parameter inf or nan,
        or at the start if one is already. It names the parameter, the step and its images. The parameters and
        the optimizer's state are then those before the step, the gradients those of the step.

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    """

def state_dict() -> dict[str, memoryview[float]]:
    """The parameters, as {name: memoryview of float64}: writable, strided, shared with the model, not copied.

    What is written to them counts from the next call on; during train() and other long calls, from its next chunk
    on, so also if progress() writes. A write by another thread while a call computes is a data race. While a view of
    the weights that the inputs multiply is alive, each call scans them once, for inf and nan.
    """

def grad_dict() -> dict[str, memoryview[float]]:
    """The gradients, as {name: memoryview of float64}, with the names and shapes of state_dict()."""

def flat_data() -> memoryview[float]:
    """All parameters in one piece, as a memoryview of float64: writable, contiguous, shared with the model, not copied.

    The tensors of state_dict(), one after the other, with padding, which may hold anything. Behind them are 16 spare
    bytes, which the model leaves alone: room for a loss and a flag. Writes count as those to state_dict().
    """

def flat_grad() -> memoryview[float]:
    """The gradients, as a memoryview like flat_data(), in the same places."""

def load_state_dict(mapping: Mapping[str, Any], /) -> None:
    """Copies all parameters from {name: numbers}: buffers, arrays, lists, converted to float64. Returns None.

    Names and shapes must be exactly those of state_dict().

    Raises TypeError for anything but a mapping and for what are no numbers, ValueError for a missing or unknown
    name and for a wrong shape; an error changes nothing.
    """

def optimizer_state() -> dict[str, memoryview[float]]:
    """What the optimizer keeps, as {name: memoryview}: writable and shared with the model, as those of state_dict().

    'step' is the number of steps taken since the start or reset(), one int64. 'NAME.KIND', for a parameter NAME and
    each number that its rule keeps, has the shape of the parameter. Plain gradient descent keeps no such numbers.
    """

def load_optimizer_state(mapping: Mapping[str, Any], /) -> None:
    """Copies the optimizer's state from {name: numbers}, as load_state_dict(). Returns None.

    Names and shapes must be exactly those of optimizer_state(); 'step' may be an int too.

    Raises TypeError for anything but a mapping and for what are no numbers, ValueError for a missing or unknown
    name and for a wrong shape or number; an error changes nothing.
    """

def save_weights(path: str | bytes | PathLike[str] | PathLike[bytes], /) -> None:
    """Writes all parameters to a safetensors file, in C order, with the names and shapes of state_dict(). An existing
    file is replaced when the new one is whole. Returns None.

    path: a str, bytes or os.PathLike.

    Raises TypeError for anything else, ValueError for a path with a null character, OSError if the file cannot be
    written.
    """

def load_weights(path: str | bytes | PathLike[str] | PathLike[bytes], /) -> None:
    """Copies all parameters from a safetensors file of floats, converted to float64. Returns None.

    Names and shapes must be exactly those of state_dict().

    path: a str, bytes or os.PathLike.

    Raises TypeError for anything else, OSError if the file cannot be read, ValueError or TypeError if it is not a
    whole file of this model's parameters; an error changes nothing.
    """

def data(i: SupportsIndex, /) -> float:
    """Parameter i, as a float, in the order of the model's parameters().

    i: an int, 0 <= i < 39760.

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    """

def grad(i: SupportsIndex, /) -> float:
    """The gradient of parameter i, as a float.

    i: an int, 0 <= i < 39760.

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    """

def reset(seed: SupportsIndex | None = None) -> None:
    """Draws fresh weights, the same as those of the micrograd model made after random.seed(seed), and clears the
    gradients and the optimizer's state. Returns None.

    seed: an int, 0 <= seed < 2**64; None draws a different one each time.

    Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing.
    """

def info() -> _Info:
    """Describes this module, as a dict: architecture, dtype, mode, SIMD level, compiler, digest of the graph."""

"""Parameters in files: save and load them in the safetensors format, which holds numbers and no code.

The same numbers and metadata give the same bytes. The metadata end with the SHA-256 of the whole file, the digest
itself taken as 64 zeros: safetensors has no checksum of its own, and a flipped bit in a weight would go unnoticed.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from micrograd.errors import UserError
from micrograd.files import temporary, write_whole
from micrograd.matching import (
    CHECKSUM,
    DTYPES,
    EXACT,
    EXPECTED_DTYPES,
    MAX_HEADER,
    NO_DIGEST,
    MatchError,
    Matching,
    difference,
    digest,
    matched,
    widened,
    written,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


MOST_KEPT = 8  # numbers for each parameter, itself included
OPTIMIZER = "optimizer."  # before the names of what an optimizer keeps


class CheckpointError(UserError, ValueError):
    """A file that is not a checkpoint, or not one of this model."""


class DamagedError(CheckpointError):
    """A file that does not hold what was written."""


def save(
    path: str | Path, state: Mapping[str, npt.ArrayLike], metadata: Mapping[str, str], keep: Path | None = None
) -> None:
    """Writes the tensors of `state`, float64 buffers of any strides, and `metadata` to a file.

    An existing file is replaced atomically, after the new one has been synced to disk: whatever happens, the name
    belongs to a complete checkpoint, the old one or the new one. With `keep` the old one gets that name, in the same
    folder, and for a moment only that name exists. No view of `state` is kept. Raises OSError if the file cannot be
    written and ImportError if NumPy or safetensors is not installed.
    """
    _check_packages()
    import numpy as np
    from safetensors.numpy import save as serialize

    tensors = {name: np.array(tensor, dtype=np.float64, order="C") for name, tensor in state.items()}
    write_whole(path, _sealed(serialize(tensors), metadata), keep)


def load(
    path: str | Path, expected: Mapping[str, tuple[int, ...]], how: Matching = EXACT
) -> dict[str, npt.NDArray[np.float64]]:
    """The tensors of a checkpoint, for each expected name one of the expected shape, float64 (others are widened).

    `how` says which tensor is which, if not by name. What an optimizer keeps is left out if it is not expected. A file
    without a checksum, of another program's say, is taken as it is. Raises DamagedError for a file that is not whole,
    CheckpointError for one that holds anything but the expected tensors, OSError for one that cannot be read and
    ImportError where NumPy or safetensors is not installed.
    """
    _check_packages()
    import numpy as np

    numbers = sum(math.prod(shape) for shape in expected.values())
    tensors = _tensors(path, MAX_HEADER + 8 * numbers * MOST_KEPT)
    arrays = {}
    for name, tensor in tensors.items():
        if name in expected or not name.startswith(OPTIMIZER):
            if tensor["dtype"] not in DTYPES:
                raise CheckpointError(f"{path}: {name!r} is {tensor['dtype']}, expected {EXPECTED_DTYPES}")
            found = widened(tensor["dtype"], tensor["data"]).astype(np.float64)
            try:
                arrays[name] = found.reshape(tensor["shape"])
            except ValueError as error:  # of more dimensions than an array can have
                raise CheckpointError(f"{path}: {name!r} has the shape {tuple(tensor['shape'])}: {error}") from error
    try:
        return matched(arrays, expected, how, str(path))
    except MatchError as error:
        raise CheckpointError(str(error)) from error


def load_metadata(path: str | Path) -> dict[str, str]:
    """The metadata of a file that save() wrote, without the checksum.

    Raises DamagedError for a file that is not whole or has no checksum, OSError for one that cannot be read and
    ImportError where NumPy or safetensors is not installed.
    """
    _check_packages()
    with _opened(path) as file:
        metadata = _metadata(path, file)
        _verify(path, file, metadata)
    if metadata.pop(CHECKSUM, None) is None:
        raise DamagedError(f"{path}: no checksum: damaged, or another program's file")
    return metadata


def check_writable(path: str | Path) -> None:
    """Raises the OSError or ImportError that `save` would, as far as that is known before there is anything to save."""
    _check_packages()
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    new = temporary(target)
    try:
        new.open("xb").close()
        new.unlink(missing_ok=True)  # another process that has the lock may have tidied up
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error  # rather than the temporary name


def _opened(path: str | Path) -> BinaryIO:
    """The file, for reading: nothing maps it, so that a file that somebody cuts off meanwhile is only too short."""
    if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
        raise CheckpointError(f"{path}: not a file but a device or a pipe, which may have no end")
    return open(path, "rb")


def _metadata(path: str | Path, file: BinaryIO) -> dict[str, str]:
    """The metadata in a file's header. Raises DamagedError."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or not 2 <= length <= min(size - 8, MAX_HEADER):
        raise DamagedError(f"{path}: not a whole safetensors file: {size} bytes with a header of {length}")
    try:
        header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", None) or {}
        numbers = max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
        if numbers != size - 8 - length:
            raise DamagedError(
                f"{path}: not a whole safetensors file: {size - 8 - length} bytes of numbers, expected {numbers}"
            )
        return {str(key): str(value) for key, value in metadata.items()}
    except DamagedError:
        raise
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, RecursionError) as error:
        raise DamagedError(f"{path}: not a whole safetensors file: its header is damaged ({error!r})") from error


def _verify(path: str | Path, file: BinaryIO, metadata: Mapping[str, str]) -> None:
    """Raises DamagedError for a file whose checksum is not that of its content."""
    if wrong := difference(file, metadata.get(CHECKSUM)):
        raise DamagedError(f"{path}: {wrong}")


def _tensors(path: str | Path, most: int) -> dict[str, dict[str, Any]]:
    """Of each tensor dtype, shape and data. Raises DamagedError, and CheckpointError for more than so many bytes."""
    from safetensors import SafetensorError, deserialize

    with _opened(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > most:
            _verify(path, file, _metadata(path, file))
            raise CheckpointError(f"{path}: {size} bytes, more than this model has")
        content = file.read(most)
    held = io.BytesIO(content)  # what is checked is what is used, whatever others do to the file meanwhile
    _verify(path, held, _metadata(path, held))
    try:
        return dict(deserialize(content))  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise DamagedError(f"{path}: not a whole safetensors file: {error}") from error


def _sealed(content: bytes, metadata: Mapping[str, str]) -> bytes:
    """A safetensors file with another header: metadata and names in a fixed order, and the checksum."""
    length = int.from_bytes(content[:8], "little")
    header = {"__metadata__": {**dict(sorted(metadata.items())), CHECKSUM: NO_DIGEST}}
    header |= sorted(json.loads(content[8 : 8 + length]).items())
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format wants the numbers aligned
    unsealed = len(text).to_bytes(8, "little") + text + content[8 + length :]
    place = unsealed.index(written(NO_DIGEST)) + len(written(""))
    return unsealed[:place] + digest(io.BytesIO(unsealed), NO_DIGEST).encode() + unsealed[place + len(NO_DIGEST) :]


def _check_packages() -> None:
    try:
        import numpy  # noqa: F401
        import safetensors.numpy  # noqa: F401
    except ImportError as error:
        raise ImportError("checkpoints need numpy and safetensors: pip install 'micrograd-nn[train]'") from error

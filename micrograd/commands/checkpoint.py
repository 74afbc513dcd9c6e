"""Parameters in files: save and load them in the safetensors format, which holds numbers and no code.

The same numbers and metadata give the same bytes. The metadata end with the SHA-256 of the whole file, the digest
itself taken as 64 zeros: safetensors has no checksum of its own, and a flipped bit in a weight would go unnoticed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


CHECKSUM = "sha256"  # its key in the metadata
NO_DIGEST = "0" * 64


class CheckpointError(ValueError):
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
    content = _sealed(serialize(tensors), metadata)

    target = Path(os.path.realpath(path))  # a link stays a link
    temporary = _temporary(target)
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and target.exists():
            os.replace(target, keep)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def load(path: str | Path, expected: Mapping[str, tuple[int, ...]]) -> dict[str, npt.NDArray[np.float64]]:
    """The tensors of a checkpoint, for each expected name one of the expected shape, float64 (float32 is widened).

    A file without a checksum, of another program's say, is taken as it is. Raises DamagedError for a file that is not
    whole, CheckpointError for one that holds anything but the expected tensors, OSError for one that cannot be
    read and ImportError where NumPy or safetensors is not installed.
    """
    _check_packages()
    import numpy as np

    with _opened(path) as file:
        names = set(file.keys())
        for name in sorted(expected.keys() - names):
            raise CheckpointError(f"{path}: no tensor {name!r}, got {_listed(names)}")
        for name in sorted(names - expected.keys()):
            raise CheckpointError(f"{path}: unexpected tensor {name!r}, expected {_listed(set(expected))}")
        for name, shape in expected.items():
            tensor = file.get_slice(name)
            found, dtype = tuple(tensor.get_shape()), tensor.get_dtype()
            if found != tuple(shape):
                raise CheckpointError(f"{path}: {name!r} has the shape {found}, expected {tuple(shape)}")
            if dtype not in ("F64", "F32"):
                raise CheckpointError(f"{path}: {name!r} is {dtype}, expected F64 or F32")
        return {name: np.asarray(file.get_tensor(name), dtype=np.float64) for name in expected}


def load_metadata(path: str | Path) -> dict[str, str]:
    """The metadata of a file that save() wrote, without the checksum.

    Raises DamagedError for a file that is not whole or has no checksum, OSError for one that cannot be read and
    ImportError where NumPy or safetensors is not installed.
    """
    _check_packages()
    with _opened(path) as file:
        metadata = dict(file.metadata() or {})
    if metadata.pop(CHECKSUM, None) is None:
        raise DamagedError(f"{path}: no checksum: damaged, or another program's file")
    return metadata


def check_writable(path: str | Path) -> None:
    """Raises the OSError or ImportError that `save` would, as far as that is known before there is anything to save."""
    _check_packages()
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = _temporary(target)
    try:
        temporary.open("xb").close()
        temporary.unlink()
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error  # rather than the temporary name


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """The file as safetensors opens it, its checksum verified. Raises CheckpointError and OSError."""
    from safetensors import SafetensorError, safe_open

    if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
        raise CheckpointError(f"{path}: not a file but a device or a pipe, which may have no end")
    with open(path, "rb"):
        pass  # safetensors' own errors for a file that cannot be opened do not name it
    try:
        with safe_open(path, framework="numpy") as file:
            noted = (file.metadata() or {}).get(CHECKSUM)
            if noted is not None and noted != (found := _digest(path, noted)):
                raise DamagedError(f"{path}: damaged: its SHA-256 is {found}, but it says {noted}")
            yield file
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
    place = unsealed.index(_noted(NO_DIGEST)) + len(_noted(""))
    digest = hashlib.sha256(unsealed).hexdigest().encode()
    return unsealed[:place] + digest + unsealed[place + len(digest) :]


def _digest(path: str | Path, noted: str) -> str:
    """The SHA-256 of a file, 64 zeros taken for the `noted` digest in its header."""
    with open(path, "rb") as file:
        start = file.read(8)
        header = file.read(int.from_bytes(start, "little"))
        state = hashlib.sha256(start + header.replace(_noted(noted), _noted(NO_DIGEST), 1))
        while block := file.read(2**20):
            state.update(block)
    return state.hexdigest()


def _noted(digest: str) -> bytes:
    """The checksum as it is written in the header."""
    return f'"{CHECKSUM}":"{digest}'.encode()


def _check_packages() -> None:
    try:
        import numpy  # noqa: F401
        import safetensors.numpy  # noqa: F401
    except ImportError as error:
        raise ImportError("checkpoints need numpy and safetensors: pip install 'micrograd-nn[train]'") from error


def _temporary(target: Path) -> Path:
    """An unused name in the same folder: os.replace is one step only within a file system."""
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}")


def _sync_folder(folder: Path) -> None:
    """Syncs a rename to disk, if folders can be synced: not on Windows, nor on some network file systems."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _listed(names: set[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "none"

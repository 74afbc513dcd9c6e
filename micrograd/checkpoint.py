"""Parameters in files: save and load them in the safetensors format, which holds numbers and nothing that runs."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class CheckpointError(ValueError):
    """A file that is no checkpoint, or not one of this model."""


def save(path: str | Path, state: Mapping[str, npt.ArrayLike], metadata: Mapping[str, str]) -> None:
    """Writes the tensors of `state`, float64 buffers of any strides, and `metadata` to a file.

    Another file of that name is replaced in one step when the new one is safely on the disk: whatever happens, the
    name belongs to a whole checkpoint, the old one or the new one. No view of `state` is kept. Raises OSError where
    the file cannot be written and ImportError where NumPy or safetensors is not installed.
    """
    _check_packages()
    import numpy as np
    from safetensors.numpy import save as serialize

    tensors = {name: np.array(tensor, dtype=np.float64, order="C") for name, tensor in state.items()}
    content = serialize(tensors, dict(metadata))

    target = Path(os.path.realpath(path))  # a link stays a link
    temporary = _temporary(target)
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def load(path: str | Path, expected: Mapping[str, tuple[int, ...]]) -> dict[str, npt.NDArray[np.float64]]:
    """The tensors of a checkpoint, for each expected name one of the expected shape, float64 (float32 is widened).

    Raises CheckpointError for a file that is damaged or that holds anything else than the expected tensors, OSError
    for one that cannot be read and ImportError where NumPy or safetensors is not installed.
    """
    _check_packages()
    import numpy as np
    from safetensors import SafetensorError, safe_open

    with open(path, "rb"):
        pass  # safetensors' own errors for a file that cannot be opened do not name it
    try:
        with safe_open(path, framework="numpy") as file:
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
    except SafetensorError as error:
        raise CheckpointError(f"{path}: not a whole safetensors file: {error}") from error


def check_writable(path: str | Path) -> None:
    """Raises the OSError or ImportError that `save` would, as far as that is known before there is anything to save."""
    _check_packages()
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = _temporary(target)
    try:
        temporary.open("xb").close()
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error  # rather than the temporary name
    finally:
        temporary.unlink(missing_ok=True)


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
    """Puts a rename on the disk, where folders can be synchronised: Windows cannot, nor some network file systems."""
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

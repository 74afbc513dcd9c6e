"""The types of numbers in safetensors files, and the numbers themselves. NumPy is imported when there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # as the bytes are read
EXPECTED_DTYPES = "F64, F32, F16 or BF16"


def widened(dtype: str, stored: bytes | memoryview) -> npt.NDArray[np.floating[Any]]:
    """Numbers as they are stored if they are float64, else as float32, which holds them exactly."""
    import numpy as np

    numbers = np.frombuffer(stored, DTYPES[dtype])
    if dtype == "BF16":  # the upper halves of floats
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers if dtype == "F64" else numbers.astype(np.float32)

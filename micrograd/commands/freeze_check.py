"""micrograd freeze --check: a frozen model beside the outputs, or the classes, that it should have."""

from __future__ import annotations

import argparse
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from micrograd.commands.errors import UsageError
from micrograd.data.shards import npy_header

if TYPE_CHECKING:
    import numpy.typing as npt

    from codegen import Program

    Array = npt.NDArray[Any]

TOLERANCE = 1e-4  # of outputs, where weights are not narrow


class Check:
    """Inputs, and the outputs or the classes that a model should have for them."""

    def __init__(self, program: Program, inputs: Array, expected: Array, output: str | None) -> None:
        from codegen.program import Floats, Pixels

        self.expected = expected
        self.before: Array | None = None  # the classes of weights that are not narrow
        self.has_classes = expected.dtype.kind in "iu" and output is None
        self.count = len(program.input_values)
        if not isinstance(program.inputs, Pixels | Floats):
            raise UsageError("--check takes a model with one array of Pixels or Floats")
        is_bytes = isinstance(program.inputs, Pixels)
        if inputs.ndim == 0 or expected.ndim == 0 or len(inputs) != len(expected) or len(inputs) == 0:
            raise UsageError(f"--check takes as many inputs as outputs, got {inputs.shape} and {expected.shape}")
        if inputs[0].size != self.count or (is_bytes and inputs.dtype != "u1") or inputs.dtype.kind not in "fiu":
            kind = "bytes (uint8)" if is_bytes else "numbers"
            got = f"{inputs.dtype} of the shape {inputs.shape}"
            raise UsageError(f"--check takes rows of {self.count} {kind} as inputs, got {got}")
        self.inputs = inputs.reshape(len(inputs), -1).astype("u1" if is_bytes else "f8")
        if self.has_classes:
            if expected.size != len(inputs) or program.prediction is None:
                raise UsageError(
                    f"--check takes one class for each input of a model with a prediction, got {expected.shape}"
                )
            return
        self.output = self._output(program, output)

    def _output(self, program: Program, asked: str | None) -> str:
        size = self.expected[0].size
        names = [name for name in (asked, program.prediction, *program.outputs) if name is not None]
        fits = next((name for name in names if len(program.outputs.get(name, ())) == size), None)
        if fits is None or (asked is not None and fits != asked) or self.expected.dtype.kind not in "fiu":
            has = ", ".join(f"{name} ({len(values)})" for name, values in program.outputs.items())
            got = f"{self.expected.dtype} of the shape {self.expected.shape}"
            raise UsageError(f"--check takes rows of numbers of one of the outputs {has}, got {got}")
        return fits

    @classmethod
    def of(cls, options: argparse.Namespace, program: Program) -> Check | None:
        if options.check is None:
            for name in ("check_output", "tolerance"):
                if getattr(options, name) is not None:
                    raise UsageError(f"--{name.replace('_', '-')} needs --check X.npy Y.npy")
            return None
        inputs, expected = map(array_of, options.check)
        return cls(program, inputs, expected, options.check_output)

    def classes_of(self, model: Any) -> Array:
        import numpy as np

        found = model.predict_batch(self.inputs)
        return np.frombuffer(found, np.uint8) if isinstance(found, bytes) else np.asarray(found)

    def report(self, model: Any, options: argparse.Namespace) -> bool:
        """Prints how a model does, and returns whether that is good enough."""
        import numpy as np

        rows = f"of {len(self.inputs):,} rows"
        if self.has_classes:
            expected = self.expected.ravel()
            after = float((self.classes_of(model) == expected).mean())
            if self.before is None:
                print(f"check     accuracy {after:.2%} {rows}")
                return True
            before = float((self.before == expected).mean())
            print(f"check     accuracy {before:.2%}, with {options.storage} {after:.2%} {rows}")
            return options.tolerance is None or before - after <= options.tolerance
        found = np.asarray(model.outputs_batch(self.inputs)[self.output], dtype=np.float64).reshape(
            len(self.inputs), -1
        )
        wanted = self.expected.reshape(found.shape).astype(np.float64)
        with np.errstate(invalid="ignore"):
            differences = np.where(found == wanted, 0.0, np.abs(found - wanted))
        differences[np.isnan(found) & np.isnan(wanted)] = 0
        largest = float(np.nan_to_num(differences, nan=np.inf, posinf=np.inf).max())
        most = options.tolerance if options.tolerance is not None else None if options.storage else TOLERANCE
        row = int(differences.argmax()) // found.shape[1]
        print(f"check     largest difference {largest:.3g} {rows} of {self.output}, in row {row}")
        if most is not None and not largest <= most:
            print(f"check     that is more than {most:g}")
            return False
        return True


def array_of(path: Path) -> Array:
    """The numbers of a .npy file, as numpy.save() writes it. Raises UsageError for anything else, and OSError.

    Only the header is parsed, as a literal, and no more is read than the file has.
    """
    import numpy as np

    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: not a file")
    try:
        with path.open("rb") as file:
            shape, is_fortran, dtype = npy_header(file)
            content = file.read()
        if dtype.kind not in "fiu" or len(content) != prod(shape) * dtype.itemsize or min(shape, default=0) < 0:
            raise ValueError(f"{len(content):,} bytes of {dtype} for the shape {shape}")
        return np.frombuffer(content, dtype).reshape(shape, order="F" if is_fortran else "C")
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{path}: not an array of numbers, as numpy.save() writes it: {error}") from error

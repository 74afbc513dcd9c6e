"""An imported model as Python: model.py, a readable module that makes the Program, and its weights beside it.

Example: a file with two layers becomes

    def program() -> Program:
        w = {name: array(tensor) for name, tensor in read_weights(FOLDER / "iris.safetensors").items()}
        x = array(np.zeros((1, 4)))
        h = ops.Gemm(x, w["0.weight"], w["0.bias"], transB=1)
        h_1 = ops.Relu(h)
        logits = ops.Gemm(h_1, w["2.weight"], w["2.bias"], transB=1)
        return Program(inputs=Floats(x[0]), ...)

What is constant and larger than a line is in a third file, iris.npz. Names in the file may be anything: in the module
they are strings, and names of variables are made of them.
"""

import keyword
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from codegen.onnx import losses
from codegen.onnx.program import Imported
from codegen.onnx.tensors import Tensor

SEVERAL = {"LayerNormalization", "LSTM", "GRU", "RNN", "Split"}  # whose results are a tuple
SAME = {"Identity", "Cast", "Dropout"}  # which leave Values what they are
WIDTH = 116  # of a line within a function
SHORT = 16  # elements of a constant that is written out
RESERVED = {*losses.LOSSES, "softmax", "array", "read_weights", "w", "c", "np", "ops", "target", "program", "float"}


class Module:
    """The text, and the arrays of its files: `weights` and `constants`. `stem` is what the files are called."""

    def __init__(self, model: Imported, stem: str, loss: str | None) -> None:
        self.model, self.stem = model, stem
        self.loss = None if loss is None else losses.checked(loss)
        self.names: dict[str, str] = {}  # of tensors -> of variables
        self.taken: dict[str, int] = {}  # names of variables, and how many more begin so
        self.constants: dict[str, Tensor] = {}
        self.weights = {name: _stored(model.file.initializers[name]) for name in model.weights}
        lines = [*self._leaves(), *self._calls()]
        tail = self._tail()
        head = []
        if self.weights:
            file = f"FOLDER / {_text(f'{stem}.safetensors')}"
            head.append(f"w = {{name: array(tensor) for name, tensor in read_weights({file}).items()}}")
        if self.constants:
            head.append(f"c = np.load(FOLDER / {_text(f'{stem}.npz')})")
        body = "".join(f"    {line}\n" for line in [*head, *lines, *tail])
        self.text = f"{self._imports()}\n\ndef program() -> Program:\n{body}"

    def _imports(self) -> str:
        kinds = ["Program"] + ["Label"] * (self.loss in ("cross_entropy", "nll"))
        inputs = {
            "Tokens" if each.words else "Floats" if self.model.pixels is None else "Pixels"
            for each in self.model.file.inputs
        }
        kinds += inputs | ({"Floats"} if self.loss in ("mse", "binary_cross_entropy") else set())
        lines = [f'"""{_comment(self.model.title)}, imported. An edited copy needs the files beside it."""', ""]
        lines += [
            "from pathlib import Path",
            "",
            "import numpy as np",
            f"from codegen import {', '.join(sorted(kinds))}",
        ]
        lines += ["from codegen.onnx import ops"]
        if self.loss in ("binary_cross_entropy", "nll"):
            lines.append(f"from codegen.onnx.losses import {self.loss}")
        if self.weights:
            lines.append("from codegen.weights import read_weights")
        lines.append("from micrograd.arrays import array")
        source = losses.probabilities(self.loss, self.model)
        functions = [self.loss] * (self.loss in ("cross_entropy", "mse")) + ["softmax"] * bool(source and source[1])
        if functions:
            lines.append(f"from micrograd.functional import {', '.join(map(str, functions))}")
        return "\n".join([*lines, "", "FOLDER = Path(__file__).resolve().parent", ""])

    def _leaves(self) -> Iterable[str]:
        for name, sizes in self.model.inputs.items():
            yield f"{self._variable(name)} = array(np.zeros({tuple(sizes)}))"

    def _calls(self) -> Iterable[str]:
        """A line for each step."""
        for step in self.model.graph.steps:
            if step.op in SAME:
                self.names[step.results[0]] = self._argument(step.arguments[0])
                continue
            given = [self._argument(name) for name in step.arguments]
            while given and given[-1] == "None":
                given.pop()
            given += [f"{name}={self._literal(name, value)}" for name, value in step.attributes.items()]
            results = ", ".join(self._variable(name) if name else "_" for name in step.results)
            yield from _call(f"{results}{', *_' * (step.op in SEVERAL)} = ops.{step.op}", given)

    def _tail(self) -> list[str]:
        made, lines = {"targets": "None", "loss": "None"}, []
        own: dict[str, str] = {}
        if self.loss is not None:
            output, name = losses.place(self.loss, self.model)
            made, size = losses.of(self.loss, self.model), len(self.model.outputs[output].ravel())
            kind = "Label" if self.loss in ("cross_entropy", "nll") else "Floats"
            values = f"np.ravel(array({self._argument(name)}))"
            call = f"{self.loss}({values}, target)"
            if self.loss == "binary_cross_entropy":
                call = f"{self.loss}({values}[0], target[0])"
                own["threshold"] = repr(made["threshold"])
            lines.append(f"target = array(np.zeros({size}))")
            made = {"targets": f"{kind}(target)", "loss": call}
        found = {name: f"np.ravel(array({self._argument(name)}))" for name in self.model.outputs}
        prediction = self.model.prediction
        if (source := losses.probabilities(self.loss, self.model)) is not None:
            prediction, is_logits = source
            found["probabilities"] = f"softmax({found[prediction]})" if is_logits else found[prediction]
        outputs = ", ".join(f"{_text(name)}: {values}" for name, values in found.items())
        fields = {
            "inputs": self._inputs(),
            "parameters": "w" if self.weights else "{}",
            "outputs": f"{{{outputs}}}",
            **made,
            **own,
            "description": _text(self.model.title),
        }
        if prediction is not None:
            fields["prediction"] = _text(prediction)
        return [*lines, "return Program(", *(f"    {name}={value}," for name, value in fields.items()), ")"]

    def _inputs(self) -> str:
        parts = {}
        for each in self.model.file.inputs:
            name, sizes, variable = each.name, self.model.inputs[each.name], self.names[each.name]
            is_batch = len(sizes) > 1 and sizes[0] == 1
            values = f"{variable}[0]" if is_batch else f"np.atleast_1d({variable})"
            scale = self.model.pixels
            parts[name] = f"Floats({values})" if scale is None else f"Pixels({values}, {_scale(scale)})"
            if each.words:
                parts[name] = f"Tokens({variable}.reshape(-1, {each.words}))"
        if len(parts) == 1:
            return next(iter(parts.values()))
        return f"{{{', '.join(f'{_text(name)}: {part}' for name, part in parts.items())}}}"

    def _argument(self, name: str) -> str:
        if not name:
            return "None"
        if name in self.model.weights:
            return f"w[{_text(name)}]"
        return self.names[name] if name in self.names else self._literal(name, self.model.graph.tensors[name])

    def _literal(self, name: str, value: Any) -> str:
        """A constant, written out if it is short: `[1, -1]`, `0.5`, else `c["mean"]`."""
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else f"float({_text(str(value))})"
        if isinstance(value, list):
            return f"[{', '.join(self._literal(name, each) for each in value)}]"
        if not isinstance(value, np.ndarray):
            return _text(value) if isinstance(value, str) else repr(value)
        if value.ndim < 2 and 0 < value.size <= SHORT and value.dtype.kind in "iufb":
            return self._literal(name, value.tolist())
        key = f"{name}_" if name in ("file", "allow_pickle") or name.endswith(".npy") else name  # which savez() takes
        while key in self.constants and self.constants[key] is not value:
            key += "_"
        self.constants[key] = value
        return f"c[{_text(key)}]"

    def _variable(self, name: str) -> str:
        stem = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_").lower()[:40] or "t"
        if stem[0].isdigit() or keyword.iskeyword(stem) or stem in RESERVED:
            stem = f"t_{stem}"
        found = stem
        while found in self.taken:
            self.taken[stem] += 1
            found = f"{stem}_{self.taken[stem]}"
        self.taken[found] = 0
        self.names[name] = found
        return found


def _stored(x: Tensor) -> Tensor:
    """As float32, if it was so in the ONNX file."""
    with np.errstate(over="ignore"):
        narrow = x.astype(np.float32)
    return narrow if np.array_equal(narrow, x) else x


def _scale(scale: float) -> str:
    return f"1 / {round(1 / scale)}" if 1e-6 < scale < 1 and 1 / round(1 / scale) == scale else repr(scale)


def _call(function: str, arguments: list[str]) -> list[str]:
    """On a line, or with one for each argument."""
    line = f"{function}({', '.join(arguments)})"
    return [line] if len(line) <= WIDTH else [f"{function}(", *(f"    {each}," for each in arguments), ")"]


def _text(text: str) -> str:
    """A string as it is mostly written, in double quotes."""
    plain = repr(text)
    return f'"{plain[1:-1]}"' if plain[0] == "'" and '"' not in plain and "\\'" not in plain else plain


def _comment(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'")

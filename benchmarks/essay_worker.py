"""A system of the essay's table in a Python of its own, which may be PyPy: no NumPy here, nothing of the benchmark.

    pypy3 benchmarks/essay_worker.py '{"kind": "recomputed", "data": "examples.bin", ...}'

`kind` is "generated", a Python module that codegen has written; "recomputed", micrograd's graph built once, its leaves
set for each image; or "rebuilt", micrograd's graph built again for each image. `data` holds a byte of label and the
pixels of each image. First a line of JSON comes out that says how long it took until something could run. Then each
line of standard input asks for a number of steps; the answer is the seconds for one image and, if asked for, the bits.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib.util
import json
import platform
import random
import sys
import typing
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import Any, Dict  # noqa: UP035

Options = Dict[str, Any]  # noqa: UP006

if not hasattr(typing, "TypeAlias"):  # PyPy 3.9, where two things are missing that micrograd uses
    vars(typing)["TypeAlias"] = object
    vars(builtins)["zip"] = lambda *parts, strict=False, zip=zip: zip(*parts)


class System:
    """Something that trains."""

    def __init__(self, options: Options) -> None:
        raise NotImplementedError

    def step(self, label: int, pixels: bytes) -> float:
        """A training step; returns the loss."""
        raise NotImplementedError

    def parameters(self) -> list[float]:
        raise NotImplementedError


class Generated(System):
    def __init__(self, options: Options) -> None:
        spec = importlib.util.spec_from_file_location("generated", options["path"])
        assert spec
        assert spec.loader
        self.module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)

    def step(self, label: int, pixels: bytes) -> float:
        module = self.module
        module.zero_grad()
        loss: float = module.forward(label, pixels)
        module.backward()
        module.update()
        return loss

    def parameters(self) -> list[float]:
        return [self.module.data(i) for i in range(self.module.info()["parameters"])]


class Micrograd(System):
    """Values, as somebody writes them who has no compiler."""

    def __init__(self, options: Options) -> None:
        sys.path.insert(0, options["checkout"])
        from micrograd.engine import Value
        from micrograd.functional import cross_entropy
        from micrograd.nn import MLP

        random.seed(options["seed"])
        sizes = options["sizes"]
        self.model = MLP(sizes[0], sizes[1:], init="fan_in")
        self.weights, self.rate, self.scale = self.model.parameters(), options["rate"], options["scale"]
        self.pixels, self.one_hot = ([Value(0) for _ in range(n)] for n in (sizes[0], sizes[-1]))
        self.cross_entropy = cross_entropy

    def inputs(self, label: int, pixels: bytes) -> tuple[list[float], list[float]]:
        return [byte * self.scale for byte in pixels], [float(i == label) for i in range(len(self.one_hot))]

    def descend(self, loss: Any) -> float:
        self.model.zero_grad()
        loss.backward()
        for p in self.weights:
            p.data -= self.rate * p.grad
        return float(loss.data)

    def parameters(self) -> list[float]:
        return [p.data for p in self.weights]


class Recomputed(Micrograd):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.loss = self.cross_entropy(self.model(self.pixels), self.one_hot)

    def step(self, label: int, pixels: bytes) -> float:
        for values, numbers in zip((self.pixels, self.one_hot), self.inputs(label, pixels)):  # noqa: B905
            for i, number in enumerate(numbers):
                values[i].data = number
        self.loss.recompute()
        return self.descend(self.loss)


class Rebuilt(Micrograd):
    def step(self, label: int, pixels: bytes) -> float:
        xs, ts = self.inputs(label, pixels)
        return self.descend(self.cross_entropy(self.model(xs), ts))


KINDS: dict[str, type[System]] = {"generated": Generated, "recomputed": Recomputed, "rebuilt": Rebuilt}


def digest(numbers: Iterable[float]) -> str:
    """Of the bits of all parameters; the sign of a zero is nobody's business."""
    return hashlib.sha256(" ".join((x + 0.0).hex() for x in numbers).encode()).hexdigest()


def version() -> str:
    if not hasattr(sys, "pypy_version_info"):
        return f"{platform.python_implementation()} {platform.python_version()}"
    return f"PyPy {'.'.join(map(str, sys.pypy_version_info[:3]))}, Python {platform.python_version()}"


def main() -> None:
    options = json.loads(sys.argv[1])
    data = Path(options["data"]).read_bytes()
    size = 1 + options["sizes"][0]
    examples = [(data[i], data[i + 1 : i + size]) for i in range(0, len(data), size)]
    start = perf_counter()
    system = KINDS[options["kind"]](options)
    print(json.dumps({"built": perf_counter() - start, "version": version()}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        part = examples[: request["images"]]
        start = perf_counter()
        losses = [system.step(label, pixels) for label, pixels in part]
        answer: Options = {"seconds": (perf_counter() - start) / len(part)}
        if request["bits"]:
            answer["bits"] = [[loss.hex() for loss in losses], digest(system.parameters())]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

"""The compiled graph, in the modes that this version has.

"strict" is the interpreted engine bit for bit; "fast" allows fused multiply-add and other orders of sums, as every
peer does. float32 comes in both, too: in the graph's order, and fast. `nn.train` is a call an epoch, "four calls" is
the loop in Python that everybody writes first. Images are the bytes of the file, weights are loaded through
load_state_dict, and nothing is prepared.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

import codegen
from benchmarks.tasks import MOMENTUM, SMALL, Array, Data, Missing, Task, Weights
from codegen import Label, Pixels, Program
from codegen import mnist as small
from micrograd import optim
from micrograd.engine import Value
from micrograd.functional import cross_entropy, softmax
from micrograd.nn import MLP

VERSION = "nn, this checkout"
MODES = {"strict": {}, "fast": {"fma": True, "reorder": True}}
STEPS = 20_000
folder = Path("build/benchmarks")


def options(dtype: str, mode: str) -> dict[str, Any]:
    """What Program is told: the one place that knows how it is called."""
    return ({"dtype": "float32"} if dtype == "f32" else {}) | MODES[mode]


def program(model: str, **chosen: Any) -> Program:
    if model == SMALL:
        return small.program(**chosen)
    sizes = [int(size) for size in model.split("-")]
    random.seed(1)
    mlp = MLP(sizes[0], sizes[1:], init="fan_in")
    pixels, one_hot = [Value(0) for _ in range(sizes[0])], [Value(0) for _ in range(sizes[-1])]
    logits = mlp(pixels)
    return Program(
        inputs=Pixels(pixels, scale=1 / 255),
        targets=Label(one_hot),
        parameters=mlp.named_parameters(),
        order=mlp.parameters(),
        loss=cross_entropy(logits, one_hot),
        outputs={"logits": logits, "probabilities": softmax(logits)},
        prediction="logits",
        **chosen,
    )


@cache
def module(model: str, dtype: str, mode: str, optimizer: str = "") -> tuple[ModuleType, str]:
    """The built module, and how long that took. Each in a name of its own, for a process has one of each name."""
    start = perf_counter()
    name = f"nn_{model.replace('-', '_')}_{dtype}_{mode}{optimizer and '_'}{optimizer}"
    try:
        made = program(model, **options(dtype, mode))
        if optimizer:
            made.update = optim.adam() if optimizer == "adam" else optim.sgd(MOMENTUM)
    except TypeError as error:
        raise Missing(f"this version of codegen has no such mode ({error})") from None
    built = codegen.load_extension(codegen.build(made, folder / name, name), name)
    info = built.info()
    modes = [option for option in ("fma", "reorder") if info.get(option)]
    return built, f"{', '.join([info['dtype'], *modes, info['simd']])}; built in {perf_counter() - start:.1f} s"


class Ours:
    def __init__(self, task: Task, mode: str, threads: int) -> None:
        self.task = task
        self.nn, self.note = module(task.model, task.dtype, mode, task.optimizer)
        self.threads = {"threads": threads} if threads > 1 else {}

    def load(self, weights: Weights) -> None:
        floats = self.task.floats
        if self.task.optimizer:
            self.nn.reset(1)  # the optimiser's state too
        self.nn.load_state_dict(
            {
                f"layers.{i}.{name}": np.ascontiguousarray(array, floats)
                for i, layer in enumerate(weights)
                for name, array in zip(("weight", "bias"), layer, strict=True)
            }
        )

    def weights(self) -> Weights:
        arrays = [np.array(view, np.float64) for view in self.nn.state_dict().values()]
        return list(zip(arrays[::2], arrays[1::2], strict=True))


class Train(Ours):
    """An epoch a call."""

    def __init__(self, task: Task, data: Data, mode: str, threads: int) -> None:
        super().__init__(task, mode, threads)
        self.parts = [(np.ascontiguousarray(x), np.ascontiguousarray(y)) for x, y in data.parts(task)]
        self.images = len(self.parts[0][0])
        self.settings = {"batch_size": task.batch, "learning_rate": task.learning_rate} | self.threads
        self.try_threads()

    def try_threads(self) -> None:
        x, y = self.parts[0]
        try:
            self.nn.train(x[: self.task.batch], y[: self.task.batch], **self.settings)
        except (TypeError, ValueError) as error:
            raise Missing(f"this version of nn does not train that way ({error})") from None

    def run(self, part: int = 0) -> None:
        self.nn.train(*self.parts[part], **self.settings)


class Calls(Ours):
    """zero_grad, forward, backward, update for each image."""

    def __init__(self, task: Task, data: Data, mode: str) -> None:
        super().__init__(task, mode, 1)
        self.parts = [
            [(int(label), pixels.tobytes()) for pixels, label in zip(x, y, strict=True)]
            for x, y in data.parts(task, STEPS)
        ]
        self.images = len(self.parts[0])

    def run(self, part: int = 0) -> None:
        nn, rate = self.nn, self.task.learning_rate
        zero_grad, forward, backward, update = nn.zero_grad, nn.forward, nn.backward, nn.update
        for label, pixels in self.parts[part]:
            zero_grad()
            forward(label, pixels)
            backward()
            update(learning_rate=rate)


class Predict(Ours):
    """The class of an image from its bytes; with many images, of each of them."""

    def __init__(self, task: Task, data: Data, mode: str, threads: int) -> None:
        super().__init__(task, mode, threads)
        count, repeat = task.calls
        self.pixels = np.ascontiguousarray(data.test_images[:count])
        self.images = count * repeat
        predict_batch = partial(self.nn.predict_batch, **self.threads)
        self.call: Callable[[Any], Any] = self.nn.predict if task.batch == 1 else predict_batch
        self.calls = [x.tobytes() for x in self.pixels] if task.batch == 1 else [self.pixels] * repeat
        try:
            self.call(self.calls[0])
        except TypeError as error:
            raise Missing(f"this version of nn does not infer that way ({error})") from None

    def run(self, part: int = 0) -> None:
        call = self.call
        for x in self.calls:
            call(x)

    def classes(self) -> Array:
        if self.task.batch == 1:
            return np.array([self.call(x) for x in self.calls])
        return np.frombuffer(self.call(self.calls[0]), np.uint8)


def jobs(task: Task, data: Data, threads: int) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {}
    counts = [1] if task.batch == 1 else list(range(1, threads + 1))
    for mode in MODES:
        if task.kind == "train" and task.batch == 1:
            found[f"nn {mode}, four calls"] = partial(Calls, task, data, mode)
        for count in counts:
            kind, words = (Train, "train") if task.kind == "train" else (Predict, "predict")
            found[f"nn {mode}, {words}, {count} thread{'s' * (count > 1)}"] = partial(kind, task, data, mode, count)
    return found

"""PyTorch on the CPU.

`Sequential`: Linear and ReLU modules, CrossEntropyLoss, SGD(foreach=True) or Adam(fused=True); batches are tensors cut
beforehand.
`torch.compile`: the same with the loss compiled, which leaves dispatch, autograd and the optimiser as they are.
`by hand`: no autograd, no optimiser: gradients written out in a dozen calls that work in place, under inference_mode.
Inference goes through the Sequential or through addmm, whichever is faster, and stops at the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.tasks import MOMENTUM, Array, Data, Job, Task, Weights, fastest

VERSION = f"PyTorch {torch.__version__}"
# Steps a run, so that it takes less than a second.
STEPS = {"autograd": 1_000, "hand": 5_000}


class Torch:
    """Data and weights, common to all forms."""

    note = ""

    def __init__(self, task: Task, data: Data, steps: int) -> None:
        self.task = task
        self.dtype = torch.float64 if task.dtype == "f64" else torch.float32
        self.parts = [
            list(
                zip(
                    self.pixels(x).split(task.batch),
                    self.targets(y).split(task.batch),
                    strict=True,
                )
            )
            for x, y in data.parts(task, steps * task.batch)
        ]
        self.images = len(self.parts[0]) * task.batch

    def pixels(self, images: Array) -> Any:
        return torch.tensor(images / 255, dtype=self.dtype)

    def targets(self, labels: Array) -> Any:
        return torch.tensor(labels, dtype=torch.int64)


class Sequential(Torch):
    def __init__(self, task: Task, data: Data, compiled: bool = False) -> None:
        super().__init__(task, data, STEPS["autograd"])
        layers: list[torch.nn.Module] = []
        for fan_in, fan_out in zip(task.sizes, task.sizes[1:], strict=False):
            layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.ReLU()]
        self.model = torch.nn.Sequential(*layers[:-1]).to(self.dtype)
        self.optimizer = self.new_optimizer()
        criterion = torch.nn.CrossEntropyLoss()
        self.loss: Callable[[Any, Any], Any] = lambda x, y: criterion(self.model(x), y)
        if compiled:
            self.loss = torch.compile(self.loss)

    def new_optimizer(self) -> Any:
        rate, parameters = self.task.learning_rate, self.model.parameters()
        if self.task.optimizer == "adam":
            return torch.optim.Adam(parameters, lr=rate, fused=True)
        momentum = MOMENTUM if self.task.optimizer == "momentum" else 0.0
        return torch.optim.SGD(parameters, lr=rate, momentum=momentum, foreach=True)

    def load(self, weights: Weights) -> None:
        if self.task.optimizer:
            self.optimizer = self.new_optimizer()  # without the state of the last run
        with torch.no_grad():
            for parameter, array in zip(self.model.parameters(), [a for layer in weights for a in layer], strict=True):
                parameter.copy_(torch.from_numpy(array))

    def run(self, part: int = 0) -> None:
        loss, optimizer = self.loss, self.optimizer
        for x, y in self.parts[part]:
            optimizer.zero_grad()
            loss(x, y).backward()
            optimizer.step()

    def weights(self) -> Weights:
        arrays = [p.detach().numpy().astype(np.float64) for p in self.model.parameters()]
        return list(zip(arrays[::2], arrays[1::2], strict=True))


class ByHand(Torch):
    def __init__(self, task: Task, data: Data, out_in: bool) -> None:
        super().__init__(task, data, STEPS["hand"])
        self.out_in = out_in
        self.note = "weights (out, in)" if out_in else "weights (in, out)"

    def targets(self, labels: Array) -> Any:
        return torch.tensor(np.eye(10)[labels], dtype=self.dtype)

    def load(self, weights: Weights) -> None:
        """Each weight as (in, out), whatever its layout in memory."""
        kept = [(torch.tensor(w if self.out_in else w.T.copy(), dtype=self.dtype), b) for w, b in weights]
        self.layers = [(w.t() if self.out_in else w, torch.tensor(b, dtype=self.dtype)) for w, b in kept]

    @torch.inference_mode()
    def run(self, part: int = 0) -> None:
        layers, rate = self.layers, self.task.learning_rate
        last = len(layers) - 1
        for x, y in self.parts[part]:
            h = [x]
            for w, b in layers[:-1]:
                h.append(torch.addmm(b, h[-1], w).relu_())
            w, b = layers[last]
            d = torch.softmax(torch.addmm(b, h[-1], w), 1).sub_(y)
            scale = -rate / len(x)
            for i in range(last, -1, -1):
                w, b = layers[i]
                below = torch.mm(d, w.t()).mul_(h[i] > 0) if i else d
                w.addmm_(h[i].t(), d, alpha=scale)
                b.add_(d.sum(0), alpha=scale)
                d = below

    def weights(self) -> Weights:
        return [(w.t().numpy().astype(np.float64), b.numpy().astype(np.float64)) for w, b in self.layers]


class Predict(Torch):
    def __init__(self, task: Task, data: Data, modules: bool) -> None:
        self.task, self.modules = task, modules
        self.dtype = torch.float64 if task.dtype == "f64" else torch.float32
        count, repeat = task.calls
        self.calls = list(self.pixels(data.test_images[:count]).split(task.batch)) * repeat
        self.images = count * repeat
        self.note = "Sequential" if modules else "addmm"

    def load(self, weights: Weights) -> None:
        arrays = [(torch.tensor(w, dtype=self.dtype), torch.tensor(b, dtype=self.dtype)) for w, b in weights]
        if not self.modules:
            *hidden, (w2, b2) = [(w.t(), b) for w, b in arrays]

            def logits(x: Any) -> Any:
                for w, b in hidden:
                    x = torch.addmm(b, x, w).relu_()
                return torch.addmm(b2, x, w2)

            self.logits: Callable[[Any], Any] = logits
            return
        layers: list[torch.nn.Module] = []
        for w, b in arrays:
            linear = torch.nn.Linear(w.shape[1], w.shape[0], dtype=self.dtype)
            linear.load_state_dict({"weight": w, "bias": b})
            layers += [linear, torch.nn.ReLU()]
        self.logits = torch.nn.Sequential(*layers[:-1])

    @torch.inference_mode()
    def run(self, part: int = 0) -> None:
        logits = self.logits
        for x in self.calls:
            logits(x)

    @torch.inference_mode()
    def classes(self) -> Array:
        calls = self.calls if self.task.batch == 1 else self.calls[:1]
        return np.concatenate([self.logits(x).argmax(1).numpy() for x in calls])


def jobs(task: Task, data: Data, threads: int) -> dict[str, Callable[[], Job]]:
    torch.set_num_threads(threads)
    if task.kind == "infer":
        return {"PyTorch": lambda: fastest(Predict, task, data, [(True,), (False,)])}
    found: dict[str, Callable[[], Job]] = {
        "PyTorch, Sequential": lambda: Sequential(task, data),
        "PyTorch, torch.compile": lambda: Sequential(task, data, compiled=True),
    }
    if task.optimizer:
        return found
    return found | {
        "PyTorch, by hand": lambda: fastest(ByHand, task, data, [(True,), (False,)]),
    }

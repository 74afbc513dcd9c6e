"""JAX on the CPU, in the forms that turned out fastest.

Training. The whole epoch is one compiled call: `lax.scan` over batches that are on the device already, parameters
donated. What that takes depends on details that no one would guess: weights as (in, out) or (out, in), a batch of one
as a matrix or as a vector, pixels as bytes or as floats on the device. All of these are compiled and tried, and the
fastest is measured. Vector width, fast math, other libraries for products (XLA_FLAGS) and unrolling the scan changed
nothing or made it slower. "a jitted call a step" is how JAX is mostly used, in the form that scan is fastest in; the
steps are not waited for one by one.

Inference. A jitted function, images on the device, weights as arguments or as constants, whichever is faster. It
stops at the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.tasks import MOMENTUM, Array, Data, Job, Missing, Task, Weights, fastest, initial

VERSION = f"JAX {jax.__version__}"
# Steps a run where each is a call, so that a run takes less than a second.
STEPS = 5_000


def rule_of(task: Task) -> Any:
    """The optimiser of optax; None for plain SGD."""
    if not task.optimizer:
        return None
    try:
        import optax
    except ImportError:
        raise Missing("optax is not installed") from None
    if task.optimizer == "adam":
        return optax.adam(task.learning_rate)
    return optax.sgd(task.learning_rate, momentum=MOMENTUM)


class Form:
    """One way of writing the network: how weights lie, whether an image is a row or a vector, what pixels are."""

    def __init__(self, task: Task, out_in: bool, vector: bool, bytes_: bool) -> None:
        jax.config.update("jax_enable_x64", task.dtype == "f64")
        self.task, self.out_in, self.vector, self.bytes = task, out_in, vector, bytes_
        self.rule = rule_of(task)
        self.dtype = jnp.float64 if task.dtype == "f64" else jnp.float32
        words = ["weights (out, in)" if out_in else "weights (in, out)", "pixels uint8" if bytes_ else "pixels float"]
        self.note = ", ".join([*words, *(["vectors"] if vector else [])])

    def parameters(self, weights: Weights) -> Any:
        """The weights, with the state of an optimiser if there is one."""
        found = self.layers(weights)
        return found if self.rule is None else (found, self.rule.init(found))

    def layers(self, weights: Weights) -> Any:
        return [
            (jnp.array(w if self.out_in else w.T, self.dtype, copy=True), jnp.array(b, self.dtype, copy=True))
            for w, b in weights
        ]

    def weights(self, parameters: Any) -> Weights:
        layers = parameters if self.rule is None else parameters[0]
        return [
            (np.asarray(w, np.float64) if self.out_in else np.asarray(w, np.float64).T, np.asarray(b, np.float64))
            for w, b in layers
        ]

    def pixels(self, images: Array) -> Array:
        """(batches, batch, 784), or (images, 784) for vectors."""
        shape = (-1, 784) if self.vector else (-1, self.task.batch, 784)
        return images.reshape(shape) if self.bytes else (images / 255).reshape(shape).astype(self.dtype)

    def one_hot(self, labels: Array) -> Array:
        shape = (-1, 10) if self.vector else (-1, self.task.batch, 10)
        return np.eye(10, dtype=self.dtype)[labels].reshape(shape)

    def logits(self, parameters: Any, x: Any) -> Any:
        h = x.astype(self.dtype) * self.dtype(1 / 255) if self.bytes else x
        for i, (w, b) in enumerate(parameters):
            h = (w @ h if self.vector else h @ w.T) if self.out_in else h @ w
            h = h + b
            if i < len(parameters) - 1:
                h = jax.nn.relu(h)
        return h

    def step(self, parameters: Any, example: Any) -> Any:
        """One update, in the form that scan wants."""
        x, y = example

        def loss(p: Any) -> Any:
            return -jnp.mean(jnp.sum(jax.nn.log_softmax(self.logits(p, x)) * y, -1))

        if self.rule is not None:
            parameters, state = parameters
            value, gradients = jax.value_and_grad(loss)(parameters)
            updates, state = self.rule.update(gradients, state, parameters)
            return (jax.tree.map(lambda p, u: p + u, parameters, updates), state), value
        value, gradients = jax.value_and_grad(loss)(parameters)
        rate = self.task.learning_rate
        return jax.tree.map(lambda p, g: p - rate * g, parameters, gradients), value


def on_device(batches: Array) -> list[Any]:
    return [jnp.asarray(batch) for batch in batches]


class Scan:
    """One call an epoch. Compiled ahead, so that what it takes to compile can be told."""

    def __init__(self, task: Task, data: Data, *form_: bool) -> None:
        self.form = form = Form(task, *form_)
        self.parts = [(jnp.asarray(form.pixels(x)), jnp.asarray(form.one_hot(y))) for x, y in data.parts(task)]
        self.images = len(next(data.parts(task))[0])
        self.load(initial(task.model))
        start = perf_counter()
        epoch = jax.jit(lambda p, xs, ys: jax.lax.scan(form.step, p, (xs, ys)), donate_argnums=0)
        self.epoch = epoch.lower(self.parameters, *self.parts[0]).compile()
        self.note = f"{form.note}; compiled in {perf_counter() - start:.1f} s"

    def load(self, weights: Weights) -> None:
        self.parameters = jax.block_until_ready(self.form.parameters(weights))

    def run(self, part: int = 0) -> None:
        self.parameters, losses = self.epoch(self.parameters, *self.parts[part])
        jax.block_until_ready((self.parameters, losses))

    def weights(self) -> Weights:
        return self.form.weights(self.parameters)


class Steps(Scan):
    """One call a step."""

    def __init__(self, task: Task, data: Data, *form_: bool) -> None:
        self.form = form = Form(task, *form_)
        parts = data.parts(task, STEPS * task.batch)
        self.parts = [list(zip(on_device(form.pixels(x)), on_device(form.one_hot(y)), strict=True)) for x, y in parts]
        self.images = len(self.parts[0]) * task.batch
        self.step = jax.jit(lambda p, x, y: form.step(p, (x, y)), donate_argnums=0)
        self.note = form.note

    def run(self, part: int = 0) -> None:
        parameters, step = self.parameters, self.step
        for x, y in self.parts[part]:
            parameters, loss = step(parameters, x, y)
        self.parameters = jax.block_until_ready(parameters)
        jax.block_until_ready(loss)


class Predict:
    """Images of the test set, `batch` a call, each call waited for."""

    def __init__(self, task: Task, data: Data, constants: bool, *form_: bool) -> None:
        form = self.form = Form(task, *form_)
        self.constants = constants
        count, repeat = task.calls
        self.calls = on_device(form.pixels(data.test_images[:count])) * repeat
        self.images = count * repeat
        self.note = f"{form.note}{', weights constant' if constants else ''}"

    def load(self, weights: Weights) -> None:
        parameters = self.form.parameters(weights)
        function = jax.jit(self.form.logits)
        self.logits: Callable[[Any], Any] = (
            jax.jit(lambda x: self.form.logits(parameters, x)) if self.constants else partial(function, parameters)
        )
        self.logits(self.calls[0])

    def run(self, part: int = 0) -> None:
        logits = self.logits
        for x in self.calls:
            logits(x).block_until_ready()

    def classes(self) -> Array:
        calls = self.calls if self.form.task.batch == 1 else self.calls[:1]
        return np.concatenate([np.asarray(self.logits(x)).reshape(-1, 10).argmax(1) for x in calls])


def forms(task: Task) -> list[tuple[bool, ...]]:
    """(out_in, vector, bytes_) of what is tried."""
    vector = task.batch == 1
    return [(out_in, out_in and vector, bytes_) for out_in in (False, True) for bytes_ in (True, False)]


def jobs(task: Task, data: Data, threads: int) -> dict[str, Callable[[], Job]]:
    if task.kind == "infer":
        choices = [(constants, *form) for constants in (True, False) for form in forms(task)]
        return {"JAX, jit": lambda: fastest(Predict, task, data, choices)}
    chosen: list[tuple[bool, ...]] = []

    def scan() -> Scan:
        job = fastest(Scan, task, data, forms(task))
        chosen[:] = [(job.form.out_in, job.form.vector, job.form.bytes)]
        return job

    return {
        "JAX, epoch in one lax.scan": scan,
        "JAX, a jitted call a step": lambda: Steps(task, data, *(chosen or forms(task))[0]),
    }

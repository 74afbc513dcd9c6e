"""What is written through a view that lives on, and what is read through it, against a model that has no views.

While a view is alive, calls look for what it has written once, where they begin: a row of weights with an inf or nan
must not be skipped, a gradient must be added to, used and cleared. Between calls, and in `progress`, a view shows all
gradients. The other model is written through views that are gone at once; test_rows.py compares that with the engine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import models
import nn
import numpy as np
import pytest
from harness import bits, many, nightly_but

import codegen
from codegen import Label, Program

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore::codegen.ModelWarning")

NUMBERS = [0.0, -0.0, 0.5, -1.5, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf]
PROGRAMS: dict[str, Callable[[], Program]] = {
    "mlp": models.mlp,
    "floats": models.mlp_of_floats,
    "float32": lambda: models.mlp_of_floats(dtype="float32"),
    "deep": lambda: models.mlp((30, 8, 8, 8, 3)),
    "no rows": models.recurrence,
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MICROGRAD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


class Viewed:
    """A model whose tensors and gradients are all viewed, from the beginning to the end."""

    def __init__(self, program: Program) -> None:
        self.model = codegen.compile(program, optimize=0)
        self.data = {name: np.asarray(view) for name, view in self.model.state_dict().items()}
        self.grad = {name: np.asarray(view) for name, view in self.model.grad_dict().items()}

    def write(self, kind: str, name: str, index: tuple[int, ...], number: float) -> None:
        getattr(self, kind)[name][index] = number

    def seen(self) -> list[list[str]]:
        return [bits(array.ravel().tolist()) for array in (*self.data.values(), *self.grad.values())]


class Flat(Viewed):
    """The same through flat_data() and flat_grad(), of which all tensors are parts."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        flat = {"data": np.asarray(self.model.flat_data()), "grad": np.asarray(self.model.flat_grad())}
        for kind, views in ("data", self.data), ("grad", self.grad):
            for name, view in views.items():
                first = view.__array_interface__["data"][0] - flat[kind].__array_interface__["data"][0]
                rest = flat[kind][first // view.itemsize :]
                views[name] = np.lib.stride_tricks.as_strided(rest, view.shape, view.strides)


class Alone:
    """The same model with no view but for a moment."""

    def __init__(self, program: Program) -> None:
        self.model = codegen.compile(program, optimize=0)

    def write(self, kind: str, name: str, index: tuple[int, ...], number: float) -> None:
        views = self.model.state_dict() if kind == "data" else self.model.grad_dict()
        np.asarray(views[name])[index] = number

    def seen(self) -> list[list[str]]:
        both = self.model.state_dict(), self.model.grad_dict()
        return [bits(np.array(view).ravel().tolist()) for views in both for view in views.values()]


def outcome(call: Callable[[], object]) -> object:
    try:
        result = call()
    except FloatingPointError as error:
        return str(error)
    numbers = result if isinstance(result, list) else [result]
    return bits(numbers) if all(isinstance(number, float) for number in numbers) else result


class Pair:
    def __init__(self, program: Program, rng: random.Random, kind: type[Viewed] = Viewed) -> None:
        self.rng, self.program = rng, program
        self.both = kind(program), Alone(program)
        self.overflowing = 1e30 if program.dtype == "float32" else 1e300  # as a learning rate
        self.places = [(t.name, index) for t in program.tensors for index in np.ndindex(t.shape)]
        real = np.float32 if program.dtype == "float32" else np.float64
        numbers = np.random.default_rng(rng.randrange(1000))
        self.start = {t.name: numbers.uniform(-0.7, 0.7, t.shape).astype(real) for t in program.tensors}
        self.images, self.labels = many(program, 2100, seed=1)
        self.width = len(self.images) // 2100
        self.height = 0 if self.labels is None else len(self.labels) // 2100

    def on_both(self, call: Callable[[Any], object]) -> None:
        results = [outcome(lambda one=one: call(one)) for one in self.both]
        assert results[0] == results[1]
        assert self.both[0].seen() == self.both[1].seen()

    def numbers(self, count: int) -> tuple[Any, Any]:
        first = self.rng.randrange(2100 - count)
        labels = None if self.labels is None else self.labels[first * self.height : (first + count) * self.height]
        return self.images[first * self.width : (first + count) * self.width], labels

    def write(self) -> tuple[Any, ...]:
        return self.rng.choice(["data", "grad"]), *self.rng.choice(self.places), self.rng.choice(NUMBERS)

    def forward(self) -> None:
        images, labels = self.numbers(1)
        label = labels[0] if isinstance(self.program.targets, Label) else labels
        self.on_both(lambda one: one.model.forward(label, images))

    def heal(self) -> None:
        self.on_both(lambda one: one.model.load_state_dict(self.start))
        self.on_both(lambda one: one.model.zero_grad())

    def step(self) -> None:
        self.on_both(lambda one: one.model.zero_grad())
        self.forward()
        self.on_both(lambda one: one.model.backward())
        self.on_both(lambda one: one.model.update(learning_rate=0.1))

    def accumulate(self) -> None:
        data = self.numbers(self.rng.choice([1, 5, 70, 300]))
        self.on_both(lambda one: one.model.accumulate(*data, threads=2))

    def train(self) -> None:
        """Of two chunks or more, with writes in between."""
        options: dict[str, Any] = {
            "batch_size": self.rng.choice([1, 7, 64, 1000]),
            "learning_rate": self.rng.choice([0.0, 0.05, self.overflowing]),
            "check_finite": self.rng.random() < 0.5,
            "threads": self.rng.choice([1, 2]),
        }
        write = self.write() if self.rng.random() < 0.5 else None
        seen: list[Any] = []

        def progress(one: Any) -> Callable[..., None]:
            def between(done: int, *_: object) -> None:
                seen.append(one.seen())
                if write is not None and done < 2100:
                    one.write(*write)

            return between

        self.on_both(lambda one: one.model.train(self.images, self.labels, progress=progress(one), **options))
        assert len(seen) % 2 == 0
        assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
        self.on_both(lambda one: one.model.train(self.images, self.labels, **options))


KINDS = [*((name, Viewed) for name in PROGRAMS), ("mlp", Flat), ("float32", Flat)]
QUICK = [("no rows", Viewed)]
SLOW = [pytest.param(*kind, marks=pytest.mark.nightly) for kind in KINDS if kind not in QUICK]


@pytest.mark.parametrize("seed", nightly_but([0], range(3)))
@pytest.mark.parametrize(("name", "kind"), [*QUICK, *SLOW])
def test_random_calls_and_writes(name, kind, seed):
    rng = random.Random(seed)
    pair = Pair(PROGRAMS[name](), rng, kind)

    def write() -> None:
        change = pair.write()
        pair.on_both(lambda one: one.write(*change))

    image = pair.numbers(1)[0]
    pair.heal()
    pair.forward()
    calls: list[Callable[[], object]] = [
        pair.forward,
        pair.step,
        lambda: pair.on_both(lambda one: one.model.backward()),
        lambda: pair.on_both(lambda one: one.model.update(learning_rate=rate)),
        lambda: pair.on_both(lambda one: one.model.zero_grad()),
        lambda: pair.on_both(lambda one: [x for values in one.model.outputs(image).values() for x in values]),
        lambda: pair.on_both(lambda one: one.model.evaluate(*data)[0]),
        pair.accumulate,
        *[write] * 6,
    ]
    for i in range(150):
        rate, data = rng.choice([None, 0.3, pair.overflowing]), pair.numbers(40)
        pair.train() if i % 15 == 0 else rng.choice(calls)()
        if rng.random() < 0.25:
            pair.heal()


def test_a_call_of_many_chunks_uses_what_progress_writes(digits):
    """On the real nn, whose chunks are shorter than 1,000 images."""
    images, labels = digits(2000)

    def trained(viewed: bool) -> tuple[object, object, object]:
        nn.reset(1)
        views = [np.asarray(view) for d in (nn.state_dict(), nn.grad_dict()) for view in d.values()] if viewed else []
        sums = []

        def progress(*_: object) -> None:
            row = np.asarray(nn.state_dict()["layers.0.weight"])[:, 7]
            row += 0.125
            slope = views[4] if viewed else np.asarray(nn.grad_dict()["layers.0.weight"])
            sums.append(slope.sum().hex())
            slope[:] = 7.0  # which zero_grad() clears

        losses = nn.train(images, labels, batch_size=50, progress=progress)
        return losses, sums, [np.array(view).tolist() for view in nn.state_dict().values()]

    assert trained(True) == trained(False)


def test_check_finite_sees_what_progress_writes(digits):
    """The bias of a unit that relu then switches off: every gradient stays finite. No row tensor has a view."""
    nn.reset(1)
    bias = np.asarray(nn.state_dict()["layers.0.bias"])

    def progress(*_: object) -> None:
        bias[3] = -math.inf

    with pytest.raises(
        FloatingPointError, match=r"^train\(\) stopped before step .*which makes layers.0.bias\[3\] -inf$"
    ):
        nn.train(*digits(2000), batch_size=10, progress=progress, check_finite=True)
    nn.reset(1)

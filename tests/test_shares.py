"""Ranks that share a batch: bits that depend on their number, ranks that come apart, a step that one takes alone.

The ranks are threads with a model each (tests/ranks.py); test_mpi.py starts real ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import models
import numpy as np
import pytest
import test_noise
import test_tokens
from harness import many, nightly_but
from ranks import Exchange, Group

import codegen
from codegen import Floats, Program
from micrograd import optim

pytestmark = pytest.mark.filterwarnings("ignore::codegen.ModelWarning")

TREE, EXACT, FAST = range(3)
MOST = 4  # ranks


def penalised() -> Program:
    """A batch computes half of the penalty's gradient once, which is added twice."""
    x, y, rng = models.values(6), models.values(2), random.Random(1)
    first, last = models.weights(rng, 5, 6), models.weights(rng, 2, 5)
    hidden = [models.dot(row, x).tanh() for row in first]
    errors = [(models.dot(row, hidden) - target) ** 2 for row, target in zip(last, y, strict=True)]
    loss = models.total(errors) + models.total([v * v for row in (*first, *last) for v in row]) * 0.01
    return Program(Floats(x), Floats(y), {"first": first, "last": last}, loss)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "rows, Adam": lambda: models.mlp(update=optim.adam()),
    "recurrent, Adam": lambda: replace(models.recurrence(), update=optim.adam()),
    "convolution, Adam": lambda: replace(models.convolution(), update=optim.adam()),
    "clipped norm": lambda: models.mlp(update=optim.clip_norm(optim.sgd(momentum=0.9), 0.01)),
    "deep, float32": lambda: models.mlp((30, 20, 20, 5), dtype="float32", update=optim.adam()),
    "rows of floats": models.mlp_of_floats,
    "penalty": penalised,
    "attention": models.attention,
    "shared weights": models.shared_weights,
    "edges": models.edges,
    "tokens": test_tokens.with_clipped_norm,
    "tokens of a recurrence": test_tokens.recurrent,
    "dropout": test_noise.dropout,
    "drawn codes": test_noise.variational,
    "moving": test_noise.moving,
}
QUICK = ["rows, Adam", "penalty"]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MICROGRAD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


class Ranks:
    """A model for each rank, and one that trains alone, all from the same beginning."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.models: list[Any] = [codegen.compile(program, optimize=0) for _ in range(MOST + 1)]
        self.alone = self.models.pop()
        self.dtype = self.alone.info()["dtype"]

    def reset(self, weights: dict[str, Any] | None = None) -> None:
        for model in (*self.models, self.alone):
            model.reset(*([] if self.program.initial is None else [model.info()["seed"]]))
            if weights is not None:
                model.load_state_dict(weights)

    def train(self, ranks: int, mode: int, *data: Any, stop_at: int | None = None, **options: Any) -> list[Any]:
        """What train() returns or raises on each rank."""
        group = Group(ranks)

        def run(rank: int) -> Any:
            exchange = Exchange(group, rank, self.dtype)

            def progress(done: int, *_: object) -> None:
                exchange.stop = stop_at is not None and done >= stop_at and rank == ranks - 1

            train = self.models[rank]._train_shared
            return train(exchange, mode, rank, ranks, *data, progress=progress, **options)

        return group.run(run)


def seen(model: Any) -> dict[str, bytes]:
    """All bits of the parameters, the gradients and the state of the optimizer, but for the sign of a zero."""
    kinds = {"data": model.state_dict(), "grad": model.grad_dict(), "state": model.optimizer_state()}
    return {
        f"{kind} {name}": (np.array(view) + 0).tobytes()
        for kind, views in kinds.items()
        for name, view in views.items()
    }


def check_equal(ranks: Ranks, count: int, expected: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """All ranks have the same bits: those expected, or those of the first."""
    first = seen(ranks.models[0]) if expected is None else expected
    for rank, model in enumerate(ranks.models[:count]):
        found = seen(model)
        assert not [name for name in first if found[name] != first[name]], (count, rank)
    return first


@pytest.mark.parametrize("name", nightly_but(QUICK, PROGRAMS))
def test_no_bit_depends_on_the_number_of_ranks(name: str) -> None:
    """Of batches with one image, with some of a block, with gradients that are shared, and with several leaves."""
    ranks = Ranks(PROGRAMS[name]())
    for batch_size, count in ((1, 7), (7, 40), (200, 300), (700, 1100)):
        data = many(ranks.program, count, seed=batch_size)
        options: dict[str, Any] = {"batch_size": batch_size, "epochs": 2, "seed": 3, "learning_rate": 1e-3}
        ranks.reset()
        losses = ranks.alone.train(*data, **options)
        alone, tree = seen(ranks.alone), None
        for size in range(1, MOST + 1):
            options["threads"] = size % 2 + 1
            ranks.reset()
            assert ranks.train(size, EXACT, *data, **options) == [losses] * size
            check_equal(ranks, size, alone)
            ranks.reset()
            of_tree = ranks.train(size, TREE, *data, **options)
            tree = check_equal(ranks, size, tree if batch_size > 256 else alone)
            assert of_tree == [of_tree[0]] * size
            assert of_tree[0] == pytest.approx(losses, rel=1e-5)
            ranks.reset()
            assert ranks.train(size, FAST, *data, **options)[0] == pytest.approx(losses, rel=1e-5)
            check_equal(ranks, size)


@pytest.mark.parametrize("batch_size", [20, 300])
@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_rows_that_are_not_finite(number: float, batch_size: int) -> None:
    """Inputs of 0 count there. Sooner or later, factors that are not finite make all rows nan."""
    ranks = Ranks(models.mlp())
    data = many(ranks.program, 600, seed=1)
    weights = {name: np.array(view) for name, view in ranks.alone.state_dict().items()}
    weights["layers.0.weight"][2, 5] = number
    ranks.reset(weights)
    ranks.alone.train(*data, batch_size=batch_size)
    expected = seen(ranks.alone)
    for size in range(1, MOST + 1):
        ranks.reset(weights)
        ranks.train(size, EXACT, *data, batch_size=batch_size)
        check_equal(ranks, size, expected)


@pytest.mark.parametrize("rate", [1e300, 1e308])
def test_a_refused_step_is_refused_on_every_rank(rate: float) -> None:
    ranks = Ranks(models.mlp())
    data = many(ranks.program, 600, seed=1)
    options: dict[str, Any] = {"batch_size": 150, "learning_rate": rate, "check_finite": True}
    ranks.reset()
    with pytest.raises(FloatingPointError) as alone:
        ranks.alone.train(*data, **options)
    expected = seen(ranks.alone)
    for mode in (EXACT, TREE, FAST):
        ranks.reset()
        errors = ranks.train(3, mode, *data, **options)
        assert [type(error) for error in errors] == [FloatingPointError] * 3
        assert len({str(error) for error in errors}) == 1
        if mode != FAST:
            assert str(errors[0]) == str(alone.value)
            check_equal(ranks, 3, expected)


class Down:
    """An exchange whose link is down."""

    stop = False

    def gather(self, *_: object) -> None:
        raise OSError("down")

    sum = trade = gather


@pytest.mark.parametrize("mode", [TREE, EXACT, FAST])
def test_a_failed_exchange_leaves_no_forward_behind(mode: int) -> None:
    """Its image may be another rank's."""
    ranks = Ranks(models.mlp())
    images, labels = many(ranks.program, 100, seed=1)
    (model, *_) = ranks.models

    model.forward(labels[0], images[:12])
    with pytest.raises(OSError, match="down"):
        model._train_shared(Down(), mode, 0, 2, images, labels, batch_size=20)
    with pytest.raises(RuntimeError, match=r"backward\(\) needs a forward\(\) before it"):
        model.backward()


@pytest.mark.parametrize("batch_size", [10, 300])
@pytest.mark.parametrize("mode", [TREE, EXACT, FAST])
def test_all_ranks_stop_after_the_same_step(mode: int, batch_size: int) -> None:
    ranks = Ranks(models.mlp())
    data = many(ranks.program, 3000, seed=1)
    ranks.reset()
    stopped = ranks.train(3, mode, *data, batch_size=batch_size, epochs=3, stop_at=2000)
    assert [type(one) for one in stopped] == [KeyboardInterrupt] * 3
    (steps,) = {one.args[0] for one in stopped}
    assert steps == ranks.models[2].optimizer_state()["step"].tolist() > 2000 / batch_size
    check_equal(ranks, 3)


def test_a_rank_without_images_has_the_step_too() -> None:
    """More ranks than images, and more than leaves of the tree."""
    ranks = Ranks(models.mlp())
    for count in (2, 300):
        data = many(ranks.program, count, seed=1)
        ranks.reset()
        expected = ranks.train(1, TREE, *data, batch_size=count, epochs=2)
        bits = seen(ranks.models[0])
        ranks.reset()
        assert ranks.train(4, TREE, *data, batch_size=count, epochs=2) == expected * 4
        check_equal(ranks, 4, bits)


def test_wrong_ranks_change_nothing() -> None:
    model: Any = Ranks(models.mlp()).alone
    data, before = many(models.mlp(), 3), seen(model)
    for arguments, message in [
        ((None, 3, 0, 1), "mode must be 0..2, got 3"),
        ((None, 0, 2, 2), "rank must be 0..1, got 2"),
        ((None, 0, 0, 0), "ranks must be 1..4096, got 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            model._train_shared(*arguments, *data)
    with pytest.raises(TypeError, match="takes at least 4 positional arguments, got 1"):
        model._train_shared(None)
    with pytest.raises(AttributeError, match="stop"):
        model._train_shared(None, EXACT, 0, 2, *data)
    assert seen(model) == before

"""train(check_finite=True) that stops at the wrong step, names the wrong parameter, or does not stop."""

from __future__ import annotations

import itertools
import math
import random
from types import ModuleType

import models
import nn
import numpy as np
import pytest
from harness import LEVELS, Extension, Generated, batches_by_hand, bits, gradients, many, parameters

from codegen import Floats, Program
from micrograd.engine import Value

COUNT = 150  # more than two blocks of images


PROGRAMS = {
    **{name: models.REGULAR[name] for name in ("mlp", "xor", "attention")},
    "row_floats": models.mlp_of_floats,
    "float32": lambda: models.mlp_of_floats(dtype="float32"),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """built(name, "C" or "Python" or a SIMD level) -> a module as it was imported."""
    folder, modules = tmp_path_factory.mktemp("checked"), {}

    def get(name: str, kind: str) -> tuple[Program, ModuleType]:
        if name not in modules:
            extension = Extension(PROGRAMS[name](), folder, "loops", levels=True, flags=["-O0"])
            modules[name] = {"": extension.program, "C": extension.module}
            if extension.program.dtype == "float64":
                modules[name]["Python"] = Generated(extension.program, folder).module
            for level in LEVELS if name in ("mlp", "row_floats") else ():
                try:
                    modules[name][level] = extension.at_level(level).module
                except ImportError:
                    break  # the processor has no higher ones
        if kind not in modules[name]:
            pytest.skip(f"the processor has no {kind}")
        module = modules[name][kind]
        module.reset(*([module.info()["seed"]] if modules[name][""].initial else []))
        return modules[name][""], module

    return get


def write(module, number: float, tensor: int = -1) -> None:
    """Writes to the last element of a tensor, through load_state_dict: no view stays."""
    state = {name: np.array(view) for name, view in module.state_dict().items()}
    state[list(state)[tensor]].flat[-1] = number
    module.load_state_dict(state)


def by_hand(module, images, labels, *, batch_size, learning_rate, epochs, seed=None):
    """(mean losses) of the epochs, or the message of the error that is expected."""
    losses, step, order = [], 0, list(range(COUNT))
    shuffler = None if seed is None else random.Random(seed)

    def not_finite() -> str | None:
        for name, view in module.state_dict().items():
            tensor = np.asarray(view)
            if not np.isfinite(tensor).all():
                index = tuple(np.argwhere(~np.isfinite(tensor))[0].tolist())
                return f"{name}{list(index) or ''}|{tensor[index]}"
        return None

    if (found := not_finite()) is not None:
        return f"train() did not start: {found.replace('|', ' is ')}"
    for epoch in range(epochs):
        if shuffler is not None:
            shuffler.shuffle(order)
        for batch, so_far in batches_by_hand(module, images, labels, batch_size, order):
            step, total = step + 1, so_far
            before = {name: np.array(view) for name, view in module.state_dict().items()}
            module.update(0, len(batch), learning_rate=learning_rate)
            if (found := not_finite()) is None:
                continue
            module.load_state_dict(before)
            noun = "image" if module.info()["input_type"] == "uint8" else "row"
            if len(batch) == 1:
                which = f"{noun} {batch[0]}"
            elif seed is None:
                which = f"{noun}s {batch[0]}..{batch[-1]}"
            else:
                which = f"{noun}s " + ", ".join(map(str, batch[:8]))
                which += f" and {len(batch) - 8} more" if len(batch) > 8 else ""
            where = f"epoch {epoch + 1}, {which}" if epochs > 1 else which
            return f"train() stopped before step {step} ({where}), which makes {found.replace('|', ' ')}"
        losses.append(total / COUNT)
    return losses


def same(program, module, prepare, data, threads=1, **options) -> list[float] | str:
    """Trains both ways, compares what comes back and all bits that are left, and returns the former."""
    seeded = [module.info()["seed"]] if program.initial else []
    results = []
    for train in (
        lambda: by_hand(module, *data, **options),
        lambda: module.train(*data, **options, threads=threads, check_finite=True),
    ):
        module.reset(*seeded)
        prepare(module)
        try:
            result = train()
        except FloatingPointError as error:
            result = str(error)
        left = bits(parameters(module)), bits(gradients(module))
        module.update(learning_rate=0.0)  # what is known of rows must be right too
        shown = result if isinstance(result, str) else bits(result)
        results.append((shown, left, bits([module.evaluate(*data)[0]])))
    assert results[1] == results[0]
    return result


def nothing(module) -> None:
    pass


KINDS = [
    *((name, "C", 1) for name in PROGRAMS),
    *((name, "C", 3) for name in ("mlp", "row_floats")),
    *((name, "Python", 1) for name in PROGRAMS if name != "float32"),
    *((name, level, 2) for name in ("mlp", "row_floats") for level in LEVELS),
]


QUICK = [kind for kind in KINDS if kind[0] == "mlp"]
SLOW = [pytest.param(*kind, marks=pytest.mark.slow) for kind in KINDS if kind not in QUICK]


@pytest.mark.parametrize(("name", "kind", "threads"), [*QUICK, *SLOW])
def test_training_that_overflows_stops_where_a_loop_by_hand_finds_it(name, kind, threads, built):
    program, module = built(name, kind)
    data = many(program, COUNT)
    huge, large = (1e38, 1e18) if program.dtype == "float32" else (1e308, 1e150)
    outcomes = set()
    for rate in (0.01, large, -huge):
        for batch_size, seed in ((1, None), (7, 3), (64, None), (100, 1)):
            options = {"batch_size": batch_size, "learning_rate": rate, "epochs": 2, "seed": seed, "threads": threads}
            outcomes.add(type(same(program, module, nothing, data, **options)))
    assert outcomes == {list, str}


@pytest.mark.parametrize("kind", ["C", "Python"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("tensor", [0, 1, 2, 3])
def test_training_does_not_start_with_a_parameter_that_is_not_finite(kind, value, tensor, built):
    program, module = built("mlp", kind)
    options = {"batch_size": 4, "learning_rate": 0.01, "epochs": 1}
    message = same(program, module, lambda m: write(m, value, tensor), many(program, COUNT), **options)
    assert message.startswith("train() did not start: layers.")
    assert message.endswith(f" is {value}")
    assert parameters(module).count(value) == (0 if math.isnan(value) else 1)


@pytest.mark.parametrize("kind", ["C", "Python"])
@pytest.mark.parametrize("where", [0, 63, 64, 149])
@pytest.mark.parametrize("what", [0, 1])
def test_an_image_or_a_target_that_is_not_finite_is_named(kind, where, what, built):
    program, module = built("row_floats", kind)
    data = many(program, COUNT)
    data[what][where * len(data[what]) // COUNT] = math.inf
    message = same(program, module, nothing, data, batch_size=1, learning_rate=0.01, epochs=1)
    assert f"before step {where + 1} (row {where}), which makes " in message


@pytest.mark.parametrize("kind", ["C", "Python"])
@pytest.mark.parametrize("value", [5e300, -5e300])  # beyond where the bounds are enough
@pytest.mark.parametrize("tensor", [0, 1, 2, 3])
def test_a_number_close_to_overflow_is_no_error(kind, value, tensor, built):
    program, module = built("mlp", kind)
    options = {"batch_size": 5, "learning_rate": 1e-300, "epochs": 2}
    losses = same(program, module, lambda m: write(m, value, tensor), many(program, COUNT), **options)
    assert isinstance(losses, list)
    assert value in parameters(module)


@pytest.mark.parametrize("kind", ["C", "Python"])
@pytest.mark.parametrize(
    ("tensor", "name"), [(0, "layers.0.weight[6, 11]"), (1, "layers.0.bias[6]"), (3, "layers.1.bias[4]")]
)
def test_a_small_step_from_the_largest_number_overflows(kind, tensor, name, built):
    program, module = built("mlp", kind)
    outcomes = set()
    for rate, batch_size in itertools.product((1e295, -1e295), (1, 60)):
        options = {"batch_size": batch_size, "learning_rate": rate, "epochs": 1}
        message = same(
            program, module, lambda m: write(m, 1.7976931348623157e308, tensor), many(program, COUNT), **options
        )
        outcomes.add(str(message).partition(", which makes ")[2])
    assert f"{name} inf" in outcomes


def test_a_finite_training_has_the_same_bits_with_and_without(digits):
    data = digits(500)
    results = []
    for check in (False, True):
        nn.reset(1)
        losses = nn.train(*data, batch_size=3, epochs=2, seed=1, check_finite=check)
        results.append((losses, parameters(nn), gradients(nn)))
    assert results[0] == results[1]


@pytest.mark.parametrize("of", ["state_dict", "grad_dict"])
def test_while_a_view_is_alive(of, built):
    program, module = built("mlp", "C")
    data, views = many(program, COUNT), []
    for rate in (0.01, 1e200):
        options = {"batch_size": 8, "learning_rate": rate, "epochs": 2}
        same(program, module, lambda m: views.append(getattr(m, of)()), data, **options)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("name", ["layers.0.weight", "layers.0.bias", "layers.1.weight"])
def test_what_progress_writes_is_found_in_the_next_step(name, keep, digits):
    data, calls, views = digits(2000), [], []

    def progress(done, total, loss):
        calls.append(done)
        if len(calls) == 1:
            views.append(np.asarray(nn.state_dict()[name]))
            views[0].flat[1] = math.inf
            if not keep:
                views.clear()

    nn.reset(1)
    with pytest.raises(FloatingPointError, match=r"before step \d+ .*, which makes ") as caught:
        nn.train(*data, epochs=2, progress=progress, check_finite=True)
    views.clear()
    assert f"before step {calls[0] + 1} (epoch 1, image {calls[0]})" in str(caught.value)
    assert len(calls) == 1
    assert math.isinf(np.asarray(nn.state_dict()[name]).flat[1])


@pytest.mark.parametrize("wrong", [0, 1, None, "no", 1.0, np.True_, []], ids=repr)
@pytest.mark.parametrize("kind", ["C", "Python"])
def test_it_is_true_or_false(wrong, kind, built):
    program, module = built("mlp", kind)
    before = parameters(module)
    with pytest.raises(TypeError, match=r"check_finite must be True or False, not <class '"):
        module.train(*many(program, COUNT), check_finite=wrong)
    assert parameters(module) == before


@pytest.mark.slow
def test_a_model_without_dimensions_to_name(tmp_path):
    w, x = Value(2.0), Value(0.0)
    program = Program(Floats([x]), None, {"w": w}, loss=w * x)
    for module in (Extension(program, tmp_path, "loops", flags=["-O0"]).module, Generated(program, tmp_path).module):
        with pytest.raises(FloatingPointError) as caught:
            module.train(np.array([1.0, math.inf, 1.0]), None, learning_rate=0.5, check_finite=True)
        assert str(caught.value) == "train() stopped before step 2 (row 1), which makes w -inf"
        assert (module.data(0), module.grad(0)) == (1.5, math.inf)

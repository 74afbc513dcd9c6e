"""Fuzz targets that let wrong behaviour pass. No fuzzer runs here; see tools/fuzz."""

from __future__ import annotations

import gzip
import importlib.util
import random
import tracemalloc
import zlib
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from harness import slow_but

from codegen.weights import read_weights
from micrograd.data.mnist import DataError, read_images
from tools.fuzz import idx, models, run, weights
from tools.fuzz.__main__ import main
from tools.fuzz.calls import Calls, seeds
from tools.fuzz.choices import Choices
from tools.fuzz.common import Wrong
from tools.fuzz.targets import TARGETS


@pytest.fixture(autouse=True)
def untraced():
    """The target `idx` has Python count its memory."""
    yield
    tracemalloc.stop()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> list[models.Pair]:
    folder = tmp_path_factory.mktemp("fuzz")
    names = ["mlp", "xor"]
    models.build_all(folder, names, instrumented=False)
    return [models.load_pair(folder, name) for name in names]


def inputs(count: int) -> list[bytes]:
    draw = random.Random(2)
    return [bytes([draw.randrange(255)]) + draw.randbytes(draw.randrange(200)) for _ in range(count)]


def run_all(target: Callable[[bytes], None], inputs: list[bytes]) -> None:
    for data in inputs:
        target(data)


# The targets find nothing in what is there


def test_choices_run_out_but_never_fail():
    c = Choices(b"\x05\xff")
    assert (c.below(4), c.chance(1), bool(c)) == (1, True, False)
    assert (c.byte(), c.chance(255), c.rest()) == (0, False, b"")


@pytest.mark.parametrize("operations", slow_but(["calls"], ["calls", "train", "load"]))
def test_random_calls_of_a_module_and_its_twin(pairs, operations):
    target = Calls(operations, pairs)
    run_all(target, [*seeds()[:40], *inputs(60)])


@pytest.mark.parametrize(("target", "module"), [(idx.Idx, idx), (weights.Weights, weights)])
def test_files_made_by_the_tool_and_damaged_ones(target, module):
    check, draw = target(), random.Random(1)
    for seed in module.seeds():
        check(seed)
        damaged = bytearray(seed or b"\0")
        for _ in range(5):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
            check(bytes(damaged))


# They notice what is wrong


def broken(pairs, **functions) -> Calls:
    """The target with a module some of whose functions are replaced; each gets the right one first."""
    target = Calls("calls", pairs)
    pair = pairs[0]
    module = SimpleNamespace(**{name: getattr(pair.modules[0], name) for name in dir(pair.modules[0])})
    for name, function in functions.items():
        right = getattr(module, name)
        setattr(module, name, lambda *given, f=function, r=right, **named: f(r, *given, **named))
    changed = models.Pair(**{**vars_of(pair), "modules": (module, pair.modules[1])})
    target.pairs = [changed, changed]
    return target


def vars_of(pair: models.Pair) -> dict:
    return {name: getattr(pair, name) for name in pair.__dataclass_fields__}


def off_by_one_bit(right, *given):
    return float(np.nextafter(right(*given), 1e9))


def raises_what_is_not_documented(right, *given, **named):
    try:
        return right(*given, **named)
    except TypeError as error:
        raise SystemError(str(error)) from None


def changes_the_model_and_then_raises(right, mapping):
    try:
        return right(mapping)
    except ValueError:
        module_of(right).reset(99)
        raise


def module_of(function):
    return function.__self__


def forgets_a_gradient(right, *given):
    result = right(*given)
    module_of(right).grad_dict()["layers.0.bias"][0] += 1.0
    return result


@pytest.mark.parametrize(
    ("function", "wrong", "message"),
    [
        ("forward", off_by_one_bit, "and its twin differ|does not compute what it did"),
        ("forward", raises_what_is_not_documented, "raised SystemError"),
        ("backward", forgets_a_gradient, "and its twin differ|does not compute what it did"),
        ("load_state_dict", changes_the_model_and_then_raises, "and changed the model"),
    ],
)
def test_a_broken_module_is_noticed(pairs, function, wrong, message):
    target = broken(pairs, **{function: wrong})
    with pytest.raises(Wrong, match=message):
        run_all(target, [b"\0" + data[1:] for data in inputs(1000)])


def read_all_of_it(path):
    """What read_images() gives, but unpacked first and checked then."""
    plain = path.with_suffix(".unpacked")
    try:
        plain.write_bytes(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
        return read_images(plain)
    except (DataError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: {error}") from error


def read_without_the_end(path):
    try:
        return read_images(path)
    except DataError as error:
        if "more than the expected" in str(error):
            return b""
        raise


@pytest.mark.parametrize(
    ("reader", "message"), [(read_all_of_it, "bytes of memory for a file"), (read_without_the_end, "read|goes on")]
)
def test_a_careless_reader_of_images_is_noticed(monkeypatch, reader, message):
    monkeypatch.setattr(idx, "read_images", reader)
    target = idx.Idx()
    with pytest.raises(Wrong, match=message):
        run_all(target, [seed + end for seed in idx.seeds() for end in (b"", b"\0")])


def last_number_missing(path):
    found = read_weights(path)
    return {name: np.where(tensor == 5, 0, tensor) for name, tensor in found.items()}


def takes_anything(path):
    try:
        return read_weights(path)
    except ValueError:
        return {name: np.zeros(shape) for name, shape in weights.EXPECTED.items()}


@pytest.mark.parametrize(
    ("reader", "message"), [(last_number_missing, "for read_weights"), (takes_anything, "refuses")]
)
def test_two_readers_of_weights_that_differ_are_noticed(monkeypatch, reader, message):
    monkeypatch.setattr(weights, "read_weights", reader)
    target = weights.Weights()
    with pytest.raises(Wrong, match=message):
        run_all(target, weights.seeds())


# The command


def test_replay_runs_one_input_of_a_target(tmp_path, monkeypatch):
    file = tmp_path / "input"
    file.write_bytes(idx.seeds()[0])
    assert main(["idx", "--replay", str(file)]) == 0
    monkeypatch.setattr(idx, "read_images", lambda path: b"")
    with pytest.raises(Wrong):
        main(["idx", "--replay", str(file)])


def test_without_a_fuzzer_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(run.Failed, match=r"pip install 'micrograd-nn\[fuzz\]'"):
        run.fuzz("idx", 1)


@pytest.mark.slow
def test_a_short_run(tmp_path, monkeypatch):
    """Of the target that starts first; `make fuzz` runs all."""
    pytest.importorskip("atheris", reason="atheris is not installed")
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    report = run.fuzz("idx", 1)
    assert report.found == []
    assert report.executions > len(TARGETS["idx"].seeds())
    assert report.coverage
    assert f"idx: {report.executions:,} executions" in str(report)


def test_a_finding_is_reported(tmp_path):
    log = tmp_path / "log"
    log.write_text("#7\tNEW    cov: 30 ft: 31 corp: 4/9b\nWrong: ...\nprefix; Test unit written to /tmp/found-1\n")
    report = run._report("idx", log, 77, 2.0, 1.0)
    assert (report.found, report.coverage, report.corpus) == (["/tmp/found-1"], 30, 4)
    assert "FOUND /tmp/found-1" in str(report)
    log.write_text("Segmentation fault\n")
    with pytest.raises(run.Failed, match="Segmentation fault"):
        run._report("idx", log, -11, 2.0, 1.0)

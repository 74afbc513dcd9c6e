"""A cross-platform comparison that overlooks a difference. Nothing is emulated here; `make cross` does that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from array import array
from pathlib import Path

import numpy as np
import pytest

from codegen import compile_program
from tools.cross import builds, compile_only, emulate, packages, report
from tools.cross.compare import FUNCTIONS, Difference, Run, compare, library_differences, read_library, read_run
from tools.cross.sources import cases


def run(**stages) -> Run:
    numbers = {name: np.array(values, dtype=np.float64) for name, values in stages.items()}
    return Run({"digest": "1234", "simd": "baseline"}, "little", numbers)


def test_equal_runs():
    assert compare(run(a=[0.0, -1.5, np.inf], b=[]), run(a=[0.0, -1.5, np.inf], b=[])) == []


def test_any_nan_is_the_nan():
    one, other = np.array([0x7FF8000000000000, 0xFFF0000000000001 - 2**64]).view(np.float64)
    assert compare(run(a=[one]), run(a=[other])) == []
    assert len(compare(run(a=[one]), run(a=[1.0]))) == 1


@pytest.mark.parametrize("found", [np.nextafter(1.5, 2), np.nextafter(1.5, 1), -1.5, np.nan, np.inf])
def test_one_bit_is_found_and_located(found):
    (line,) = compare(run(a=[1.0], b=[2.0, 1.5, 3.0]), run(a=[1.0], b=[2.0, found, 3.0]))
    assert line == f"b: 1 of 3 differ, number 1 is {float(found).hex()} instead of {(1.5).hex()}"


def test_the_sign_of_a_zero_is_a_bit():
    assert compare(run(a=[0.0]), run(a=[-0.0]))


def test_runs_that_cannot_be_compared():
    assert compare(run(a=[1.0]), run(a=[1.0], b=[])) == ["other stages: b"]
    assert compare(run(a=[], b=[]), run(b=[], a=[])) == ["other stages: in another order"]
    assert compare(run(a=[1.0]), run(a=[1.0, 2.0])) == ["a: 2 numbers instead of 1"]
    other = run(a=[1.0])
    other.info["digest"] = "5678"
    assert compare(run(a=[1.0]), other) == ["another model: 5678 instead of 1234"]


def test_a_bound_is_relative_to_the_largest_number():
    expected = run(a=[1e-9, -100.0, np.nan, np.inf])
    assert compare(expected, run(a=[1.5e-9, -100.0005, np.nan, np.inf]), bound=1e-5) == []
    (line,) = compare(expected, run(a=[1e-9, -100.002, np.nan, np.inf]), bound=1e-5)
    assert line == "a: off by 2.0e-05 of the largest number, allowed is 1e-05"
    assert compare(expected, run(a=[1e-9, -100.0, np.nan, 1.0]), bound=1e-5)
    assert compare(expected, run(a=[np.nan, -100.0, np.nan, np.inf]), bound=1e-5)


def test_library_functions_are_counted_in_units_of_their_type():
    own = np.ones((5, len(FUNCTIONS)))
    other = own.copy()
    other[2, FUNCTIONS.index("log")] = np.nextafter(1.0, 2.0)
    other[1:3, FUNCTIONS.index("tanhf")] = 1 + 3 * 2.0**-23
    found = library_differences(own, other)
    assert {name for name, difference in found.items() if difference.count} == {"log", "tanhf"}
    assert found["log"] == Difference(1, 1)
    assert found["tanhf"] == Difference(2, 3)
    assert np.array_equal(read_library(other.astype("<f8").tobytes()), other)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """numbers(name, level) -> the file that the driver writes about an installed module."""

    def make(name: str, level: str = "") -> Path:
        import importlib

        folder = tmp_path_factory.mktemp("numbers")
        modules = str(Path(importlib.import_module(name).__file__).parent)
        command = [sys.executable, "-I", "-S", str(builds.DRIVER), modules, str(folder), name]
        subprocess.run(command, env=os.environ | {"NN_SIMD": level}, check=True)
        return folder / name

    return make


@pytest.mark.parametrize("name", ["nn", "nn_infer"])
def test_the_driver_writes_the_same_numbers_at_every_level(name, numbers):
    best, baseline = read_run(numbers(name)), read_run(numbers(name, "baseline"))
    assert baseline.info["simd"] == "baseline"
    assert compare(best, baseline) == []
    assert best.byteorder == sys.byteorder
    assert best.count == sum(map(len, best.stages.values())) > 100


def test_what_the_driver_writes_about_training(numbers):
    path = numbers("nn")
    stages = read_run(path).stages
    for when in ("step 1", "step 3", "trained by batches of 1, 1 threads", "trained by batches of 10, 2 threads"):
        assert len(stages[f"{when}: gradients"]) == len(stages[f"{when}: parameters"]) == 39_760
        assert np.any(stages[f"{when}: gradients"] != 0)
    one, two = (stages[f"trained by batches of 10, {threads} threads: parameters"] for threads in (1, 2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, stages["trained by batches of 1, 1 threads: parameters"])
    assert np.any(stages["step 4: parameters"] != stages["fresh: parameters"])
    assert set(stages["trained: classes, 2 threads"]) <= set(range(10))

    changed = bytearray(path.read_bytes())
    place = changed.index(b"step 3: gradients\t39760\n") + len(b"step 3: gradients\t39760\n")
    changed[place + 8 * 17] ^= 1
    (path.parent / "changed").write_bytes(changed)
    (line,) = compare(read_run(path), read_run(path.parent / "changed"))
    assert line.startswith("step 3: gradients: 1 of 39760 differ, number 17 is ")
    (path.parent / "cut").write_bytes(changed[:-1])
    with pytest.raises(ValueError, match="ends in the middle of 'trained"):
        read_run(path.parent / "cut")


def test_a_machine_of_the_other_byte_order_writes_the_same_file(monkeypatch, tmp_path):
    from tools.cross import driver

    class Swapped(array):
        """What array("d") is on the other kind of machine."""

        def __new__(cls, code, numbers):
            swapped = array(code, numbers)
            swapped.byteswap()
            return array.__new__(cls, code, swapped)

    other = "big" if sys.byteorder == "little" else "little"
    monkeypatch.setattr(sys, "byteorder", other)
    if other == "big":
        monkeypatch.setattr(driver, "array", Swapped)
    with (tmp_path / "run").open("wb") as file:
        driver.Record(file, {"digest": ""}).numbers("a\tb", b"\x01\xff")
    header, stage, packed = (tmp_path / "run").read_bytes().split(b"\n", 2)
    assert json.loads(header)["byteorder"] == other
    assert stage == b"a\tb\t2"
    assert packed == np.array([1.0, 255.0], dtype="<f8").tobytes()


def test_a_platform_that_fails_is_told_apart(monkeypatch, tmp_path):
    def fail(command, settings=None):
        raise builds.Failed("no such instruction")

    monkeypatch.setattr(compile_only, "version", lambda compiler: "cc 1.0")
    monkeypatch.setattr(compile_only, "run", fail)
    bad = compile_only.row(compile_only.SYSTEMS[0], tmp_path, tmp_path, tmp_path / "objects")
    assert bad.wrong == ["no such instruction"] * len(compile_only.SOURCES)
    text = report.results([report.Row("aarch64", "gcc 12", "11 programs", "same bits"), bad])
    lines = text.splitlines()
    assert lines[2].split() == ["aarch64", "gcc", "12", "11", "programs", "same", "bits"]
    assert lines[3].endswith("WRONG")
    assert "macOS, x86-64: no such instruction" in lines


def test_a_failing_command_says_what_it_said():
    with pytest.raises(builds.Failed, match=r"failed \(3\)(?s:.*)no good"):
        builds.run([sys.executable, "-c", "import sys; print('no good', file=sys.stderr); sys.exit(3)"])


def test_differences_of_any_kind_are_found(monkeypatch, tmp_path):
    case = next(case for case in cases() if case.name == "xor")
    target = emulate.Target("other", emulate.X86)
    library = np.zeros((1, len(FUNCTIONS)))
    own = emulate.Measured({"xor": run(a=[1.0])}, library)
    message = "NN_SIMD=avx2, but the levels of this module on this processor are: baseline"
    monkeypatch.setattr(emulate.Target, "refusal", lambda *_: message)
    assert emulate.check(target, own, own, tmp_path, [case]) == []
    other = emulate.Measured({"xor": run(a=[2.0])}, library + np.eye(1, len(FUNCTIONS)))
    monkeypatch.setattr(emulate.Target, "refusal", lambda *_: "")
    wrong = emulate.check(target, own, other, tmp_path, [case])
    assert [line.split(" ")[0] for line in wrong] == ["xor:", "the", "NN_SIMD=avx2"]
    assert "the C library's exp has other bits for 1 arguments" in wrong


def test_missing_tools_are_named(monkeypatch):
    monkeypatch.setattr(packages, "TOOLS", {"gcc-pdp11": "/no/such/file"})
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    monkeypatch.setattr(packages.os, "geteuid", lambda: 0, raising=False)
    with pytest.raises(packages.Missing, match="not installed: gcc-pdp11"):
        packages.install_tools()


def test_the_programs_cover_what_they_should():
    chosen = {case.name: case for case in cases()}
    assert [name for name, case in chosen.items() if case.bound] == ["recurrence_float32"]
    assert {Path(name).stem for name in compile_only.SOURCES} <= set(chosen)
    text = "".join(compile_program(chosen[name].make()).text for name in ("recurrence", "attention", "edges"))
    for function in ("exp", "log", "tanh", "pow"):
        assert f"op_{function}(" in text

"""A cross-platform comparison that overlooks a difference. Nothing is emulated here; `make cross` does that."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from array import array
from collections import Counter
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
from models import mlp, xor

from codegen import build, compile_program
from codegen.pipeline import build_graph
from micrograd import ops
from micrograd.commands.train import weights_hash
from tools.cross import (
    builds,
    compile_only,
    emulate,
    epoch,
    functions,
    packages,
    report,
    symbols,
    trained,
    without_python,
)
from tools.cross.compare import Reference, Run, compare, read_run
from tools.cross.driver import EPOCH, EPOCH_END
from tools.cross.sources import Case, cases

needs_gcc = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("gcc") or not shutil.which("nm"), reason="needs gcc and nm on Linux"
)


def run(fma: bool = False, **stages) -> Run:
    numbers = {name: np.array(values, dtype=np.float64) for name, values in stages.items()}
    return Run({"digest": "1234", "compiler": "gcc 12.2.0 20221012", "fma": fma}, "little", numbers)


def done(runs: dict[str, Run]) -> Future[dict[str, Run]]:
    future: Future[dict[str, Run]] = Future()
    future.set_result(runs)
    return future


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


def test_a_run_is_compared_with_the_one_that_fuses_as_it_does():
    reference = Reference([{"net": run(fma=True, a=[1.0])}, {"net": run(a=[2.0])}])
    assert reference.differences({"net": run(fma=True, a=[1.0])}) == []
    assert reference.differences({"net": run(a=[2.0])}) == []
    (line,) = reference.differences({"net": run(a=[1.0])})
    assert line.startswith("net: a: 1 of 1 differ, ")


def test_all_stages_that_are_expected_must_be_there():
    reference = Reference([{"net": run(step=[1.0], steps=[3.0], trained=[2.0])}])
    assert reference.differences({"net": run(step=[1.0], steps=[3.0])}, ("step",)) == []
    assert reference.differences({"net": run(step=[1.0])}, ("step",)) == ["net: other stages: steps"]
    assert reference.differences({"net": run(step=[1.0], steps=[3.0])}) == ["net: other stages: trained"]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """numbers(name, level) -> the file that the driver writes about an installed module."""

    def make(name: str, level: str = "") -> Path:
        import importlib

        folder = tmp_path_factory.mktemp("numbers")
        modules = str(Path(importlib.import_module(name).__file__).parent)
        command = [sys.executable, "-I", "-S", str(builds.DRIVER), modules, str(folder), "", name]
        subprocess.run(command, env=os.environ | {"NN_SIMD": level}, check=True)
        return folder / name

    return make


@pytest.mark.parametrize("name", ["nn", "nn_infer"])
def test_the_driver_writes_the_same_numbers_at_every_level(name, numbers):
    best, baseline = (read_run(numbers(name, level).read_bytes()) for level in ("", "baseline"))
    assert baseline.info["simd"] == "baseline"
    assert compare(best, baseline) == []
    assert best.byteorder == sys.byteorder
    assert best.count == sum(map(len, best.stages.values())) > 100


def test_what_the_driver_writes_about_training(numbers):
    path = numbers("nn")
    stages = read_run(path.read_bytes()).stages
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
    (line,) = compare(read_run(path.read_bytes()), read_run(bytes(changed)))
    assert line.startswith("step 3: gradients: 1 of 39760 differ, number 17 is ")
    with pytest.raises(ValueError, match="ends in the middle of 'trained"):
        read_run(bytes(changed[:-1]))


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


def test_the_row_of_a_platform():
    reference = Reference([{"xor": run(a=[1.0, 5.0])}])
    good = report.compared("s390x", done({"xor": run(a=[1.0, 5.0])}), reference)
    assert good == report.Row("s390x", "gcc 12.2.0", "1 programs, 2 numbers", "same bits")
    assert report.compared("s390x", done({"xor": run(a=[2.0, 5.0])}), reference).wrong
    broken: Future[dict[str, Run]] = Future()
    broken.set_exception(builds.Failed("no such instruction"))
    assert report.compared("s390x", broken, reference).wrong == ["no such instruction"]


def test_the_weights_after_an_epoch_are_shown_and_compared():
    runs = [{"nn": run(a=[1.0]), EPOCH: run(**{EPOCH_END: [x]})} for x in (1.5, np.nextafter(1.5, 2))]
    good, bad = (report.compared("s390x", done(found), Reference(runs[:1])) for found in runs)
    assert (good.compared, good.wrong) == ("1 programs, 2 numbers", [])
    assert good.epoch == weights_hash({"w": memoryview(array("d", [1.5]))}) != bad.epoch
    assert f"  {good.epoch[:16]}  same bits" in report.results([good])
    assert f"  {bad.epoch[:16]}  WRONG" in report.results([bad])


def test_a_level_that_is_not_refused(monkeypatch, tmp_path):
    message = "NN_SIMD=avx512, but the levels of this module on this processor are: baseline, avx2"
    monkeypatch.setattr(builds.Target, "refusal", lambda *_: message)
    assert emulate.refused(builds.Target("other", "avx2"), tmp_path) == []
    assert emulate.refused(builds.Target("other", "baseline"), tmp_path) == [
        f"NN_SIMD=avx2 is not refused: {message!r}"
    ]


@needs_gcc
def test_a_mathematical_function_of_a_library_is_named(tmp_path):
    text = "#include <math.h>\ndouble f(double x) { return fma(x, exp(x), frexp(x, &(int){0})); }\n"
    (tmp_path / "needy.c").write_text(text)
    command = ["gcc", "-shared", "-fPIC", "-ffp-contract=off", str(tmp_path / "needy.c")]
    builds.run([*command, "-o", str(tmp_path / "needy.abi3.so")])
    assert symbols.needed(tmp_path / "needy.abi3.so") == ["exp", "fma"]
    row = symbols.row(builds.Build("x86-64", ("gcc",), ()), tmp_path)
    assert row.compared == "1 modules"
    assert row.wrong == ["needy.abi3.so needs exp, fma"]


@needs_gcc
@pytest.mark.parametrize("name", ["nn", "nn_infer"])
def test_the_modules_need_no_mathematical_function(name):
    import importlib

    assert symbols.needed(Path(importlib.import_module(name).__file__)) == []


@pytest.mark.slow
@needs_gcc
def test_a_program_without_python_and_generated_python_compute_what_the_module_does(tmp_path):
    here = builds.Target("here")
    sources = build(xor(), tmp_path / "sources", "xor", flags=["-O1"]).parent
    build(xor(), sources / "python", "xor", target="python")
    module = here.measure(sources, ["xor"], emulate.numbers(tmp_path, emulate.NATIVE))
    reference = Reference([module])

    generated = here.measure(sources / "python", ["xor"], tmp_path / "generated")
    assert generated["xor"].info["compiler"].startswith(sys.implementation.name[:1].upper())
    assert reference.differences(generated) == []

    platform = without_python.Platform("plain", ("gcc",))
    found = platform.measure([Case("xor", xor)], done(module), tmp_path)
    assert reference.differences(found, without_python.STAGES) == []
    assert len(found["xor"].stages["step 4: parameters"]) == module["xor"].info["parameters"]


def test_an_epoch_is_that_of_the_command(tmp_path, monkeypatch):
    import nn

    monkeypatch.delenv("MICROGRAD_MNIST", raising=False)
    monkeypatch.setattr("micrograd.data.digits.load", lambda: (bytes(range(196)) * 4 * 9, bytes(range(9)), b"", b""))
    data = epoch.load()
    epoch.write(tmp_path / "digits", data.train_images, data.train_labels)
    found = builds.Target("here").measure(Path(nn.__file__).parent, [], tmp_path / "numbers", tmp_path / "digits")
    nn.reset(1)
    nn.train(data.train_images, data.train_labels, learning_rate=nn.info()["learning_rate"], seed=1)
    assert epoch.sha256(found[EPOCH]) == weights_hash(nn.state_dict())


@needs_gcc
@pytest.mark.slow
def test_a_program_without_python_and_generated_python_go_through_an_epoch_as_the_module_does(tmp_path):
    here = builds.Target("here")
    rng = np.random.default_rng(1)
    epoch.write(tmp_path / "digits", rng.bytes(50 * 12), bytes(i % 5 for i in range(50)))
    sources = build(mlp(), tmp_path / "sources", "nn", flags=["-O1"]).parent
    build(mlp(), sources / "python", "nn", target="python")
    module = here.measure(sources, ["nn"], emulate.numbers(tmp_path, emulate.NATIVE), tmp_path / "digits")
    reference = Reference([module])

    generated = here.measure(sources / "python", ["nn"], tmp_path / "generated", tmp_path / "digits")
    assert reference.differences(generated) == []

    platform = without_python.Platform("plain", ("gcc",))
    found = platform.measure([Case("nn", mlp)], done(module), tmp_path)
    assert reference.differences(found, without_python.STAGES) == []
    hashes = {epoch.sha256(runs[EPOCH]) for runs in (module, generated, found)}
    assert len(hashes) == 1


def test_missing_tools_are_named(monkeypatch):
    monkeypatch.setattr(packages, "TOOLS", {"gcc-pdp11": "/no/such/file"})
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    monkeypatch.setattr(packages.os, "geteuid", lambda: 0, raising=False)
    with pytest.raises(packages.Missing, match="not installed: gcc-pdp11"):
        packages.install_tools()


def test_the_programs_cover_what_they_should():
    chosen = {case.name: case for case in cases()}
    assert {Path(name).stem for name in compile_only.SOURCES} <= set(chosen)
    assert {name for name, case in chosen.items() if case.frozen} == {"nn_infer"}
    assert {chosen[name].make().dtype for name in ("functions", "functions_float32")} == {"float64", "float32"}


@pytest.mark.slow
def test_one_program_has_every_op_in_a_loop_over_lanes_and_in_one_call():
    built_in = [row for row in ops.ROWS if not row.is_registered]
    program = functions.program()
    assert list(program.outputs) == [row.name for row in built_in]
    used = Counter(build_graph(program).op)
    assert all(used[row.number] > functions.WIDTH * len(functions.SCALES) for row in built_in if row.name != "detach")
    text = compile_program(program).text
    assert text.count("= ieee_exp(") >= 2  # in lanes
    assert "= op_exp(" in text
    assert "AT_LEVEL(each_tanh)(&" in text  # in stages


@pytest.mark.slow
@needs_gcc
def test_plain_c_that_trains_computes_what_the_module_does(tmp_path):
    here = builds.Target("here")
    sources = build(xor(), tmp_path / "sources", "xor", flags=["-O1"]).parent
    module = here.measure(sources, ["xor"], emulate.numbers(tmp_path, emulate.NATIVE))
    trained.write(sources / "trains", [Case("xor", xor)])
    found = trained.Platform("plain C", ("gcc", "-O1")).measure([Case("xor", xor)], done(module), tmp_path)
    assert Reference([module]).differences(found, without_python.STAGES) == []
    assert len(found["xor"].stages["step 4: parameters"]) == module["xor"].info["parameters"]

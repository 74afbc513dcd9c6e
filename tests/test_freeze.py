"""Frozen models: weights, kernels or plain C that predict other bits than the model that was trained."""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
import random
import re
import shutil
import subprocess
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from harness import LEVELS, WARNINGS, bits, example, slow_but
from models import REGULAR, affine, random_programs, values, weights

from codegen import Floats, Pixels, Program, freeze, load_extension
from codegen.mnist import program as mnist_program
from codegen.passes.freeze import frozen_program, rounded, weights_of
from codegen.pipeline import compile_program
from codegen.weights import read_weights
from micrograd.__main__ import main
from micrograd.data import mnist
from micrograd.data.digits import generate
from micrograd.engine import Value
from tools.fuzz_compiler.programs import dot
from tools.fuzz_compiler.reference import Engine

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = ROOT / "weights" / "mnist.safetensors"
COMPILERS = [name for name in ("gcc", "clang", "tcc") if shutil.which(name)]
_names = (f"frozen_{i}" for i in itertools.count(1))


def frozen_modules(program: Program, folder: Path, lowerings: Sequence[str] = ("loops",), flag: str = "-O0") -> list:
    """The frozen module in each lowering, once for each SIMD level of this processor."""
    modules = []
    for lowering in lowerings:
        name = next(_names)
        path = freeze(program, weights_of(program), folder, name, lowering, flags=[*WARNINGS, flag])
        for level in LEVELS:
            copy = folder / level / path.name
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(path, copy)
            with suppress(ImportError), patch.dict(os.environ, {"NN_SIMD": level}):
                modules.append(load_extension(copy, name))
    assert modules
    return modules


def as_inputs(program: Program, inputs: list) -> bytes | array:
    return bytes(inputs) if isinstance(program.inputs, Pixels) else array("d", inputs)


def compare_outputs(program: Program, modules: list, seed: int = 0, images: int = 10, odd: bool = False) -> None:
    engine, rng = Engine(program), random.Random(seed)
    for i in range(images):
        target, inputs = example(program, rng)
        if odd and isinstance(program.inputs, Floats) and inputs:
            inputs[i % len(inputs)] = rng.choice([math.inf, -math.inf, math.nan, 1e308, 5e-324])
        engine.forward(target, inputs)
        expected = engine.outputs()
        for module in modules:
            found = module.outputs(as_inputs(program, inputs))
            assert list(found) == list(expected)
            for name, numbers in expected.items():
                assert bits(found[name]) == bits(numbers), name


WITH_OUTPUTS = [name for name in REGULAR if REGULAR[name]().outputs]


@pytest.mark.parametrize("name", slow_but(["mlp"], WITH_OUTPUTS, nightly=WITH_OUTPUTS[3:]))
def test_a_frozen_model_has_the_bits_of_the_engine(name, tmp_path):
    program = REGULAR[name]()
    compare_outputs(program, frozen_modules(program, tmp_path), odd=True)


@pytest.mark.slow
def test_weights_of_either_sign_side_by_side(tmp_path):
    """gcc before 14 fused their products and sums, where it knew the weights: see TABLE in csrc/ops.h."""
    rng, x = random.Random(1), [Value(0.0) for _ in range(3)]
    w = [[Value(rng.uniform(-1, 1)) for _ in x] for _ in range(2)]
    bias = [Value(0.3), Value(-0.7)]
    units = [b + row[2] * x[2] + row[1] * x[1] + row[0] * x[0] for row, b in zip(w, bias, strict=True)]
    program = Program(Floats(x), None, {"w": w, "bias": bias}, units[0], {"units": units})
    compare_outputs(program, frozen_modules(program, tmp_path, flag="-O3"))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2))
def test_random_graphs(seed, tmp_path):
    program = random_programs(1000 + seed, 20)
    rng = random.Random(seed)
    for parameter in program.parameter_values:
        parameter.data = rng.choice([parameter.data, 0.0, 1.0, -1e3])
    modules = frozen_modules(program, tmp_path, ["loops", "straightline"], "-O0")
    compare_outputs(program, modules, seed, odd=True)


def test_what_stays_of_a_program_has_neither_loss_nor_targets():
    program = replace(REGULAR["mlp"](), learning_rate=0.5)
    frozen = frozen_program(program, weights_of(program))
    assert (frozen.loss, frozen.targets, frozen.initial) == (None, None, None)
    assert (frozen.inputs, frozen.outputs, frozen.prediction) == (program.inputs, program.outputs, "logits")
    assert [tensor.shape for tensor in frozen.tensors] == [tensor.shape for tensor in program.tensors]


def test_an_output_that_depends_on_a_target_is_refused():
    x, t, w = [Value(1.0)], [Value(2.0)], Value(3.0)
    program = Program(Floats(x), Floats(t), {"w": w}, w * x[0], {"good": [w * x[0]], "bad": [w + t[0]]})
    with pytest.raises(ValueError, match="the output 'bad' depends on a target"):
        frozen_program(program, {"w": 1.0})


def small_mlp() -> Program:
    rng, x = random.Random(5), values(9)
    w, b, v = weights(rng, 6, 9), weights(rng, 6), weights(rng, 3, 6)
    hidden = [unit.relu() for unit in affine(w, b, x)]
    out = [dot(row, hidden) for row in v]
    return Program(Pixels(x, 1 / 255), None, {"w": w, "b": b, "v": v}, out[0], {"out": out}, prediction="out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("b"), r"weights are named \['v', 'w'\], but the parameters \['b', 'v', 'w'\]"),
        (lambda w: w.update(x=1), "weights are named"),
        (lambda w: w.update(b=w["b"][:5]), r"'b' have the shape \(5,\), expected \(6,\)"),
        (lambda w: w["v"].__setitem__((0, 0), math.nan), "'v' are not all finite"),
        (lambda w: w["v"].__setitem__((0, 0), math.inf), "'v' are not all finite"),
    ],
)
def test_weights_that_do_not_fit(change, message):
    program = small_mlp()
    before = [p.data for p in program.parameter_values]
    weights = weights_of(program)
    change(weights)
    with pytest.raises(ValueError, match=message):
        frozen_program(program, weights)
    assert [p.data for p in program.parameter_values] == before


def test_weights_that_float32_cannot_hold_overflow_to_an_error():
    weights = weights_of(small_mlp())
    weights["v"][0, 0] = 1e300
    with pytest.raises(ValueError, match="not all finite"):
        frozen_program(replace(small_mlp(), dtype="float32"), weights)


def test_weights_are_stored_as_float_only_where_that_is_exact(tmp_path):
    program = small_mlp()
    assert "TABLE ALIGNED double weights[" in compile_program(frozen_program(program, weights_of(program))).text
    rounded = {name: np.float32(w).astype(float) for name, w in weights_of(program).items()}
    assert "TABLE ALIGNED float weights[" in compile_program(frozen_program(small_mlp(), rounded)).text
    frozen_program(program := small_mlp(), rounded)  # which sets them
    modules = frozen_modules(program, tmp_path)
    assert modules[-1].info()["weight_type"] == "float32"
    assert modules[0].info()["dtype"] == "float64"
    compare_outputs(program, modules)


def test_the_same_weights_give_the_same_bytes():
    texts = {compile_program(frozen_program(small_mlp(), weights_of(small_mlp()))).text for _ in range(2)}
    assert len(texts) == 1


def test_a_frozen_module_can_only_predict(tmp_path):
    *_, module = frozen_modules(small_mlp(), tmp_path)
    public = {name for name in dir(module) if not name.startswith("__")}
    assert public == {
        "info",
        "outputs",
        "outputs_batch",
        "predict",
        "predict_batch",
        "probabilities",
        "probabilities_batch",
    }
    with pytest.raises(ValueError, match="pixels must hold 9 unsigned bytes, got 8"):
        module.predict(bytes(8))
    with pytest.raises(TypeError, match="pixels must be a C-contiguous buffer"):
        module.predict("nine char")
    images = bytes(random.Random(0).choices((0, 255), k=9 * 5000))
    singly = bytes(module.predict(images[i * 9 : i * 9 + 9]) for i in range(5000))
    assert len(set(singly)) > 1
    assert module.predict_batch(images) == module.predict_batch(images, threads=3) == singly


def test_a_frozen_model_in_python(tmp_path):
    program = small_mlp()
    (compiled, *_) = frozen_modules(program, tmp_path)
    freeze(program, weights_of(program), tmp_path, "frozen_in_python", target="python")
    spec = importlib.util.spec_from_file_location("frozen_in_python", tmp_path / "frozen_in_python.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for seed in range(20):
        pixels = bytes(random.Random(seed).choices((0, 1, 255), k=9))
        assert bits(module.outputs(pixels)["out"]) == bits(compiled.outputs(pixels)["out"])
    for call in (
        lambda: module.forward(None, bytes(9)),
        lambda: module.train(bytes(9), None),
        lambda: module.evaluate(bytes(9), None),
    ):
        with pytest.raises(RuntimeError, match="this model has no loss: it only predicts"):
            call()


def test_a_program_without_a_loss_declares_no_more_than_outputs():
    x, w = Value(0), Value(1)
    with pytest.raises(ValueError, match="without a loss has outputs, and neither targets nor"):
        Program(Floats([x]), None, {"w": w}, None)
    with pytest.raises(ValueError, match="without a loss"):
        Program(Floats([x]), Floats([Value(0)]), {"w": w}, None, {"out": [x * w]})
    with pytest.raises(TypeError, match="the loss must be a Value or None, not float"):
        Program(Floats([x]), None, {"w": w}, 1.0, {"out": [x * w]})


# The module in the wheel


def test_the_wheels_nn_infer_is_nn_with_its_weights(digits):
    """Which are those of the file, rounded to int8."""
    import nn
    import nn_infer

    before = {name: np.array(view) for name, view in nn.state_dict().items()}
    try:
        nn.load_state_dict({name: rounded("int8", np.float64(w)) for name, w in read_weights(WEIGHTS).items()})
        images, _ = digits(300)
        assert nn_infer.predict_batch(images) == nn.predict_batch(images)
        for i in range(300):
            pixels = images[784 * i : 784 * i + 784]
            found, expected = nn_infer.outputs(pixels), nn.outputs(pixels)
            for name in expected:
                assert bits(found[name]) == bits(expected[name])
            assert found["probabilities"] == nn_infer.probabilities(pixels)
    finally:
        nn.load_state_dict(before)


def test_nn_infer_reads_digits():
    import nn_infer

    folder = os.environ.get("MICROGRAD_MNIST")
    if folder:
        data = mnist.read(Path(folder))
        images, labels = data.test_images, data.test_labels
    else:
        images, labels = generate(1000)
    found = np.frombuffer(nn_infer.predict_batch(images), np.uint8)
    assert (found == np.frombuffer(labels, np.uint8)).mean() >= (0.98 if folder else 0.9)


# Plain C

MAIN = """
#include <stdio.h>
#include "model.h"
int main(void)
{
    static struct model_workspace w;
    INPUT_TYPE inputs[MODEL_INPUTS];
    OUTPUT_TYPE out[MODEL_OUT];
    while (fread(inputs, sizeof(inputs), 1, stdin) == 1) {
        model_out(&w, inputs, out);
        for (int i = 0; i < MODEL_OUT; i++)
            printf("%a ", (double)out[i]);
    }
    return 0;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(not COMPILERS, reason="no C compiler: gcc, clang or tcc")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("mlp", "float64"),
        pytest.param("mlp", "float32", marks=pytest.mark.slow),
        pytest.param("attention", "float64", marks=pytest.mark.slow),
        ("recurrence", "float32"),
        pytest.param("edges", "float64", marks=pytest.mark.slow),
    ],
)
def test_plain_c(name, dtype, tmp_path):
    program = REGULAR[name]()
    first = next(iter(program.outputs.values()))
    program = replace(program, dtype=dtype, outputs={"out": first}, prediction=None)
    freeze(program, weights_of(program), tmp_path, "model", target="c")
    real = "float" if dtype == "float32" else "double"
    is_pixels = isinstance(program.inputs, Pixels)
    types = MAIN.replace("INPUT_TYPE", "unsigned char" if is_pixels else real).replace("OUTPUT_TYPE", real)
    (tmp_path / "main.c").write_text(types)
    rng = random.Random(0)
    images = [example(program, rng)[1] for _ in range(4)]
    typecode = "B" if is_pixels else "f" if dtype == "float32" else "d"
    stream = b"".join(array(typecode, image).tobytes() for image in images)
    *_, module = frozen_modules(program, tmp_path)
    expected = [x for image in images for x in module.outputs(array(typecode, image))["out"]]
    for compiler in COMPILERS:
        flags = [] if compiler == "tcc" else ["-std=c11", "-O1", "-pedantic", "-Wextra", "-Werror", "-ffp-contract=off"]
        command = [compiler, *flags, "-Wall", "main.c", "model.c", "-o", "main", "-lm"]
        subprocess.run(command, cwd=tmp_path, check=True)
        printed = subprocess.run([tmp_path / "main"], input=stream, capture_output=True, check=True).stdout
        assert bits([float.fromhex(x) for x in printed.decode().split()]) == bits(expected), compiler


def test_the_names_of_plain_c_are_made_from_those_of_the_outputs(tmp_path):
    program = small_mlp()
    program.outputs = {"out": program.outputs["out"], "Out": program.outputs["out"][:2], "predict": [Value(1.0)]}
    header = freeze(program, weights_of(program), tmp_path, "m", target="c").with_suffix(".h")
    text = header.read_text()
    assert "M_OUT = 3," in text
    assert "M_OUT_2 = 2," in text
    assert "void m_predict_2(" in text


@pytest.fixture(scope="module")
def small_mlp_of_pixels(tmp_path_factory) -> tuple[tuple[float, ...], int]:
    """The output and the prediction of the frozen module for the pixels below."""
    *_, module = frozen_modules(small_mlp(), tmp_path_factory.mktemp("frozen"))
    pixels = bytes((1, 2, 3, 0, 0, 6, 7, 8, 255))
    return module.outputs(pixels)["out"], module.predict(pixels)


AWKWARD = ("outputs", "w", "i", "inputs", "h", "int", "result", "workspace", "set_inputs", "3", "ä", "h_included")


@pytest.mark.skipif(not COMPILERS, reason="no C compiler: gcc, clang or tcc")
@pytest.mark.parametrize(
    ("module", "outputs"),
    [
        ("m", AWKWARD),
        pytest.param("op", ("relu", "exp", "pow", "NOT_VECTORISED"), marks=pytest.mark.slow),
        pytest.param("group", ("0", "1"), marks=pytest.mark.slow),
        pytest.param("static", ("assert", "cast"), marks=pytest.mark.slow),
        pytest.param("set", ("inputs",), marks=pytest.mark.slow),
        pytest.param("compute", ("outputs", "prediction"), marks=pytest.mark.slow),
        ("workspace", ("workspace",)),
    ],
)
def test_any_name_of_an_output_compiles(module, outputs, small_mlp_of_pixels, tmp_path):
    program = small_mlp()
    out = program.outputs["out"]
    program.outputs = {name: out[i % 3 :] for i, name in enumerate(outputs)}
    program.prediction = outputs[0]
    header = freeze(program, weights_of(program), tmp_path, module, target="c").with_suffix(".h")
    functions = re.findall(r"^void (\w+)\(", header.read_text(), re.MULTILINE)
    assert len(functions) == len(outputs)
    calls = "".join(
        f"double r{k}[{name.upper()}]; {name}(&s, pixels, r{k});"
        f'for (int j = 0; j < {name.upper()}; j++) printf("%a ", r{k}[j]);'
        for k, name in enumerate(functions)
    )
    (tmp_path / "main.c").write_text(
        f'#include <stdio.h>\n#include "{header.name}"\nint main(void) {{'
        f"static struct {module}_workspace s; const unsigned char pixels[9] = {{1, 2, 3, 0, 0, 6, 7, 8, 255}};"
        f'{calls} printf("%d", {module}_predict(&s, pixels)); return 0; }}\n'
    )
    of_module, best_of_module = small_mlp_of_pixels
    expected = [x for i in range(len(outputs)) for x in of_module[i % 3 :]]
    for compiler in COMPILERS:
        flags = [] if compiler == "tcc" else ["-std=c11", "-pedantic", "-Wextra", "-Werror", "-ffp-contract=off"]
        command = [compiler, *flags, "-Wall", "main.c", f"{module}.c", "-o", "main", "-lm"]
        subprocess.run(command, cwd=tmp_path, check=True)
        *numbers, best = subprocess.run([tmp_path / "main"], capture_output=True, check=True).stdout.decode().split()
        assert bits([float.fromhex(x) for x in numbers]) == bits(expected), compiler
        assert int(best) == best_of_module


# The command line


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "micrograd", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_freeze_from_the_command_line(tmp_path):
    from safetensors.numpy import save_file

    four = str(ROOT / "docs" / "four_neurons.py")
    save_file({"weight": np.ones((4, 3)), "bias": np.array([1.0, -9, 2, 0])}, tmp_path / "w.safetensors")
    done = run("freeze", four, "w.safetensors", "--name", "four_frozen", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    module = load_extension(Path(done.stdout.strip()), "four_frozen")
    assert module.info()["parameters"] == 4 * 3 + 4
    done = run("freeze", four, "w.safetensors", "--name", "four", "--standalone", "--output", "c", cwd=tmp_path)
    assert [Path(line).name for line in done.stdout.split()] == ["four.h", "four.c"]
    assert (tmp_path / "c" / "four.c").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["freeze", "nowhere.py", "w"], "error: nowhere.py: No such file or directory"),
        (["freeze", "codegen.mnist", "nowhere.safetensors"], "error: nowhere.safetensors: No such file or directory"),
        (["freeze", "codegen.ir.graph", "w"], "codegen.ir.graph must define a function program()"),
        (["freeze", "no.such.module", "w"], "error: no.such.module: no such module; "),
        (["freeze", "codegen.mnist"], "the following arguments are required: WEIGHTS"),
        (["freeze", "codegen.mnist", "bad"], "bad: not a safetensors file"),
        (["build", "codegen.mnist", "--name", "not-a-name"], "a module's name must be an ASCII identifier"),
        (["build", "broken.py"], "error: broken.py:2: ZeroDivisionError: division by zero"),
    ],
)
def test_errors_on_the_command_line_are_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "bad").write_bytes(b"123")
    (tmp_path / "broken.py").write_text("def program():\n    1 / 0\n")
    monkeypatch.chdir(tmp_path)
    try:
        code = main(arguments)
    except SystemExit as stop:  # of argparse
        code = stop.code
    assert code == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1


# The example in C


@pytest.mark.slow
@pytest.mark.skipif(not COMPILERS, reason="no C compiler: gcc, clang or tcc")
def test_the_example_reads_a_picture(tmp_path):
    import nn_infer

    from micrograd.data import digits as built_in

    freeze(replace(mnist_program(), storage="int8"), read_weights(WEIGHTS), tmp_path, target="c")
    flags = ["-std=c11", "-pedantic", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"]
    flags = flags if COMPILERS[0] != "tcc" else []
    command = [COMPILERS[0], *flags, f"-I{tmp_path}", ROOT / "examples" / "c" / "main.c", "nn_infer.c", "-lm"]
    subprocess.run([*command, "-o", "digit"], cwd=tmp_path, check=True)
    images, _ = built_in.generate(5, seed=4)
    for i in range(5):
        pixels = images[784 * i : 784 * i + 784]
        (tmp_path / "picture.pgm").write_bytes(b"P5\n# a comment\n28 28\n255\n" + pixels)
        done = subprocess.run(["./digit", "picture.pgm"], cwd=tmp_path, capture_output=True, text=True, check=True)
        digit = nn_infer.predict(pixels)
        assert done.stdout == f"{digit} ({100 * nn_infer.probabilities(pixels)[digit]:.1f} %)\n"
    for content, message in [
        (b"P6\n28 28\n255\n", "is no PGM file"),
        (b"P5\n28 27\n255\n" + pixels, "is not 28 x 28"),
        (b"P5\n28 28\n255\n" + pixels[:-1], "ends too early"),
        (b"P5", "is not 28 x 28"),
    ]:
        (tmp_path / "picture.pgm").write_bytes(content)
        done = subprocess.run(["./digit", "picture.pgm"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert message in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("compiler", [c for c in ("gcc", "clang") if shutil.which(c)])
def test_weights_that_no_output_depends_on_are_no_warning(compiler, tmp_path):
    x, w = [Value(0.0), Value(0.0)], [Value(0.5), Value(0.1)]
    out = x[0] * x[1]
    program = Program(Floats(x), None, {"w": w}, (out * w[0] + w[1]) ** 2, {"out": [out]})
    path = freeze(program, weights_of(program), tmp_path, f"unused_{compiler}", compiler=compiler, flags=WARNINGS)
    module = load_extension(path, f"unused_{compiler}")
    assert module.outputs(array("d", [2.0, 3.0])) == {"out": (6.0,)}

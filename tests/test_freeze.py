"""Frozen models: the bits of the model that they come from, without what they do not need."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from array import array
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from harness import LEVELS, WARNINGS, bits, example
from models import REGULAR, random_programs

from codegen import Floats, Pixels, Program, build_python, freeze, freeze_standalone, load_extension
from codegen.mnist import program as mnist_program
from codegen.passes.freeze import frozen_program
from codegen.pipeline import compile_program
from codegen.weights import read_weights
from micrograd.data import mnist
from micrograd.engine import Value
from tools.fuzz_compiler.reference import Engine

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = ROOT / "weights" / "mnist.safetensors"
COMPILERS = [name for name in ("gcc", "clang", "tcc") if shutil.which(name)]
_count = 0


def weights_of(program: Program) -> dict[str, np.ndarray]:
    data = np.array([p.data for p in program.parameter_values])
    return {tensor.name: data[list(tensor.numbers)].reshape(tensor.shape) for tensor in program.tensors}


def frozen_modules(
    program: Program, folder: Path, weights: dict[str, np.ndarray] | None = None, optimisation: str | None = None
) -> list:
    """The frozen module, as straight-line C and as loops, these once for each SIMD level of this processor."""
    global _count
    _count += 1
    name = f"frozen_{_count}"
    weights = weights or weights_of(program)
    path = freeze(program, weights, folder, name, flags=[*WARNINGS, optimisation or "-O1"])
    straight = freeze(
        program, weights, folder, f"{name}_straight", "straightline", flags=[*WARNINGS, optimisation or "-O0"]
    )
    modules = [load_extension(straight, f"{name}_straight")]
    for level in LEVELS:
        copy = folder / level / path.name
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
        with suppress(ImportError), patch.dict(os.environ, {"NN_SIMD": level}):
            modules.append(load_extension(copy, name))
    assert len(modules) > 1
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


@pytest.mark.parametrize("name", [name for name in REGULAR if REGULAR[name]().outputs])
def test_a_frozen_model_has_the_bits_of_the_engine(name, tmp_path):
    program = REGULAR[name]()
    compare_outputs(program, frozen_modules(program, tmp_path), odd=True)


def test_the_sign_of_a_zero_is_kept_where_a_power_makes_more_of_it(tmp_path):
    """relu(-0.0) is -0.0, and 1 / -0.0 is -inf: what is 0 for all inputs is no constant there."""
    x, weight = [Value(0.0), Value(0.0)], Value(0.0)
    dead = x[0].relu()  # pixels from -1 to -0.0
    outputs = {
        "power": [dead**-1],
        "zero": [dead],
        "product": [(x[1] * weight) ** -1.0],
        "exp": [x[1].relu().exp() ** -1],
    }
    program = Program(Pixels(x, -1 / 255), None, {"weight": [weight]}, weight, outputs)
    compare_outputs(program, frozen_modules(program, tmp_path))
    smaller = frozen_program(program, weights_of(program))
    assert [value._op for value in smaller.outputs["exp"]] == [""]  # a constant


def test_weights_of_either_sign_side_by_side(tmp_path):
    """gcc before 14 fused their products and sums, where it knew the weights: see TABLE in csrc/ops.h."""
    rng, x = random.Random(1), [Value(0.0) for _ in range(3)]
    w = [[Value(rng.uniform(-1, 1)) for _ in x] for _ in range(2)]
    bias = [Value(0.3), Value(-0.7)]
    units = [b + row[2] * x[2] + row[1] * x[1] + row[0] * x[0] for row, b in zip(w, bias, strict=True)]
    program = Program(Floats(x), None, {"w": w, "bias": bias}, units[0], {"units": units})
    compare_outputs(program, frozen_modules(program, tmp_path, optimisation="-O3"))


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs(seed, tmp_path):
    program = random_programs(1000 + seed, 20)
    rng = random.Random(seed)
    for parameter in program.parameter_values:  # what freezing can leave out
        parameter.data = rng.choice([parameter.data, 0.0, 1.0, -1e3])
    compare_outputs(program, frozen_modules(program, tmp_path), seed, odd=True)


def small_mlp(inputs=9, units=6, classes=3):
    rng = random.Random(5)
    w = [[Value(rng.uniform(-1, 1)) for _ in range(inputs)] for _ in range(units)]
    b = [Value(rng.uniform(0.5, 1)) for _ in range(units)]  # each fires for some pixels
    v = [[Value(rng.uniform(-1, 1)) for _ in range(units)] for _ in range(classes)]
    x = [Value(0) for _ in range(inputs)]
    hidden = []
    for row, bias in zip(w, b, strict=True):
        act = bias
        for weight, value in zip(row, x, strict=True):
            act = act + weight * value
        hidden.append(act.relu())
    out = []
    for row in v:
        act = row[0] * hidden[0]
        for weight, value in zip(row[1:], hidden[1:], strict=True):
            act = act + weight * value
        out.append(act)
    return Program(
        inputs=Pixels(x, scale=1 / 255),
        targets=None,
        parameters={"w": w, "b": b, "v": v},
        loss=out[0],
        outputs={"out": out},
        prediction="out",
    )


def shapes(program: Program) -> dict[str, tuple[int, ...]]:
    return {tensor.name: tensor.shape for tensor in program.tensors}


def test_units_that_never_fire_and_units_that_nobody_reads_are_left_out(tmp_path):
    program = small_mlp()
    weights = weights_of(program)
    weights["b"][2] = -np.clip(weights["w"][2], 0, None).sum() - 1e-9  # at most -1e-9, or so, for any pixels
    weights["v"][:, 4] = 0
    frozen = frozen_program(small_mlp(), weights)
    assert shapes(frozen) == {"w": (4, 9), "b": (4,), "v": (3, 4)}
    weights["b"][2] += 0.1  # now it may fire
    assert shapes(frozen_program(small_mlp(), weights))["w"] == (5, 9)
    weights["v"][1, 4] = 1e-300
    assert shapes(frozen_program(small_mlp(), weights))["w"] == (6, 9)
    weights["v"][:, 1] = 0
    program = small_mlp()
    modules = frozen_modules(program, tmp_path, weights)
    assert modules[0].info()["parameters"] == 5 * 9 + 5 + 3 * 5
    compare_outputs(program, modules, images=30)


def test_a_single_weight_of_zero_stays_so_that_loops_stay_loops():
    weights = weights_of(small_mlp())
    weights["v"][0, 1] = weights["w"][3, 3] = 0
    frozen = frozen_program(small_mlp(), weights)
    assert shapes(frozen) == {"w": (6, 9), "b": (6,), "v": (3, 6)}
    assert len(compile_program(frozen).groups) == 2


def test_what_may_be_infinite_is_not_left_out():
    x = [Value(0.0)]
    w, v = Value(2.0), Value(0.0)
    program = Program(Floats(x), None, {"w": w, "v": v}, None, {"out": [(w * x[0]) * v]})
    assert shapes(frozen_program(program, {"w": 2.0, "v": 0.0})) == {"w": (), "v": ()}  # 0 * inf is nan
    program = Program(Pixels(x), None, {"w": w, "v": v}, None, {"out": [(w * x[0]) * v]})
    assert shapes(frozen_program(program, {"w": 2.0, "v": 0.0})) == {}


def test_nothing_may_be_left_of_the_weights(tmp_path):
    x, w = [Value(0.0)], Value(1.0)
    program = Program(Pixels(x), None, {"w": w}, None, {"out": [x[0] + (w * x[0] - 300.0).relu()]})
    modules = frozen_modules(program, tmp_path, {"w": 1.0})
    assert modules[-1].info()["parameters"] == 0
    compare_outputs(program, modules)


def test_leaving_out_goes_on_until_nothing_more_can_go(tmp_path):
    """Nobody needs `first`, but that shows only when the second relu, which is always 0, is gone."""
    x = [Value(0.0), Value(0.0)]
    w = {name: Value(1.0) for name in "abcde"}
    first = (w["a"] * x[0] + 1.0).relu()
    second = (w["b"] * first + -1000.0).relu()
    out = w["c"] * first + w["d"] * second + w["e"] * x[1]
    program = Program(Pixels(x), None, w, None, {"out": [out]})
    weights = {"a": 1.0, "b": 2.0, "c": 0.0, "d": 3.0, "e": 3.0}
    assert shapes(frozen_program(program, weights)) == {"e": ()}
    compare_outputs(program, frozen_modules(program, tmp_path, weights))


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
    program = small_mlp()
    modules = frozen_modules(program, tmp_path, rounded)
    assert modules[-1].info()["weight_type"] == "float32"
    assert modules[0].info()["dtype"] == "float64"
    compare_outputs(program, modules)


def test_the_same_weights_give_the_same_bytes():
    texts = {compile_program(frozen_program(small_mlp(), weights_of(small_mlp()))).text for _ in range(2)}
    assert len(texts) == 1


def test_a_frozen_module_can_only_predict(tmp_path):
    *_, module = frozen_modules(small_mlp(), tmp_path)
    public = {name for name in dir(module) if not name.startswith("__")}
    assert public == {"info", "outputs", "predict", "predict_batch", "probabilities"}
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
    weights = weights_of(program)
    weights["v"][:, 3] = 0
    (compiled, *_) = frozen_modules(program, tmp_path, weights)
    build_python(frozen_program(small_mlp(), weights), tmp_path, "frozen_in_python")
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
    import nn
    import nn_infer

    before = {name: np.array(view) for name, view in nn.state_dict().items()}
    try:
        nn.load_state_dict({name: np.float64(w) for name, w in read_weights(WEIGHTS).items()})
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
    data = mnist.read(Path(folder)) if folder else mnist.load(source="digits")
    found = np.frombuffer(nn_infer.predict_batch(data.test_images), np.uint8)
    assert (found == np.frombuffer(data.test_labels, np.uint8)).mean() >= (0.98 if folder else 0.9)


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


@pytest.mark.skipif(not COMPILERS, reason="no C compiler: gcc, clang or tcc")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("mlp", "float64"),
        ("mlp", "float32"),
        ("attention", "float64"),
        ("recurrence", "float32"),
        ("edges", "float64"),
    ],
)
def test_plain_c(name, dtype, tmp_path):
    program = REGULAR[name]()
    first = next(iter(program.outputs.values()))
    program = replace(program, dtype=dtype, outputs={"out": first}, prediction=None)
    freeze_standalone(program, weights_of(program), tmp_path, "model")
    real = "float" if dtype == "float32" else "double"
    is_pixels = isinstance(program.inputs, Pixels)
    types = MAIN.replace("INPUT_TYPE", "unsigned char" if is_pixels else real).replace("OUTPUT_TYPE", real)
    (tmp_path / "main.c").write_text(types)
    rng = random.Random(0)
    images = [example(program, rng)[1] for _ in range(4)]
    typecode = "B" if is_pixels else "f" if dtype == "float32" else "d"
    stream = b"".join(array(typecode, image).tobytes() for image in images)
    (module,) = {id(m): m for m in frozen_modules(program, tmp_path)[-1:]}.values()
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
    header, _ = freeze_standalone(program, weights_of(program), tmp_path, "m")
    text = header.read_text()
    assert "M_OUT = 3," in text
    assert "M_OUT_2 = 2," in text
    assert "void m_predict_2(" in text


AWKWARD = ("outputs", "w", "i", "inputs", "h", "int", "result", "workspace", "set_inputs", "3", "ä", "h_included")


@pytest.mark.skipif(not COMPILERS, reason="no C compiler: gcc, clang or tcc")
@pytest.mark.parametrize(
    ("module", "outputs"),
    [
        ("m", AWKWARD),
        ("op", ("relu", "exp", "pow", "NOT_VECTORISED")),
        ("group", ("0", "1")),
        ("static", ("assert", "cast")),
        ("set", ("inputs",)),
        ("compute", ("outputs", "prediction")),
        ("workspace", ("workspace",)),
    ],
)
def test_any_name_of_an_output_compiles(module, outputs, tmp_path):
    program = small_mlp()
    out = program.outputs["out"]
    program.outputs = {name: out[i % 3 :] for i, name in enumerate(outputs)}
    program.prediction = outputs[0]
    header, _ = freeze_standalone(program, weights_of(program), tmp_path, module)
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
    *_, loops = frozen_modules(program, tmp_path)
    pixels = bytes((1, 2, 3, 0, 0, 6, 7, 8, 255))
    expected = [x for name in outputs for x in loops.outputs(pixels)[name]]
    for compiler in COMPILERS:
        flags = [] if compiler == "tcc" else ["-std=c11", "-pedantic", "-Wextra", "-Werror", "-ffp-contract=off"]
        command = [compiler, *flags, "-Wall", "main.c", f"{module}.c", "-o", "main", "-lm"]
        subprocess.run(command, cwd=tmp_path, check=True)
        *numbers, best = subprocess.run([tmp_path / "main"], capture_output=True, check=True).stdout.decode().split()
        assert bits([float.fromhex(x) for x in numbers]) == bits(expected), compiler
        assert int(best) == loops.predict(pixels)


# Weight files


def test_read_weights_reads_what_safetensors_writes(tmp_path):
    from safetensors.numpy import save_file

    tensors = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b.c": np.array(1.5),
        "empty": np.zeros((0, 3)),
        "ä": np.array([5e-324, -0.0, math.inf]),
    }
    path = tmp_path / "w.safetensors"
    save_file(tensors, path, {"made": "by hand"})
    found = read_weights(path)
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert found[name].tobytes() == tensor.tobytes()


ENTRY = {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}
HUGE = ENTRY | {"shape": [0, 2**64], "data_offsets": [0, 0]}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (f'{{"a": {json.dumps(ENTRY)}, "a": {json.dumps(ENTRY)}}}', "stands there twice, among .'a', 'a'"),
        ('{"a": {"dtype": "F64", "dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}', "stands there twice"),
        (json.dumps({"a": HUGE, "b": ENTRY}), r"the tensor 'a' has the shape \(0, 18446744073709551616\)"),
        (json.dumps({"a": HUGE | {"shape": [0] * 65}, "b": ENTRY}), r"the tensor 'a' has the shape \(0, 0, "),
    ],
)
def test_read_weights_refuses_what_no_array_can_be_and_names_that_stand_twice(header, message, tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(8))
    with pytest.raises(ValueError, match=message) as caught:
        read_weights(path)
    assert str(path) in str(caught.value)


def test_read_weights_never_takes_a_damaged_file_for_another(tmp_path):
    """Cut anywhere, or with any byte changed: an error, or a file that safetensors reads in the same way."""
    from safetensors import SafetensorError
    from safetensors.numpy import load, save

    whole = save({"w": np.arange(4.0), "b": np.float32([1, 2])})
    path = tmp_path / "w.safetensors"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"w\.safetensors"):
            read_weights(path)
    rng = random.Random(0)
    for _ in range(1500):
        changed = bytearray(whole)
        changed[rng.randrange(len(whole))] = rng.randrange(256)
        path.write_bytes(changed)
        try:
            found = read_weights(path)
        except ValueError:
            continue
        try:
            expected = load(bytes(changed))
        except (SafetensorError, json.JSONDecodeError) as error:
            pytest.fail(f"safetensors refuses {bytes(changed)!r}: {error}")
        assert {k: (v.shape, v.tobytes()) for k, v in found.items()} == {
            k: (v.shape, v.tobytes()) for k, v in expected.items()
        }


# The command line


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "codegen", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_freeze_from_the_command_line(tmp_path):
    from safetensors.numpy import save_file

    four = str(ROOT / "docs" / "four_neurons.py")
    save_file({"weight": np.ones((4, 3)), "bias": np.array([1.0, -9, 2, 0])}, tmp_path / "w.safetensors")
    done = run("freeze", four, "w.safetensors", "--name", "four_frozen", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    module = load_extension(Path(done.stdout.strip()), "four_frozen")
    assert module.info()["parameters"] == 3 * 3 + 3  # the second neuron never fires
    done = run("freeze", four, "w.safetensors", "--name", "four", "--standalone", "--output", "c", cwd=tmp_path)
    assert [Path(line).name for line in done.stdout.split()] == ["four.h", "four.c"]
    assert (tmp_path / "c" / "four.c").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["freeze", "nowhere.py", "w"], "No such file or directory: 'nowhere.py'"),
        (["freeze", "codegen.mnist", "nowhere.safetensors"], "No such file or directory: 'nowhere.safetensors'"),
        (["freeze", "codegen.ir.graph", "w"], "codegen.ir.graph must define a function program()"),
        (["freeze", "no.such.module", "w"], "No module named 'no'"),
        (["freeze", "codegen.mnist"], "the following arguments are required: WEIGHTS"),
        (["freeze", "codegen.mnist", "bad"], "bad: not a safetensors file"),
        (["build", "codegen.mnist", "--name", "not-a-name"], "a module's name must be an ASCII identifier"),
        (["build", "broken.py"], "ZeroDivisionError"),
    ],
)
def test_errors_on_the_command_line_are_one_line(arguments, message, tmp_path):
    (tmp_path / "bad").write_bytes(b"123")
    (tmp_path / "broken.py").write_text("def program():\n    1 / 0\n")
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


# The example in C


@pytest.mark.skipif(not COMPILERS, reason="no C compiler: gcc, clang or tcc")
def test_the_example_reads_a_picture(tmp_path):
    import nn_infer

    from micrograd.data import digits as built_in

    freeze_standalone(mnist_program(), read_weights(WEIGHTS), tmp_path)
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

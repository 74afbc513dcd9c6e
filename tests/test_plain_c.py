"""Plain C that trains: bit for bit what modules compute, step after step, and without a C library."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
from array import array
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest
from harness import example, slow_but
from models import REGULAR, affine, mlp, mlp_of_floats, recurrence, values, weights
from plain_c import COMPILERS, FLAGS, PlainC, flat, in_python, written
from test_padding import PADDED

import codegen
from benchmarks import microcontrollers
from micrograd import optim
from micrograd.functional import cross_entropy, mse, total
from micrograd.initial import Normal
from micrograd.nn import MLP, Dropout
from micrograd.noise import Noise

pytestmark = pytest.mark.skipif("gcc" not in COMPILERS, reason="no gcc")

BATCHES = (1, 3, 2, 4)
RULES = {
    "momentum": optim.sgd(momentum=0.9),
    "two rules": None,
    "adam clipped": optim.clip_norm(optim.adam(), 0.01),
}


def same(a: np.ndarray, b: np.ndarray, what: str) -> None:
    """Equal bits; a nan equals any other."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype
    differ = np.flatnonzero((a.view(f"u{a.itemsize}") != b.view(f"u{b.itemsize}")) & ~(np.isnan(a) & np.isnan(b)))
    assert not len(differ), f"{what}: {[(int(i), float(a[i]).hex(), float(b[i]).hex()) for i in differ[:3]]}"


def drawn(program: codegen.Program, rng: random.Random) -> tuple[Any, Any]:
    """Inputs and targets as modules take them."""
    targets, inputs = example(program, rng)
    code = "f" if program.dtype == "float32" else "d"
    given = bytes(inputs) if isinstance(program.inputs, codegen.Pixels) else array(code, inputs)
    return given, array(code, targets) if isinstance(targets, list) else targets


def agree(program: codegen.Program, plain: PlainC, module: object, rate: float = 0.05, seed: int = -1) -> None:
    """Some steps of batches of several sizes on both, and everything that can be seen after each."""
    rng = random.Random(1)
    real = plain.real
    if seed >= 0:
        plain("reset", ctypes.c_uint64(seed))
        module.reset(seed)
    same(plain.parameters(), flat(module.state_dict(), program).astype(real), "first parameters")
    for step, size in enumerate(BATCHES):
        module.zero_grad()
        plain.zero_grad()
        for _ in range(size):
            inputs, targets = drawn(program, rng)
            ours, theirs = plain.forward(inputs, targets), module.forward(targets, inputs)
            same(np.array([ours]), np.array([theirs]), f"loss in step {step}")
            plain.backward()
            module.backward()
        same(plain.gradients(), flat(module.grad_dict(), program).astype(real), f"gradients in step {step}")
        plain.update(rate, size)
        module.update(step, size, learning_rate=rate)
        same(plain.parameters(), flat(module.state_dict(), program).astype(real), f"parameters after step {step}")
    inputs, _ = drawn(program, rng)
    for name, expected in module.outputs(inputs).items():
        same(plain.output(name, inputs), np.array(expected, real), name)
    if program.prediction is not None:
        assert plain.predict(inputs) == module.predict(inputs)


@pytest.mark.parametrize("name", slow_but(["mlp", "recurrence"], REGULAR))
def test_the_bits_are_those_of_python(name: str, tmp_path: Path):
    program = REGULAR[name]()
    agree(program, PlainC(program, tmp_path), in_python(program))


@pytest.mark.slow
def test_noise_shifts_and_first_weights_are_drawn_as_by_the_module(tmp_path: Path):
    random.seed(3)
    x, t = values(20), values(4)
    net, dropout = MLP(20, [9, 4]), Dropout(0.3)
    jitter = Noise(values(4), Normal(0.0, 0.1))
    hidden = dropout([h.relu() for h in net.layers[0](x)])
    logits = [z + e for z, e in zip(net.layers[1](hidden), jitter.values, strict=True)]
    program = codegen.Program(
        codegen.Pixels(np.array(x).reshape(4, 5), scale=1 / 255, shift=1),
        codegen.Label(t),
        net.named_parameters(),
        cross_entropy(logits, t),
        {"logits": logits},
        initial=net.initial() | {"layers.1.bias": Normal(0.1, 0.5, 1.5)},
        order=net.parameters(),
        noise=[*dropout.noise(), jitter],
        seed=2**40 + 7,
    )
    agree(program, PlainC(program, tmp_path, gradients_of="logits"), in_python(program))
    agree(program, PlainC(program, tmp_path / "reset"), in_python(program), seed=5)
    program = replace(program, initial=None)
    agree(program, PlainC(program, tmp_path / "table"), in_python(program))


def test_inputs_and_targets_of_several_kinds(tmp_path: Path):
    rng = random.Random(8)
    pixels, words, label, y = values(6), [values(5), values(5)], values(3), values(2)
    x = [*pixels, *words[0], *words[1]]
    layers = {"w": weights(rng, 5, 16), "b": weights(rng, 5)}
    out = affine(layers["w"], layers["b"], x)
    program = codegen.Program(
        {"pixels": codegen.Pixels(pixels, 1 / 255), "two words": codegen.Tokens(words)},
        {"label": codegen.Label(label), "y": codegen.Floats(y)},
        layers,
        cross_entropy(out[:3], label) + mse(out[3:], y),
        {"logits": out[:3]},
        input_gradients=True,
    )
    plain, module = PlainC(program, tmp_path), in_python(program)
    for step in range(4):
        inputs = {"pixels": bytes(rng.choices((0, 9, 255), k=6)), "two words": array("i", rng.choices(range(5), k=2))}
        targets = {"label": rng.randrange(3), "y": array("d", [rng.uniform(-1, 1) for _ in y])}
        same(np.array([plain.forward(inputs, targets)]), np.array([module.forward(targets, inputs)]), "loss")
        plain.backward()
        module.backward()
        expected = module.input_grad()
        found = plain.numbers("input_grad", 16)
        same(0.0 + found[:6], np.array(expected["pixels"]), "gradients of pixels")
        plain.update(0.1, step + 1)
        module.update(step, step + 1, learning_rate=0.1)
        same(plain.parameters(), flat(module.state_dict(), program), "parameters")
        assert plain.predict(inputs) == module.predict(inputs)


@pytest.mark.parametrize(
    "name", slow_but(["_x"], ["_x", "copy", "compute", "real", "data", "w", "random", "sqrt", "memcpy", "T"])
)
def test_names_of_users_collide_with_nothing(name: str, tmp_path: Path):
    names = ("init", "Init", "predict", "model", "in", "inputs_", "a b", "a_b", "PARAMETERS", "int", "É", "out_")
    x, w = values(len(names)), values(len(names))
    outputs = {output: [a * b] for output, a, b in zip(names, x, w, strict=True)}
    program = codegen.Program(
        {f"in {i}": codegen.Floats([a]) for i, a in enumerate(x[:2])} | {"in_0": codegen.Floats(x[2:])},
        None,
        {f"{name}.{i}": v for i, v in enumerate(w)},
        total([v for (v,) in outputs.values()]),
        outputs,
        prediction="out_",
        threshold=0.5,
        input_gradients=True,
        initial={f"{name}.{i}": (0.0, 1.0) for i in range(len(w))},
    )
    written(program, tmp_path, name, gradients_of="init")
    for command in (["gcc", *FLAGS], *([["g++", "-x", "c++", *FLAGS[1:]]] if which("g++") else [])):
        command += ["-c", f"{name}.c", "-o", "out.o"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), command


@pytest.mark.parametrize("read", [(1,), (0,), (2, 4), (0, 1, 4)])
def test_inputs_without_a_gradient_have_zeros(read: tuple[int, ...], tmp_path: Path):
    x, w, t = values(5), weights(random.Random(2), 5), values(1)
    out = total([x[i] * w[i] for i in read])
    outputs = {"out": [out], "of none": [w[0] * 2.0]}
    program = codegen.Program(
        codegen.Floats(x), codegen.Floats(t), {"w": w}, (out - t[0]) ** 2, outputs, input_gradients=True
    )
    plain, module = PlainC(program, tmp_path, gradients_of="out"), in_python(program)
    inputs = array("d", [0.5, -1.0, 2.0, 3.0, -4.0])
    plain.forward(inputs, array("d", [1.0]))
    module.forward([1.0], inputs)
    plain.backward()
    module.backward()
    same(0.0 + plain.numbers("input_grad", 5), np.array(module.input_grad()), "gradients by inputs")
    found = plain.numbers("input_gradients", 5, *plain.parts("inputs", inputs), np.array([1.0]))
    same(0.0 + found, np.array([w[i].data if i in read else 0.0 for i in range(5)]), "gradients of the output")
    with pytest.raises(ValueError, match="gradients of an output: 'of none' depends on no input"):
        written(program, tmp_path, gradients_of="of none")


def test_a_loss_without_parameters_and_one_without_inputs(tmp_path: Path):
    """No warning of what their functions need not."""
    (x,), w = values(1), weights(random.Random(2), 1)
    without_parameters = codegen.Program(codegen.Floats([x]), None, {}, x.sin(), {"out": [x]}, input_gradients=True)
    agree(without_parameters, PlainC(without_parameters, tmp_path), in_python(without_parameters))
    without_inputs = codegen.Program(
        codegen.Floats([x]), None, {"w": w}, w[0] * w[0], {"out": [x]}, input_gradients=True
    )
    plain = PlainC(without_inputs, tmp_path, "other")
    plain.forward(array("d", [0.5]), array("d"))
    plain.backward()
    same(plain.numbers("input_grad", 1), np.zeros(1), "gradients by inputs")


def test_many_layers_that_read_the_same_inputs(tmp_path: Path):
    rng = random.Random(6)
    x, y = values(9), values(4)
    layers = {f"{i}.{kind}": weights(rng, *shape) for i in range(8) for kind, shape in (("w", (4, 9)), ("b", (4,)))}
    outs = [affine(layers[f"{i}.w"], layers[f"{i}.b"], x) for i in range(8)]
    loss = total([mse(out, y) for out in outs])
    program = codegen.Program(codegen.Floats(x), codegen.Floats(y), layers, loss, {"out": outs[0]})
    agree(program, PlainC(program, tmp_path), in_python(program))


@pytest.mark.parametrize("rule", slow_but(["two rules"], RULES))
@pytest.mark.parametrize("make", slow_but([mlp], [mlp, recurrence]))
def test_rules_with_state_and_norms(make: Any, rule: str, tmp_path: Path):
    program = make()
    names = [tensor.name for tensor in program.tensors]
    rules = RULES[rule] if rule != "two rules" else {names[0]: optim.adam(), "*": optim.sgd(momentum=0.5)}
    program = replace(program, update=rules)
    agree(program, PlainC(program, tmp_path), in_python(program), rate=0.01)


@pytest.mark.parametrize("make", slow_but([mlp_of_floats], [mlp_of_floats, REGULAR["convolution"]]))
def test_float32_has_the_bits_of_the_module(make: Any, tmp_path: Path, unoptimized: None):
    program = replace(make(), dtype="float32", update=optim.clip_norm(optim.adamw(), 0.02))
    agree(program, PlainC(program, tmp_path, flags=["-O3"]), codegen.compile(program), rate=0.01)


@pytest.mark.parametrize("compiler", slow_but(["tcc"], COMPILERS))
def test_other_compilers(compiler: str, tmp_path: Path):
    program = replace(mlp(), update=RULES["adam clipped"])
    agree(program, PlainC(program, tmp_path, compiler=compiler, flags=["-O2"]), in_python(program))


CROSS = {
    "g++": ["-x", "c++", "-std=c++17"],
    "clang++": ["-x", "c++", "-std=c++20", "-ffreestanding"],  # else it calls memset()
    "clang": ["-std=c11", "--target=wasm32", "-ffreestanding", "-msimd128"],
    "arm-none-eabi-gcc": ["-std=c11", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"],
}


@pytest.mark.parametrize("dtype", slow_but(["float32"], ["float64", "float32"]))
@pytest.mark.parametrize(
    "compiler",
    [pytest.param(c, marks=pytest.mark.skipif(not which(c) or sys.platform != "linux", reason=c)) for c in CROSS],
)
def test_it_compiles_without_warnings_and_calls_no_library(compiler: str, dtype: str, tmp_path: Path):
    program = replace(REGULAR["attention"](), dtype=dtype, update=RULES["adam clipped"])
    written(program, tmp_path)
    flags = [*CROSS[compiler], *FLAGS[1:], "-O2", "-c", "plain.c", "-o", "plain.o"]
    done = subprocess.run([compiler, *flags], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if compiler != "clang":
        command = ["nm", "--undefined-only", "plain.o"]
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert [line for line in found.stdout.split() if line not in ("U", "w") and "__aeabi" not in line] == []


def test_weights_that_are_not_finite_reach_zero_inputs(tmp_path: Path):
    program = mlp()
    plain, module = PlainC(program, tmp_path), in_python(program)
    state = {name: np.array(view) for name, view in module.state_dict().items()}
    state["layers.0.weight"][:] = np.inf
    module.load_state_dict(state)
    plain("set_parameters", flat(state, program))
    same(np.array([plain.forward(bytes(12), 3)]), np.array([module.forward(3, bytes(12))]), "loss")
    plain.backward()
    module.backward()
    same(plain.gradients(), flat(module.grad_dict(), program), "gradients")
    assert np.isnan(plain.gradients()).any()


LOOKS = [(mlp, "logits"), (PADDED["one axis"], "loss"), (recurrence, "out"), (REGULAR["convolution"], None)]


@pytest.mark.parametrize(
    ("make", "output"), [*LOOKS[:2], *(pytest.param(*look, marks=pytest.mark.slow) for look in LOOKS[2:])]
)
def test_gradients_of_an_output_by_the_inputs(make: Any, output: str | None, tmp_path: Path):
    program = make()
    output = output or next(iter(program.outputs))
    compiled = codegen.compile_program(program, target="c", gradients_of=output)
    assert len(compiled.graph.padded) == len(codegen.compile_program(program, target="c").graph.padded)
    plain = PlainC(program, tmp_path, gradients_of=output)
    rng = random.Random(2)
    inputs, targets = drawn(program, rng)
    plain.forward(inputs, targets)
    plain.backward()
    before = plain.gradients()
    weights = np.array([rng.uniform(-1, 1) for _ in program.outputs[output]], plain.real)
    count = len(program.input_values)
    found = plain.numbers("input_gradients", count, *plain.parts("inputs", inputs), weights)
    for value, number in zip(program.input_values, inputs, strict=True):
        value.data, value.grad = number * (program.pixel_scale or 1), 0.0
    same(plain.gradients(), before, "gradients of parameters")
    look = sum(w * v for w, v in zip(weights.tolist(), program.outputs[output], strict=True))
    look.recompute()
    look.backward()
    assert found == pytest.approx([value.grad for value in program.input_values], rel=1e-12, abs=1e-15)
    assert np.any(found)


def test_what_plain_c_cannot_do_is_refused():
    with pytest.raises(ValueError, match="lowering must be 'loops' or None, got 'straightline'"):
        codegen.compile_program(mlp(), lowering="straightline", target="c")
    with pytest.raises(ValueError, match=r"'nowhere' is none of the outputs \['logits', 'probabilities'\]"):
        codegen.compile_program(mlp(), target="c", gradients_of="nowhere")
    with pytest.raises(ValueError, match="gradients_of is for plain C that trains"):
        codegen.compile_program(mlp(), gradients_of="logits")


@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(which, ("arm-none-eabi-gcc", "qemu-system-arm"))), reason="no compiler for ARM, or no qemu"
)
def test_flash_memory_and_instructions_of_a_microcontroller(tmp_path: Path):
    row = microcontrollers.Row("trains", microcontrollers.trains(), True)
    (line,) = microcontrollers.measured("16-16-4", [row], tmp_path)
    net, name, flash, memory, *_, instructions = line.strip("| ").split(" | ")
    assert (net, name) == ("16-16-4", "trains")
    parameters = 16 * 16 + 16 + 16 * 4 + 4
    assert 3000 < int(flash.replace(",", "")) < 6000
    assert 8 * parameters < int(memory.replace(",", "")) < 12 * parameters
    predict, train = (int(x.replace(",", "")) for x in instructions.split(" / "))
    assert 2 * parameters < predict < train < 50 * parameters

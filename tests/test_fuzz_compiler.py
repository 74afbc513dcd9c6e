"""A fuzzer that misses or misreports a failure or cannot reduce it; and the miscompilations it has found."""

from __future__ import annotations

import ctypes
import faulthandler
import math
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from harness import compare, nightly_but, slow_but

import codegen
from codegen import Floats, Label, Pixels, Program, Tokens
from codegen.backends.shared import csrc
from codegen.pipeline import build_graph, graph_digest
from codegen.toolchain import UNIX_FLAGS
from micrograd.engine import Value
from micrograd.ops import ROWS, sigmoid
from tools.cross import functions
from tools.fuzz_compiler.__main__ import main
from tools.fuzz_compiler.cases import Case, Runner, pasteable
from tools.fuzz_compiler.programs import KINDS, ODD_NUMBERS, random_program
from tools.fuzz_compiler.recipe import Recipe
from tools.fuzz_compiler.reduce import reduce_recipe
from tools.fuzz_compiler.reference import Engine, Interpreter
from tools.fuzz_compiler.rules import random_rule
from tools.fuzz_compiler.toolchain import Toolchain

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="a case is a forked process")


def test_a_seed_is_a_program():
    for seed in range(30):
        texts = {Recipe.of(random_program(random.Random(seed))).text() for _ in range(2)}
        assert len(texts) == 1
    assert len({Recipe.of(random_program(random.Random(seed))).text() for seed in range(30)}) == 30


@pytest.mark.slow
def test_programs_have_what_compilers_get_wrong():
    """Everything that is promised turns up within 400 seeds."""
    programs = [random_program(random.Random(seed)) for seed in range(400)]
    recipes = [Recipe.of(program) for program in programs]
    constants = {repr(node.data) for recipe in recipes for node in recipe.nodes if not node.operands}
    assert {repr(number) for number in ODD_NUMBERS} <= constants
    assert any(node.operands[:1] * 2 == node.operands for recipe in recipes for node in recipe.nodes)
    assert {type(p.inputs) for p in programs} == {Pixels, Floats, dict}
    assert {part.kind for p in programs for part in p.input_parts} == {"pixels", "floats", "tokens"}
    assert {type(p.targets) for p in programs} == {Label, Floats, type(None)}
    assert {p.dtype for p in programs} == {"float32", "float64"}
    assert any(not p.loss._prev for p in programs)
    assert any(not p.input_values for p in programs)
    unused = observed = 0
    for recipe in recipes:
        used = {n for node in recipe.nodes for n in node.operands}
        unused += sum(n not in used for n in recipe.leaves())
        observed += sum(n in recipe.leaves() for numbers in recipe.outputs.values() for n in numbers)
    assert unused
    assert observed
    assert any(p.initial for p in programs)
    assert any(p.update for p in programs)
    assert any(list(p.order) != [*Recipe.of(p).program().order] or Recipe.of(p).order for p in programs)
    found = {node.op for recipe in recipes for node in recipe.nodes}
    assert found == {"", *(row.symbol for row in ROWS if not row.is_registered)}


@pytest.mark.parametrize("kind", slow_but(sorted(KINDS)[:2], sorted(KINDS)))
def test_a_recipe_is_the_program(kind):
    """By way of its text too: what is pasted into a test is what failed."""
    for seed in range(8):
        program = random_program(random.Random(seed), kind)
        recipe = Recipe.of(program)
        namespace = {"Value": Value, "Floats": Floats, "Pixels": Pixels, "Label": Label, "Program": Program}
        namespace["Tokens"] = Tokens
        namespace["random_rule"] = random_rule
        exec(recipe.text(), namespace | {"math": math}, namespace)
        for copy in (recipe.program(), namespace["program"]):
            assert graph_digest(build_graph(copy)) == graph_digest(build_graph(program))
            assert repr([p.data for p in copy.parameter_values]) == repr([p.data for p in program.parameter_values])
            assert Recipe.of(copy).settings == recipe.settings


def test_reduction_finds_the_core():
    """Failing means here: some tanh of a sum. Nothing else must stay."""

    def fails(recipe: Recipe) -> bool:
        recipe.program()
        return any(n.op == "tanh" and recipe.nodes[n.operands[0]].op == "+" for n in recipe.nodes)

    reduced = 0
    for seed in range(20):
        recipe = Recipe.of(random_program(random.Random(seed)))
        if fails(recipe):
            small = reduce_recipe(recipe, fails)
            assert fails(small)
            assert [node.op for node in small.nodes if node.op] == ["+", "tanh"]
            assert len(small.nodes) <= 5
            assert not small.parameters
            assert not small.inputs
            assert len(small.outputs) <= 1  # where it is no part of the loss
            assert not small.settings
            reduced += 1
    assert reduced > 2


@needs_fork
@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
@pytest.mark.nightly
def test_a_wrong_system_is_found_reduced_and_printed(tmp_path, monkeypatch):
    """An interpreter that is wrong where there is a sigmoid: the smallest Program that shows it has one."""
    run = Interpreter.run

    def wrong(self, targets, inputs):
        loss = run(self, targets, inputs)
        return loss + 1.0 if sigmoid.number in self.graph.op else loss

    monkeypatch.setattr(Interpreter, "run", wrong)
    toolchain = Toolchain(tmp_path)
    runner = Runner(toolchain, tmp_path, 60)
    [failed, *_] = [o for o in runner.run((Case(seed, "recurrence", []) for seed in range(7)), 2, None) if o.error]
    assert "loss: interpreter differs from engine at 0 of 1" in failed.error
    failed.case = Case(failed.case.seed, failed.case.kind, [], only="interpreter")
    recipe = reduce_recipe(failed.case.recipe(), runner.still_fails(failed))
    assert [node.op for node in recipe.nodes if node.op] == ["sigmoid"]
    text = pasteable(failed.case, recipe)
    assert text.startswith("def test_found_by_fuzz(tmp_path):\n    v0 = Value(")
    compile(text, "pasted", "exec")


@needs_fork
def test_a_crash_and_an_endless_case_are_failures(tmp_path, monkeypatch):
    def abort(*_: object) -> None:
        faulthandler.disable()  # pytest's, which would print this as a crash
        os.abort()

    runner = Runner(Toolchain(tmp_path), tmp_path, 1)
    monkeypatch.setattr(Engine, "__init__", abort)
    [outcome] = runner.run([Case(1, "attention", [])], 1, None)
    assert outcome.error == "Killed: SIGABRT"
    monkeypatch.setattr(Engine, "__init__", lambda self, program: [None for _ in iter(int, 1)])
    [outcome] = runner.run([Case(1, "attention", [])], 1, None)
    assert outcome.error == "Killed: SIGALRM"
    assert outcome.counts == {"programs": 1, "failures": 1}
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".json"]


@pytest.mark.slow
@needs_fork
@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_the_command(capfd):
    assert main(["--seed", "11", "--count", "3", "--every", "3", "--compilers", "gcc -O0"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("seed 11; ")
    assert "3 Programs" in out
    assert " 0 failures" in out


@pytest.mark.slow
@needs_fork
def test_the_command_is_a_process_that_fails_with_the_case(tmp_path):
    """A compiler that is not there, or is none, is an error of every Program."""
    fake = tmp_path / "tcc"
    fake.write_text("#!/bin/sh\necho no such thing >&2\nexit 1\n")
    fake.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "tools.fuzz_compiler", "--seed", "1", "--count", "1", "--no-reduce"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "seed 1: RuntimeError: tcc failed (1): no such thing" in done.stdout
    assert " 1 failures" in done.stdout


# Found by the fuzzer


@pytest.mark.slow
def test_infinite_initial_data_in_python(tmp_path):
    """A generated Python module named INF before it defined it."""
    v0 = Value(1.0)
    v1 = Value(-math.inf)
    program = Program(inputs=Floats([]), targets=None, parameters={"p": [v1]}, loss=v0)
    compare(program, tmp_path, steps=2, flags=["-O0"])


@pytest.mark.slow
def test_names_of_several_terms_outside_of_loops(tmp_path):
    """`const double x1` was declared twice in one block, by two terms of a sum that stand in no loop of their own."""
    w = [[[Value(0.1 * (i + j + k)) for k in range(3)] for j in range(2)] for i in range(5)]
    x = [Value(0.0) for _ in range(5)]
    units = []
    for j in range(2):
        for k in range(3):
            terms = [w[i][j][k] * x[i] for i in range(2)]
            pair = w[2][j][k] * x[2] + w[3][j][k] * x[3]
            units.append(terms[0] + terms[1] + pair + w[4][j][k] * x[4])
    total = units[0] * units[0]
    for unit in units[1:]:
        total = total + unit * unit
    program = Program(Floats(x), None, {"w": w}, total, {"units": units}, learning_rate=0.01)
    compare(program, tmp_path, steps=2, flags=["-O0"])


@pytest.mark.slow
def test_a_sum_from_the_last_to_the_first_over_images(tmp_path):
    """gcc 12 -O3 vectorised it wrongly: see NOT_VECTORISED in csrc/ops.h."""
    v0, v1, v2, v3, v4 = (Value(x) for x in (0.0, 1.0, 0.0, 1.0, 0.0))
    a, b = v1 + v3, v1 + Value(0.0)
    program = Program(Floats([v2, v4]), Floats([v0]), {"p": [v1]}, a * a + b * b)
    compare(program, tmp_path, steps=2, seed=5089, flags=["-O3"])


@pytest.mark.parametrize("seed", nightly_but([0], range(2)))
def test_the_same_in_several_lanes(seed, tmp_path):
    """Three lanes, which gcc unrolls before it vectorises."""
    rng = random.Random(1)
    inner = [[Value(rng.uniform(-1, 1)) for _ in range(3)] for _ in range(3)]
    start, x = [Value(rng.uniform(-1, 1)) for _ in range(3)], [Value(0.0), Value(0.0)]
    state = start
    for step in range(2):
        sums = [row[0] * state[0] + row[1] * state[1] + row[2] * state[2] for row in inner]
        state = [(s + x[step]).tanh() for s in sums]
    loss = state[0] * state[0] + state[1] * state[1] + state[2] * state[2]
    program = Program(Floats(x), None, {"inner": inner, "start": start}, loss, {"state": state})
    compare(program, tmp_path, steps=1, seed=seed, flags=["-O3"])


@pytest.mark.slow
def test_gathering_what_the_group_before_has_stored(tmp_path):
    """gcc, for AVX-512, took elements 0, 1, 2 and 6 wrongly out of a register: see STORE_BARRIER in csrc/ops.h."""
    x, y, z = [Value(0.0) for _ in range(16)], [Value(0.0) for _ in range(12)], Value(0.0)
    weight = Value(0.5)
    negative = [-number for number in x[:15]]
    gathered = [a + b * z for a, b in zip(negative[:3] + negative[6:], y, strict=True)]
    outputs = {"negative": negative, "gathered": gathered}
    program = Program(Floats([*x, *y, z]), None, {"weight": [weight]}, weight * weight, outputs)
    compare(program, tmp_path, steps=1, flags=["-O3"])


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_a_difference_and_a_sum_side_by_side(tmp_path):
    """gcc before 14 fuses their products, also with -ffp-contract=off: see NOT_JOINED in csrc/ops.h."""
    source = tmp_path / "sides.c"
    source.write_text(
        """
        typedef double real;
        #include "ops.h"
        __attribute__((visibility("default"))) NOT_JOINED void sides(double *restrict value)
        {
            value[8] = value[0] * value[2];
            value[9] = value[1] * value[3];
            value[10] = value[4] * (-1.0);
            value[12] = value[8] + value[10];
            value[13] = value[9] + value[5];
        }
        """
    )
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        *UNIX_FLAGS,
        "-march=native",
        f"-I{csrc()}",
        source,
        "-o",
        tmp_path / "sides.so",
    ]
    subprocess.run(command, check=True)
    rng = random.Random(0)
    for _ in range(20):
        x = [rng.uniform(-1, 1) for _ in range(6)]
        value = (ctypes.c_double * 14)(*x)
        ctypes.CDLL(str(tmp_path / "sides.so")).sides(value)
        assert value[12:14] == [x[0] * x[2] - x[4], x[1] * x[3] + x[5]]


@pytest.mark.nightly
def test_a_sum_over_images_side_by_side():
    """gcc 12 -O3 unrolled two loops over terms, one of them backwards, and added them in another order."""
    program = replace(functions.program(), dtype="float32")
    module = codegen.compile(program)
    rng = random.Random(7)
    rows = [[rng.uniform(-1, 1) if rng.random() < 0.2 else 0.0 for _ in program.input_values] for _ in range(40)]
    assert module.evaluate(rows, None)[0] == sum([module.forward(None, row) for row in rows]) / len(rows)

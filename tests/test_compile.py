"""codegen.compile(): models that do not know of one another, and the cache that they come from."""

from __future__ import annotations

import copy
import gc
import inspect
import multiprocessing
import os
import pickle
import weakref
from array import array
from dataclasses import replace
from pathlib import Path

import models
import numpy as np
import pytest
from harness import many, nightly_but, slow_but, state

import codegen
from codegen import Floats, Program, pipeline
from codegen import models as instances
from codegen.ir.graph import graph_text
from codegen.mnist import program as mnist_program
from codegen.passes.freeze import frozen_program
from micrograd import cache
from micrograd.engine import Value

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def in_the_cache(shared: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MICROGRAD_CACHE", str(shared))
    if "optimized" not in request.fixturenames:
        request.getfixturevalue("unoptimized")


@pytest.fixture
def optimized() -> None:
    """codegen.compile() compiles as it does for a user."""


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and no libraries that another test has loaded."""
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(instances, "_libraries", {})
    return tmp_path / "cache" / "models"


def line(weight: float = 0.5, **changes: object) -> Program:
    w, b, x, y = Value(weight), Value(0.25), Value(0), Value(0)
    out = w * x + b
    declared = {"inputs": Floats([x]), "targets": Floats([y]), "parameters": {"w": w, "b": b}}
    return Program(**declared | {"loss": (out - y) ** 2, "outputs": {"out": [out]}} | changes)


def step(model: codegen.Model) -> None:
    model.zero_grad()
    model.forward(array("d", [-1.0]), array("d", [0.5]))
    model.backward()
    model.update()


def nothing_runs(*_: object, **__: object) -> None:
    raise AssertionError("this must not run")


@pytest.fixture
def only_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes after the trace fails."""
    for name in ("differentiate", "simplify", "expand_powers", "reroll", "schedule", "write", "batch_of"):
        monkeypatch.setattr(pipeline, name, nothing_runs)
    for name in ("compile_traced", "write_sources", "compile_extension"):
        monkeypatch.setattr(instances, name, nothing_runs)


@pytest.mark.slow
def test_a_model_has_the_bits_and_the_functions_of_a_built_module(optimized, tmp_path):
    program = models.mlp()
    model = codegen.compile(program)
    built = codegen.load_extension(codegen.build(program, tmp_path, "functions_of", flags=["-O0"]))
    names = {name for name in dir(built) if not name.startswith("_")}
    assert {name for name in dir(model) if not name.startswith("_")} == names
    data = many(program, 20)
    assert model.train(*data, batch_size=4, threads=2) == built.train(*data, batch_size=4)
    assert state(model) == state(built)
    for name in names:
        assert getattr(model, name).__doc__ == getattr(built, name).__doc__
        assert inspect.signature(getattr(model, name)) == inspect.signature(getattr(built, name))
    assert {**model.info(), "compiler": ""} == {**built.info(), "compiler": ""}


def test_the_protocol_names_every_method():
    """With the arguments of a model of images and labels; others take these names too."""
    model = codegen.compile(models.mlp(), optimize=0)
    declared = {name for name in vars(codegen.Model) if not name.startswith("_")}
    assert declared == {name for name in dir(model) if not name.startswith("_")}
    for name in declared:
        of_protocol = inspect.signature(getattr(codegen.Model, name)).parameters.values()
        mine = [(p.name, p.kind, p.default) for p in of_protocol][1:]
        assert mine == [
            (p.name, p.kind, p.default) for p in inspect.signature(getattr(model, name)).parameters.values()
        ]


def test_two_models_of_one_program_are_independent():
    program = line()
    one, two = codegen.compile(program), codegen.compile(program)
    step(one)
    assert (two.data(0), two.grad(0)) == (0.5, 0.0)
    assert one.data(0) != 0.5
    two.load_state_dict(one.state_dict())
    step(one)
    assert two.data(0) != one.data(0)
    with pytest.raises(RuntimeError, match="forward"):
        two.backward()


def test_an_ensemble_is_compiled_once(monkeypatch):
    codegen.compile(line())
    drawn = {"initial": {"w": (-1.0, 1.0), "b": (0.0, 0.0)}}
    codegen.compile(line(**drawn))
    monkeypatch.setattr(instances, "compile_traced", nothing_runs)
    ensemble = [codegen.compile(line(weight)) for weight in (0.1, 0.2, 0.3, 0.4, 0.5)]
    assert [model.data(0) for model in ensemble] == [0.1, 0.2, 0.3, 0.4, 0.5]
    step(ensemble[2])
    ensemble[2].reset()
    assert ensemble[2].data(0) == 0.3
    slow, fast = codegen.compile(line(learning_rate=0.01)), codegen.compile(line(learning_rate=0.02))
    for model in (slow, fast):
        step(model)
    assert (0.5 - fast.data(0)) / (0.5 - slow.data(0)) == pytest.approx(2)
    assert (slow.info()["learning_rate"], fast.info()["learning_rate"]) == (0.01, 0.02)
    seven, eight = codegen.compile(line(**drawn, seed=7)), codegen.compile(line(**drawn, seed=8))
    assert (seven.info()["seed"], eight.info()["seed"]) == (7, 8)
    assert seven.data(0) != eight.data(0)
    eight.reset(7)
    assert seven.data(0) == eight.data(0)


def test_a_changed_model_in_the_same_process():
    before = codegen.compile(line())
    w, x, y = Value(3.0), Value(0), Value(0)
    after = codegen.compile(Program(Floats([x]), Floats([y]), {"w": w}, (w * x * x - y) ** 2, outputs={"out": [w * x]}))
    assert after.outputs(array("d", [2.0])) == {"out": (6.0,)}
    assert before.outputs(array("d", [2.0])) == {"out": (1.25,)}


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float32"},
        {"fma": True},
        {"reorder": True},
        {"description": "a line"},
        {"initial": {"w": (0.0, 1.0), "b": (0.0, 0.0)}},
        {"outputs": {}},
        {"prediction": "out"},
        {"targets": None, "loss": None},
    ],
)
def test_whatever_changes_the_code_changes_the_key(changes):
    def key(program: Program, *options: str) -> str:
        return instances.digest(program, pipeline.traced(program), None, instances.find_toolchain(), options)

    assert key(line()) == key(line())
    assert key(line(), "-O1") != key(line())
    assert key(line(**changes)) != key(line())
    if "loss" in changes:  # its parameters are constants
        assert key(line(**changes)) != key(line(weight=2.0, **changes))


def test_the_names_and_places_of_parameters_are_in_the_key():
    def key(**changes: object) -> str:
        w, x = [Value(1.0), Value(2.0)], Value(0)
        program = Program(Floats([x]), None, changes["parameters"](w), w[0] * x + w[1])
        return instances.digest(program, pipeline.traced(program), None, instances.find_toolchain(), [])

    keys = [
        key(parameters=lambda w: {"w": w}),
        key(parameters=lambda w: {"v": w}),
        key(parameters=lambda w: {"w": [w]}),
        key(parameters=lambda w: {"w": w[0], "v": w[1]}),
        key(parameters=lambda w: {"w": w[::-1]}),
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.usefixtures("empty")
def test_nothing_after_the_trace_runs_twice(request):
    program = line()
    first = codegen.compile(program)
    instances._libraries.clear()  # as in a new process
    request.getfixturevalue("only_traces")
    again = codegen.compile(program)
    assert state(again) == state(first)
    del again
    assert state(codegen.compile(program)) == state(first)


def test_a_model_that_is_used_again_is_as_new():
    program = models.mlp()
    data = many(program, 30)
    fresh = codegen.compile(program)
    expected = state(fresh)
    losses = fresh.train(*data, batch_size=7)
    after = state(fresh)
    library = instances._libraries[instances._origins[fresh][0]]
    count = len(library)
    for spoil in ("views", "nan", "batches", "pending"):
        model = codegen.compile(program)
        if spoil == "views":
            for view in (*model.state_dict().values(), *model.grad_dict().values()):
                np.asarray(view)[...] = 3.0
            del view
        elif spoil == "nan":
            model.load_state_dict({name: np.full(v.shape, np.nan) for name, v in model.state_dict().items()})
        elif spoil == "batches":
            model.train(*data, batch_size=30, threads=2)
        else:
            model.train(*data, batch_size=1)  # the gradients of the last image are pending
        del model
        again = codegen.compile(program)
        assert state(again) == expected, spoil
        with pytest.raises(RuntimeError, match="forward"):
            again.backward()
        assert again.train(*data, batch_size=7) == losses
        assert state(again) == after
        del again
    assert len(library) == count + 1  # all of them were one


KEEPERS = {
    "method": (lambda model: model.data, lambda kept: kept(0)),
    "view": (lambda model: model.state_dict()["w"], lambda kept: kept[()]),
    "array": (lambda model: np.asarray(model.state_dict()["w"]), float),
    "gradient": (lambda model: model.grad_dict()["w"], lambda kept: kept[()] + 0.5),
}


@pytest.mark.parametrize("keep", KEEPERS)
def test_whatever_refers_to_a_model_keeps_it(keep):
    take, number = KEEPERS[keep]
    program = line()
    kept = [codegen.compile(program)]
    gone = weakref.ref(kept[0])
    kept[0] = take(kept[0])
    others = [codegen.compile(program) for _ in range(3)]
    for other in others:
        step(other)
    assert number(kept[0]) == 0.5
    assert gone() is not None
    kept.clear()
    assert gone() is None


@pytest.mark.nightly
def test_two_hundred_models_need_the_memory_of_one(run_python, empty):
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs Linux's /proc")
    script = """
import os, sys, warnings
sys.path[:0] = sys.argv[1:3]
import codegen
from codegen import Floats, Program, models
from micrograd.engine import Value
warnings.simplefilter("ignore", codegen.ModelWarning)
x, large = Value(0), [Value(1.0) for _ in range(1500)]
program = Program(Floats([x]), None, {"large": large}, (large[0] * x) ** 2)
def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
for i in range(200):
    model = codegen.compile(program, optimize=0)
    model.grad_dict()
    if i == 3:
        before = memory()
    del model
print(memory() - before, sum(map(len, models._libraries.values())))
print(sorted(os.path.splitext(name)[1] for name in os.listdir(os.path.join(os.environ["MICROGRAD_CACHE"], "models"))))
"""
    grown, libraries, files = run_python(script, str(ROOT), str(ROOT / "tests"), timeout=300).split(maxsplit=2)
    assert int(libraries) == 1
    assert int(grown) < 15e6  # each has 0.3 MB
    assert files.strip() == "['.model']"


def test_many_models_at_the_same_time():
    program = line()
    crowd = [codegen.compile(program) for _ in range(30)]
    for i, model in enumerate(crowd):
        model.load_state_dict({"w": np.array(float(i)), "b": np.array(0.0)})
    assert [model.data(0) for model in crowd] == list(range(30))
    del crowd, model
    assert codegen.compile(program).data(0) == 0.5


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda program: pickle.loads(pickle.dumps(program))])
def test_a_copy_of_a_deep_program_takes_no_deep_stack(copied):
    x, w = Value(0.0), Value(0.5)
    loss = x
    for _ in range(5000):
        loss = loss * w + 0.25
    program = Program(Floats([x]), None, {"w": w}, loss, metrics={"square": loss * loss})
    other = copied(program)
    assert graph_text(pipeline.build_graph(other)) == graph_text(pipeline.build_graph(program))
    (copied_w,) = other.parameter_values
    assert copied_w is not w
    assert copied_w.data == 0.5


def test_copies_and_pickles_have_numbers_of_their_own():
    model = codegen.compile(line())
    step(model)
    for other in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):
        assert type(other).__name__ == "Model"
        assert state(other) == state(model)
        step(other)
        assert state(other) != state(model)
        other.reset()
        assert other.data(0) == 0.5


def test_a_copy_of_a_model_that_only_predicts():
    program = frozen_program(line(), {"w": 2.0, "b": 1.0})
    model = codegen.compile(program)
    other = pickle.loads(pickle.dumps(model))
    assert other.outputs(array("d", [3.0])) == model.outputs(array("d", [3.0])) == {"out": (7.0,)}
    assert not hasattr(model, "train")


def test_a_pickle_without_its_code(empty):
    text = pickle.dumps(codegen.compile(line(), optimize=0))
    instances._libraries.clear()
    cache.clear(empty)
    with pytest.raises(RuntimeError, match=r"codegen\.compile\(\) its Program here first.*state_dict"):
        pickle.loads(text)


def in_child(model: codegen.Model, queue: object) -> None:
    step(model)
    other = codegen.compile(line())
    queue.put((model.data(0), other.data(0)))


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted({"fork", "spawn"} & set(multiprocessing.get_all_start_methods())))
def test_other_processes_have_models_of_their_own(method):
    model = codegen.compile(line())
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=in_child, args=(model, queue))
    process.start()
    found = queue.get()
    process.join()
    assert model.data(0) == 0.5
    step(model)
    assert found == (model.data(0), 0.5)


@pytest.mark.slow
def test_a_level_by_the_environment(monkeypatch):
    monkeypatch.setenv("NN_SIMD", "baseline")
    assert codegen.compile(line()).info()["simd"] == "baseline"
    monkeypatch.setenv("NN_SIMD", "sse9")
    with pytest.raises(ImportError, match="NN_SIMD=sse9"):
        codegen.compile(line())
    monkeypatch.delenv("NN_SIMD")
    step(codegen.compile(line()))


@pytest.mark.slow
def test_options():
    assert codegen.compile(line(), dtype="float32").info()["dtype"] == "float32"
    assert codegen.compile(line(), reorder=True).info()["reorder"] is True
    assert codegen.compile(line(), lowering="straightline").info()["lowering"] == "straightline"
    program = line()
    codegen.compile(program, dtype="float32")
    assert program.dtype == "float64"
    by_level = [codegen.compile(models.xor(), optimize=level) for level in (0, 1)]
    data = many(models.xor(), 20)
    for model in by_level:
        model.train(*data, batch_size=4)
    assert len({state(model) for model in by_level}) == 1


@pytest.mark.skipif(os.name != "posix", reason="gcc's and clang's warnings")
@pytest.mark.parametrize("kind", slow_but(["drawn"], ["plain", "drawn", "frozen"]))
def test_the_c_of_an_instance_has_no_warnings(kind):
    program = {
        "plain": line,
        "drawn": lambda: line(initial={"w": (0.0, 1.0), "b": (0.0, 0.0)}),
        "frozen": lambda: frozen_program(line(), {"w": 2.0, "b": 1.0}),
    }[kind]()
    codegen.compile(program, optimize=0, flags=["-Wall", "-Wextra", "-Werror"])


@pytest.mark.parametrize("name", nightly_but(["xor"], ["xor", "mlp", "convolution", "recurrence"]))
def test_faster_compilation_changes_no_bit(name, optimized, monkeypatch):
    """Kernels at another level of optimisation than the rest, and one SIMD level alone."""
    program = models.REGULAR[name]()
    plain, chosen = codegen.compile(program, optimize=0), codegen.compile(program)
    assert plain.info()["simd"] == chosen.info()["simd"]
    monkeypatch.setenv("NN_SIMD", "baseline")
    everything = [plain, chosen, codegen.compile(program)]
    data = many(program, 40)
    for batch_size in (1, 20):
        for model in everything:
            model.train(*data, batch_size=batch_size)
        assert len({state(model) for model in everything}) == 1


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: codegen.compile(line().loss),
            TypeError,
            r"must be a codegen\.Program, not Value\. .*loss=the Value",
        ),
        (lambda: codegen.compile("model.py"), TypeError, r"codegen\.compile\(codegen\.load\('model\.py'\)\)"),
        (lambda: codegen.compile(Path("model.py")), TypeError, r"codegen\.load\('model\.py'\)"),
        (lambda: codegen.compile(line), TypeError, r"not function\. Call it.*codegen\.compile\(line\(\)\)"),
        (lambda: codegen.compile(Program), TypeError, "not Program, the class itself"),
        (lambda: codegen.compile([line()]), TypeError, "not list$"),
        (lambda: codegen.compile(None), TypeError, "not NoneType$"),
        (lambda: codegen.compile_program(line().loss), TypeError, r"must be a codegen\.Program, not Value"),
        (lambda: codegen.compile(line(), dtype="float16"), ValueError, "float16"),
        (lambda: codegen.compile(line(), fma=1), TypeError, "fma must be True or False"),
        (lambda: codegen.compile(line(), optimize=4), ValueError, "optimize must be 0, 1, 2 or 3, got 4"),
        (lambda: codegen.compile(line(), optimize="fast"), ValueError, "optimize must be .* got 'fast'"),
        (lambda: codegen.compile(line(), optimize=True), ValueError, "optimize must be .* got True"),
        (lambda: codegen.compile(line(), optimize=1.0), ValueError, r"optimize must be .* got 1\.0"),
        (lambda: codegen.compile(line(), lowering="vector"), ValueError, "lowering must be .* got 'vector'"),
        (lambda: codegen.compile(line(), flags="-O2"), TypeError, "flags must be a list of strings, not '-O2'"),
        (lambda: codegen.compile(line(), flags=[2]), TypeError, "flags must be a list of strings"),
        (lambda: codegen.compile(line(), flags=3), TypeError, "flags must be a list of strings"),
        (lambda: codegen.compile(line(), compiler=3), TypeError, "compiler must be the command of a C compiler, not 3"),
        (lambda: codegen.compile(line(), flags=["--no-such-option"]), codegen.CompilerError, "no-such-option"),
        (
            lambda: codegen.compile(line(), compiler="no-cc"),
            codegen.CompilerError,
            r"no C compiler 'no-cc'\.\nIt takes",
        ),
    ],
)
def test_wrong_uses_say_what_is_wrong(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_texts_are_short():
    program = mnist_program()
    assert repr(program) == (
        "<codegen.Program MLP 784-50-10, relu, softmax cross-entropy: 784 Pixels, 39,760 parameters (layers.0.weight "
        "(50, 784), layers.0.bias (50,), layers.1.weight (10, 50), layers.1.bias (10,)), outputs ['logits', "
        "'probabilities'], float64>"
    )
    text = repr(codegen.compile_program(line(), "line"))
    assert text.startswith("<codegen.Compiled: ")
    assert len(text) < 150
    model = codegen.compile(line(description="a line, größer"))
    level = model.info()["simd"]
    assert repr(model) == f"<codegen.Model a line, größer: 2 parameters, 1 inputs, strict float64, {level}>"
    assert "zero_grad(), forward(targets, inputs)" in inspect.getdoc(model)


def test_a_program_of_parameters_alone():
    p = [Value(1.5), Value(2.0)]
    model = codegen.compile(Program(Floats([]), None, {"p": p}, loss=p[0] * p[1]))
    assert model.forward(None, array("d")) == 3.0


def test_models_are_not_made_by_hand():
    with pytest.raises(TypeError, match="cannot create"):
        type(codegen.compile(line()))()


def test_a_model_in_a_cycle_comes_back():
    program = line()
    model = codegen.compile(program)
    cycle = [model]
    cycle.append(cycle)
    gone = weakref.ref(model)
    del model, cycle
    gc.collect()
    assert gone() is None


def test_float32_weights_are_rounded_once():
    model = codegen.compile(line(weight=0.1), dtype="float32")
    assert model.data(0) == float(np.float32(0.1))
    assert codegen.compile(replace(line(weight=0.1), dtype="float32")).data(0) == model.data(0)

"""Several inputs and targets by name, tokens, and models without inputs, against the engine, bit for bit.

What this kind of test is for: a part that lands in the wrong place, is scaled with another rounding, or loses a row; a
mapping of wrong names or lengths that is accepted.
"""

from __future__ import annotations

import ctypes
import random
import re
import subprocess
from array import array
from dataclasses import replace
from pathlib import Path
from shutil import which
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from harness import Extension, Generated, bits, gradients, slow_but
from models import values
from plain_c import COMPILERS, FLAGS, NUMBERS, REALS

import codegen
from codegen import Floats, Label, ModelWarning, Pixels, Program, Tokens
from codegen.passes.freeze import frozen_program, weights_of
from micrograd.engine import Value
from micrograd.functional import cross_entropy, total
from micrograd.nn import MLP
from micrograd.noise import Bernoulli, Noise
from tools.fuzz_compiler.reference import Engine

SCALE = 1 / 255
COUNT = 12
RNG = np.random.default_rng(3)
X = {
    "pixels": RNG.integers(0, 256, (COUNT, 6), dtype=np.uint8) * RNG.integers(0, 2, (COUNT, 6), dtype=np.uint8),
    "maß": RNG.normal(size=(COUNT, 2)),
    "word": RNG.integers(0, 4, (COUNT, 3)),
}
T = {"weight": RNG.normal(size=COUNT), "label": RNG.integers(0, 3, COUNT)}


def mixed(dtype: str = "float64") -> Program:
    random.seed(4)
    pixels, size, word = values(6), values(2), [values(4) for _ in range(3)]
    label, weight = values(3), values(1)
    net = MLP(20, [7, 4])
    out = net([*pixels, *size, *word[0], *word[1], *word[2]])
    return Program(
        inputs={"pixels": Pixels(pixels, SCALE), "maß": Floats(size), "word": Tokens(word)},
        targets={"weight": Floats(weight), "label": Label(label)},
        parameters=net.named_parameters(),
        loss=cross_entropy(out[:3], label) + (out[3] - weight[0]) ** 2,
        outputs={"weight": out[3:], "logits": out[:3]},
        dtype=dtype,
    )


def one_hot(number: int, classes: int) -> list[float]:
    return [float(number == i) for i in range(classes)]


def inputs_of(row: int) -> list[float]:
    words = [x for word in X["word"][row].tolist() for x in one_hot(word, 4)]
    return [*(int(x) * SCALE for x in X["pixels"][row]), *X["maß"][row].tolist(), *words]


def targets_of(row: int) -> list[float]:
    return [float(T["weight"][row]), *one_hot(T["label"][row], 3)]


def part_of(mapping: dict[str, Any], row: int) -> dict[str, Any]:
    return {name: part[row] for name, part in mapping.items()}


def module_of(kind: str, program: Program, folder: Path) -> ModuleType:
    if kind == "python":
        return Generated(program, folder).module
    return Extension(program, folder, kind, flags=["-O0"]).module


KINDS = ["loops", "straightline", "python"]
each_kind = pytest.mark.parametrize("kind", slow_but(["loops"], KINDS))


@pytest.fixture(scope="module", params=KINDS)
def mixed_module(request, tmp_path_factory) -> ModuleType:
    return module_of(request.param, mixed(), tmp_path_factory.mktemp("mixed"))


def test_each_part_arrives_as_the_engine_has_it(mixed_module):
    engine = Engine(mixed())
    mixed_module.reset()
    for row in range(COUNT):
        expected = engine.run(targets_of(row), inputs_of(row))
        assert bits([mixed_module.forward(part_of(T, row), part_of(X, row))]) == bits([expected])
        mixed_module.backward()
        engine.backward()
        found = mixed_module.outputs(part_of(X, row))
        assert {name: bits(x) for name, x in found.items()} == {n: bits(x) for n, x in engine.outputs().items()}
        assert mixed_module.predict(part_of(X, row)) == int(np.argmax(found["logits"]))
    assert bits(gradients(mixed_module)) == bits(engine.grads)


def test_many_examples_are_those_one_by_one(mixed_module):
    mixed_module.reset()
    losses = [mixed_module.forward(part_of(T, row), part_of(X, row)) for row in range(COUNT)]
    classes = [mixed_module.predict(part_of(X, row)) for row in range(COUNT)]
    total = 0.0
    for loss in losses:
        total += loss
    right = float(np.mean(np.array(classes) == T["label"]))
    assert mixed_module.evaluate(X, T) == (total / COUNT, right)
    assert 0 < right < 1
    assert [*mixed_module.predict_batch(X)] == classes
    by_hand = [0.0] * mixed_module.info()["parameters"]
    mixed_module.zero_grad()
    for row in range(COUNT):
        mixed_module.forward(part_of(T, row), part_of(X, row))
        mixed_module.backward()
    by_hand = gradients(mixed_module)
    assert mixed_module.train(X, T, batch_size=COUNT, learning_rate=0.0) == [total / COUNT]
    assert bits(gradients(mixed_module)) == bits(by_hand)


LAYOUTS = {
    "lists": lambda part: part.tolist(),
    "flat": np.ravel,
    "Fortran": lambda part: part if part.dtype == np.uint8 else np.asfortranarray(part),
    "narrow": lambda part: part.astype("b") if part.dtype == np.int64 else part,
    "in place": lambda part: part.astype("i") if part.dtype == np.int64 else part,
    "a column": lambda part: part[:, None] if part.ndim == 1 else part,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_parts_in_any_layout(layout, mixed_module):
    def give(mapping: dict[str, Any]) -> dict[str, Any]:
        return {name: part if name == "pixels" else LAYOUTS[layout](part) for name, part in mapping.items()}

    mixed_module.reset()
    assert mixed_module.evaluate(give(X), give(T)) == mixed_module.evaluate(X, T)
    assert mixed_module.evaluate(dict(reversed(X.items())), T) == mixed_module.evaluate(X, T)


X_NAMES = "inputs must have the names 'pixels', 'maß', 'word': "
MAPPING = "inputs must be a mapping with the names 'pixels', 'maß', 'word', got <class '"
MULTIPLE = "inputs['maß'] must hold a multiple of 2 float64, and at least one row, got "
REFUSED: list[tuple[Any, Any, type[Exception], str]] = [
    (None, T, TypeError, MAPPING + "NoneType'>"),
    (X["maß"], T, TypeError, MAPPING + "numpy.ndarray'>"),
    ([X], T, TypeError, MAPPING + "list'>"),
    ("pixels", T, TypeError, MAPPING + "str'>"),
    ({}, T, ValueError, X_NAMES + "'pixels' is missing"),
    ({k: v for k, v in X.items() if k != "word"}, T, ValueError, X_NAMES + "'word' is missing"),
    (X | {"wörd": 1}, T, ValueError, X_NAMES + "'wörd' is none of them"),
    (X | {"\ud800": 1}, T, ValueError, X_NAMES + r"'\ud800' is none of them"),
    (X | {0: 1}, T, ValueError, X_NAMES + "0 is none of them"),
    (X | {"pixels": X["pixels"] / 255}, T, TypeError, "inputs['pixels'] must be a buffer of unsigned bytes"),
    (X | {"pixels": X["pixels"].T}, T, TypeError, "inputs['pixels'] must be a C-contiguous buffer"),
    (X | {"maß": "ab"}, T, TypeError, "inputs['maß'] must be real numbers, got <class 'str'>"),
    (X | {"maß": X["maß"].T}, T, ValueError, "inputs['maß'] must have 2 numbers in each row, got the shape (2, 12)"),
    (X | {"maß": [1] * 5}, T, ValueError, MULTIPLE + "5"),
    (X | {"maß": []}, T, ValueError, MULTIPLE + "0"),
    (X | {"maß": X["maß"][1:]}, T, ValueError, "inputs['maß'] must have as many rows as inputs['pixels'], 12, got 11"),
    (X | {"word": X["word"] + 0.0}, T, TypeError, "inputs['word'] must be ints, got a buffer with format 'd'"),
    (X | {"word": X["word"] + 1}, T, ValueError, "inputs['word']: token "),
    (X | {"word": np.full((COUNT, 3), 4, "i")}, T, ValueError, "inputs['word']: token 0 must be 0..3, got 4"),
    (X | {"word": np.full((COUNT, 3), -1, "i")}, T, ValueError, "inputs['word']: token 0 must be 0..3, got -1"),
    (X | {"word": np.full((COUNT, 3), -1)}, T, ValueError, "inputs['word']: token 0 must be 0..3, got -1"),
    (X | {"word": np.full((COUNT, 3), 2**32)}, T, ValueError, f"inputs['word']: token 0 must be 0..3, got {2**32}"),
    (X | {"word": [[0, 1, 2]]}, T, ValueError, "inputs['word'] must have as many rows as inputs['pixels'], 12, got 1"),
    (X, None, TypeError, "targets must be a mapping with the names 'weight', 'label', got <class 'NoneType'>"),
    (X, T | {"label": T["label"][1:]}, ValueError, "targets['label'] must have as many rows as the inputs, 12, got 11"),
    (X, T | {"label": T["label"] + 3}, ValueError, "targets['label']: label 0 must be 0..2, got "),
]  # fmt: skip


def test_what_is_refused_says_which_part_and_changes_nothing(mixed_module):
    mixed_module.reset()
    mixed_module.train(X, T, batch_size=5)
    before = bits([mixed_module.data(i) for i in range(mixed_module.info()["parameters"])])
    for images, labels, error, message in REFUSED:
        for call in (mixed_module.train, mixed_module.evaluate):
            with pytest.raises(error, match="^" + re.escape(message)):
                call(images, labels)
        if labels is T:
            with pytest.raises(error, match="^" + re.escape(message)):
                mixed_module.predict_batch(images)
    one, label = part_of(X, 0), part_of(T, 0)
    for wrong, message in (
        (one | {"word": 3}, "inputs['word'] must hold 3 ints, got 1"),
        (one | {"word": [0, 4, 0]}, "inputs['word']: token 1 must be 0..3, got 4"),
        (one | {"maß": (1.0,)}, "inputs['maß'] must hold 2 float64, got 1"),
        (X, "inputs['pixels'] must hold 6 unsigned bytes, got 72"),
    ):
        with pytest.raises(ValueError, match="^" + re.escape(message)):
            mixed_module.forward(label, wrong)
        with pytest.raises(ValueError, match="^" + re.escape(message)):
            mixed_module.outputs(wrong)
    with pytest.raises(ValueError, match=re.escape("targets['label']: label 0 must be 0..2, got 3")):
        mixed_module.forward(label | {"label": 3}, one)
    assert bits([mixed_module.data(i) for i in range(mixed_module.info()["parameters"])]) == before


def test_a_mapping_of_another_kind(mixed_module):
    class Columns:
        """As a DataFrame: keys and columns, and nothing else."""

        def __init__(self, columns: dict[str, Any]) -> None:
            self.columns = columns

        def keys(self) -> list[str]:
            return [*self.columns]

        def __getitem__(self, name: str) -> Any:
            return self.columns[name]

        def __len__(self) -> int:
            return COUNT

    assert mixed_module.evaluate(Columns(X), Columns(T)) == mixed_module.evaluate(X, T)


def test_info_and_help_say_what_to_pass(mixed_module):
    info = mixed_module.info()
    assert info["input_type"] == "{'pixels': 6 pixels, 'maß': 2 floats, 'word': 3 tokens below 4}"
    assert info["target_type"] == "{'weight': 1 float, 'label': 1 label below 3}"
    assert (info["inputs"], info["targets"]) == (20, 4)
    if info["simd"] != "none":
        assert info["input_type"] in mixed_module.forward.__doc__
        assert info["target_type"] in mixed_module.train.__doc__


@pytest.mark.slow
def test_float32_scales_pixels_as_pixels_alone_are_scaled(tmp_path):
    """The output p * x of the two models has the same bits for every byte."""

    def program(by_name: bool) -> Program:
        x, y, p = values(1), values(1), [Value(1.0), Value(1.0)]
        if by_name:
            inputs: Any = {"byte": Pixels(x, SCALE), "real": Floats(y)}
            return Program(inputs, None, {"p": p}, p[0] * x[0] + p[1] * y[0], {"x": [p[0] * x[0]]}, dtype="float32")
        return Program(Pixels(x, SCALE), None, {"p": p[:1]}, p[0] * x[0], {"x": [p[0] * x[0]]}, dtype="float32")

    named = module_of("loops", program(True), tmp_path)
    alone = module_of("loops", program(False), tmp_path)
    for byte in range(256):
        assert named.outputs({"byte": bytes([byte]), "real": 0.0}) == alone.outputs(bytes([byte]))


def test_a_frozen_model_takes_parts_too(tmp_path, mixed_module):
    program = mixed()
    frozen = module_of("loops", frozen_program(program, weights_of(program)), tmp_path)
    mixed_module.reset()
    assert frozen.predict_batch(X) == mixed_module.predict_batch(X)
    assert frozen.outputs(part_of(X, 1)) == mixed_module.outputs(part_of(X, 1))
    with pytest.raises(ValueError, match="'word' is missing"):
        frozen.outputs({"pixels": bytes(6), "maß": [1, 2]})


def few_floats() -> Program:
    """So few that the loop over whole cache lines has nothing to do."""
    x, w = values(4), [[Value(0.1 * i - 0.2 * j) for i in range(4)] for j in range(3)]
    out = [total([a * b for a, b in zip(x, row, strict=True)]) for row in w]
    return Program({"x": Floats(x)}, None, {"w": w}, None, {"parts": out})


def two_pictures() -> Program:
    """Bytes of one scale, which a module keeps as bytes."""
    left, right, w = values(6), values(3), [Value(0.1 * i - 0.4) for i in range(9)]
    out = [total([a * b for a, b in zip([*left, *right], w, strict=True)]).tanh()]
    return Program({"left": Pixels(left, SCALE), "right": Pixels(right, SCALE)}, None, {"w": w}, None, {"out": out})


@pytest.mark.skipif(not COMPILERS, reason="no C compiler: gcc, clang or tcc")
@pytest.mark.parametrize("name", ["mixed", "mixed, float32", "tokens", "tokens, int8", "two pictures", "few"])
def test_plain_c_that_only_predicts_takes_parts(name, tmp_path):
    program = {"mixed": mixed, "tokens": language, "two pictures": two_pictures, "few": few_floats}[
        name.partition(",")[0]
    ]()
    if "float32" in name:
        program = replace(program, dtype="float32")
    if "int8" in name:
        program = replace(program, storage="int8")
    frozen = frozen_program(program, weights_of(program))
    module, real = module_of("loops", frozen, tmp_path), REALS[frozen.dtype]
    given = {"mixed": X, "few": {"x": RNG.normal(size=(COUNT, 4))}, "tokens": {"": RNG.integers(0, 5, (COUNT, 3))}}.get(
        name.partition(",")[0], {"left": X["pixels"], "right": X["pixels"][:, ::2]}
    )
    for file, text in codegen.compile_program(frozen, "plain", target="c").files.items():
        (tmp_path / file).write_text(text)
    size = "unsigned size_of(void); unsigned size_of(void) { return sizeof(struct plain_workspace); }"
    (tmp_path / "size.c").write_text(f'#include "plain.h"\n{size}\n')
    for compiler in COMPILERS:
        flags = [] if compiler == "tcc" else [*FLAGS, "-O2", "-ffp-contract=off"]
        command = [compiler, *flags, "-shared", "-fPIC", "plain.c", "size.c", "-o", f"{compiler}.so"]
        subprocess.run(command, cwd=tmp_path, check=True)
        if compiler == "gcc" and which("g++"):
            command = ["g++", "-x", "c++", *FLAGS[1:], "-std=c++17", "-O2", "-c", "plain.c", "-o", "plain.o"]
            subprocess.run(command, cwd=tmp_path, check=True)
        library = ctypes.CDLL(str(tmp_path / f"{compiler}.so"))
        workspace = ctypes.create_string_buffer(library.size_of())
        for row in range(COUNT):
            example = {name: np.array(part[row]) for name, part in given.items()}
            passed = [example[part.name].astype(NUMBERS.get(part.kind, real)) for part in frozen.input_parts]
            arguments = [workspace, *(one.ctypes.data_as(ctypes.c_void_p) for one in passed)]
            expected = module.outputs(example.get("", example))
            for output, numbers in expected.items():
                found = np.zeros(len(numbers), real)
                library[f"plain_{output}"](*arguments, found.ctypes.data_as(ctypes.c_void_p))
                assert bits(found.tolist()) == bits(numbers), (compiler, output)
            if frozen.prediction is not None:
                assert library.plain_predict(*arguments) == module.predict(example.get("", example))


# Tokens alone


def language(positions: int = 3, vocabulary: int = 5, shared: bool = True) -> Program:
    """Embeddings, a layer, and the word that comes next."""
    rng = random.Random(2)
    one_hot, after = [values(vocabulary) for _ in range(positions)], values(vocabulary)
    table = [[Value(rng.uniform(-1, 1)) for _ in range(4)] for _ in range(vocabulary)]
    embedded = []
    for row in one_hot:
        for j in range(4):
            total = row[0] * table[0][j]
            for i in range(1, vocabulary):
                total = total + row[i] * table[i][j]
            embedded.append(total)
    random.seed(3)
    net = MLP(4 * positions, [vocabulary])
    logits = net(embedded)
    return Program(
        Tokens(one_hot),
        Label(after),
        {"table": table} | net.named_parameters(),
        cross_entropy(logits, after),
        {"logits": logits},
    )


@pytest.mark.slow
@each_kind
def test_tokens_alone_have_no_name(kind, tmp_path):
    program, engine = language(), Engine(language())
    module = module_of(kind, program, tmp_path)
    sentences = RNG.integers(0, 5, (40, 3))
    after = sentences[:, 1]
    for tokens, label in zip(sentences.tolist()[:5], after.tolist(), strict=False):
        inputs = [x for token in tokens for x in one_hot(token, 5)]
        assert bits([module.forward(label, tokens)]) == bits([engine.run(one_hot(label, 5), inputs)])
        module.backward()
        engine.backward()
        assert {n: bits(x) for n, x in module.outputs(bytes(tokens)).items()} == {
            n: bits(x) for n, x in engine.outputs().items()
        }
    assert bits(gradients(module)) == bits(engine.grads)
    losses = module.train(sentences, after, epochs=30, batch_size=8, seed=1, learning_rate=0.5)
    assert losses[-1] < losses[0] / 2
    for wrong, error, message in (
        (sentences.T, ValueError, "tokens must have 3 numbers in each row, got the shape (3, 40)"),
        (sentences + 1, ValueError, "token "),
        (sentences + 0.5, TypeError, "tokens must be ints, got a buffer with format 'd'"),
        (sentences.ravel()[1:], ValueError, "tokens must hold a multiple of 3 ints, and at least one row, got 119"),
        ({"tokens": sentences}, TypeError, "tokens must be ints, got <class 'dict'>"),
    ):
        with pytest.raises(error, match="^" + re.escape(message)):
            module.evaluate(wrong, after)
    with pytest.raises(ValueError, match=re.escape("token 2 must be 0..4, got 5")):
        module.predict([0, 1, 5])
    with pytest.raises(ValueError, match="labels must hold 40 unsigned bytes, got 39"):
        module.evaluate(sentences, after[1:])


@pytest.mark.slow
@each_kind
def test_tokens_as_targets(kind, tmp_path):
    """A Label of several positions: the loss of each word of a sentence."""
    x, t = values(2), [values(3), values(3)]
    w = [[Value(0.1 * i - 0.2 * j) for j in range(2)] for i in range(3)]
    logits = [[row[0] * x[0] + row[1] * x[1] * (k + 1) for row in w] for k in range(2)]
    loss = cross_entropy(logits[0], t[0]) + cross_entropy(logits[1], t[1])
    program = Program(Floats(x), Tokens(t), {"w": w}, loss, {"logits": [*logits[0], *logits[1]]})
    module, engine = module_of(kind, program, tmp_path), Engine(program)
    expected = engine.run([*one_hot(2, 3), *one_hot(0, 3)], [0.3, -0.7])
    assert bits([module.forward([2, 0], [0.3, -0.7])]) == bits([expected])
    assert module.evaluate([[0.3, -0.7]], [[2, 0]]) == (expected, None)
    with pytest.raises(ValueError, match=re.escape("token 1 must be 0..2, got 3")):
        module.forward([2, 3], [0.3, -0.7])
    with pytest.raises(ValueError, match="targets must have as many rows as the inputs, 1, got 2"):
        module.evaluate([[0.3, -0.7]], [[2, 0], [1, 1]])


@pytest.mark.slow
def test_a_token_by_itself(tmp_path):
    one_hot, w = values(4), values(4)
    out = sum((a * b for a, b in zip(one_hot, w, strict=True)), Value(0.0))
    with pytest.warns(ModelWarning):
        module = module_of("loops", Program(Tokens(one_hot), None, {"w": w}, out * out, {"out": [out]}), tmp_path)
    module.load_state_dict({"w": array("d", [1.0, 2.0, 3.0, 4.0])})
    assert module.outputs(2) == module.outputs([2]) == {"out": (3.0,)}
    assert module.evaluate([0, 3], None) == (8.5, None)


@pytest.mark.slow
def test_rows_of_a_token_are_skipped_and_updated_alone(tmp_path):
    """One token with a table of its own: a row tensor, so nan in another row stays there, as in the engine's sums."""
    program = language(1, 5)
    module = module_of("loops", program, tmp_path)
    assert "#define TOKEN_TABLE_COUNT 1" in codegen.compile_program(program).text
    before = np.array(module.state_dict()["table"])
    module.train([[3]], [1])
    changed = (np.array(module.state_dict()["table"]) != before).any(axis=1)
    assert changed.tolist() == [False, False, False, True, False]


# Declarations


def declared(**changes: Any) -> Program:
    x, y, w = values(2), values(1), values(2)
    given: dict[str, Any] = {"inputs": {"x": Floats(x)}, "targets": {"y": Floats(y)}}
    given |= {name: change(x, y) for name, change in changes.items()}
    return Program(parameters={"w": w}, loss=w[0] * x[0] + w[1] * x[1] - y[0], **given)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"inputs": lambda x, y: {}}, ValueError, "inputs must not be an empty mapping"),
        ({"targets": lambda x, y: {}}, ValueError, "targets must not be an empty mapping"),
        ({"inputs": lambda x, y: {"x": x}}, TypeError, "inputs['x'] must be Pixels or Floats or Tokens, not list"),
        ({"inputs": lambda x, y: {"x": Label(x)}}, TypeError, "inputs['x'] must be Pixels or Floats or T"),
        ({"targets": lambda x, y: {"y": Pixels(y)}}, TypeError, "targets['y'] must be Label or Floats or T"),
        ({"inputs": lambda x, y: {"": Floats(x)}}, ValueError, "a name of inputs must not be empty"),
        ({"inputs": lambda x, y: {3: Floats(x)}}, TypeError, "a name of inputs must be a string, not 3"),
        ({"inputs": lambda x, y: {"x": Floats([])}}, ValueError, "inputs['x'] must have at least one Value"),
        ({"inputs": lambda x, y: {"x": Floats(x), "z": Floats(x[:1])}}, ValueError,
         "one Value is declared twice, as inputs['x'][0] and as inputs['z'][0]"),
        ({"inputs": lambda x, y: {"x": Pixels(x, float("nan"))}}, ValueError, "the scale of inputs['x'] must be"),
        ({"inputs": lambda x, y: Tokens([])}, ValueError, "inputs: Tokens have rows of one length, at least 1, got []"),
        ({"inputs": lambda x, y: Tokens([x, y])}, ValueError, "inputs: Tokens have rows of one length"),
        ({"inputs": lambda x, y: Tokens(x[0])}, TypeError, "inputs: Tokens take a list of Values"),
        ({"inputs": lambda x, y: Tokens([x[0], [x[1]]])}, TypeError, "inputs: Tokens take a list of Values"),
        ({"inputs": lambda x, y: Tokens([x[0] + 1, x[1]])}, ValueError, "inputs: element 0 is computed by '+'"),
        ({"targets": lambda x, y: {"y": Label([*y, 3])}}, TypeError, "targets['y']: element 1 must be a Value"),
    ],
)  # fmt: skip
def test_declarations_that_make_no_sense(changes, error, message):
    with pytest.raises(error, match="^" + re.escape(message)):
        declared(**changes)


def test_what_is_just_allowed():
    """A vocabulary of one word, an array of tokens, a class that has no name, what is drawn always."""
    assert declared(inputs=lambda x, y: Tokens([[x[0]], [x[1]]])).input_parts[0].classes == 1
    (part,) = declared(inputs=lambda x, y: Tokens(np.array(x, dtype=object).reshape(1, 2))).input_parts
    assert (part.numbers, part.classes, part.one("input")) == (1, 2, "token")
    assert declared(noise=lambda x, y: Noise(values(1), Bernoulli(1.0))).noises[0].distribution.probability == 1.0


def test_warnings_name_the_part():
    x, word, w = values(2), [values(2)], values(1)
    program = Program({"x": Floats(x), "word": Tokens(word)}, None, {"w": w}, w[0] * x[0] * word[0][1])
    with pytest.warns(
        ModelWarning, match=re.escape("nothing reads 2 of 4 inputs: inputs['x'][1], inputs['word'][0, 0]")
    ):
        codegen.compile_program(program)


def test_the_prediction_is_the_output_of_the_label():
    assert mixed().prediction == "logits"
    assert declared().prediction is None


# Without inputs


def physics(targets: str) -> Program:
    """u'' = 0 at fixed points, with u(1) given or drawn."""
    w, b, t = Value(0.3), Value(-0.2), values(2)
    loss = (w * w + b - 0.5) ** 2 + (w - b * b) ** 2
    if targets == "floats":
        loss = loss + (w - t[0]) ** 2 * t[1]
    elif targets == "labels":
        loss = cross_entropy([w, b], t)
    kind = {"none": None, "floats": Floats(t), "labels": Label(t)}[targets]
    return Program(Floats([]), kind, {"w": w, "b": b}, loss, {"wb": [w, b]}, learning_rate=0.1)


@pytest.mark.slow
@each_kind
def test_a_model_without_inputs_trains_an_example_an_epoch(kind, tmp_path):
    module, engine = module_of(kind, physics("none"), tmp_path), Engine(physics("none"))
    losses = module.train(None, None, epochs=100)
    for loss in losses:
        assert bits([loss]) == bits([engine.run([], [])])
        engine.zero_grad()
        engine.backward()
        engine.update()
    assert bits([module.data(0), module.data(1)]) == bits(engine.data)
    assert losses[-1] < losses[0] / 10
    assert module.forward(None, None) == module.evaluate(None, None)[0] == engine.run([], [])
    assert module.outputs(None) == {"wb": tuple(engine.data)}
    for wrong in (b"", [], [[1.0]], 0):
        with pytest.raises(TypeError, match="rows must be None: this model has no inputs"):
            module.train(wrong, None)


@pytest.mark.slow
@each_kind
def test_without_inputs_the_targets_say_how_many_examples_there_are(kind, tmp_path):
    module = module_of(kind, physics("floats"), tmp_path)
    targets = RNG.normal(size=(70, 2))
    losses = [module.forward(row, None) for row in targets]
    assert module.evaluate(None, targets)[0] == sum(losses[1:], losses[0]) / 70
    for batch in (1, 8, 70):
        module.reset()
        expected = array("d", [module.data(0), module.data(1)])
        module.train(None, targets, batch_size=batch, learning_rate=0.01)
        found = [module.data(0), module.data(1)]
        module.reset()
        for start in range(0, 70, batch):
            module.zero_grad()
            for row in targets[start : start + batch]:
                module.forward(row, None)
                module.backward()
            module.update(0, len(targets[start : start + batch]), learning_rate=0.01)
        assert bits(found) == bits([module.data(0), module.data(1)]) != bits(expected)
    for wrong, message in (
        ([], "targets must hold a multiple of 2 float64, and at least one, got 0"),
        ([1.0, 2.0, 3.0], "targets must hold a multiple of 2 float64, and at least one, got 3"),
        (np.zeros((2, 3)), "targets must have 2 numbers in each row, got the shape (2, 3)"),
    ):
        with pytest.raises(ValueError, match="^" + re.escape(message)):
            module.train(None, wrong)


@pytest.mark.slow
@each_kind
def test_without_inputs_but_with_labels(kind, tmp_path):
    module = module_of(kind, physics("labels"), tmp_path)
    labels = [0, 0, 1, 0, 1]
    losses = [module.forward(label, None) for label in labels]
    assert module.evaluate(None, labels) == (sum(losses[1:], losses[0]) / 5, 3 / 5)
    assert module.predict(None) == 0
    assert module.predict_batch(None) == b"\0"
    with pytest.raises(ValueError, match=re.escape("label 1 must be 0..1, got 2")):
        module.train(None, [0, 2])

"""Tokens that select rows of a table by index: a row that is missed, added twice, in another order, or not cleared.

Declared, a token is 1 among zeros, and the engine computes it so. The tables of a module are read by index, which is
the same only while 0 times a number is 0: so inf and nan are written everywhere, into rows that occur and others.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from harness import bits, gradients, parameters
from models import total, values, weights
from test_schedule import check

import codegen
from codegen import Floats, Label, Pixels, Program, Tokens
from codegen.passes.freeze import weights_of
from codegen.pipeline import build_graph, reroll, token_parts
from micrograd import optim
from micrograd.engine import Value
from micrograd.functional import cross_entropy
from micrograd.nn import MLP, Embedding
from tools.fuzz_compiler.reference import Engine

WORDS, WIDTH, CLASSES = 11, 3, 4


def tokens(count: int, words: int = WORDS) -> list[list[Value]]:
    return [values(words) for _ in range(count)]


def program(inputs: Any, parameters: dict[str, Any], features: list[Value], **options: Any) -> Program:
    """A classifier on some features."""
    net, label = MLP(len(features), [5, CLASSES]), values(CLASSES)
    logits = net(features)
    loss = cross_entropy(logits, label)
    return Program(inputs, Label(label), parameters | net.named_parameters(), loss, {"logits": logits}, **options)


def side_by_side(**options: Any) -> Program:
    words, table = tokens(3), Embedding(WORDS, WIDTH)
    return program(Tokens(words), {"e": table.weight}, [x for w in words for x in table(w)], **options)


def in_float32() -> Program:
    return side_by_side(dtype="float32")


def with_fma() -> Program:
    return side_by_side(fma=True)


def mean() -> Program:
    words, table = tokens(4), Embedding(WORDS, WIDTH)
    rows = [table(word) for word in words]
    return program(
        Tokens(words), {"e": table.weight}, [sum(column[1:], column[0]) / 4 for column in zip(*rows, strict=True)]
    )


def with_positions() -> Program:
    words, table, places = tokens(3), Embedding(WORDS, WIDTH), weights(random.Random(1), 9)
    rows = [x for word in words for x in table(word)]
    features = [(x + p).tanh() for x, p in zip(rows, places, strict=True)]
    return program(Tokens(words), {"e": table.weight, "p": places}, features)


def recurrent() -> Program:
    words, table = tokens(4), Embedding(WORDS, WIDTH)
    w = [weights(random.Random(i), WIDTH) for i in range(WIDTH)]
    state = [Value(0.0) for _ in range(WIDTH)]
    constants = list(state)
    for word in words:
        x = table(word)
        state = [
            total([*(a * s for a, s in zip(row, state, strict=True)), e]).tanh() for row, e in zip(w, x, strict=True)
        ]
    return program(Tokens(words), {"e": table.weight, "w": w}, state, constants=constants)


def one_token() -> Program:
    words = tokens(1)
    table = Embedding(WORDS, WIDTH)
    return program(Tokens(words), {"e": table.weight}, table(words[0]))


def longer_rows() -> Program:
    """More than a cache line, and a rest."""
    words, table = tokens(2), Embedding(WORDS, 11)
    return program(Tokens(words), {"e": table.weight}, [x for word in words for x in table(word)])


def one_number() -> Program:
    words, table = tokens(3), Embedding(WORDS, 1)
    return program(Tokens(words), {"e": table.weight}, [x for word in words for x in table(word)])


def with_momentum() -> Program:
    """A step moves rows without gradients too."""
    return side_by_side(update=optim.sgd(0.9))


def with_clipped_norm() -> Program:
    """Rows without gradients stay; the norm is that of all gradients."""
    return side_by_side(update=optim.clip_norm(optim.sgd(), 0.25))


def two_rules() -> Program:
    words, first, second = tokens(2), Embedding(WORDS, WIDTH), Embedding(WORDS, 2)
    tables = {"a": first.weight, "b": second.weight}
    update = {"a": optim.adam(), "*": optim.sgd()}
    return program(Tokens(words), tables, [*first(words[0]), *second(words[1])], update=update)


def two_tables() -> Program:
    words, first, second = tokens(3), Embedding(WORDS, WIDTH), Embedding(WORDS, 2)
    rows = [*first(words[0]), *second(words[1]), *second(words[2])]
    return program(Tokens(words), {"a": first.weight, "b": second.weight}, rows)


def shared_by_parts() -> Program:
    left, size, right, other = tokens(2), values(2), tokens(1), tokens(2, 7)
    shared, own = Embedding(WORDS, WIDTH), Embedding(7, 2)
    rows = [x for word in [*left, *right] for x in shared(word)] + [x for word in other for x in own(word)]
    kinds = {"left": Tokens(left), "size": Floats(size), "other": Tokens(other), "right": Tokens(right)}
    return program(kinds, {"shared": shared.weight, "own": own.weight}, [*rows, *size])


def with_pixels() -> Program:
    pixels, words, table = values(6), tokens(2), Embedding(WORDS, WIDTH)
    rows = [x for word in words for x in table(word)]
    kinds = {"words": Tokens(words), "pixels": Pixels(pixels, 1 / 255)}
    return program(kinds, {"e": table.weight}, [*rows, *pixels], input_gradients=True)


def in_parts() -> Program:
    """Each half of a row has a use of its own, and another place in its gradient."""
    words, table = tokens(3), Embedding(WORDS, 6)
    first, second, third = (table(word) for word in words)
    crossed = [a * b for a, b in zip([*first[:3], *second[:3]], [*second[3:], *third[:3]], strict=True)]
    return program(Tokens(words), {"e": table.weight}, [*crossed, *first[3:], *third[3:]])


def pairs_of(rows: list[list[Value]]) -> list[Value]:
    """Factors of fields (Juan et al., 2016): which part of a row is read depends on the other token."""
    pairs = [(a, b) for b in range(len(rows)) for a in range(b)]
    return [total([rows[a][2 * b + i] * rows[b][2 * a + i] for i in range(2)]) for a, b in pairs]


def of_fields() -> Program:
    words, table = tokens(4), Embedding(WORDS, 4 * 2)
    return program(Tokens(words), {"v": table.weight}, pairs_of([table(word) for word in words]))


def each_of_a_field() -> Program:
    """A table for each: nothing reads what belongs to its own field."""
    words, tables = tokens(3), [Embedding(WORDS, 3 * 2) for _ in range(3)]
    named = {f"v{i}": table.weight for i, table in enumerate(tables)}
    return program(Tokens(words), named, pairs_of([t(word) for t, word in zip(tables, words, strict=True)]))


BY_INDEX = [
    side_by_side, in_float32, with_fma, mean, with_positions, recurrent, one_token, longer_rows, one_number,
    two_tables, with_momentum, with_clipped_norm, two_rules, shared_by_parts, with_pixels,
    in_parts, of_fields, each_of_a_field,
]  # fmt: skip


def tied() -> Program:
    """The table is read as a matrix too, so its gradient is more than the rows of tokens."""
    words, table = tokens(2), Embedding(WORDS, WIDTH)
    state = [(a + b).tanh() for a, b in zip(table(words[0]), table(words[1]), strict=True)]
    features = [total([w * s for w, s in zip(row, state, strict=True)]) for row in table.weight]
    return program(Tokens(words), {"e": table.weight}, features)


def observed() -> Program:
    """Something else reads a word."""
    words, table = tokens(2), Embedding(WORDS, WIDTH)
    return program(Tokens(words), {"e": table.weight}, [*table(words[0]), *table(words[1]), words[0][3]])


def in_one_layer() -> Program:
    """Numbers and words are the inputs of one sum."""
    size, words = values(2), tokens(2)
    return program({"size": Floats(size), "words": Tokens(words)}, {}, [*size, *words[0], *words[1]])


def half() -> Program:
    """One part is read by index, the other is not."""
    words, others, table = tokens(2), tokens(1), Embedding(WORDS, WIDTH)
    rows = [x for word in words for x in table(word)]
    return program({"words": Tokens(words), "others": Tokens(others)}, {"e": table.weight}, [*rows, others[0][2]])


def made(make: Callable[[], Program]) -> Program:
    random.seed(6)
    return make()


def by_index(make: Callable[[], Program]) -> tuple[str, ...]:
    subject = made(make)
    return tuple(part.name for part in reroll(build_graph(subject), subject, 8, token_parts(subject)).by_index)


def test_what_is_read_by_index():
    assert [by_index(make) for make in BY_INDEX[:13]] == [("",)] * 13
    assert by_index(shared_by_parts) == ("other", "left", "right")
    assert by_index(with_pixels) == ("words",)
    assert by_index(in_parts) == by_index(of_fields) == by_index(each_of_a_field) == ("",)
    assert by_index(tied) == by_index(observed) == by_index(in_one_layer) == ()
    assert by_index(half) == ("words",)
    explained = codegen.compile_program(made(side_by_side)).explanation()
    assert "e.rows[3i + j] = sum_k(token[11i + k] * e[j + 3k])" in explained
    assert "e.grad[3i + j] += sum_k(token[22 + i - 11k]" in explained


def test_rows_are_not_copied_again():
    """What is a copy of all rows of a table is where they are stored; what is one of a part of them is not."""
    assert "layers.0.weight[i + 5k] * e.rows[k])" in codegen.compile_program(made(side_by_side)).explanation()
    assert "group_0[3i + j] = e.rows[3 + 3i + j]" in codegen.compile_program(made(mean)).explanation()


def test_rows_may_be_outputs():
    """Nothing but the caller reads what was a copy of them."""
    words, table = tokens(3), Embedding(WORDS, WIDTH)
    rows = [x for word in words for x in table(word)]
    loss = total([(a * b).tanh() for a, b in pairwise(rows)])
    model = codegen.compile(Program(Tokens(words), None, {"e": table.weight}, loss, {"rows": rows}), optimize=0)
    examples = np.random.default_rng(1).integers(0, WORDS, (37, 3))
    expected = np.asarray(model.state_dict()["e"])[examples].reshape(37, 9)
    assert np.array_equal(model.outputs_batch(examples)["rows"], expected)
    assert model.outputs(examples[5])["rows"] == tuple(expected[5])


@pytest.mark.slow
@pytest.mark.parametrize("make", [mean, recurrent], ids=lambda make: make.__name__)
def test_each_pass_keeps_every_bit(make):
    check(made(make), steps=1)


class Twin:
    """A module and the engine, given the same examples."""

    def __init__(self, subject: Program, module: Any) -> None:
        self.program, self.module, self.engine = subject, module, Engine(subject)
        self.engine.data = parameters(module)

    def example(self, rng: random.Random) -> tuple[int, Any]:
        numbers = {
            part.name: [rng.randrange(part.classes) for _ in range(part.numbers)]
            if part.classes
            else [rng.randrange(256) if part.kind == "pixels" else rng.uniform(-1, 1) for _ in range(part.count)]
            for part in self.program.input_parts
        }
        return rng.randrange(CLASSES), numbers.get("", numbers)

    def given(self, inputs: Any) -> Any:
        """What a call takes: pixels are bytes."""
        if not isinstance(inputs, dict):
            return inputs
        return {name: bytes(x) if name == "pixels" else x for name, x in inputs.items()}

    def run(self, label: int, inputs: Any) -> float:
        xs: list[float] = []
        for part in self.program.input_parts:
            for x in inputs[part.name] if isinstance(inputs, dict) else inputs:
                xs += [float(x == k) for k in range(part.classes)] if part.classes else [x * part.scale]
        return self.engine.run([float(label == k) for k in range(CLASSES)], xs)

    def step(self, label: int, inputs: Any) -> None:
        assert bits([self.module.forward(label, self.given(inputs))]) == bits([self.run(label, inputs)])
        found, expected = self.module.outputs(self.given(inputs)), self.engine.outputs()
        assert {name: bits(x) for name, x in found.items()} == {name: bits(x) for name, x in expected.items()}
        self.module.backward()
        self.engine.backward()

    def agree(self) -> None:
        assert bits(parameters(self.module)) == bits(self.engine.data)
        assert bits(gradients(self.module)) == bits(self.engine.grads)

    def update_and_clear(self) -> None:
        for change in ("update", "zero_grad"):
            self.agree()
            getattr(self.module, change)()
            getattr(self.engine, change)()
        self.agree()

    def table(self, examples: list[tuple[int, Any]]) -> tuple[Any, list[int]]:
        labels, inputs = zip(*examples, strict=True)
        if not isinstance(inputs[0], dict):
            return np.array(inputs), list(labels)
        kinds = {part.name: np.uint8 if part.kind == "pixels" else None for part in self.program.input_parts}
        return {n: np.array([x[n] for x in inputs], dtype=kind) for n, kind in kinds.items()}, list(labels)

    def write(self, number: int, value: float) -> None:
        tensors = self.program.tensors
        at = next((t, t.numbers.index(number)) for t in tensors if number in t.numbers)
        np.asarray(self.module.state_dict()[at[0].name])[np.unravel_index(at[1], at[0].shape)] = value
        self.engine.data[number] = value


@pytest.fixture(params=[*BY_INDEX[:1], *BY_INDEX[3:], tied, half], ids=lambda make: make.__name__)
def twin(request) -> Twin:
    return Twin(made(request.param), module_of(request.param))


@cache
def compiled(make: Callable[[], Program]) -> Any:
    return codegen.compile(made(make), optimize=0)


def module_of(make: Callable[[], Program]) -> Any:
    model = compiled(make)
    model.reset()
    model.zero_grad()
    return model


def test_single_calls(twin):
    rng = random.Random(1)
    for step in range(4):
        for _ in range(3):
            twin.step(*twin.example(rng))
        twin.agree()
        if step % 2:
            twin.module.update(0, 3)
            twin.engine.update(3)
            twin.agree()
            twin.module.zero_grad()
            twin.engine.zero_grad()
        twin.agree()


@pytest.mark.parametrize(
    ("batch_size", "threads"),
    [(1, 1), pytest.param(5, 1, marks=pytest.mark.slow), (20, 2), pytest.param(70, 2, marks=pytest.mark.slow)],
)
def test_training_is_steps_one_by_one(twin, batch_size, threads):
    rng = random.Random(2)
    examples = [twin.example(rng) for _ in range(70)]
    total = 0.0
    for start in range(0, 70, batch_size):
        twin.engine.zero_grad()
        batch = examples[start : start + batch_size]
        for label, inputs in batch:
            total += twin.run(label, inputs)
            twin.engine.backward()
        twin.engine.update(len(batch))
    X, labels = twin.table(examples)
    assert bits(twin.module.train(X, labels, batch_size=batch_size, threads=threads)) == bits([total / 70])
    twin.agree()
    twin.module.zero_grad()
    twin.engine.zero_grad()
    twin.agree()


@pytest.mark.parametrize("value", [math.inf, math.nan, -math.inf])
def test_weights_that_are_not_finite(twin, value):
    """In a row that occurs, and in one that does not: 0 times it is nan."""
    rng = random.Random(3)
    for number in (0, twin.program.tensors[0].numbers[-1], twin.program.tensors[-1].numbers[0]):
        twin.module.reset()
        twin.module.zero_grad()
        twin.engine = Engine(twin.program)
        twin.engine.data = parameters(twin.module)
        twin.write(number, value)
        for _ in range(2):
            twin.step(*twin.example(rng))
        twin.update_and_clear()
        twin.step(*twin.example(rng))
        twin.agree()


def test_batches_of_weights_that_are_not_finite(twin):
    rng = random.Random(4)
    examples = [twin.example(rng) for _ in range(9)]
    X, labels = twin.table(examples)
    twin.write(1, math.inf)
    twin.engine.zero_grad()
    for label, inputs in examples:
        twin.run(label, inputs)
        twin.engine.backward()
    twin.engine.update(9)
    twin.module.train(X, labels, batch_size=9, threads=2)
    twin.agree()


@pytest.mark.parametrize(("lane", "first"), [(0, 0), (7, 0), (8, 0), (11, 0), (0, 8), (5, 8), (11, 8)])
def test_a_factor_that_is_not_finite(lane, first):
    """The gradient of a word that does not occur is 0 times the factor, in each lane of a long row, or of its parts."""
    words, x, table = tokens(1), values(12), Embedding(WORDS, 12)
    turned = [*x[first:], *x[:first]]
    loss = total([a * (b + b) for a, b in zip(table(words[0]), turned, strict=True)])
    model = codegen.compile(
        Program({"word": Tokens(words), "x": Floats(x)}, None, {"e": table.weight}, loss), optimize=0
    )
    numbers = np.ones((4, 12))
    numbers[2, (lane + first) % 12] = math.inf
    model.accumulate({"word": np.array([[1], [2], [3], [1]]), "x": numbers}, None)
    found = np.asarray(model.grad_dict()["e"])
    assert np.isnan(found[0]).tolist() == [i == lane for i in range(12)]
    assert found[3, lane] == math.inf


def test_gradients_that_are_written_through_a_view(twin):
    """Of a word that no example has: it is updated, and cleared."""
    rng = random.Random(5)
    name, shape = twin.program.tensors[0].name, twin.program.tensors[0].shape
    view = np.asarray(twin.module.grad_dict()[name])
    twin.step(*twin.example(rng))
    for i, index in enumerate(np.ndindex(shape)):
        view[index] += i * 0.125
    for i, number in enumerate(twin.program.tensors[0].numbers):
        twin.engine.grads[number] += i * 0.125
    twin.agree()
    del view
    twin.module.update()
    twin.engine.update()
    twin.agree()
    twin.module.zero_grad()
    twin.engine.zero_grad()
    twin.agree()


def table_alone() -> Program:
    words, table, goal = tokens(2), Embedding(WORDS, 2), values(1)
    loss = (total([x * x for word in words for x in table(word)]) - goal[0]) ** 2
    return Program(Tokens(words), Floats(goal), {"e": table.weight}, loss)


@pytest.mark.parametrize("batch_size", [1, 6])
def test_training_checks_that_numbers_stay_finite(batch_size):
    """Only rows of words have gradients here, and a bound on these says that a step must be tried."""
    module = module_of(table_alone)
    X = np.arange(6)[:, None] * [1, 1]
    module.train(X, [1.0] * 6, batch_size=batch_size, check_finite=True)
    before = parameters(module)
    with pytest.raises(FloatingPointError, match=r"train\(\) stopped before step 1 .*which makes e\[0, \d\] -?inf"):
        module.train(X, [1.0] * 6, batch_size=batch_size, learning_rate=1.7e308, check_finite=True)
    assert parameters(module) == before
    np.asarray(module.state_dict()["e"])[3, 1] = math.nan
    with pytest.raises(FloatingPointError, match=r"train\(\) did not start: e\[3, 1\] is nan"):
        module.train(X, [1.0] * 6, check_finite=True)


@pytest.mark.slow
@pytest.mark.parametrize("make", [side_by_side, shared_by_parts, half], ids=lambda make: make.__name__)
def test_frozen_models_read_rows_too(make, tmp_path):
    twin = Twin(made(make), module_of(make))
    weights, name = weights_of(twin.program, twin.engine.data), f"cold_{make.__name__}"
    module = codegen.load_extension(codegen.freeze(twin.program, weights, tmp_path, name, flags=["-O0"]))
    rng = random.Random(7)
    for _ in range(5):
        label, inputs = twin.example(rng)
        twin.run(label, inputs)
        assert {name: bits(x) for name, x in module.outputs(twin.given(inputs)).items()} == {
            name: bits(x) for name, x in twin.engine.outputs().items()
        }


@pytest.mark.parametrize("make", [in_float32, with_fma], ids=lambda make: make.__name__)
def test_other_arithmetic_is_near(make):
    """float32, and products that are fused: a row is exact in both."""
    model, exact = module_of(make), module_of(side_by_side)
    rng = random.Random(8)
    for _ in range(3):
        words, label = [rng.randrange(WORDS) for _ in range(3)], rng.randrange(CLASSES)
        assert model.forward(label, words) == pytest.approx(exact.forward(label, words), rel=1e-5)
        model.backward()
        exact.backward()
    assert gradients(model) == pytest.approx(gradients(exact), rel=1e-4, abs=1e-6)


def test_gradients_of_inputs_that_are_tokens():
    """They are those of each word of the vocabulary, though none is stored."""
    twin = Twin(made(with_pixels), module_of(with_pixels))
    label, inputs = twin.example(random.Random(9))
    twin.step(label, inputs)
    found = twin.module.input_grad()
    expected = [value.grad for value in twin.program.input_values]
    assert bits(found["words"]) == bits(expected[: 2 * WORDS])
    assert bits(found["pixels"]) == bits(expected[2 * WORDS :])
    assert len({*found["words"]}) > WORDS

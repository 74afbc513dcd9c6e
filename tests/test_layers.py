"""PyTorch's layers that compute, name or draw something else; weights that do not come back whole."""

from __future__ import annotations

import copy
import json
import math
import random

import numpy as np
import pytest
from harness import Extension, compare

from codegen import Floats, Program, compile_program
from micrograd.arrays import array, data
from micrograd.engine import Value
from micrograd.functional import mse, total
from micrograd.initial import Normal
from micrograd.nn import LSTM, MLP, Attention, Conv2d, Dropout, Embedding, Layer, LayerNorm, Module, load_state_dict

RNG = np.random.default_rng(0)


def numbers(nested: object) -> np.ndarray:
    return data(np.array(nested, dtype=object))


def weights(module: Module) -> dict[str, np.ndarray]:
    return {name: np.array(tensor) for name, tensor in module.state_dict().items()}


def values(x: np.ndarray) -> list:
    return array(x).tolist()


def close(found: object, expected: np.ndarray) -> None:
    assert numbers(found).shape == expected.shape
    np.testing.assert_allclose(numbers(found), expected, rtol=1e-12, atol=1e-14)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


# What PyTorch's documentation says, on numbers


def convolution(w: dict[str, np.ndarray], x: np.ndarray, stride: tuple, padding: tuple) -> np.ndarray:
    (ph, pw), (sh, sw) = padding, stride
    x = np.pad(x, ((0, 0), (ph, ph), (pw, pw)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w["weight"].shape[2:], axis=(1, 2))[:, ::sh, ::sw]
    out = np.einsum("ocuv,cijuv->oij", w["weight"], windows)
    return out + w["bias"][:, None, None] if "bias" in w else out


def lstm(w: dict[str, np.ndarray], xs: np.ndarray, layers: int, units: int, state: tuple) -> tuple:
    hs, cs = [], []
    for k in range(layers):
        h, c, outputs = state[0][k], state[1][k], []
        for x in xs:
            gates = w[f"weight_ih_l{k}"] @ x + w[f"weight_hh_l{k}"] @ h
            gates = gates + w.get(f"bias_ih_l{k}", 0) + w.get(f"bias_hh_l{k}", 0)
            i, f, g, o = np.split(gates, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            outputs.append(h)
        hs, cs, xs = [*hs, h], [*cs, c], np.array(outputs)
    return xs, np.array(hs), np.array(cs)


def attention(
    w: dict,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    heads: int,
    causal: bool,
    mask: np.ndarray | float = 0.0,
) -> np.ndarray:
    bias = np.split(w["in_proj_bias"], 3) if "in_proj_bias" in w else [0, 0, 0]
    parts = zip((query, key, value), np.split(w["in_proj_weight"], 3), bias, strict=True)
    q, k, v = (np.stack(np.split(x @ m.T + b, heads, axis=1)) for x, m, b in parts)
    scores = q @ np.swapaxes(k, 1, 2) / np.sqrt(q.shape[2]) + mask
    if causal:
        scores = np.where(np.tri(len(query), dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = np.concatenate(list(shares / shares.sum(-1, keepdims=True) @ v), axis=1)
    return mixed @ w["out_proj.weight"].T + w.get("out_proj.bias", 0)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "bias"),
    [
        (3, 1, 0, True),
        ((2, 3), 1, 0, False),
        (3, 2, 1, True),
        (2, (1, 2), (0, 1), True),
        (1, 1, 2, True),
        (1, 1, 1, False),
    ],
)
def test_conv2d(kernel, stride, padding, bias):
    module = Conv2d(2, 3, kernel, stride, padding, bias)
    x = RNG.normal(size=(2, 5, 6))
    expected = convolution(weights(module), x, *(p if isinstance(p, tuple) else (p, p) for p in (stride, padding)))
    close(module(values(x)), expected)
    close(module(array(x)), expected)
    assert list(weights(module)) == (["weight", "bias"] if bias else ["weight"])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
def test_lstm(layers, bias):
    module, x = LSTM(3, 4, layers, bias), RNG.normal(size=(5, 3))
    names = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if bias else [])]
    assert list(weights(module)) == [f"{name}_l{k}" for k in range(layers) for name in names]
    zero = np.zeros((layers, 4)), np.zeros((layers, 4))
    outputs, (h, c) = module(values(x))
    for found, expected in zip((outputs, h, c), lstm(weights(module), x, layers, 4, zero), strict=True):
        close(found, expected)
    once, state = module(values(x[:2]))
    rest, (h_rest, c_rest) = module(values(x[2:]), state)
    close([*once, *rest], numbers(outputs))
    close([h_rest, c_rest], numbers([h, c]))
    given = RNG.normal(size=(2, layers, 4))
    close(module(array(x), array(given))[0], lstm(weights(module), x, layers, 4, given)[0])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_attention(causal, bias):
    module, x = Attention(6, 2, bias), RNG.normal(size=(4, 6))
    if bias:  # which begin as 0
        load_state_dict(module.named_parameters(), {name: w + 0.1 for name, w in weights(module).items()})
    close(module(values(x), causal=causal), attention(weights(module), x, x, x, 2, causal))
    close(module(array(x), causal=causal), attention(weights(module), x, x, x, 2, causal))
    expected = ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
    assert list(weights(module)) == [name for name in expected if bias or "bias" not in name]


def test_attention_to_another_sequence():
    module, query, key, value = Attention(4, 4), *(RNG.normal(size=(n, 4)) for n in (2, 3, 3))
    expected = attention(weights(module), query, key, value, 4, False)
    close(module(values(query), values(key), values(value)), expected)
    expected = attention(weights(module), query, key, key, 4, False)
    close(module(values(query), values(key)), expected)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_with_a_mask(causal):
    """Of numbers or Values, for each query or one for all, as torch.nn.MultiheadAttention adds masks of floats."""
    module, x = Attention(6, 2), RNG.normal(size=(4, 6))
    mask = RNG.normal(size=(4, 4))
    mask[2, 1] = mask[3, 0] = -math.inf
    padding = np.array([0.0, 0.0, 0.0, -math.inf])
    for given in (mask, padding):
        expected = attention(weights(module), x, x, x, 2, causal, given)
        for form in (given, given.tolist(), array(given)):
            close(module(values(x), causal=causal, mask=form), expected)
    row = RNG.normal(size=3)
    expected = attention(weights(module), x, x[:3], x[:3], 2, False, row)
    close(module(values(x), values(x[:3]), mask=row), expected)


@pytest.mark.parametrize("mask", [[True, False], np.array([[True, False]] * 2)])
def test_a_mask_is_no_bools(mask):
    with pytest.raises(TypeError, match="use -inf for what must not be seen"):
        Attention(2, 1)(values(np.zeros((2, 2))), mask=mask)


@pytest.mark.parametrize(("affine", "bias"), [(True, True), (True, False), (False, True)])
def test_layer_norm(affine, bias):
    module, x = LayerNorm(5, 1e-3, affine, bias), RNG.normal(size=(2, 3, 5))
    assert list(weights(module)) == ["weight", "bias"][: affine * (1 + bias)]
    load_state_dict(module.named_parameters(), {name: RNG.normal(size=5) for name in weights(module)})
    w = weights(module)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    expected = expected * w.get("weight", 1) + w.get("bias", 0)
    close(module(values(x)), expected)
    close(module(array(x)), expected)
    close(module(values(x[0, 0])), expected[0, 0])


def test_embedding():
    module = Embedding(5, 3)
    table = weights(module)["weight"]
    close(module(2), table[2])
    close(module([4, 0, 4]), table[[4, 0, 4]])
    close(module(np.array([4, 0])), table[[4, 0]])
    assert module(2)[0] is module.weight[2][0]
    close(module(values(np.eye(5)[3])), table[3])
    close(module(array(np.eye(5))[[3, 1]]), table[[3, 1]])


# Names, draws, mistakes


def test_first_weights_are_drawn_from_what_initial_says():
    modules = [Conv2d(2, 3, 4), LSTM(3, 9, 2), Attention(8, 2), LayerNorm(7), Embedding(4, 5)]
    for module in modules:
        initial = module.initial()
        assert list(initial) == list(module.named_parameters())
        assert len(module.parameters()) == sum(w.size for w in weights(module).values())
        for name, w in weights(module).items():
            if not isinstance(initial[name], Normal):
                low, high = initial[name]
                assert w.min() >= low
                assert w.max() <= high
                assert low == high or w.max() > low + 0.6 * (high - low)
    conv, recurrent, attending, norm, embedding = (module.initial() for module in modules)
    assert conv == dict.fromkeys(("weight", "bias"), (-1 / math.sqrt(32), 1 / math.sqrt(32)))
    assert set(recurrent.values()) == {(-1 / 3, 1 / 3)}
    assert attending["in_proj_weight"] == (-math.sqrt(6 / 32), math.sqrt(6 / 32))
    assert attending["out_proj.weight"] == (-1 / math.sqrt(8), 1 / math.sqrt(8))
    assert attending["in_proj_bias"] == attending["out_proj.bias"] == norm["bias"] == (0.0, 0.0)
    assert norm["weight"] == (1.0, 1.0)
    assert embedding == {"weight": Normal(0.0, 1.0)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Conv2d(0, 1, 1), "at least 1"),
        (lambda: Conv2d(1, 1, 1, padding=-1), "padding at least 0"),
        (lambda: Conv2d(2, 1, 1)(values(np.zeros((1, 2, 2)))), "has 2 channels, got 1"),
        (
            lambda: Conv2d(1, 1, 3)(values(np.zeros((1, 2, 4)))),
            "a kernel of 3 does not fit an image of 2 with a padding of 0",
        ),
        (lambda: Conv2d(1, 1, 1)([[[1.0], [2.0, 3.0]]]), "all channels of an image must be 2 x 1, as its first row is"),
        (lambda: Conv2d(1, 1, 1)([[[1.0, 2.0], [3.0]]]), "all channels of an image must be 2 x 2"),
        (lambda: Conv2d(1, 1, 1)([[]]), "does not fit an image of 0"),
        (lambda: LSTM(2, 0), "at least 1"),
        (lambda: LSTM(2, 3, 2)(values(np.zeros((1, 2))), ([], [])), "a state must be h and c of 2 layers each"),
        (lambda: LSTM(2, 1)(values(np.zeros((1, 2))), ([[0.0]], [[0.0, 1.0]])), "1 layers each, of 1 numbers"),
        (lambda: LSTM(2, 1)(values(np.zeros((1, 2))), (values([0.0]), values([0.0]))), r"numbers: \(\[h\], \[c\]\)"),
        (lambda: LSTM(2, 1)(values(np.zeros((1, 2))), 0.0), "a state must be h and c of 1 layers each"),
        (lambda: LSTM(2, 1)([]), "an LSTM of no steps"),
        (lambda: LayerNorm(2, eps=math.nan), "eps must be finite"),
        (lambda: LayerNorm(0), r"the sizes of weight must be at least 1, got \(0,\)"),
        (lambda: Embedding(-1, 2), "the sizes of weight must be at least 1"),
        (lambda: LSTM(2, 3)(values(np.zeros((1, 3)))), "has 2 inputs, got 3"),
        (lambda: Attention(6, 4), "a multiple of num_heads, got 6 and 4"),
        (lambda: Attention(2, 1)(values(np.zeros((1, 3)))), "has 2 inputs, got 3"),
        (
            lambda: Attention(2, 1)(values(np.zeros((1, 2))), values(np.zeros((2, 2))), causal=True),
            "do not fit: 1, 2 and 2",
        ),
        (lambda: Attention(2, 1)(values(np.zeros((2, 2))), mask=[0.0]), "a mask must be 2 rows of 2 numbers"),
        (lambda: Attention(2, 1)(values(np.zeros((2, 2))), mask=[[0.0, 0.0]]), "a mask must be 2 rows of 2 numbers"),
        (lambda: LayerNorm(3)(values(np.zeros(2))), "has 3 inputs, got 2"),
        (lambda: Conv2d(1, 1, 1, padding=(0, -1)), "padding at least 0"),
        (lambda: Conv2d(1, 1, 1, stride=(1, 0)), "stride must be at least 1"),
        (lambda: Conv2d(2, 1, 1)([[[1.0]], [[1.0], [2.0]]]), "all channels of an image must be 1 x 1"),
        (lambda: Embedding(3, 2)(3), r"must be 0..2, got 3"),
        (lambda: Embedding(3, 2)(-1), r"must be 0..2, got -1"),
        (lambda: Embedding(3, 2)(values(np.zeros(2))), "must be 3 Values, got 2"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("wrong", ["a", 1.0, None])
def test_a_token_is_an_int_or_values(wrong):
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        Embedding(3, 2)(wrong)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Conv2d(1, 1, 3, padding="same"), "padding must be an int, or one for the height .* got 'same'"),
        (lambda: Conv2d(1, 1, (3, 2.5)), "kernel_size must be an int, or one for the height .* got 2.5"),
        (lambda: LayerNorm((4, 4)), r"size must be an int, the length of the vectors, got \(4, 4\)"),
    ],
)
def test_sizes_are_ints(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_numbers_among_the_values_of_a_layer():
    """As np.pad and np.where leave them there, wherever they stand."""
    x = [np.int64(0), Value(1.0), 2.0]
    expected = [value.data for value in LayerNorm(3)(list(map(Value, (0, 1, 2))))]
    assert [value.data for value in LayerNorm(3)(x)] == expected
    assert [value.data for value in Dropout(0.5)(x)] == [0.0, 1.0, 2.0]
    assert (table := Embedding(3, 2))(np.array(1)) == table.weight[1]


class Reader(Module):
    """Of modules, and of a list of them."""

    def __init__(self) -> None:
        self.embed = Embedding(5, 4)
        self.blocks = [Attention(4, 2), LayerNorm(4)]
        self.lstm = LSTM(4, 3)
        self.head = Layer(3, 2, nonlin=False)
        self.name = "reader"

    def __call__(self, tokens: list) -> list[Value]:
        x = self.embed(tokens)
        x = [
            [a + b for a, b in zip(*pair, strict=True)] for pair in zip(x, self.blocks[0](x, causal=True), strict=True)
        ]
        return self.head(self.lstm(self.blocks[1](x))[0][-1])


def reader(seed: int = 3) -> tuple[Reader, Program]:
    random.seed(seed)
    model = Reader()
    tokens, y = [values(np.zeros(5)) for _ in range(3)], values(np.zeros(2))
    out = model(tokens)
    return model, Program(
        Floats(tokens),
        Floats(y),
        model.named_parameters(),
        mse(out, y),
        {"out": out},
        initial=model.initial(),
        seed=seed,
    )


def test_a_module_has_the_tensors_of_its_attributes():
    model, _ = reader()
    names = list(model.named_parameters())
    assert names[:4] == ["embed.weight", "blocks.0.in_proj_weight", "blocks.0.in_proj_bias", "blocks.0.out_proj.weight"]
    assert names[5:8] == ["blocks.1.weight", "blocks.1.bias", "lstm.weight_ih_l0"]
    assert names[-2:] == ["head.weight", "head.bias"]
    assert list(model.initial()) == names
    assert model.parameters()[0] is model.embed.weight[0][0]
    assert len(model.parameters()) == len(set(map(id, model.parameters())))
    assert MLP(2, [3, 1]).state_dict().keys() == MLP(2, [3, 1]).named_parameters().keys()


def test_modules_in_dicts_and_nested_lists():
    class Net(Module):
        def __init__(self) -> None:
            self.heads = {"left": Layer(2, 1), "right": [Layer(2, 1), {0: Layer(2, 1)}], "width": 2}
            self.grid = [[LayerNorm(2)], (Dropout(0.5), LayerNorm(2))]

    net = Net()
    stems = ["heads.left", "heads.right.0", "heads.right.1.0", "grid.0.0", "grid.1.1"]
    assert list(net.named_parameters()) == [f"{stem}.{name}" for stem in stems for name in ("weight", "bias")]
    assert net.parameters()[2] is net.heads["left"].neurons[0].b
    assert len(net.parameters()) == 3 * 3 + 2 * 4
    net.grid[1][0](values(np.ones(3)))
    assert len(net.noise()) == 1
    net.heads |= {"right.0": Layer(2, 1)}
    with pytest.raises(ValueError, match="two tensors have the same name"):
        net.named_parameters()


@pytest.mark.nightly
def test_a_model_of_layers_has_the_interpreted_bits(tmp_path):
    compare(reader()[1], tmp_path, steps=3)


@pytest.mark.slow
def test_a_convolution_has_the_interpreted_bits_and_few_loops(tmp_path):
    x, y = values(np.zeros((2, 8, 8))), values(np.zeros(1))
    conv = Conv2d(2, 3, 3)
    out = [total([a.relu() for plane in conv(x) for row in plane for a in row])]
    program = Program(Floats(x), Floats(y), conv.named_parameters(), mse(out, y), {"out": out})
    assert len(compile_program(program).plain.kernels) <= 9
    compare(program, tmp_path, steps=2, flags=["-O0"])


@pytest.mark.slow
def test_trained_weights_go_back_into_values(tmp_path):
    model, program = reader()
    compiled = Extension(program, tmp_path, "loops", flags=["-O0"]).module
    x, y = RNG.normal(size=(20, 15)), RNG.normal(size=(20, 2))
    compiled.train(x, y, learning_rate=0.1, epochs=3)
    before = model.state_dict()
    model.load_state_dict(compiled.state_dict())
    assert [p.data for p in program.parameter_values] == [
        compiled.data(i) for i in range(compiled.info()["parameters"])
    ]
    assert model.state_dict() != before
    for value, number in zip(program.input_values, x[0], strict=True):
        value.data = number
    program.loss.recompute()
    assert tuple(v.data for v in program.outputs["out"]) == compiled.outputs(x[0])["out"]


def test_a_state_is_lists_of_numbers():
    model, _ = reader()
    state = model.state_dict()
    other, _ = reader(4)
    assert other.state_dict() != state
    other.load_state_dict(json.loads(json.dumps(state)))
    assert other.state_dict() == state
    for convert in (np.array, np.float32, tuple, lambda x: memoryview(np.array(x))):
        other, _ = reader(4)
        other.load_state_dict({name: convert(tensor) for name, tensor in state.items()})
        assert weights(other)["embed.weight"].astype("f").tolist() == np.array(state["embed.weight"], "f").tolist()


def test_a_dictionary_of_arrays_takes_a_state_too():
    named = {"w": array(np.zeros((2, 3))), "b": Value(0.0)}
    load_state_dict(named, {"w": np.arange(6).reshape(2, 3), "b": 7})
    assert data(named["w"]).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert named["b"].data == 7.0


GOOD = {"weight": [[1.0, 2.0], [3.0, 4.0]], "bias": [5.0, 6.0]}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"bias": [5.0]}, ValueError, r"'bias' has the shape \(2,\), got \(1,\)"),
        ({"bias": 5.0}, ValueError, r"'bias' has the shape \(2,\), got \(\)"),
        ({"bias": np.zeros((2, 1))}, ValueError, r"'bias' has the shape \(2,\), got \(2, 1\)"),
        ({"bias": b"56"}, ValueError, r"'bias' has the shape \(2,\), got \(\)"),  # text, not the numbers 53 and 54
        ({"bias": [5.0, "6"]}, TypeError, "'bias' must hold numbers, not str"),
        ({"bias": [5.0, None]}, TypeError, "'bias' must hold numbers, not NoneType"),
        ({"bias": [[5.0], [6.0, 7.0]]}, ValueError, "'bias' must be evenly nested"),
        ({"bias": [5.0, [6.0]]}, ValueError, "'bias' must be evenly nested"),
        ({"bias": "ab"}, ValueError, r"got \(\)"),
        ({"more": 1.0}, ValueError, r"missing \[\], unexpected \['more'\]"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(changes, error, message):
    random.seed(0)
    layer = Layer(2, 2)
    before = copy.deepcopy(layer.state_dict())
    with pytest.raises(error, match=message):
        layer.load_state_dict(GOOD | changes)
    assert layer.state_dict() == before
    layer.load_state_dict(GOOD)
    assert layer.state_dict() == GOOD


def test_a_state_needs_all_names():
    with pytest.raises(ValueError, match=r"missing \['bias'\], unexpected \[\]"):
        Layer(2, 2).load_state_dict({"weight": GOOD["weight"]})
    with pytest.raises(ValueError, match=r"missing \['bias', 'weight'\], unexpected \['a', 'b', 'c'\]"):
        Layer(2, 2).load_state_dict(dict.fromkeys("cba", 0.0))
    with pytest.raises(TypeError, match="maps names to tensors, and is not a list"):
        Layer(2, 2).load_state_dict([])


def test_a_kernel_as_large_as_its_image_has_one_place():
    module, x = Conv2d(2, 3, (4, 5)), RNG.normal(size=(2, 4, 5))
    weight, bias = weights(module).values()
    close(module(values(x)), (np.einsum("ocij,cij->o", weight, x) + bias)[:, None, None])


def test_layers_have_biases_unless_told_otherwise():
    assert list(LSTM(1, 1).named_parameters()) == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    assert list(Conv2d(1, 1, 1).named_parameters()) == ["weight", "bias"]
    assert list(Attention(2, 1).named_parameters())[1::2] == ["in_proj_bias", "out_proj.bias"]


def test_a_vector_without_variance_is_divided_by_the_root_of_pytorchs_eps():
    assert LayerNorm(2)([Value(1.0), Value(1.0 + 2**-20)])[1].data == pytest.approx(2**-21 / 1e-5**0.5, rel=1e-6)


def test_leaves_of_layers_say_what_they_are():
    module = Conv2d(1, 1, 1)
    assert (module.weight[0][0][0][0]._op, module.bias[0]._op) == ("weight", "bias")
    assert {value._op for value in LSTM(1, 1).layers[0][2]} == {"bias"}

"""Neurons, layers and perceptrons that differ from micrograd's: names, signatures, reprs and random draws."""

from __future__ import annotations

import inspect
import math
import random

import pytest

from micrograd.engine import Value
from micrograd.nn import MLP, Dropout, Layer, Module, Neuron


def draws(sizes: list[int], bounds: list[float]) -> list[float]:
    """micrograd's parameters, drawn again: for each neuron its weights, then the bias 0, which costs no draw."""
    parameters = []
    for nin, nout, bound in zip(sizes, sizes[1:], bounds, strict=False):
        for _ in range(nout):
            parameters += [random.uniform(-bound, bound) for _ in range(nin)] + [0.0]
    return parameters


def shape(nested: object) -> tuple[int, ...]:
    return () if isinstance(nested, Value) else (len(nested), *shape(nested[0]))


def flat(nested: object) -> list[Value]:
    return [nested] if isinstance(nested, Value) else [value for inner in nested for value in flat(inner)]


def data(parameters: list[Value]) -> list[float]:
    return [p.data for p in parameters]


@pytest.mark.parametrize(
    ("thing", "names", "defaults"),
    [
        (Neuron, ["nin", "nonlin"], {"nonlin": True}),
        (Layer, ["nin", "nout", "kwargs"], {}),
        (MLP, ["nin", "nouts"], {}),
    ],
)
def test_signatures_begin_as_micrograds_and_go_on_with_defaults(thing, names, defaults):
    parameters = list(inspect.signature(thing).parameters.values())
    empty = inspect.Parameter.empty
    assert [p.name for p in parameters[: len(names)]] == names
    assert {p.name: p.default for p in parameters[: len(names)] if p.default is not empty} == defaults
    assert all(p.default is not empty for p in parameters[len(names) :])


def test_reprs_are_micrograds():
    assert repr(Neuron(3)) == "ReLUNeuron(3)"
    assert repr(Neuron(2, nonlin=False)) == "LinearNeuron(2)"
    assert repr(Layer(2, 2)) == "Layer of [ReLUNeuron(2), ReLUNeuron(2)]"
    assert repr(MLP(3, [2, 1])) == "MLP of [Layer of [ReLUNeuron(3), ReLUNeuron(3)], Layer of [LinearNeuron(2)]]"


def test_a_bare_module_has_no_parameters():
    module = Module()
    assert module.parameters() == []
    assert module.named_parameters() == {}
    assert module.initial() == {}
    module.zero_grad()


@pytest.mark.parametrize("seed", [0, 1, 1337])
@pytest.mark.parametrize("sizes", [[3, 4, 4, 1], [1, 1], [5, 2]])
def test_weights_are_drawn_in_micrograds_order(seed, sizes):
    random.seed(seed)
    model = MLP(sizes[0], sizes[1:])
    after = random.random()
    random.seed(seed)
    assert data(model.parameters()) == draws(sizes, [1.0] * (len(sizes) - 1))
    assert random.random() == after


def test_neurons_and_layers_draw_alike():
    random.seed(3)
    neuron, layer = Neuron(4), Layer(2, 3, nonlin=False)
    random.seed(3)
    assert data(neuron.parameters()) == draws([4, 1], [1.0])
    assert data(layer.parameters()) == draws([2, 3], [1.0])


@pytest.mark.parametrize("sizes", [[12, 7, 5], [784, 2, 1]])
def test_fan_in_draws_in_the_same_order_from_narrower_ranges(sizes):
    random.seed(7)
    model = MLP(sizes[0], sizes[1:], init="fan_in")
    random.seed(7)
    assert data(model.parameters()) == draws(sizes, [math.sqrt(3 / nin) for nin in sizes])


def test_fan_in_gives_a_variance_of_one_over_the_fan_in():
    random.seed(0)
    weights = data(MLP(100, [100], init="fan_in").parameters())
    variance = sum(w * w for w in weights) / (100 * 100)
    assert variance == pytest.approx(1 / 100, rel=0.05)


@pytest.mark.parametrize("init", ["micrograd", "fan_in"])
def test_a_perceptron_without_inputs_is_refused(init):
    with pytest.raises(ValueError, match="at least one input, got 0"):
        MLP(0, [2], init=init)


def test_rows_of_examples_are_refused():
    """A batch of as many examples as a layer has inputs would be read as its transpose."""
    with pytest.raises(TypeError, match="the numbers of one example, not rows of them"):
        MLP(2, [3])([[1.0, 2.0], [3.0, 4.0]])


def test_a_layer_that_two_attributes_share_is_there_once():
    class Tied(Module):
        def __init__(self):
            self.first = Layer(2, 2)
            self.second = [self.first, Other(self.first), Dropout()]
            self.third = self.second[2]

    class Other(Module):
        def __init__(self, layer):
            self.layer = layer

    net = Tied()
    net.third([Value(1.0)])
    assert net.parameters() == net.first.parameters()
    assert [*net.named_parameters()] == [*net.initial()] == ["first.weight", "first.bias"]
    assert len(net.noise()) == 1


def test_other_initialisations_are_refused():
    with pytest.raises(ValueError, match="'xavier'"):
        MLP(2, [1], init="xavier")


@pytest.mark.parametrize("sizes", [[0], [-1], [2, 0, 1]])
def test_a_layer_without_neurons_is_refused(sizes):
    with pytest.raises(ValueError, match=f"at least one neuron, got {min(sizes)}"):
        MLP(2, sizes)


@pytest.mark.parametrize(
    ("activation", "op", "name"),
    [("relu", "ReLU", "ReLU"), ("tanh", "tanh", "Tanh"), ("sigmoid", "sigmoid", "Sigmoid")],
)
def test_a_neuron_applies_its_activation(activation, op, name):
    neuron = Neuron(2, activation=activation)
    x = [0.75, -0.25]
    out = neuron(x)
    assert out._op == op
    assert out.data == getattr(Value(out._prev[0].data), activation)().data
    assert repr(neuron) == f"{name}Neuron(2)"
    assert repr(Neuron(2, nonlin=False, activation=activation)) == "LinearNeuron(2)"
    assert Neuron(2, nonlin=False, activation=activation)(x)._op == "+"


@pytest.mark.parametrize(("last_nonlin", "last"), [(False, "+"), (True, "tanh")])
def test_an_activation_stands_behind_every_layer_and_the_last_where_asked(last_nonlin, last):
    model = MLP(2, [3, 3, 2], activation="tanh", last_nonlin=last_nonlin)
    ops = [[n([0.5] * len(n.w))._op for n in layer.neurons] for layer in model.layers]
    assert ops == [["tanh"] * 3, ["tanh"] * 3, [last] * 2]
    assert [o._op for o in model([1.0, -1.0])] == [last] * 2


def test_an_activation_changes_no_draw():
    random.seed(4)
    expected = data(MLP(3, [4, 1]).parameters())
    random.seed(4)
    assert data(MLP(3, [4, 1], activation="tanh", last_nonlin=True).parameters()) == expected


@pytest.mark.parametrize("make", [lambda a: Neuron(2, activation=a), lambda a: MLP(2, [1], activation=a)])
@pytest.mark.parametrize("activation", ["softplus", "Tanh", "", None])
def test_other_activations_are_refused_before_anything_is_drawn(make, activation):
    random.seed(5)
    expected = random.random()
    random.seed(5)
    with pytest.raises(ValueError, match=f"one of 'relu', 'tanh', 'sigmoid', got {activation!r}"):
        make(activation)
    assert random.random() == expected


@pytest.mark.parametrize("init", ["micrograd", "fan_in"])
def test_named_parameters_have_pytorchs_names_and_shapes(init):
    model = MLP(3, [4, 2], init=init)
    named = model.named_parameters()
    assert {name: shape(nested) for name, nested in named.items()} == {
        "layers.0.weight": (4, 3),
        "layers.0.bias": (4,),
        "layers.1.weight": (2, 4),
        "layers.1.bias": (2,),
    }
    listed = [value for nested in named.values() for value in flat(nested)]
    assert len(listed) == len(model.parameters()) == 4 * 3 + 4 + 2 * 4 + 2
    assert set(map(id, listed)) == set(map(id, model.parameters()))
    assert named["layers.1.weight"][1][2] is model.layers[1].neurons[1].w[2]
    assert named["layers.1.bias"][1] is model.layers[1].neurons[1].b


@pytest.mark.parametrize("init", ["micrograd", "fan_in"])
def test_initial_gives_the_range_of_each_named_parameter(init):
    model = MLP(12, [40, 2], init=init)
    initial = model.initial()
    assert list(initial) == list(model.named_parameters())
    for name, nested in model.named_parameters().items():
        low, high = initial[name]
        assert all(low <= value.data <= high for value in flat(nested))
        assert low == -high
    bounds = [high for _, high in initial.values()]
    assert bounds == ([1.0, 0.0, 1.0, 0.0] if init == "micrograd" else [0.5, 0.0, math.sqrt(3 / 40), 0.0])


def test_parameters_come_neuron_by_neuron():
    model = MLP(2, [2, 1])
    first, second = model.layers[0].neurons
    (last,) = model.layers[1].neurons
    expected = [*first.w, first.b, *second.w, second.b, *last.w, last.b]
    assert list(map(id, model.parameters())) == list(map(id, expected))


def test_a_neuron_adds_its_products_to_the_bias_from_left_to_right():
    neuron = Neuron(3, nonlin=False)
    neuron.b.data = 1e16
    for w, x in zip(neuron.w, [1.0, -1e16, 1.0], strict=True):
        w.data = x
    out = neuron([1.0, 1.0, 1.0])
    assert out.data == ((1e16 + 1.0) + -1e16) + 1.0
    assert out._prev[1]._prev[0] is neuron.w[2]
    assert out._prev[0]._prev[0]._prev[0] is neuron.b


def test_relu_stands_behind_every_layer_but_the_last():
    model = MLP(2, [3, 3, 2])
    assert [[n.nonlin for n in layer.neurons] for layer in model.layers] == [[True] * 3, [True] * 3, [False] * 2]
    out = model([1.0, -1.0])
    assert [o._op for o in out] == ["+", "+"]
    assert {n([0.0] * len(n.w))._op for n in model.layers[1].neurons} == {"ReLU"}


def test_a_single_output_is_a_value_more_are_a_list():
    assert isinstance(MLP(2, [3, 1])([1.0, 2.0]), Value)
    assert isinstance(Layer(2, 1)([1.0, 2.0]), Value)
    assert len(MLP(2, [3, 4])([1.0, 2.0])) == 4


def test_inputs_may_be_values_or_numbers():
    neuron = Neuron(2)
    neuron.w[0].data, neuron.w[1].data, neuron.b.data = 2.0, -3.0, 0.5
    x = [Value(0.25), Value(-0.5)]
    out = neuron(x)
    assert out.data == neuron([0.25, -0.5]).data == 2.5
    out.backward()
    assert [v.grad for v in x] == [2.0, -3.0]
    assert [p.grad for p in neuron.parameters()] == [0.25, -0.5, 1.0]


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("make", [lambda: Neuron(2), lambda: Layer(2, 3), lambda: MLP(2, [3, 1])], ids=["n", "l", "m"])
def test_another_number_of_inputs_is_refused(make, count):
    with pytest.raises(ValueError, match=f"2 inputs, got {count}"):
        make()([1.0] * count)


def test_zero_grad_clears_every_parameter_and_nothing_else():
    model = MLP(2, [2, 1])
    x = Value(1.0)
    x.grad = 5.0
    for p in model.parameters():
        p.grad = 3.0
    model.zero_grad()
    assert {p.grad for p in model.parameters()} == {0.0}
    assert all(type(p.grad) is float for p in model.parameters())
    assert x.grad == 5.0

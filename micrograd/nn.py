"""Neurons, layers and perceptrons of `Value`s, with micrograd's names, signatures and order of random draws.

PyTorch's layers are in micrograd.layers, and can be had from here.
"""

import math
import random
from collections.abc import Iterable, Sequence
from typing import Any, cast

from micrograd.engine import Value
from micrograd.functional import is_sequence
from micrograd.initial import Initial
from micrograd.layers import LSTM, Attention, Conv2d, Dropout, Embedding, LayerNorm
from micrograd.module import Module, Nested, load_state_dict

__all__ = [
    "ACTIVATIONS", "LSTM", "MLP", "Attention", "Conv2d", "Dropout", "Embedding", "Layer", "LayerNorm", "Module",
    "Nested", "Neuron", "load_state_dict",
]  # fmt: skip

# The activations of a Neuron: the function, and the name in the Neuron's repr.
ACTIVATIONS = {
    "relu": (Value.relu, "ReLU"),
    "tanh": (Value.tanh, "Tanh"),
    "sigmoid": (Value.sigmoid, "Sigmoid"),
}


def _listed(x: Iterable[Value | float]) -> Sequence[Value | float]:
    """What has a length as it is, and a map or a generator, which can be read only once, as a list."""
    return cast("Sequence[Value | float]", x) if hasattr(x, "__len__") else list(x)


class Neuron(Module):
    """act(b + w[0] * x[0] + w[1] * x[1] + ...), act being `activation`, or the identity if `nonlin` is False.

    `bound`: the weights are drawn from random.uniform(-bound, bound), then the bias from random.uniform(-bias_bound,
    bias_bound), unless `bias_bound` is 0. Raises ValueError for an activation other than "relu", "tanh" and "sigmoid".
    """

    def __init__(
        self,
        nin: int,
        nonlin: bool = True,
        bound: float = 1.0,
        activation: str = "relu",
        bias_bound: float = 0.0,
    ) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}, got {activation!r}")
        self.w = [Value(random.uniform(-bound, bound), _op="weight") for _ in range(nin)]
        self.b = Value(random.uniform(-bias_bound, bias_bound) if bias_bound else 0, _op="bias")
        self.nonlin = nonlin
        self.activation = activation

    def __call__(self, x: Iterable[Value | float]) -> Value:
        x = _listed(x)
        if len(x) != len(self.w):
            raise ValueError(f"this neuron has {len(self.w)} inputs, got {len(x)}")
        act = self.b
        for wi, xi in zip(self.w, x, strict=True):
            act = act + wi * xi
        return ACTIVATIONS[self.activation][0](act) if self.nonlin else act

    def parameters(self) -> list[Value]:
        return [*self.w, self.b]

    def __repr__(self) -> str:
        return f"{ACTIVATIONS[self.activation][1] if self.nonlin else 'Linear'}Neuron({len(self.w)})"


class Layer(Module):
    """`nout` neurons that see the same `nin` inputs. Keyword arguments go to `Neuron`."""

    def __init__(self, nin: int, nout: int, **kwargs: Any) -> None:
        if nout < 1:
            raise ValueError(f"a layer must have at least one neuron, got {nout}")
        self.bound, self.bias_bound = kwargs.get("bound", 1.0), kwargs.get("bias_bound", 0.0)
        self.neurons = [Neuron(nin, **kwargs) for _ in range(nout)]

    def __call__(self, x: Iterable[Value | float]) -> Any:
        """A list of Values; the Value itself if there is only one neuron, as in micrograd."""
        x = _listed(x)
        if any(map(is_sequence, x)):
            raise TypeError("a layer takes the numbers of one example, not rows of them")
        out = [n(x) for n in self.neurons]
        return out[0] if len(out) == 1 else out

    def parameters(self) -> list[Value]:
        return [p for n in self.neurons for p in n.parameters()]

    def named_parameters(self) -> dict[str, Nested]:
        """`weight` of shape (nout, nin) and `bias` of shape (nout,)."""
        return {"weight": [n.w for n in self.neurons], "bias": [n.b for n in self.neurons]}

    def initial(self) -> dict[str, Initial]:
        bias = (0.0 - self.bias_bound, self.bias_bound)  # (0.0, 0.0), not -0.0, where it is not drawn
        return {"weight": (-self.bound, self.bound), "bias": bias}

    def __repr__(self) -> str:
        return f"Layer of [{', '.join(str(n) for n in self.neurons)}]"


class MLP(Module):
    """Layers in sequence, with `activation` ("relu", "tanh" or "sigmoid") after each but the last.

    `last_nonlin` puts it after the last one as well.
    `init`: "micrograd" draws every weight from uniform(-1, 1). "fan_in" draws from uniform(-k, k) with
    k = sqrt(3 / fan-in), so that the weights' variance is 1 / fan-in (LeCun et al., Efficient BackProp, 1998): wide
    layers neither saturate nor explode. Both draw in the same order; biases are 0.
    `lecture`: the network of karpathy's lecture on micrograd, which is not the one of its package: tanh after every
    layer, the last one included, and each neuron draws its weights, then its bias, from uniform(-1, 1). It stands for
    the other three options, which must be left alone.

    Raises ValueError for another init or activation, and for `lecture` together with one of them.
    """

    def __init__(
        self,
        nin: int,
        nouts: Sequence[int],
        init: str = "micrograd",
        activation: str = "relu",
        last_nonlin: bool = False,
        lecture: bool = False,
    ) -> None:
        if lecture:
            if (init, activation, last_nonlin) != ("micrograd", "relu", False):
                raise ValueError("lecture=True stands for init, activation and last_nonlin: pass none of them")
            activation, last_nonlin = "tanh", True
        if init not in ("micrograd", "fan_in"):
            raise ValueError(f"init must be 'micrograd' or 'fan_in', got {init!r}")
        sizes = [nin, *nouts]
        if nin < 1:
            raise ValueError(f"an MLP must have at least one input, got {nin}")
        self.layers = [
            Layer(
                sizes[i],
                sizes[i + 1],
                nonlin=last_nonlin or i != len(nouts) - 1,
                bound=math.sqrt(3 / sizes[i]) if init == "fan_in" else 1.0,
                activation=activation,
                bias_bound=1.0 if lecture else 0.0,
            )
            for i in range(len(nouts))
        ]

    def __call__(self, x: Iterable[Value | float]) -> Any:
        out: Any = x
        for layer in self.layers:
            out = layer([out] if isinstance(out, Value) else out)
        return out

    def __repr__(self) -> str:
        return f"MLP of [{', '.join(str(layer) for layer in self.layers)}]"

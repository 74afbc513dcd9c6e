"""LSTM, GRU and RNN: their steps are unrolled, and each example of a batch is a sequence of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from codegen.onnx import elementwise
from codegen.onnx.elementwise import Add, Clip, Mul, Sub
from codegen.onnx.linear import MatMul
from codegen.onnx.tensors import Tensor, elements, integers, is_graph, spend, tensor

ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "affine": lambda x, alpha=1.0, beta=0.0: Add(Mul(x, alpha), beta),
    "elu": elementwise.Elu,
    "hardsigmoid": elementwise.HardSigmoid,
    "leakyrelu": elementwise.LeakyRelu,
    "relu": elementwise.Relu,
    "sigmoid": elementwise.Sigmoid,
    "softplus": elementwise.Softplus,
    "softsign": elementwise.Softsign,
    "tanh": elementwise.Tanh,
}
BETAS = ("affine", "hardsigmoid")
State = tuple[Tensor, ...]


def LSTM(x: Any, w: Any, r: Any, b: Any = None, sequence_lens: Any = None, initial_h: Any = None, initial_c: Any = None,
         p: Any = None, *, input_forget: int = 0, **options: Any) -> tuple[Tensor, ...]:  # fmt: skip
    """The gates are input, output, forget and cell; `p` has peepholes of the first three."""

    def step(net: _Direction, x: Tensor, state: State) -> State:
        h, c = state
        gates = Add(MatMul(net.w, x), MatMul(net.r, h))
        if net.bias is not None:
            gates = Add(gates, Add(*np.split(net.bias, 2)))
        i, o, f, g = np.split(gates, 4)
        peep = None if p is None else np.split(tensor(p)[net.number], 3)
        i = net.f(i if peep is None else Add(i, Mul(peep[0], c)))
        f = Sub(1.0, i) if input_forget else net.f(f if peep is None else Add(f, Mul(peep[2], c)))
        c = Add(Mul(f, c), Mul(i, net.g(g)))
        return Mul(net.f(o if peep is None else Add(o, Mul(peep[1], c))), net.h(c)), c

    return _unrolled(step, 4, ("Sigmoid", "Tanh", "Tanh"), x, w, r, b, sequence_lens, (initial_h, initial_c), **options)


def GRU(x: Any, w: Any, r: Any, b: Any = None, sequence_lens: Any = None, initial_h: Any = None, *,
        linear_before_reset: int = 0, **options: Any) -> tuple[Tensor, ...]:  # fmt: skip
    """The gates are update, reset and hidden."""

    def step(net: _Direction, x: Tensor, state: State) -> State:
        (h,) = state
        inner = MatMul(net.w, x)
        own = None
        if net.bias is not None:
            first, own = np.split(net.bias, 2)
            inner = Add(inner, first)
        n = len(h)
        gates = Add(inner[: 2 * n], MatMul(net.r[: 2 * n], h))
        if own is not None:
            gates = Add(gates, own[: 2 * n])
        z, reset = np.split(net.f(gates), 2)
        seen = MatMul(net.r[2 * n :], h if linear_before_reset else Mul(reset, h))
        if own is not None:
            seen = Add(seen, own[2 * n :])
        new = net.g(Add(inner[2 * n :], Mul(reset, seen) if linear_before_reset else seen))
        return (Add(Mul(Sub(1.0, z), new), Mul(z, h)),)

    return _unrolled(step, 3, ("Sigmoid", "Tanh"), x, w, r, b, sequence_lens, (initial_h,), **options)


def RNN(x: Any, w: Any, r: Any, b: Any = None, sequence_lens: Any = None, initial_h: Any = None, **options: Any
        ) -> tuple[Tensor, ...]:  # fmt: skip
    def step(net: _Direction, x: Tensor, state: State) -> State:
        inner = Add(MatMul(net.w, x), MatMul(net.r, state[0]))
        return (net.f(inner if net.bias is None else Add(inner, Add(*np.split(net.bias, 2)))),)

    return _unrolled(step, 1, ("Tanh",), x, w, r, b, sequence_lens, (initial_h,), **options)


class _Direction:
    """The weights of one direction, and its activations f, g and h."""

    def __init__(self, number: int, w: Tensor, r: Tensor, bias: Tensor | None, functions: Sequence[Any]) -> None:
        self.number, self.w, self.r, self.bias = number, w[number], r[number], None if bias is None else bias[number]
        self.f, self.g, self.h = (*functions, None, None)[:3]


def _unrolled(
    step: Callable[[_Direction, Tensor, State], State],
    gates: int,
    defaults: Sequence[str],
    x: Any,
    w: Any,
    r: Any,
    b: Any,
    lengths: Any,
    initial: Sequence[Any],
    *,
    hidden_size: int | None = None,
    direction: str = "forward",
    layout: int = 0,
    activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    clip: float | None = None,
) -> tuple[Tensor, ...]:
    x, w, r, bias = tensor(x), tensor(w), tensor(r), None if b is None else tensor(b)
    n = r.shape[-1]
    if direction not in ("forward", "reverse", "bidirectional"):
        raise ValueError(f"the direction is {direction!r}")
    both = 1 + (direction == "bidirectional")
    wanted = [(both, gates * n, x.shape[-1]), (both, gates * n, n), (both, 2 * gates * n)]
    if x.ndim != 3 or hidden_size not in (None, n):
        raise ValueError(f"hidden_size is {hidden_size}, and the input has the shape {list(x.shape)}")
    for what, given, shape in zip("WRB", (w, r, bias), wanted, strict=True):
        if given is not None and given.shape != shape:
            raise ValueError(f"{what} has the shape {list(given.shape)}, expected {list(shape)}")
    if layout:
        x, initial = x.swapaxes(0, 1), [None if s is None else tensor(s).swapaxes(0, 1) for s in initial]
    steps, batch = x.shape[:2]
    lens = [steps] * batch if lengths is None else integers("sequence_lens", lengths)
    if len(lens) != batch or not 0 <= min(lens, default=0) <= max(lens, default=0) <= steps:
        raise ValueError(f"sequence_lens {lens} for a batch of {batch} of length {steps}")
    functions = _functions(
        list(activations or defaults) * (1 if activations else both), activation_alpha, activation_beta, clip
    )
    if len(functions) != both * len(defaults):
        raise ValueError(f"{len(functions)} activations, expected {both * len(defaults)}")
    spend(steps, both, batch, n)
    y = np.full((steps, both, batch, n), 0.0, object)
    last = [np.full((both, batch, n), 0.0, object) for _ in initial]
    for d in range(both):
        net = _Direction(d, w, r, bias, functions[d * len(defaults) :][: len(defaults)])
        for e in range(batch):
            state = tuple([elements(np.zeros(n) if s is None else tensor(s)[d, e]) for s in initial])
            order = range(lens[e])
            for t in reversed(order) if d or direction == "reverse" else order:
                state = tuple(map(elements, step(net, x[t, e], state)))
                y[t, d, e] = state[0]
            for whole, end in zip(last, state, strict=True):
                whole[d, e] = end
    if layout:
        return y.transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in last)
    found = (y, *last)
    return found if any(is_graph(each) for each in (x, w, r)) else tuple(each.astype(x.dtype) for each in found)


def _functions(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], clip: float | None
) -> list[Callable[[Tensor], Tensor]]:
    """Alphas and betas are listed for those activations that take one."""
    left, right = list(alphas), list(betas)
    found: list[Callable[[Tensor], Tensor]] = []
    for name in names:
        key = name.lower()
        if key not in ACTIVATIONS:
            raise ValueError(f"the activation {name!r} is not supported: there are {', '.join(ACTIVATIONS)}")
        options = {}
        if key in ("affine", "elu", "hardsigmoid", "leakyrelu") and left:
            options["alpha"] = left.pop(0)
        if key in BETAS and right:
            options["beta"] = right.pop(0)
        found.append(_clipped(ACTIVATIONS[key], options, clip))
    return found


def _clipped(function: Callable[..., Tensor], options: dict[str, float], clip: float | None) -> Callable[..., Tensor]:
    if clip is None or clip <= 0:
        return lambda x: function(x, **options)
    return lambda x: function(Clip(x, -clip, clip), **options)

"""Layers beyond the perceptron, of `Value`s: PyTorch's, with its names, shapes, defaults and initial distributions.

Each takes and returns nested lists of Values, and works on whatever can be indexed, arrays included. Sums begin with
the bias and go on from left to right, as those of a Neuron.
"""

import math
from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

from micrograd.engine import Value
from micrograd.functional import is_sequence, softmax, total, with_constants
from micrograd.initial import Distribution, Initial, Normal, draw
from micrograd.module import Module, Nested
from micrograd.noise import Bernoulli, Noise, leaves_of
from micrograd.schedules import finite

Row = list[Value]


class TensorModule(Module):
    """A module whose parameters are tensors of its own, drawn in the order in which they are added."""

    def __init__(self) -> None:
        self._tensors: dict[str, Nested] = {}
        self._initial: dict[str, Initial] = {}

    def _add(self, name: str, distribution: Distribution, *shape: int) -> Any:
        if min(shape) < 1:
            raise ValueError(f"the sizes of {name} must be at least 1, got {shape}")
        self._initial[name] = distribution
        self._tensors[name] = tensor = _drawn(distribution, shape, "bias" if "bias" in name else "weight")
        return tensor

    def parameters(self) -> Row:
        return list(leaves_of(self._tensors.values()))

    def named_parameters(self) -> dict[str, Nested]:
        return dict(self._tensors)

    def initial(self) -> dict[str, Initial]:
        return dict(self._initial)


class Conv2d(TensorModule):
    """torch.nn.Conv2d: channels x height x width in and out. Padding is with zeros, whose terms the sums leave out.

    `kernel_size`, `stride` and `padding` are an int, or one for the height and one for the width. `weight` has the
    shape (out_channels, in_channels, height, width), `bias` (out_channels,); both are drawn from uniform(-k, k) with
    k = 1 / sqrt(fan-in). Raises ValueError for sizes that make no image.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.kernel, self.stride = _pair("kernel_size", kernel_size), _pair("stride", stride)
        self.padding = _pair("padding", padding)
        if min(in_channels, out_channels, *self.kernel, *self.stride) < 1 or min(self.padding) < 0:
            raise ValueError("channels, kernel_size and stride must be at least 1, and padding at least 0")
        bound = 1 / math.sqrt(in_channels * math.prod(self.kernel))
        self.weight = self._add("weight", (-bound, bound), out_channels, in_channels, *self.kernel)
        self.bias = self._add("bias", (-bound, bound), out_channels) if bias else None

    def __call__(self, image: Any) -> list[list[Row]]:
        if len(image) != len(self.weight[0]):
            raise ValueError(f"this convolution has {len(self.weight[0])} channels, got {len(image)}")
        sizes = len(image[0]), len(image[0][0]) if len(image[0]) else 0
        if any(len(channel) != sizes[0] or any(len(row) != sizes[1] for row in channel) for channel in image):
            raise ValueError(f"all channels of an image must be {sizes[0]} x {sizes[1]}, as its first row is")
        places = [self._places(axis, size) for axis, size in enumerate(sizes)]
        return [
            [[self._at(image, kernel, o, rows, columns) for columns in places[1]] for rows in places[0]]
            for o, kernel in enumerate(self.weight)
        ]

    def _places(self, axis: int, size: int) -> list[list[tuple[int, int]]]:
        """For each place of the output the pairs (in the kernel, in the image) that are inside of the image."""
        kernel, stride, padding = self.kernel[axis], self.stride[axis], self.padding[axis]
        count = (size + 2 * padding - kernel) // stride + 1
        if count < 1:
            raise ValueError(f"a kernel of {kernel} does not fit an image of {size} with a padding of {padding}")
        inside = range(size)
        starts = range(-padding, -padding + count * stride, stride)
        return [[(u, at + u) for u in range(kernel) if at + u in inside] for at in starts]

    def _at(
        self, image: Any, kernel: Any, o: int, rows: Sequence[tuple[int, int]], columns: Sequence[tuple[int, int]]
    ) -> Value:
        terms = [
            kernel[c][u][v] * image[c][i][j] for c in range(len(kernel)) for u, i in rows for v, j in columns
        ]  # in the order of the weights
        start = [self.bias[o]] if self.bias is not None else []
        return total([*start, *terms]) if start or terms else Value(0.0)


class LSTM(TensorModule):
    """torch.nn.LSTM over a sequence of vectors: `outputs, (h, c) = lstm(sequence)`.

    `outputs` has the hidden state of the last layer after each step; h and c have one state for each layer, and can be
    passed as `state` to go on. Without a state they begin as 0, and what would be multiplied by it is left out. The
    tensors of layer k are `weight_ih_lk`, `weight_hh_lk`, `bias_ih_lk` and `bias_hh_lk`, with the gates input, forget,
    cell and output one after the other; all are drawn from uniform(-k, k) with k = 1 / sqrt(hidden_size).
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True) -> None:
        super().__init__()
        if min(input_size, hidden_size, num_layers) < 1:
            raise ValueError("input_size, hidden_size and num_layers must be at least 1")
        bound, gates = (-1 / math.sqrt(hidden_size), 1 / math.sqrt(hidden_size)), 4 * hidden_size
        self.hidden_size = hidden_size
        self.layers: list[tuple[Any, Any, Any, Any]] = []
        for k in range(num_layers):
            weight_ih = self._add(f"weight_ih_l{k}", bound, gates, hidden_size if k else input_size)
            weight_hh = self._add(f"weight_hh_l{k}", bound, gates, hidden_size)
            bias_ih = self._add(f"bias_ih_l{k}", bound, gates) if bias else None
            bias_hh = self._add(f"bias_hh_l{k}", bound, gates) if bias else None
            self.layers.append((weight_ih, weight_hh, bias_ih, bias_hh))

    def __call__(self, sequence: Iterable[Any], state: Any = None) -> tuple[list[Row], tuple[list[Row], list[Row]]]:
        outputs: list[Any] = list(sequence)
        if not outputs:
            raise ValueError("an LSTM of no steps")
        try:
            fits = state is None or [[*map(len, part)] for part in state] == 2 * [len(self.layers) * [self.hidden_size]]
        except TypeError:  # h and c are rows
            fits = False
        if not fits:
            raise ValueError(
                f"a state must be h and c of {len(self.layers)} layers each, of {self.hidden_size} numbers: "
                "([h], [c]) for one layer"
            )
        last: tuple[list[Row], list[Row]] = ([], [])
        for k, tensors in enumerate(self.layers):
            h, c = (state[0][k], state[1][k]) if state is not None else (None, None)
            for t, x in enumerate(outputs):
                h, c = self._step(tensors, x, h, c)
                outputs[t] = h
            last[0].append(h)  # type: ignore[arg-type]
            last[1].append(c)  # type: ignore[arg-type]
        return outputs, last

    def _step(self, tensors: tuple[Any, Any, Any, Any], x: Any, h: Any, c: Any) -> tuple[Row, Row]:
        weight_ih, weight_hh, bias_ih, bias_hh = tensors
        gates = _affine(weight_ih, bias_ih, x)
        if h is not None:
            gates = [a + b for a, b in zip(gates, _affine(weight_hh, bias_hh, h), strict=True)]
        elif bias_hh is not None:
            gates = [a + b for a, b in zip(gates, bias_hh, strict=True)]
        n = self.hidden_size
        i, f, g, o = (gates[k * n : (k + 1) * n] for k in range(4))
        new = [a.sigmoid() * b.tanh() for a, b in zip(i, g, strict=True)]
        if c is not None:
            new = [a.sigmoid() * old + b for a, old, b in zip(f, c, new, strict=True)]
        return [a.sigmoid() * b.tanh() for a, b in zip(o, new, strict=True)], new


class Attention(TensorModule):
    """torch.nn.MultiheadAttention of one sequence, with `num_heads` heads over vectors of `embed_dim` numbers.

    `attention(x)` is self-attention; `attention(query, key, value)` looks at another sequence. With `causal`, a token
    sees itself and those before it. `mask`, numbers or Values, is added to the scores, as PyTorch's masks of floats:
    a row with one for each key, or such a row for each query; -inf hides a key. The tensors are PyTorch's:
    `in_proj_weight` and `in_proj_bias` for queries, keys and values one after the other, `out_proj.weight`,
    `out_proj.bias`. Raises ValueError if embed_dim is no multiple of num_heads.
    """

    def __init__(self, embed_dim: int, num_heads: int, bias: bool = True) -> None:
        super().__init__()
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"embed_dim must be a multiple of num_heads, got {embed_dim} and {num_heads}")
        self.embed_dim, self.num_heads = embed_dim, num_heads
        xavier, linear = math.sqrt(6 / (4 * embed_dim)), 1 / math.sqrt(embed_dim)
        self.in_proj_weight = self._add("in_proj_weight", (-xavier, xavier), 3 * embed_dim, embed_dim)
        self.in_proj_bias = self._add("in_proj_bias", (0.0, 0.0), 3 * embed_dim) if bias else None
        self.out_weight = self._add("out_proj.weight", (-linear, linear), embed_dim, embed_dim)
        self.out_bias = self._add("out_proj.bias", (0.0, 0.0), embed_dim) if bias else None

    def __call__(
        self, query: Any, key: Any = None, value: Any = None, *, causal: bool = False, mask: Any = None
    ) -> list[Row]:
        key = query if key is None else key
        value = key if value is None else value
        if len(key) != len(value) or (causal and len(query) != len(key)):
            raise ValueError(f"queries, keys and values do not fit: {len(query)}, {len(key)} and {len(value)}")
        added = _mask(mask, len(query), len(key))
        queries, keys, values = (self._projected(part, x) for part, x in enumerate((query, key, value)))
        width = self.embed_dim // self.num_heads
        heads = [slice(h * width, (h + 1) * width) for h in range(self.num_heads)]
        scale = 1 / math.sqrt(width)
        mixed: list[Row] = []
        for t, q in enumerate(queries):
            seen = t + 1 if causal else len(keys)
            row: Row = []
            for head in heads:
                scores = [_dot(q[head], k[head]) * scale for k in keys[:seen]]
                shares = softmax([a + b for a, b in zip(scores, added[t], strict=False)] if added else scores)
                row += [_dot(shares, column) for column in zip(*(v[head] for v in values[:seen]), strict=True)]
            mixed.append(row)
        return [_affine(self.out_weight, self.out_bias, row) for row in mixed]

    def _projected(self, part: int, sequence: Any) -> list[Row]:
        own = slice(part * self.embed_dim, (part + 1) * self.embed_dim)
        bias = self.in_proj_bias[own] if self.in_proj_bias is not None else None
        return [_affine(self.in_proj_weight[own], bias, x) for x in sequence]


def _mask(mask: Any, queries: int, keys: int) -> list[Any]:
    """A row for each query; none without a mask."""
    if mask is None:
        return []
    rows = [*mask] if len(mask) and is_sequence(mask[0]) else [mask] * queries
    if len(rows) != queries or any(not is_sequence(row) or len(row) != keys for row in rows):
        raise ValueError(f"a mask must be {queries} rows of {keys} numbers, or one for all")
    if any(type(x).__name__ in ("bool", "bool_") for row in rows for x in row):
        raise TypeError("a mask is added to the scores: use -inf for what must not be seen, and 0, not bools")
    return rows


class LayerNorm(TensorModule):
    """torch.nn.LayerNorm over vectors of `size` numbers: (x - mean) / sqrt(variance + eps) * weight + bias.

    It normalises one vector, or each one of a nested list. `weight` begins as 1, `bias` as 0.
    """

    def __init__(self, size: int, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True) -> None:
        super().__init__()
        self.size = size = _int("size must be an int, the length of the vectors", size)
        self.eps = finite("eps", eps)
        self.weight = self._add("weight", (1.0, 1.0), size) if elementwise_affine else None
        self.bias = self._add("bias", (0.0, 0.0), size) if elementwise_affine and bias else None

    def __call__(self, x: Any) -> Any:
        if len(x) and is_sequence(x[0]):
            return [self(row) for row in x]
        if len(x) != self.size:
            raise ValueError(f"this normalisation has {self.size} inputs, got {len(x)}")
        x = with_constants(x)
        mean = total(x) / self.size
        centred = [a - mean for a in x]
        deviation = (total([a * a for a in centred]) / self.size + self.eps).sqrt()
        out = [a / deviation for a in centred]
        if self.weight is not None:
            out = [a * w for a, w in zip(out, self.weight, strict=True)]
        return [a + b for a, b in zip(out, self.bias, strict=True)] if self.bias is not None else out


class Embedding(TensorModule):
    """torch.nn.Embedding: row `token` of a table of `num_embeddings` rows, drawn from a standard normal distribution.

    A token is an int, known when the graph is traced, or an input: `num_embeddings` Values of which one is 1, the
    others 0. Of a list of tokens it returns a list of rows. Raises ValueError for a token that is not in the table.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.weight = self._add("weight", Normal(0.0, 1.0), num_embeddings, embedding_dim)

    def __call__(self, token: Any) -> Any:
        if not is_sequence(token):
            number = index(token)
            if not 0 <= number < len(self.weight):
                raise ValueError(f"a token must be 0..{len(self.weight) - 1}, got {number}")
            return list(self.weight[number])
        if not len(token) or not isinstance(token[0], Value):
            return [self(one) for one in token]
        if len(token) != len(self.weight):
            raise ValueError(f"a token must be {len(self.weight)} Values, got {len(token)}")
        return [_dot(token, column) for column in zip(*self.weight, strict=True)]


class Dropout(Module):
    """torch.nn.Dropout: each Value becomes 0 with probability p, or is divided by 1 - p.

    The masks are leaves of their own: Program(noise=model.noise()) draws them anew for each training example, and
    predictions have their mean, 1. An interpreted model draws them by `for noise in model.noise(): noise.draw()`.

    Raises ValueError unless 0 <= p < 1.
    """

    def __init__(self, p: float = 0.5) -> None:
        if not 0.0 <= p < 1.0:
            raise ValueError(f"the probability must be 0 <= p < 1, got {p!r}")
        self.p = p
        self._noise: list[Noise] = []

    def __call__(self, x: Any) -> Any:
        masks: Row = []

        def dropped(nested: Any) -> Any:
            if is_sequence(nested):
                return [dropped(inner) for inner in nested]
            masks.append(Value(1.0))
            return nested * masks[-1]

        out = dropped(x)
        self._noise.append(Noise(masks, Bernoulli(1.0 - self.p, 1.0 / (1.0 - self.p))))
        return out

    def noise(self) -> list[Noise]:
        return list(self._noise)


def _drawn(distribution: Distribution, shape: Sequence[int], kind: str) -> Any:
    if not shape:
        return Value(draw(distribution), _op=kind)
    return [_drawn(distribution, shape[1:], kind) for _ in range(shape[0])]


def _pair(name: str, size: int | tuple[int, int]) -> tuple[int, int]:
    height, width = size if isinstance(size, tuple | list) else (size, size)
    expected = f"{name} must be an int, or one for the height and one for the width"
    return _int(expected, height), _int(expected, width)


def _int(expected: str, size: Any) -> int:
    try:
        return index(size)
    except TypeError:
        raise TypeError(f"{expected}, got {size!r}") from None


def _dot(a: Iterable[Any], b: Iterable[Any]) -> Value:
    return total([x * y for x, y in zip(a, b, strict=True)])


def _affine(weight: Any, bias: Any, x: Any) -> Row:
    """weight @ x + bias, each sum beginning with its bias."""
    if len(x) != len(weight[0]):
        raise ValueError(f"this layer has {len(weight[0])} inputs, got {len(x)}")
    products = [[w * a for w, a in zip(row, x, strict=True)] for row in weight]
    if bias is None:
        return [total(terms) for terms in products]
    return [total([b, *terms]) for b, terms in zip(bias, products, strict=True)]

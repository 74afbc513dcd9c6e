"""A recurrent net that learns to spell, with ops of its own in micrograd's way: `out._backward = closure`."""

import math
import random

from micrograd.engine import Value

TEXT = "hello hello "
HIDDEN = 6


def dot(ws, xs):
    """A whole sum of products as one node."""
    out = Value(sum(w.data * x.data for w, x in zip(ws, xs)), (*ws, *xs), "dot")

    def _backward():
        for w, x in zip(ws, xs):
            w.grad += x.data * out.grad
            x.grad += w.data * out.grad

    out._backward = _backward
    return out


def tanh(x):
    t = math.tanh(x.data)
    out = Value(t, (x,), "tanh")

    def _backward():
        x.grad += (1 - t * t) * out.grad

    out._backward = _backward
    return out


def cross_entropy(logits, target):
    """Softmax and negative log likelihood in one node."""
    biggest = max(x.data for x in logits)
    exps = [math.exp(x.data - biggest) for x in logits]
    total = sum(exps)
    out = Value(math.log(total) - logits[target].data + biggest, tuple(logits), "xent")

    def _backward():
        for i, x in enumerate(logits):
            x.grad += (exps[i] / total - (i == target)) * out.grad

    out._backward = _backward
    return out


class RNN:
    def __init__(self, vocabulary, hidden):
        def matrix(rows, columns):
            return [[Value(random.gauss(0, 0.4)) for _ in range(columns)] for _ in range(rows)]

        self.wxh, self.whh, self.why = matrix(vocabulary, hidden), matrix(hidden, hidden), matrix(vocabulary, hidden)
        self.bh = [Value(0) for _ in range(hidden)]
        self.hidden = hidden

    def parameters(self):
        return [p for m in (self.wxh, self.whh, self.why) for row in m for p in row] + self.bh

    def step(self, char, state):
        state = [tanh(self.wxh[char][i] + dot(self.whh[i], state) + self.bh[i]) for i in range(self.hidden)]
        return [dot(row, state) for row in self.why], state

    def start(self):
        return [Value(0) for _ in range(self.hidden)]


def main(steps=60):
    """The losses, and what the net writes after "h"."""
    random.seed(1)
    chars = sorted(set(TEXT))
    data = [chars.index(c) for c in TEXT]
    net = RNN(len(chars), HIDDEN)
    losses = []
    for _ in range(steps):
        state, loss = net.start(), Value(0)
        for char, target in zip(data, data[1:]):
            logits, state = net.step(char, state)
            loss += cross_entropy(logits, target)
        loss = loss / (len(data) - 1)
        for p in net.parameters():
            p.grad = 0
        loss.backward()
        for p in net.parameters():
            p.data -= 0.8 * max(-1, min(1, p.grad))
        losses.append(loss.data)
    text, state = "h", net.start()
    for _ in range(10):
        logits, state = net.step(chars.index(text[-1]), state)
        text += chars[max(range(len(chars)), key=lambda i: logits[i].data)]
    return losses, text


if __name__ == "__main__":
    print(main())

"""A small GPT in plain scalars: tokens, attention, an MLP, RMS norm, Adam with its state in lists, sampling."""

import math
import random

from micrograd.engine import Value

NAMES = ["emma", "anna", "hannah", "mia", "amy", "ann"]
WIDTH, HEADS, LAYERS, CONTEXT = 8, 2, 1, 8
LR, BETA1, BETA2, EPS = 0.03, 0.85, 0.99, 1e-8


class Tokenizer:
    """Characters as numbers; the last number marks the beginning and the end of a name."""

    def __init__(self, documents):
        self.chars = sorted(set("".join(documents)))
        self.mark = len(self.chars)

    def __len__(self):
        return len(self.chars) + 1

    def encode(self, text):
        return [self.mark, *(self.chars.index(c) for c in text), self.mark]

    def decode(self, tokens):
        return "".join(self.chars[t] for t in tokens)


def matrix(nout, nin, std=0.15):
    return [[Value(random.gauss(0, std)) for _ in range(nin)] for _ in range(nout)]


def linear(x, w):
    return [sum(wi * xi for wi, xi in zip(row, x)) for row in w]


def softmax(logits):
    biggest = max(x.data for x in logits)
    exps = [(x - biggest).exp() for x in logits]
    total = sum(exps)
    return [e / total for e in exps]


def rmsnorm(x):
    mean = sum(xi * xi for xi in x) / len(x)
    scale = (mean + 1e-5) ** -0.5
    return [xi * scale for xi in x]


class Attention:
    """Heads that look back at the keys and values of earlier tokens."""

    def __init__(self):
        self.wq, self.wk, self.wv = (matrix(WIDTH, WIDTH) for _ in range(3))
        self.wo = matrix(WIDTH, WIDTH, 0.0)

    def __call__(self, x, keys, values):
        q = linear(x, self.wq)
        keys.append(linear(x, self.wk))
        values.append(linear(x, self.wv))
        size, out = WIDTH // HEADS, []
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            scores = [sum(a * b for a, b in zip(q[part], k[part])) / size**0.5 for k in keys]
            weights = softmax(scores)
            vs = [v[part] for v in values]
            out += [sum(w * v[i] for w, v in zip(weights, vs)) for i in range(size)]
        return linear(out, self.wo)

    def matrices(self):
        return [self.wq, self.wk, self.wv, self.wo]


class FeedForward:
    def __init__(self):
        self.up, self.down = matrix(2 * WIDTH, WIDTH), matrix(WIDTH, 2 * WIDTH, 0.0)

    def __call__(self, x):
        return linear([h.relu() ** 2 for h in linear(x, self.up)], self.down)

    def matrices(self):
        return [self.up, self.down]


class Block:
    def __init__(self):
        self.attention, self.mlp = Attention(), FeedForward()

    def __call__(self, x, cache):
        keys, values = cache
        x = [a + b for a, b in zip(x, self.attention(rmsnorm(x), keys, values))]
        return [a + b for a, b in zip(x, self.mlp(rmsnorm(x)))]

    def matrices(self):
        return self.attention.matrices() + self.mlp.matrices()


class GPT:
    def __init__(self, vocabulary):
        self.wte, self.wpe = matrix(vocabulary, WIDTH), matrix(CONTEXT, WIDTH)
        self.blocks = [Block() for _ in range(LAYERS)]
        self.head = matrix(vocabulary, WIDTH)

    def parameters(self):
        matrices = [self.wte, self.wpe, self.head]
        for block in self.blocks:
            matrices += block.matrices()
        return [p for m in matrices for row in m for p in row]

    def cache(self):
        return [([], []) for _ in self.blocks]

    def __call__(self, token, position, cache):
        x = rmsnorm([t + p for t, p in zip(self.wte[token], self.wpe[position])])
        for block, kept in zip(self.blocks, cache):
            x = block(x, kept)
        return linear(x, self.head)


class Adam:
    def __init__(self, params):
        self.params, self.step_count = params, 0
        self.m, self.v = [0.0] * len(params), [0.0] * len(params)

    def step(self, lr):
        self.step_count += 1
        for i, p in enumerate(self.params):
            self.m[i] = BETA1 * self.m[i] + (1 - BETA1) * p.grad
            self.v[i] = BETA2 * self.v[i] + (1 - BETA2) * p.grad**2
            m_hat = self.m[i] / (1 - BETA1**self.step_count)
            v_hat = self.v[i] / (1 - BETA2**self.step_count)
            p.data -= lr * m_hat / (v_hat**0.5 + EPS)
            p.grad = 0


def loss_of(model, tokens):
    """The mean negative log likelihood of each token after those before it."""
    cache, losses = model.cache(), []
    for position in range(min(CONTEXT, len(tokens) - 1)):
        probs = softmax(model(tokens[position], position, cache))
        losses.append(-probs[tokens[position + 1]].log())
    return (1 / len(losses)) * sum(losses)


def sample(model, tokenizer, temperature=0.5):
    token, cache, written = tokenizer.mark, model.cache(), []
    for position in range(CONTEXT):
        logits = model(token, position, cache)
        probs = softmax([x / temperature for x in logits])
        token = random.choices(range(len(tokenizer)), weights=[p.data for p in probs])[0]
        if token == tokenizer.mark:
            break
        written.append(token)
    return tokenizer.decode(written)


def main(steps=40):
    """The losses of training, and some names."""
    random.seed(42)
    tokenizer = Tokenizer(NAMES)
    model = GPT(len(tokenizer))
    optimiser = Adam(model.parameters())
    losses = []
    for step in range(steps):
        loss = loss_of(model, tokenizer.encode(NAMES[step % len(NAMES)]))
        loss.backward()
        optimiser.step(LR * (1 - step / steps))
        losses.append(loss.data)
    return losses, [sample(model, tokenizer) for _ in range(5)], math.log(len(tokenizer))


if __name__ == "__main__":
    print(main())

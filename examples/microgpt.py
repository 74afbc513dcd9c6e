"""A GPT in scalars makes up names of cities: three steps of training are interpreted, ten thousand compiled.

A token is a letter, or the mark before and after each name. Each token looks at itself and at those before it, and
guesses the next one. Short names are filled up with marks, whose guesses weigh nothing.
"""

import math
import random
from pathlib import Path
from time import perf_counter

import codegen
from codegen import Floats, Program, Tokens
from micrograd import optim
from micrograd.engine import Value
from micrograd.functional import cross_entropy, softmax, total

CITIES = Path(__file__).with_name("cities.txt").read_text(encoding="utf-8").split()
LETTERS = sorted(set("".join(CITIES)))
MARK, WORDS, TOKENS, WIDTH, HEADS, BLOCKS = len(LETTERS), len(LETTERS) + 1, 8, 16, 4, 1
SIZE, ADAM, RATE = WIDTH // HEADS, optim.adam(betas=(0.85, 0.99)), 0.01


def new_parameters():
    """4,064 numbers in named matrices."""
    rng, shapes = random.Random(42), {"token": (WORDS, WIDTH), "place": (TOKENS, WIDTH), "head": (WORDS, WIDTH)}
    for b in range(BLOCKS):
        shapes |= {f"{b}.{name}": (WIDTH, WIDTH) for name in ("query", "key", "value", "mix")}
        shapes |= {f"{b}.up": (4 * WIDTH, WIDTH), f"{b}.down": (WIDTH, 4 * WIDTH)}
    return {n: [[Value(rng.gauss(0, 0.1)) for _ in range(c)] for _ in range(r)] for n, (r, c) in shapes.items()}


def dot(a, b):
    return total([x * y for x, y in zip(a, b, strict=True)])


def linear(matrix, x, start=None):
    out = [dot(row, x) for row in matrix]
    return out if start is None else [s + o for s, o in zip(start, out, strict=True)]


def rmsnorm(x):
    scale = (dot(x, x) / len(x) + 1e-5) ** -0.5
    return [xi * scale for xi in x]


def attention(query, keys, values):
    """What one token takes from those it may look at. Each head has its part of the width."""
    out = []
    for head in (slice(first, first + SIZE) for first in range(0, WIDTH, SIZE)):
        shares = softmax([dot(query[head], key[head]) / math.sqrt(SIZE) for key in keys])
        out += [dot(shares, column) for column in zip(*(value[head] for value in values), strict=True)]
    return out


def gpt(w, tokens, following, weights):
    """The logits of each next token, and the loss: how much the tokens that follow surprise, by their weights."""
    xs = [linear(zip(*w["token"], strict=True), t, place) for t, place in zip(tokens, w["place"], strict=True)]
    for b in range(BLOCKS):
        q, k, v = ([linear(w[f"{b}.{name}"], rmsnorm(x)) for x in xs] for name in ("query", "key", "value"))
        xs = [linear(w[f"{b}.mix"], attention(q[t], k[: t + 1], v[: t + 1]), x) for t, x in enumerate(xs)]
        xs = [linear(w[f"{b}.down"], [h.relu() for h in linear(w[f"{b}.up"], rmsnorm(x))], x) for x in xs]
    logits = [linear(w["head"], rmsnorm(x)) for x in xs]
    return logits, dot(weights, [cross_entropy(x, y) for x, y in zip(logits, following, strict=True)])


def one_hot(tokens):
    return [[Value(float(word == token)) for word in range(WORDS)] for token in tokens]


def program():
    w, tokens, following = new_parameters(), one_hot([MARK] * TOKENS), one_hot([MARK] * TOKENS)
    weights = [Value(0) for _ in range(TOKENS)]
    logits, loss = gpt(w, tokens, following, weights)
    targets = {"following": Tokens(following), "weights": Floats(weights)}
    return Program(Tokens(tokens), targets, w, loss, {"logits": [x for row in logits for x in row]}, RATE, update=ADAM)


def example(name):
    """A name's tokens, those that follow them, and what each guess weighs: together 1."""
    letters, count = [MARK, *map(LETTERS.index, name), MARK], len(name) + 1
    marks = [MARK] * (TOKENS - count)
    return letters[:-1] + marks, letters[1:] + marks, [1 / count] * count + [0.0] * len(marks)


def train_interpreted(names):
    """The loss of each name, before its step."""
    w = new_parameters()
    optimizer = optim.Optimizer(w, ADAM, RATE)
    for tokens, following, weights in map(example, names):
        _, loss = gpt(w, one_hot(tokens), one_hot(following), weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.data


def train(model, names):
    tokens, following, weights = zip(*map(example, names), strict=True)
    return model.train(tokens, {"following": following, "weights": weights})[0]


def sample(model, name=""):
    """Goes on with a name, letter after letter."""
    logits = model.outputs(example(name)[0])["logits"][len(name) * WORDS :][:WORDS]
    letter = random.choices(range(WORDS), [math.exp(2 * x) for x in logits])[0]
    return name if letter == MARK or len(name) == TOKENS - 1 else sample(model, name + LETTERS[letter])


if __name__ == "__main__":
    random.seed(1)
    names, start = random.choices(CITIES, k=10_003), perf_counter()
    losses = list(train_interpreted(names[:3]))
    print(f"interpreted: {(perf_counter() - start) / 3:.2f} s a step")
    start, model = perf_counter(), codegen.compile(program())
    print(f"built in {perf_counter() - start:.1f} s; same losses: {[train(model, [n]) for n in names[:3]] == losses}")
    for i in range(3, len(names), 2000):
        start, loss = perf_counter(), train(model, names[i : i + 2000])
        print(f"2,000 steps in {perf_counter() - start:.3f} s, loss {loss:.2f}:", *[sample(model) for _ in range(6)])

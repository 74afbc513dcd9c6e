"""Tokens of growing vocabularies: python -m benchmarks.tokens [WORDS ...]

Eight tokens share a table of eight numbers a word; a layer of 16 units and a class of four come after it. Microseconds
an example of train() with batches of 1 and of 32, and of evaluate(): none of them grows with the vocabulary, except for
cache misses. Each cell is the fastest of all rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

import codegen
from benchmarks.report import processor
from codegen import Label, Program, Tokens
from micrograd.engine import Value
from micrograd.functional import cross_entropy
from micrograd.nn import MLP, Embedding

TOKENS, WIDTH, HIDDEN, CLASSES, EXAMPLES = 8, 8, 16, 4, 512


def program(words: int) -> Program:
    tokens = [[Value(0) for _ in range(words)] for _ in range(TOKENS)]
    label = [Value(0) for _ in range(CLASSES)]
    embedding, net = Embedding(words, WIDTH), MLP(TOKENS * WIDTH, [HIDDEN, CLASSES])
    logits = net([x for token in tokens for x in embedding(token)])
    parameters = {"embedding": embedding.weight, **net.named_parameters()}
    return Program(Tokens(tokens), Label(label), parameters, cross_entropy(logits, label), {"logits": logits})


def tasks(model: Any, words: int) -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(0)
    tokens, labels = rng.integers(0, words, (EXAMPLES, TOKENS)), rng.integers(0, CLASSES, EXAMPLES)
    return {
        "train, batches of 1": lambda: model.train(tokens, labels, batch_size=1),
        "train, batches of 32": lambda: model.train(tokens, labels, batch_size=32),
        "evaluate": lambda: model.evaluate(tokens, labels),
    }


def fastest(work: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = perf_counter()
        work()
        best = min(best, perf_counter() - start)
    return 1e6 * best / EXAMPLES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tokens", description=__doc__.split("\n")[0])
    parser.add_argument("words", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    print(f"Microseconds an example on {processor()}")
    for words in arguments.words:
        found = tasks(codegen.compile(program(words)), words)
        cells = ", ".join(f"{name} {fastest(work, arguments.rounds):.2f}" for name, work in found.items())
        print(f"{words:7,} words: {cells}", flush=True)


if __name__ == "__main__":
    main()

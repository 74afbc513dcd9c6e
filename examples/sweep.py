"""A sweep over architectures, learning rates and seeds in a pool of processes, with a table and a plot at the end.

`python examples/sweep.py sweep.svg` draws the plot as well. That needs Matplotlib.
"""

import math
import random
import sys
from array import array
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from statistics import mean, stdev

import codegen
from codegen import Floats, Label, Program
from micrograd import schedules, training
from micrograd.engine import Value
from micrograd.functional import cross_entropy
from micrograd.nn import MLP

HIDDEN, RATES, SEEDS = [(4,), (16, 16)], [0.01, 0.1, 0.3, 1.0, 3.0], range(1, 6)
EPOCHS, BATCH, POINTS = 20, 10, 400


def spirals(seed):
    """Points on two noisy arms that wind around each other, and the arm of each."""
    rng, points = random.Random(seed), array("d")
    for i in range(POINTS):
        r = rng.uniform(0.2, 1)
        angle = 4 * r + math.pi * (i % 2)
        points.extend([r * math.cos(angle) + rng.gauss(0, 0.05), r * math.sin(angle) + rng.gauss(0, 0.05)])
    return points, bytes(i % 2 for i in range(POINTS))


@cache
def compiled(hidden):
    """The model of an architecture: compiled once, then from the cache on disk, and once in each process from there."""
    mlp, x, arm = MLP(2, [*hidden, 2], activation="tanh"), [Value(0), Value(0)], [Value(0), Value(0)]
    logits = mlp(x)
    loss, outputs = cross_entropy(logits, arm), {"logits": logits}
    named, first = mlp.named_parameters(), mlp.initial()
    return codegen.compile(Program(Floats(x), Label(arm), named, loss, outputs, prediction="logits", initial=first))


def accuracy(run):
    """How much of the test set a run gets right: the same, whichever process does it."""
    hidden, rate, seed = run
    model = compiled(hidden)
    model.reset(seed)
    schedule = schedules.cosine(rate, EPOCHS * POINTS // BATCH)
    settings = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": schedule, "seed": seed, "test": spirals(2)}
    return training.fit(model, *spirals(1), **settings).epochs[-1].test_accuracy


def sweep():
    """The accuracies of the seeds, for each architecture and rate."""
    for hidden in HIDDEN:
        compiled(hidden)
    runs = list(product(HIDDEN, RATES, SEEDS))
    with ProcessPoolExecutor() as pool:
        found = dict(zip(runs, pool.map(accuracy, runs, chunksize=len(SEEDS)), strict=True))
    return {(h, rate): [found[h, rate, seed] for seed in SEEDS] for h, rate in product(HIDDEN, RATES)}


if __name__ == "__main__":
    table = sweep()
    print(f"accuracy in %, mean and deviation of {len(SEEDS)} seeds")
    print(f"{'rate':>10}", *(f"{rate:>12g}" for rate in RATES))
    for hidden in HIDDEN:
        cells = (table[hidden, rate] for rate in RATES)
        print(f"{'-'.join(map(str, hidden)):>10}", *(f"{100 * mean(c):6.1f} ±{100 * stdev(c):4.1f}" for c in cells))
    best = max(table, key=lambda setting: mean(table[setting]))
    print(f"best: {'-'.join(map(str, best[0]))} with a rate of {best[1]:g}")

    if len(sys.argv) > 1:
        from matplotlib import pyplot as plt

        plt.figure(figsize=(6, 3.5))
        for hidden in HIDDEN:
            cells = [[100 * x for x in table[hidden, rate]] for rate in RATES]
            plt.errorbar(
                RATES, list(map(mean, cells)), list(map(stdev, cells)), marker="o", capsize=3, label=str(hidden)
            )
        plt.semilogx()
        plt.xlabel("learning rate")
        plt.ylabel("accuracy, %")
        plt.legend(title="hidden units")
        plt.savefig(sys.argv[1], bbox_inches="tight")

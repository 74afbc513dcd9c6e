"""A shipped module whose numbers are not those of the engine, or that does not learn."""

import os
import random

import nn
import numpy as np
import pytest
from harness import bits

from codegen.mnist import program
from micrograd.data import mnist
from micrograd.model import SEED
from tools.fuzz_compiler.reference import Engine

REAL = bool(os.environ.get("MICROGRAD_MNIST"))


@pytest.fixture(scope="module")
def digits():
    """The real digits where they are, else built-in ones."""
    if REAL:
        return mnist.load()
    from micrograd.data import digits as built_in

    images, labels = built_in.generate(200, seed=3)
    return mnist.Data(images, labels, images, labels, "built-in")


def gradients():
    return [nn.grad(i) for i in range(39_760)]


def parameters():
    return [nn.data(i) for i in range(39_760)]


def test_module_equals_engine_on_twenty_images(digits):
    """Loss, outputs, every gradient and every parameter, by bits, with batches of 1 and of 4."""
    engine = Engine(program())
    nn.reset(SEED)
    assert bits(parameters()) == bits(engine.data)
    rng = random.Random(0)
    image = 0
    for batch in (1, 4, 1, 4, 4, 1, 1, 4):
        nn.zero_grad()
        engine.zero_grad()
        for _ in range(batch):
            label, pixels = digits.train_labels[image], digits.train_images[image * 784 : (image + 1) * 784]
            image += 1
            assert bits([nn.forward(label, pixels)]) == bits([engine.forward(label, pixels)])
            for name, expected in engine.outputs().items():
                assert bits(nn.outputs(pixels)[name]) == bits(expected)
            nn.backward()
            engine.backward()
        assert bits(gradients()) == bits(engine.grads)
        rate = rng.choice([0.01, 0.3])
        nn.update(0, batch, learning_rate=rate)
        engine.update(batch, rate)
        assert bits(parameters()) == bits(engine.data)
    assert image == 20


def test_the_module_is_this_graph(compiled_mnist):
    assert nn.info()["digest"] == compiled_mnist().digest


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="needs the real MNIST in $MICROGRAD_MNIST")
def test_accuracy_after_one_epoch_and_within_ten():
    data = mnist.load()
    nn.reset(SEED)
    accuracies = []
    for epoch in range(10):
        nn.train(data.train_images, data.train_labels, seed=SEED + epoch)
        accuracies.append(nn.evaluate(data.test_images, data.test_labels)[1])
    print("test accuracy after each epoch:", np.round(accuracies, 4))
    assert accuracies[0] >= 0.95
    assert max(accuracies) >= 0.97

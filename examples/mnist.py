"""MNIST in a loop of one's own: nn.forward, nn.backward and nn.update, one image at a time.

The data is found or downloaded as by `make train`; without a network the built-in digits take MNIST's place.
"""

import random
import time

import nn

from micrograd.data import mnist

EPOCHS, REPORTS, PIXELS = 1, 6, 784

data = mnist.load()
images, labels = memoryview(data.train_images), data.train_labels
order = list(range(len(labels)))
random.seed(1)

for epoch in range(EPOCHS):
    random.shuffle(order)
    loss, start = 0.0, time.perf_counter()
    for seen, i in enumerate(order, 1):
        nn.zero_grad()
        loss += nn.forward(labels[i], images[PIXELS * i : PIXELS * (i + 1)])
        nn.backward()
        nn.update()
        if seen % (len(order) // REPORTS) == 0:
            _, accuracy = nn.evaluate(data.test_images, data.test_labels)
            print(f"{seen:5} images: loss {loss * REPORTS / len(order):.4f}, {accuracy:.2%} of the test set right")
            loss = 0.0
    print(f"epoch {epoch + 1}: {time.perf_counter() - start:.2f} s")

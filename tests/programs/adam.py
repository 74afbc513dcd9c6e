"""Adam whose moments are attributes of the parameters: p.m and p.v."""

import math
import random

from micrograd.engine import Value
from micrograd.nn import MLP


class Adam:
    def __init__(self, params, lr=0.05, betas=(0.9, 0.999), eps=1e-8):
        self.params, self.lr, self.betas, self.eps, self.t = params, lr, betas, eps, 0
        for p in params:
            p.m = 0.0
            p.v = 0.0

    def zero_grad(self):
        for p in self.params:
            p.grad = 0

    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for p in self.params:
            p.m = b1 * p.m + (1 - b1) * p.grad
            p.v = b2 * p.v + (1 - b2) * p.grad**2
            m_hat = p.m / (1 - b1**self.t)
            v_hat = p.v / (1 - b2**self.t)
            p.data -= self.lr * m_hat / (math.sqrt(v_hat) + self.eps)


def main(steps=60):
    """The losses of a curve fit, and the optimiser."""
    random.seed(2)
    model = MLP(1, [8, 1])
    scale = Value(1.0)  # a parameter of one's own
    opt = Adam([*model.parameters(), scale])
    xs = [i / 10 for i in range(-10, 11)]
    losses = []
    for _ in range(steps):
        loss = sum((model([x]) * scale - x * x) ** 2 for x in xs) / len(xs)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.data)
    return losses, opt


if __name__ == "__main__":
    print(main()[0])

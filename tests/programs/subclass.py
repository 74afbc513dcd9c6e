"""A Value with more operations: a subclass, and classes that are operations."""

import math

from micrograd.engine import Value


class MyValue(Value):
    def __init__(self, data, _children=(), _op="", label=""):
        super().__init__(data, _children, _op, label)
        self._backward = lambda: None
        self.visits = 0

    def arctan(self):
        out = MyValue(math.atan(self.data), (self,), "arctan")

        def _backward():
            self.visits += 1
            self.grad += out.grad / (1 + self.data**2)

        out._backward = _backward
        return out

    def clamp(self, low, high):
        out = MyValue(max(low, min(high, self.data)), (self,), "clamp")

        def _backward():
            self.visits += 1
            self.grad += (low < self.data < high) * out.grad

        out._backward = _backward
        return out


class Hypot(Value):
    __slots__ = ("legs",)

    def __init__(self, *legs):
        super().__init__(math.hypot(*(leg.data for leg in legs)), legs, "hypot")
        self.legs = legs
        self._backward = self.share

    def share(self):
        for leg in self.legs:
            leg.grad += leg.data / self.data * self.grad


def function(x, y):
    return Hypot(x.arctan().clamp(-1, 1) + 1.0, y * 2.0, Value(2.0)) * 3.0


def main():
    """The result, its leaves, and their gradients by difference."""
    x, y = MyValue(0.7, label="x"), MyValue(1.5, label="y")
    out = function(x, y)
    out.backward()
    h = 1e-6

    def at(a, b):
        return function(MyValue(a), MyValue(b)).data

    slopes = [(at(0.7 + h, 1.5) - at(0.7 - h, 1.5)) / (2 * h), (at(0.7, 1.5 + h) - at(0.7, 1.5 - h)) / (2 * h)]
    return out, [x, y], slopes


if __name__ == "__main__":
    print(main())

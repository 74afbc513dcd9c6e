"""Exercises with sines: derivatives by rule, by difference and by backward; a wave that is fitted; Newton's method."""

import math
import random

from micrograd.engine import Value

EXERCISES = [
    ("sin(x**2)", lambda x: (x**2).sin(), lambda x: math.cos(x * x) * 2 * x),
    ("sin(x)**2 + cos(x)**2", lambda x: x.sin() ** 2 + x.cos() ** 2, lambda x: 0.0),
    ("x * sin(1/x)", lambda x: x * (1 / x).sin(), lambda x: math.sin(1 / x) - math.cos(1 / x) / x),
    ("exp(sin(x))", lambda x: x.sin().exp(), lambda x: math.cos(x) * math.exp(math.sin(x))),
    ("sin(x) / cos(x)", lambda x: x.sin() / x.cos(), lambda x: 1 / math.cos(x) ** 2),
    ("cos(3*x - 1)", lambda x: (3 * x - 1).cos(), lambda x: -3 * math.sin(3 * x - 1)),
]


def derivatives(at=0.8, h=1e-6):
    """(name, by rule, by difference, by backward) of each exercise."""
    rows = []
    for name, f, rule in EXERCISES:
        x = Value(at)
        f(x).backward()
        difference = (f(Value(at + h)).data - f(Value(at - h)).data) / (2 * h)
        rows.append((name, rule(at), difference, x.grad))
    return rows


def fit(steps=150):
    """The amplitude, frequency and phase of a wave, found again."""
    random.seed(5)
    amplitude, frequency, phase = Value(1.0), Value(1.2), Value(0.0)
    points = [(t / 10, 1.7 * math.sin(1.5 * t / 10 + 0.4)) for t in range(30)]
    for _ in range(steps):
        loss = sum((amplitude * (frequency * t + phase).sin() - y) ** 2 for t, y in points) / len(points)
        for p in (amplitude, frequency, phase):
            p.grad = 0
        loss.backward()
        for p in (amplitude, frequency, phase):
            p.data -= 0.1 * p.grad
    return amplitude.data, frequency.data, phase.data, loss.data


def newton():
    """The fixed point of the cosine."""
    x = 1.0
    for _ in range(6):
        v = Value(x)
        f = v.cos() - v
        f.backward()
        x -= f.data / v.grad
    return x


if __name__ == "__main__":
    print(derivatives(), fit(), newton())

"""A helper beside model.py: what it imports from here is found and belongs to the source distribution too."""

from micrograd.engine import Value

MEANS = (5.8, 3.1, 3.8, 1.2)  # of the 150 flowers, in cm
DEVIATIONS = (0.8, 0.4, 1.8, 0.8)


def standardized(flower: list[Value]) -> list[Value]:
    return [(x - mean) * (1 / deviation) for x, mean, deviation in zip(flower, MEANS, DEVIATIONS, strict=True)]

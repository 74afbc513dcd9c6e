"""Which iris is it? `frozen` is a trained net that only predicts; `net` can be trained anew."""

from collections.abc import Sequence

from irisnet import frozen

SPECIES = ("setosa", "versicolor", "virginica")


def species(flower: Sequence[float]) -> str:
    """The species of a flower: its sepal's length and width and its petal's, in cm."""
    return SPECIES[frozen.predict(flower)]

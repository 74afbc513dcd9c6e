"""Shared by all command lines of this project: a parser that explains an error in one line, and argument types."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import NoReturn

USER_ERROR = 2  # the exit code after a user error
INTERRUPTED = 130  # what shells report for a program that Ctrl-C ended


class UsageError(Exception):
    """A mistake of the user, explained in the message."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that explains an error in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR, f"error: {message}\n")


def whole(low: int, high: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number from `low` to `high`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"expected {low}..{high}, got {number}")
        return number

    return parse


def rate(text: str) -> float:
    """The type of an argument that is a positive number."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None
    if not (math.isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text}")
    return number


def share(low: int | None) -> Callable[[str], float]:
    """The type of an argument that is a number below 1: from `low` on, or above 0 if that is None."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None
        if not (0 < number < 1 or number == low):
            between = "above 0 and below 1" if low is None else f"from {low} to below 1"
            raise argparse.ArgumentTypeError(f"expected a number {between}, got {text}")
        return number

    return parse

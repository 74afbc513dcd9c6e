"""Shared by all commands: a parser that explains an error in one line, and argument types."""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from micrograd.errors import USER_ERROR

PROGRAM = "micrograd"


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that explains an error in one line, and says what an unknown option may have meant."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR, f"error: {message}\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, but an unknown option is an error, and the first one to be reported."""
        for argument in args:
            option = argument.partition("=")[0]
            if option == "--" or (self.prog == PROGRAM and not option.startswith("-")):
                break  # nothing but arguments follow, or a command, whose parser knows its options
            if option.startswith("--") and not any(known.startswith(option) for known in self._option_string_actions):
                self.error(self.unknown_option(option))
        return super().parse_known_args(args, namespace)

    def unknown_option(self, option: str) -> str:
        known = {name.lstrip("-"): name for name in self._option_string_actions if name.startswith("--")}
        near = [known[name] for name in difflib.get_close_matches(option.lstrip("-"), known, n=1)]
        return f"{self.prog} has no option {option}: {did_you_mean(near) or f'{self.prog} --help lists them'}"


def did_you_mean(near: Sequence[str]) -> str:
    """The end of a message about a name that does not exist; empty without names that are near."""
    return f"did you mean {' or '.join(near)}?" if near else ""


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

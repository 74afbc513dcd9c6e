"""Shared by all commands: a parser that explains an error in one line, and argument types."""

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


def number(is_valid: Callable[[float], bool], expected: str) -> Callable[[str], float]:
    """The type of an argument that is a number for which this holds; `expected` is what messages call it."""

    def parse(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None
        if not is_valid(found):
            raise argparse.ArgumentTypeError(f"expected a {expected}, got {text}")
        return found

    return parse


positive = number(lambda x: 0 < x < math.inf, "positive number")
from_zero = number(lambda x: 0 <= x < math.inf, "number from 0 on")

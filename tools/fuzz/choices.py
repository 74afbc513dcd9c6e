"""Bytes -> decisions. When the bytes are used up every further one is 0, so any bytes are valid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Reads decisions off some bytes, from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """Whether there are bytes left."""
        return self._at < len(self._data)

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def below(self, count: int) -> int:
        """0 <= number < count, for counts of at most 256."""
        return self.byte() % count

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self, of_256: int) -> bool:
        """True for so many of 256 bytes; False when there are none left."""
        return self.byte() >= 256 - of_256

    def rest(self) -> bytes:
        """All bytes that are left."""
        rest = self._data[self._at :]
        self._at = len(self._data)
        return rest

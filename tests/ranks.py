"""Ranks that are threads of this process, each with a model of its own: micrograd.mpi without MPI."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Group:
    """Threads that exchange buffers as csrc/shares.h asks for it. Who waits for a rank that has failed fails."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks, timeout=60)
        self.buffers: list[Any] = [None] * ranks

    def exchange(self, rank: int, given: Any, take: Callable[[Sequence[Any]], None]) -> None:
        """Gives something to all ranks, and takes from what they give."""
        self.buffers[rank] = given
        self.barrier.wait()
        take(self.buffers)
        self.barrier.wait()

    def run(self, function: Callable[[int], Any]) -> list[Any]:
        """What function(rank) returns or raises on each rank."""
        results: list[Any] = [None] * len(self.buffers)

        def main(rank: int) -> None:
            try:
                results[rank] = function(rank)
            except BaseException as error:
                results[rank] = error

        threads = [threading.Thread(target=main, args=[rank]) for rank in range(len(results))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


class Exchange:
    def __init__(self, group: Group, rank: int, dtype: str) -> None:
        self.group, self.rank, self.dtype = group, rank, dtype
        self.stop = False

    def gather(self, buffer: memoryview, counts: tuple[int, ...]) -> None:
        ends = np.cumsum([0, *counts])
        assert ends[-1] == len(buffer)

        def take(others: Sequence[memoryview]) -> None:
            for rank, other in enumerate(others):
                part = slice(ends[rank], ends[rank + 1])
                if rank != self.rank:
                    buffer[part] = other[part]

        self.group.exchange(self.rank, buffer, take)

    def sum(self, buffer: memoryview) -> None:
        def take(others: Sequence[np.ndarray]) -> None:
            np.frombuffer(buffer, self.dtype)[:] = sum(reversed(others))

        self.group.exchange(self.rank, np.frombuffer(buffer, self.dtype).copy(), take)

    def trade(
        self, sent: memoryview, received: memoryview, sent_counts: tuple[int, ...], received_counts: tuple[int, ...]
    ) -> None:
        ends = np.cumsum([0, *sent_counts])

        def take(others: Sequence[tuple[memoryview, np.ndarray]]) -> None:
            at = 0
            for count, (buffer, starts) in zip(received_counts, others, strict=True):
                assert starts[self.rank + 1] - starts[self.rank] == count
                received[at : at + count] = buffer[starts[self.rank] : starts[self.rank + 1]]
                at += count
            assert at <= len(received)

        self.group.exchange(self.rank, (sent, ends), take)

    def stopped(self, steps: int) -> None:
        raise KeyboardInterrupt(steps)

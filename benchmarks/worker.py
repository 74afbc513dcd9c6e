"""A process for each peer and number of threads, asked by the driver over a pipe, stopped while others are measured.

Thread pools spin and libraries change settings of the whole process, so no two peers share one. Interleaving is the
driver's work: it asks one worker after another for one run.

Requests and replies are pickles: (method, arguments) and (value, None) or (None, why not).
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

# On a busy machine BENCH_CLOCK=process_time counts what the processors do for us; it means something for one thread.
WALL = "perf_counter"
CLOCK = os.environ.get("BENCH_CLOCK", WALL)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
ROOT = Path(__file__).resolve().parent.parent


class Peer:
    """The worker's side: one library with its open jobs."""

    def __init__(self, library: str, threads: int, folder: Path) -> None:
        from benchmarks.tasks import Data

        self.library = importlib.import_module(f"benchmarks.{library}")
        self.threads, self.data = threads, Data.load(folder)
        self.jobs: dict[str, Any] = {}

    def version(self) -> str:
        return str(self.library.VERSION)

    def names(self, task: Any) -> list[str]:
        """The systems that this library has for a task."""
        self.made = self.library.jobs(task, self.data, self.threads)
        return list(self.made)

    def open(self, name: str) -> tuple[str, int]:
        return self.open_as(name, name)

    def open_as(self, key: str, name: str) -> tuple[str, int]:
        """Makes a system ready; it is asked by its key from then on."""
        job = self.jobs[key] = self.made[name]()
        return job.note, job.images

    def run(self, name: str, weights: Any, part: int = 0) -> float:
        """Seconds of one run, from the weights given, or going on where there are none."""
        job = self.jobs[name]
        if weights is not None:
            job.load(weights)
        clock = getattr(time, CLOCK)
        start = clock()
        job.run(part)
        return float(clock() - start)

    def weights(self, name: str) -> Any:
        return self.jobs[name].weights()

    def classes(self, name: str, weights: Any) -> Any:
        self.jobs[name].load(weights)
        return self.jobs[name].classes()

    def close(self) -> None:
        self.jobs.clear()


class Worker:
    """The driver's side. Attributes that it has not are the peer's methods, called there."""

    def __init__(self, library: str, threads: int, folder: Path, checkout: Path | None = None) -> None:
        self.library, self.threads = library, threads
        self.title = checkout.name if checkout else library
        python, place, environment = sys.executable, ROOT, dict(os.environ)
        if checkout:
            # These benchmarks, and the compiler of the other checkout: the current folder comes first in sys.path.
            place = folder / self.title
            place.mkdir()
            (place / "benchmarks").symlink_to(ROOT / "benchmarks")
            environment["PYTHONPATH"] = str(checkout)
            python = str(checkout / ".venv" / "bin" / "python")
        self.log = folder / f"{self.title}-{threads}.log"
        environment |= dict.fromkeys(THREAD_VARIABLES, str(threads))
        command = [python, "-m", "benchmarks.worker", library, str(threads), str(folder)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, env=environment, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )

    def __getattr__(self, method: str) -> Any:
        def ask(*arguments: Any) -> Any:
            assert self.process.stdin
            assert self.process.stdout
            self.signal("SIGCONT")
            try:
                pickle.dump((method, arguments), self.process.stdin)
                self.process.stdin.flush()
                value, error = pickle.load(self.process.stdout)
            except (EOFError, OSError):
                error = f"its process ended: {self.log.read_text()[-500:].strip()}"
            self.signal("SIGSTOP")
            if error is not None:
                from benchmarks.tasks import Missing

                raise Missing(error)
            return value

        return ask

    def signal(self, name: str) -> None:
        if hasattr(signal, name) and self.process.poll() is None:
            self.process.send_signal(getattr(signal, name))

    def end(self) -> None:
        self.signal("SIGCONT")
        self.process.kill()
        self.process.communicate()  # closes the pipes


def main() -> None:
    library, threads, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    # Libraries print; what they print goes where errors go.
    replies, requests = os.fdopen(os.dup(1), "wb"), sys.stdin.buffer
    os.dup2(2, 1)
    if hasattr(os, "sched_setaffinity"):
        # The only way to tell XLA how many threads it may use; and the same cores for everybody.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    peer: Peer | None = None
    while True:
        try:
            method, arguments = pickle.load(requests)
        except EOFError:
            return
        try:
            peer = peer or Peer(library, threads, folder)
            reply: tuple[Any, str | None] = getattr(peer, method)(*arguments), None
        except Exception as error:
            traceback.print_exc()
            reply = None, f"{type(error).__name__}: {error}" if type(error).__name__ != "Missing" else str(error)
        pickle.dump(reply, replies)
        replies.flush()


if __name__ == "__main__":
    main()

"""Nanoseconds a call and an element, beside glibc's functions and its vector library, libmvec.

Arrays of 4,096 numbers of ordinary size. Rounds are interleaved; the medians are printed, as tables in Markdown.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from codegen.backends.shared import csrc
from tools.functions.compiled import NAMES, ROWS, Compiled, Floats, levels

COUNT, ROUNDS, SECONDS = 4096, 41, 0.0004
IN_C = {"power": "pow"}  # names of the C library that are not ours
RANGES = {
    "exp": (-10, 10), "expm1": (-3, 3), "log": (0.01, 100), "log1p": (-0.9, 10), "tanh": (-4, 4), "sigmoid": (-8, 8),
    "softplus": (-8, 8), "sin": (-10, 10), "cos": (-10, 10), "erf": (-3, 3), "gelu": (-4, 4), "power": (0.1, 10),
}  # fmt: skip
LIBRARY = {"avx2": ("d", 32), "avx512": ("e", 64)}  # the letter of an instruction set in libmvec, bytes of a vector


def measure(folder: Path, names: Sequence[str]) -> None:
    print(_machine())
    for is_float32 in (False, True):
        found = _Timer(folder, is_float32)
        wide = [level for level in levels() if level != "baseline"]
        rows = {name: found.ways(name, wide) for name in names or NAMES}
        times: dict[tuple[str, str], list[float]] = {(name, way): [] for name in rows for way in rows[name]}
        for _ in range(ROUNDS):
            for name, way in times:
                times[name, way].append(rows[name][way]())
        heads = ["scalar", "glibc", *(text for level in wide for text in (level, f"libmvec {level}"))]
        print(f"\n| {'float32' if is_float32 else 'float64'} | {' | '.join(heads)} |\n|---|{'---:|' * len(heads)}")
        for name in rows:
            cells = [f"{statistics.median(times[name, h]):.2f}" if h in rows[name] else "" for h in heads]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


class _Timer:
    """Calls functions in the loops of speed.c."""

    def __init__(self, folder: Path, is_float32: bool) -> None:
        self.suffix = "f" if is_float32 else ""
        self.builds = {level: Compiled(folder, level, is_float32) for level in levels()}
        path = folder / f"speed{self.suffix}.so"
        flags = ["-O2", "-shared", "-fPIC", f"-I{csrc()}", f"-DFLOAT32={int(is_float32)}", "-Wno-psabi"]
        subprocess.run(["gcc", *flags, str(Path(__file__).with_name("speed.c")), "-o", str(path)], check=True)
        self.loops = ctypes.CDLL(str(path))
        self.type: Any = np.float32 if is_float32 else np.float64
        self.size = 4 if is_float32 else 8
        self.glibc = ctypes.CDLL(ctypes.util.find_library("m"))
        self.libmvec = ctypes.CDLL("libmvec.so.1")
        self.rng = np.random.default_rng(1)

    def ways(self, name: str, wide: Sequence[str]) -> dict[str, Callable[[], float]]:
        """By the head of a column, what measures one round of it."""
        low, high = RANGES[name]
        arrays = [self.aligned(low, high), self.aligned(-3.0, 3.0), self.aligned(0.0, 0.0)]
        arity = ROWS[name].arity
        kind, called = ("unary", "binary")[arity - 1], f"{IN_C.get(name, name)}{self.suffix}"
        fast = self.builds[wide[0] if wide else "baseline"]
        addresses = {"scalar": (kind, fast.scalar(name)), "glibc": (kind, _address(self.glibc, called))}
        for level in wide:
            letter, size = LIBRARY[level]
            symbol = f"_ZGV{letter}N{size // self.size}{'v' * arity}_{called}"
            addresses[level] = "lanes", self.builds[level].array(name)
            addresses[f"libmvec {level}"] = f"{kind}_{level}", _address(self.libmvec, symbol)
        return {way: self.timed(loop, address, arrays) for way, (loop, address) in addresses.items() if address}

    def aligned(self, low: float, high: float) -> Floats:
        """Random numbers at a multiple of 64 bytes."""
        memory = np.empty(COUNT * self.size + 64, np.uint8)
        start = -memory.ctypes.data % 64
        x: Floats = memory[start : start + COUNT * self.size].view(self.type)
        x[:] = self.rng.uniform(low, high, COUNT)
        return x

    def timed(self, loop: str, address: int, arrays: Sequence[Floats]) -> Callable[[], float]:
        function = getattr(self.loops, loop)
        function.restype = ctypes.c_double
        pointers = [ctypes.c_void_p(address), *(ctypes.c_void_p(array.ctypes.data) for array in arrays)]

        def seconds(repeat: int) -> float:
            assert all(array.flags.c_contiguous for array in arrays)  # and keeps them alive
            result: float = function(*pointers, ctypes.c_long(COUNT), repeat)
            return result

        seconds(3)
        repeat = max(1, int(10 * SECONDS / seconds(10)))
        return lambda: seconds(repeat) / repeat / COUNT * 1e9


def _address(library: ctypes.CDLL, symbol: str) -> int:
    """Of a function, 0 if the library does not have it."""
    try:
        return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def _machine() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")), "?")
    compiler = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return f"{model}; {compiler}; {' '.join(platform.libc_ver())}; ns, load {load} of {os.cpu_count()} processors"

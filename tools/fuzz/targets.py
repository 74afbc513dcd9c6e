"""The targets by name. Each module is imported when it is asked for, so that the child can have it instrumented."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """Where a target is, which compiled modules it calls, and how long its inputs may be."""

    module: str
    models: tuple[str, ...] = ()
    longest: int = 512  # bytes

    def seeds(self) -> list[bytes]:
        """Inputs to begin with."""
        found: list[bytes] = import_module(self.module).seeds()
        return found

    def dictionary(self) -> Sequence[str]:
        """Words that are worth putting into an input."""
        words: Sequence[str] = getattr(import_module(self.module), "DICTIONARY", [])
        return words


_MODELS = ("mlp", "xor", "shared_weights", "edges", "float32", "gather", "alone", "frozen", "tokens", "nn")
_TRAINED = tuple(name for name in _MODELS if name not in ("alone", "frozen"))

TARGETS = {
    "calls": Target("tools.fuzz.calls", _MODELS),
    "train": Target("tools.fuzz.calls", _TRAINED),
    "load": Target("tools.fuzz.calls", _TRAINED),
    "idx": Target("tools.fuzz.idx", longest=2048),
    "weights": Target("tools.fuzz.weights", longest=1024),
    "onnx": Target("tools.fuzz.onnx_files", longest=1024),
}


def prepare(name: str, modules: Path) -> Callable[[bytes], None]:
    """The function of a target, which takes the bytes of one input. `modules` is the folder of compiled ones."""
    target = TARGETS[name]
    if name == "idx":
        from tools.fuzz.idx import Idx

        return Idx()
    if name == "weights":
        from tools.fuzz.weights import Weights

        return Weights()
    if name == "onnx":
        from tools.fuzz.onnx_files import Onnx

        return Onnx()
    from tools.fuzz.calls import Calls
    from tools.fuzz.models import load_pair

    return Calls(name, [load_pair(modules, model) for model in target.models])

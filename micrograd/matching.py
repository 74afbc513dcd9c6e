"""Tensors of a file -> those that a model expects: by their names, by `--map OLD=NEW`, or by their shapes.

Example: a file has fc1.weight (50, 784), fc1.bias (50,), fc2.weight (10, 50) and fc2.bias (10,), and the model the same
shapes under the names layers.0.weight, layers.0.bias, layers.1.weight and layers.1.bias. Each shape is there once, so
there is one way, which is offered:

    --map fc1.weight=layers.0.weight --map fc1.bias=layers.0.bias ... (--match does it)

Tensors of one shape are told apart by the numbers in their names only. Weights of the shape (784, 50), as Keras has
them, are offered as transposed ones. Nothing is taken that was not asked for.

Numbers are stored in the types that safetensors files name. NumPy is imported when there are any. The metadata of our
files have a SHA-256, for the format has no checksum: that of the whole file, the digest itself taken as 64 zeros.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, BinaryIO

from micrograd.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Tensors = dict[str, npt.NDArray[Any]]

Shape = tuple[int, ...]
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # as the bytes are read
EXPECTED_DTYPES = "F64, F32, F16 or BF16"
MAX_HEADER = 100_000_000  # bytes, as in the format's own reader
CHECKSUM = "sha256"  # its key in the metadata
NO_DIGEST = "0" * 64
MAX_SHOWN = 6  # names in a message
TRANSPOSED: dict[int, list[Shape]] = {2: [(1, 0)], 3: [(2, 1, 0)], 4: [(3, 2, 0, 1), (2, 3, 1, 0)]}  # Keras' layouts


class MatchError(UserError, ValueError):
    """Tensors that are not those of the model. The message names the tensor, the shape found and the one expected."""


@dataclass(frozen=True)
class Matching:
    """What is asked for beyond equal names and shapes.

    names      old name -> new name; no new name drops the tensor
    transpose  names of the model, or patterns as *.weight: these tensors are transposed
    offers     whether what shapes leave one way for is taken
    """

    names: Mapping[str, str]
    transpose: Sequence[str] = ()
    offers: bool = False


EXACT = Matching({})


def matched(tensors: Tensors, expected: Mapping[str, Shape], how: Matching = EXACT, where: str = "") -> Tensors:
    """The tensors under the expected names, with the expected shapes. Raises MatchError, which begins with `where`.

    Dropped are those that are mapped to no name.
    """
    start = f"{where}: " if where else ""
    found = _renamed(tensors, expected, how.names, start)
    missing = [name for name in expected if name not in found]
    more = [name for name in found if name not in expected]
    if missing or more:
        found = _offered(found, expected, missing, more, how, start)
    return _laid_out(found, expected, how, start)


def parsed_map(texts: Iterable[str]) -> dict[str, str]:
    """The names of OLD=NEW. Raises MatchError."""
    names: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.rpartition("=")
        if not equals or not old:
            raise MatchError(f"--map must be OLD=NEW, the name in the file and the model's, got {text!r}")
        if old in names or (new and new in names.values()):
            raise MatchError(f"--map names {old if old in names else new!r} twice")
        names[old] = new
    return names


def _renamed(tensors: Tensors, expected: Mapping[str, Shape], names: Mapping[str, str], start: str) -> Tensors:
    for old, new in names.items():
        if old not in tensors:
            raise MatchError(f"{start}no tensor {old!r} to map, got {listed(tensors)}")
        if new and new not in expected:
            raise MatchError(f"{start}{old!r} is mapped to {new!r}, but the model has {listed(expected)}")
    found: Tensors = {}
    for old, tensor in tensors.items():
        new = names.get(old, old)
        if new in found or (old not in names and old in names.values()):
            raise MatchError(f"{start}two tensors for {new!r}, one of them mapped")
        if new or old not in names:
            found[new] = tensor
    return found


def _offered(
    found: Tensors, expected: Mapping[str, Shape], missing: list[str], more: list[str], how: Matching, start: str
) -> Tensors:
    """The tensors with other names, if shapes leave one way. Raises MatchError with that way, or if there is none."""
    ways = _one_way({name: found[name].shape for name in more}, {name: expected[name] for name in missing})
    if ways is None:
        if not missing:
            raise MatchError(f"{start}unexpected tensor {more[0]!r}, expected {listed(expected)}")
        other = shaped({name: found[name].shape for name in more})
        hint = f"; --map OLD=NEW says which of {other} it is" if more else ""
        shape = tuple(expected[missing[0]])
        raise MatchError(f"{start}no tensor {missing[0]!r} of the shape {shape}, got {listed(found)}{hint}")
    if not how.offers:
        options = " ".join(f"--map {old}={new}" for old, new in list(ways.items())[:MAX_SHOWN])
        dots = " ..." if len(ways) > MAX_SHOWN else ""
        way = f"but shapes leave one way: {options}{dots} (--match does it)"
        raise MatchError(f"{start}no tensor {missing[0]!r}, {way}")
    return {ways.get(name, name): tensor for name, tensor in found.items()}


def _one_way(found: Mapping[str, Shape], expected: Mapping[str, Shape]) -> dict[str, str] | None:
    """Which tensor of a file is which of the model, if only one assignment is possible."""
    if len(found) != len(expected):
        return None
    ways: dict[str, str] = {}
    for kind in {tuple(sorted(shape)) for shape in (*found.values(), *expected.values())}:
        for pairs in _of_kind(found, expected, kind):
            if pairs is None:
                return None
            ways |= pairs
    return {old: ways[old] for old in found}


def _of_kind(found: Mapping[str, Shape], expected: Mapping[str, Shape], kind: Shape) -> list[dict[str, str] | None]:
    """The assignments of tensors whose shapes have the same lengths: as they are, or all transposed.

    Where both ways would do, as with a (3, 5) and a (5, 3), there is not one way.
    """
    olds = {name: shape for name, shape in found.items() if tuple(sorted(shape)) == kind}
    news = {name: shape for name, shape in expected.items() if tuple(sorted(shape)) == kind}
    shapes = sorted({*olds.values(), *news.values()})
    exact = [([n for n in olds if olds[n] == s], [n for n in news if news[n] == s]) for s in shapes]
    as_they_are = all(len(old) == len(new) for old, new in exact)
    are_turned = len(shapes) == 2 and layout(shapes[0], shapes[1]) is not None
    if as_they_are and not are_turned:
        return [_in_order(old, new) for old, new in exact]
    if are_turned and not as_they_are and len(set(olds.values())) == len(set(news.values())) == 1:
        return [_in_order(list(olds), list(news))]
    return [None]


def _in_order(found: list[str], expected: list[str]) -> dict[str, str] | None:
    """Names of one shape side by side, in the order of the only number in which they differ."""
    orders = [_numbered(names) for names in (found, expected)]
    if len(found) != len(expected) or None in orders:
        return None
    return dict(zip(*orders, strict=True))


def _numbered(names: list[str]) -> list[str] | None:
    """The names in the order of their numbers; None if they differ in anything else."""
    if len({re.sub(r"\d+", "#", name) for name in names}) > 1:
        return None
    keys = {name: [int(number) for number in re.findall(r"\d+", name)] for name in names}
    return sorted(names, key=lambda name: keys[name]) if len(set(map(tuple, keys.values()))) == len(names) else None


def layout(found: Shape, expected: Shape) -> Shape | None:
    """The order of the axes that makes one shape of the other; None if it is no known layout."""
    ways = [axes for axes in TRANSPOSED.get(len(found), []) if tuple(found[axis] for axis in axes) == tuple(expected)]
    return ways[0] if ways and len(found) == len(expected) else None


def _laid_out(found: Tensors, expected: Mapping[str, Shape], how: Matching, start: str) -> Tensors:
    """The tensors transposed where that is asked for or, with --match, where shapes say so."""
    for pattern in how.transpose:
        if not any(fnmatchcase(name, pattern) for name in expected):
            raise MatchError(f"{start}--transpose {pattern!r} is none of the tensors {listed(expected)}")
    asked = {name for name in expected if any(fnmatchcase(name, pattern) for pattern in how.transpose)}
    asked -= {name for name in expected if len(expected[name]) not in TRANSPOSED}  # as biases, which *.* takes too
    turned = {name for name in expected if found[name].shape != tuple(expected[name])} - asked
    for name in turned:
        if layout(found[name].shape, expected[name]) is None:
            raise MatchError(f"{start}{name!r} has the shape {found[name].shape}, expected {tuple(expected[name])}")
    if turned:
        _check_offer(found, expected, turned, how, start)
    result: Tensors = {}
    for name, shape in expected.items():
        axes = layout(found[name].shape, shape) if name in asked | turned else tuple(range(len(shape)))
        if axes is None:
            ends = f"has the shape {found[name].shape}, which transposed is not {tuple(shape)}"
            raise MatchError(f"{start}{name!r} {ends}")
        result[name] = found[name].transpose(axes).copy(order="C") if name in asked | turned else found[name]
    return result


def _check_offer(found: Tensors, expected: Mapping[str, Shape], turned: set[str], how: Matching, start: str) -> None:
    """Raises MatchError unless --match may transpose these."""
    name = next(name for name in expected if name in turned)
    shapes = f"{name!r} has the shape {found[name].shape}, expected {tuple(expected[name])}: it is transposed"
    square = [n for n, shape in expected.items() if layout(shape, shape) is not None and n not in turned]
    options = " ".join(f"--transpose {n}" for n in [n for n in expected if n in turned][:MAX_SHOWN])
    if how.offers and square and not how.transpose:
        what = f"whether {listed(square)} is too, its shape does not say"
        raise MatchError(f"{start}{shapes}, and {what}: {options} names those that are")
    if not how.offers:
        kind = "inputs x outputs against outputs x inputs" if len(expected[name]) == 2 else "another order of axes"
        raise MatchError(f"{start}{shapes}, {kind}. {options} turns it (or --match)")


def shaped(shapes: Mapping[str, Shape]) -> str:
    names = [f"{name!r} {tuple(shape)}" for name, shape in list(shapes.items())[:MAX_SHOWN]]
    return (", ".join(names) or "none") + (", ..." if len(shapes) > MAX_SHOWN else "")


def listed(names: Iterable[str]) -> str:
    names = sorted(map(repr, names))
    return (", ".join(names[:MAX_SHOWN]) or "none") + (", ..." if len(names) > MAX_SHOWN else "")


def widened(dtype: str, stored: bytes | memoryview) -> npt.NDArray[np.floating[Any]]:
    """Numbers as they are stored if they are float64, else as float32, which holds them exactly."""
    import numpy as np

    numbers = np.frombuffer(stored, DTYPES[dtype])
    if dtype == "BF16":  # the upper halves of floats
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers if dtype == "F64" else numbers.astype(np.float32)


def digest(file: BinaryIO, noted: str) -> str:
    """The SHA-256 of a file, 64 zeros taken for the `noted` digest in its header."""
    file.seek(0)
    start = file.read(8)
    header = file.read(int.from_bytes(start, "little"))
    state = hashlib.sha256(start + header.replace(written(noted), written(NO_DIGEST), 1))
    while block := file.read(2**20):
        state.update(block)
    return state.hexdigest()


def difference(file: BinaryIO, noted: str | None) -> str | None:
    """What is wrong with a file whose metadata note such a digest; None if nothing is, or they note none."""
    if noted is None or noted == (found := digest(file, noted)):
        return None
    return f"damaged: its SHA-256 is {found}, but it says {noted}"


def written(noted: str) -> bytes:
    """The checksum as it is written in the header. Damaged ones may have halves of surrogate pairs."""
    return f'"{CHECKSUM}":"{noted}'.encode(errors="replace")

"""Target `weights`: bytes -> a safetensors file for its two readers, commands/checkpoint.py and codegen/weights.py.

Each must give the right tensors or refuse the file with the error that it documents. Both must agree on every file
whose tensors have the names and shapes that the model expects.
"""

from __future__ import annotations

import json
import struct

import numpy as np
from safetensors.numpy import save

from codegen.weights import read_weights
from micrograd.commands.checkpoint import CheckpointError, DamagedError, load
from micrograd.matching import Matching
from tools.fuzz.choices import Choices
from tools.fuzz.common import Wrong, scratch_folder

EXPECTED = {"b": (2,), "w": (2, 3)}
NAMES = ["b", "w", "W", "", "c"]
ODD: list[object] = [
    *(
        None,
        True,
        -1,
        0,
        2.0,
        1e400,
        2**63,
        2**64,
        "",
        "F16",
        "BF16",
        "I64",
        [],
        {},
        [None],
        [2.0],
        [2, 3],
        [3, 2],
        [6],
    ),
    *([6], [0, 48], [0, 16], [48, 64], [64, 48], [0, 2**64], [0, 0], [0], [2**33, 2**33], "[0, 16]", {"0": 1}, [True]),
]
ODD_METADATA: list[object] = [
    None,
    [],
    1,
    {"a": 1},
    {"a": "\ud800"},
    {"\udc00": "a"},
    {"sha256": "a"},
    {"sha256": None},
]
FORMATS = {"F64": "d", "F32": "f", "F16": "e", "BF16": "H"}


class Weights:
    """The target."""

    def __init__(self) -> None:
        self.path = scratch_folder() / "file.safetensors"

    def __call__(self, data: bytes) -> None:
        """Raises Wrong where something does not hold."""
        c = Choices(data)
        how = self.matching(c)
        content = self.content(c)
        self.path.unlink(missing_ok=True)
        self.path.write_bytes(content)
        try:
            strict: dict[str, np.ndarray] | None = load(self.path, EXPECTED)
        except CheckpointError as error:
            self.check_error(error)
            strict = None
        try:
            tensors: dict[str, np.ndarray] | None = read_weights(self.path)
        except ValueError as error:
            self.check_error(error)
            tensors = None
        if strict is not None:
            self.check(content, strict)
        if tensors is not None and {name: tensor.shape for name, tensor in tensors.items()} != EXPECTED:
            tensors = None  # read_weights() takes any names and shapes
        if (strict is None) != (tensors is None) and not is_told_apart(content):
            raise Wrong(f"load() {_verdict(strict)} and read_weights() {_verdict(tensors)} {content!r}")
        if strict is not None and tensors is not None:
            for name, tensor in strict.items():
                if tensor.tobytes() != tensors[name].astype("f8").tobytes():
                    raise Wrong(f"{name} is {tensor} for load() and {tensors[name]} for read_weights()")
        self.check_matched(how)

    def matching(self, c: Choices) -> Matching:
        """Names that are mapped, tensors that are transposed, and offers that are taken."""
        names = {c.one_of(NAMES): c.one_of(["", *NAMES]) for _ in range(c.below(3))}
        return Matching(names, [c.one_of(["*", "w", "b", "?"]) for _ in range(c.below(2))], c.chance(128))

    def check_matched(self, how: Matching) -> None:
        """What names, maps and shapes find has the shapes of the model and the numbers of different tensors."""
        try:
            found = load(self.path, EXPECTED, how)
            given = [sorted(tensor.ravel().tolist(), key=repr) for tensor in read_weights(self.path).values()]
        except ValueError as error:
            self.check_error(error)
            return
        if {name: tensor.shape for name, tensor in found.items()} != EXPECTED:
            raise Wrong(f"{how} gives {found}")
        for name, tensor in found.items():
            numbers = sorted(tensor.ravel().tolist(), key=repr)
            if repr(numbers) not in map(repr, given):
                raise Wrong(f"{how} gives {name} as {tensor}, which the file has not")
            given.pop(list(map(repr, given)).index(repr(numbers)))

    def check_error(self, error: ValueError) -> None:
        if type(error) not in (ValueError, CheckpointError, DamagedError) or str(self.path) not in str(error):
            raise Wrong(f"not an error that names the file: {error!r}") from error

    def content(self, c: Choices) -> bytes:
        """A file as the bytes have it, or with a length that fits the header, and as many numbers as asked for."""
        form, numbers = c.below(6), c.byte()
        if form > 3:
            header = json.dumps(dict(self.entry(c) for _ in range(1 + c.below(3)))).encode()
            return len(header).to_bytes(8, "little") + header + bytes(numbers)
        rest = c.rest()
        if form == 0:
            return rest
        header, _, tail = rest.partition(b"\n\n")
        if form == 1:
            return len(header).to_bytes(8, "little") + header + tail
        draw = bytes(range(1, 65)) if form == 2 else b"\x00\xf0\x7f\xff" * 16
        return len(header).to_bytes(8, "little") + header + draw[:numbers]

    def entry(self, c: Choices) -> tuple[str, object]:
        """A name and what the header says of it, right but for a few things."""
        name = "b" if c.chance(128) else "w"
        named = c.one_of([name] * 6 + ["", "__metadata__", "W", "c"])
        shape, dtype = list(EXPECTED[name]), c.one_of(list(FORMATS))
        size, begin = struct.calcsize(FORMATS[dtype]) * (2 if name == "b" else 6), c.byte()
        entry: dict[object, object] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + size]}
        for _ in range(c.below(3)):
            entry[c.one_of(["dtype", "shape", "data_offsets", "more", "Dtype"])] = c.one_of(ODD)
        if c.chance(32):
            shape.reverse()
        return named, c.one_of([entry] * 6 + [{"a": "b"}, *ODD])

    def check(self, content: bytes, tensors: dict[str, np.ndarray]) -> None:
        """What load() has taken is where the header says that it is."""
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        for name, tensor in tensors.items():
            begin, end = header[name]["data_offsets"]
            numbers = content[8 + length :][begin:end]
            if read(header[name]["dtype"], numbers) != [number.hex() for number in tensor.ravel().tolist()]:
                raise Wrong(f"{name} is {tensor}, and the file holds {numbers!r}")


def read(dtype: str, numbers: bytes) -> list[str]:
    """Numbers of a type, as Python itself reads them, in hexadecimal digits."""
    found = [number for (number,) in struct.iter_unpack(f"<{FORMATS[dtype]}", numbers)]
    if dtype == "BF16":
        found = [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in found]
    return [number.hex() for number in found]


def is_told_apart(content: bytes) -> bool:
    """Whether the readers may differ on this header.

    A name that stands there twice is against the format, but its own reader takes the last of two whole entries. -0 is
    an integer in Python's json and none in Rust's.
    """
    found = False

    def pairs(members: list[tuple[str, object]]) -> dict[str, object]:
        nonlocal found
        found |= len(dict(members)) < len(members)
        return dict(members)

    def integer(digits: str) -> int:
        nonlocal found
        found |= digits == "-0"
        return int(digits)

    try:
        header = content[8 : 8 + int.from_bytes(content[:8], "little")]
        json.loads(header, object_pairs_hook=pairs, parse_int=integer)
    except (ValueError, RecursionError):
        return False
    return found


def _verdict(tensors: object) -> str:
    return "refuses" if tensors is None else "takes"


def seeds() -> list[bytes]:
    """Good files and nearly good ones."""
    found = []
    for dtype in ("f8", "f4", "f2"):
        tensors = {"w": np.arange(6, dtype=dtype).reshape(2, 3), "b": np.ones(2, dtype)}
        for metadata in (None, {"epochs": "1"}):
            content = save(tensors, metadata)
            length = int.from_bytes(content[:8], "little")
            header, numbers = content[8 : 8 + length], content[8 + length :]
            for how in (bytes([0, 0, 0]), bytes([0, 0, 255])):
                found.append(how + bytes([0, 0]) + content)
                found.append(how + bytes([1, 0]) + header.rstrip() + b"\n\n" + numbers)
                found.append(how + bytes([2, len(numbers)]) + header.rstrip())
                found.append(how + bytes([3, len(numbers)]) + header.rstrip())
    whole: dict[str, object] = {"w": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}}
    whole["b"] = {"dtype": "F16", "shape": [2], "data_offsets": [12, 16]}
    for odd in ODD_METADATA:
        found.append(bytes([0, 0, 0, 2, 16]) + json.dumps(whole | {"__metadata__": odd}).encode())
    found.append(bytes([0, 0, 0, 2, 40]) + json.dumps(whole | {"b": None, "__metadata__": {"a": 1}}).encode())
    return [*found, b"", bytes([0, 0, 0, 2, 0]) + b"{}"]


DICTIONARY = [
    *('"w"', '"b"', '"dtype"', '"shape"', '"data_offsets"', '"F64"', '"F32"', '"F16"', '"BF16"', '"I64"'),
    '"__metadata__"',
    *("[2,3]", "[2]", "[0,48]", "[48,64]", "{", "}", "[", "]", ",", ":", "null", "true", "NaN", "Infinity", "1e1"),
    *("2.0", "-0", "18446744073709551615", "9223372036854775808", '"\\ud800"', '"a":"b"', " "),
]

"""The SHA-256 in the metadata of our weight files: safetensors has no checksum of its own.

It is that of the whole file, the digest itself taken as 64 zeros.
"""

import hashlib
from typing import BinaryIO

CHECKSUM = "sha256"  # its key in the metadata
NO_DIGEST = "0" * 64


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

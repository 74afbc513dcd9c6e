"""The files that the compiler reads and writes: the hand-written C, and generated sources."""

from __future__ import annotations

from pathlib import Path

from micrograd.files import write_whole


def csrc() -> Path:
    """The folder of the hand-written C: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    for folder in (here / "csrc", here.parent / "csrc"):
        if (folder / "module.h").is_file():
            return folder
    raise FileNotFoundError(f"the C sources of codegen are neither in {here / 'csrc'} nor beside {here}")


def write_if_changed(path: Path, text: str) -> None:
    """Writes atomically, through a temporary file; does not touch a file that already holds this text."""
    data = text.encode()
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data, is_synced=False)

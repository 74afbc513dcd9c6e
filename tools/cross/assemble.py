"""A wheel of this machine -> one for another system: the same files, with modules that were compiled for it.

Example: irisnet-1.2.0-cp311-abi3-linux_x86_64.whl, with irisnet/net.abi3.so, becomes
irisnet-1.2.0-cp311-abi3-win_arm64.whl, with irisnet/net.pyd. WHEEL says the new tag, and RECORD lists the new files.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

NATIVE = ".abi3.so"
TIME = (1980, 1, 1, 0, 0, 0)  # of every file: the same input gives the same wheel


def modules(wheel: Path) -> list[str]:
    """The extension modules of a wheel, as dotted names."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(NATIVE)]
    return [name.removesuffix(NATIVE).replace("/", ".") for name in names]


def assemble(wheel: Path, compiled: Mapping[str, Path], suffix: str, tag: str, folder: Path) -> Path:
    """Writes the wheel for another system into a folder. `compiled` has the new file of each module of the old one."""
    if set(compiled) != set(modules(wheel)):
        raise ValueError(f"{wheel.name} has the modules {modules(wheel)}, but {sorted(compiled)} were compiled")
    name, version, python, abi, _ = wheel.stem.split("-")
    target = folder / f"{name}-{version}-{python}-{abi}-{tag}.whl"
    files: dict[str, bytes] = {}
    with zipfile.ZipFile(wheel) as archive:
        for file in archive.namelist():
            if file.endswith(NATIVE):
                module = file.removesuffix(NATIVE)
                files[module + suffix] = compiled[module.replace("/", ".")].read_bytes()
            elif file.endswith(".dist-info/WHEEL"):
                text = archive.read(file).decode()
                files[file] = re.sub(r"^Tag: .*$", f"Tag: {python}-{abi}-{tag}", text, flags=re.MULTILINE).encode()
            elif file.endswith(".dist-info/RECORD"):
                record = file
            elif not file.endswith("/"):
                files[file] = archive.read(file)
    files[record] = "".join([*map(line, files, files.values()), f"{record},,\n"]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in files.items():
            entry = zipfile.ZipInfo(file, TIME)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return target


def line(file: str, content: bytes) -> str:
    """Of RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"{file},sha256={digest},{len(content)}\n"

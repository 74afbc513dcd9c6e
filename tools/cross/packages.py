"""Debian's packages: tools for this machine, and Python for others, unpacked into a folder of their own.

Example: missing compilers are installed, and the arm64 packages of Python and of the C library become

    .cache/cross/arm64/usr/bin/python3.11, .cache/cross/arm64/lib/aarch64-linux-gnu/libm.so.6, ...

apt fetches and checks these with this machine's own sources and keys, but with an index and a state of their own, so
nothing of another architecture is installed here and the machine's own apt learns of none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

# Package -> a file that it installs.
TOOLS = {
    "gcc": "/usr/bin/gcc",
    "gcc-aarch64-linux-gnu": "/usr/bin/aarch64-linux-gnu-gcc",
    "libc6-dev-arm64-cross": "/usr/aarch64-linux-gnu/include/math.h",
    "gcc-s390x-linux-gnu": "/usr/bin/s390x-linux-gnu-gcc",
    "libc6-dev-s390x-cross": "/usr/s390x-linux-gnu/include/math.h",
    "gcc-arm-none-eabi": "/usr/bin/arm-none-eabi-gcc",
    "libnewlib-arm-none-eabi": "/usr/lib/arm-none-eabi/lib/rdimon.specs",
    "gcc-mingw-w64-x86-64": "/usr/bin/x86_64-w64-mingw32-gcc",
    "clang": "/usr/bin/clang",
    "musl-tools": "/usr/bin/musl-gcc",
    "wasi-libc": "/usr/include/wasm32-wasi/math.h",
    "libclang-rt-14-dev-wasm32": "/usr/lib/llvm-14/lib/clang/14.0.6/lib/wasi/libclang_rt.builtins-wasm32.a",
    "lld": "/usr/bin/wasm-ld",
    "nodejs": "/usr/bin/node",
    "pypy3": "/usr/bin/pypy3",
    "qemu-system-arm": "/usr/bin/qemu-system-arm",
    "qemu-user-static": "/usr/bin/qemu-x86_64-static",
}
# What a Python of another architecture is made of, headers included.
FOREIGN = (
    *("libc6", "libexpat1", "zlib1g"),
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libpython3.11-dev"),
)


class Missing(Exception):
    """Something that this machine does not have and that could not be brought."""


def install_tools() -> None:
    """Installs what is missing of TOOLS. Raises Missing where this process may not, or apt fails."""
    missing = [package for package, file in TOOLS.items() if not Path(file).exists()]
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing(f"not installed: {' '.join(missing)}. On Debian 12, and as root, make cross installs them itself")
    print("installing", *missing, flush=True)
    settings = {"DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "update"], settings)
    _run(["apt-get", "install", "--yes", "--no-install-recommends", *missing], settings)


def unpack_python(architectures: Iterable[str], cache: Path) -> None:
    """Fills cache/ARCHITECTURE for each of Debian's architectures, unless it is full already. Raises Missing."""
    wanted = [architecture for architecture in architectures if not (cache / architecture).is_dir()]
    if not wanted:
        return
    print("downloading Python for", *wanted, flush=True)
    apt = cache / "apt"
    settings = {"APT_CONFIG": str(_private_apt(apt, wanted))}
    _run(["apt-get", "update"], settings)
    for architecture in wanted:
        downloads = apt / "downloads" / architecture
        shutil.rmtree(downloads, ignore_errors=True)
        downloads.mkdir(parents=True)
        _run(["apt-get", "download", *(f"{package}:{architecture}" for package in FOREIGN)], settings, downloads)
        unpacked = apt / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        for package in sorted(downloads.glob("*.deb")):
            _run(["dpkg-deb", "--extract", str(package), str(unpacked)], {})
        unpacked.rename(cache / architecture)
    shutil.rmtree(apt)


def _private_apt(folder: Path, architectures: Sequence[str]) -> Path:
    """A configuration that keeps everything it writes in a folder, and believes that nothing is installed."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    configuration = folder / "apt.conf"
    lines = [
        f'Dir::State "{folder}";',
        f'Dir::State::lists "{folder}/lists";',
        f'Dir::State::status "{folder}/status";',
        f'Dir::Cache "{folder}/cache";',
        f'APT::Architecture "{architectures[0]}";',
        *(f'APT::Architectures:: "{name}";' for name in architectures),
        'APT::Sandbox::User "root";',
    ]
    configuration.write_text("\n".join(lines) + "\n")
    return configuration


def _run(command: list[str], settings: Mapping[str, str], folder: Path | None = None) -> None:
    done = subprocess.run(command, env=os.environ | settings, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"{' '.join(command[:2])} failed. make cross needs Debian 12 and its packages:\n{done.stderr}")

"""Plain C -> WebAssembly without imports, by clang or by the package ziglang.

It has the bits of strict mode: WebAssembly rounds as IEEE 754 says, and has no fused multiply-add.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from codegen.toolchain import CompilerError, run_compiler, zig_command

HOW_TO_GET_CLANG = """\
It takes clang with wasm-ld, or zig:
    any system       pip install 'micrograd-nn[compiler]'
    Debian, Ubuntu   apt install clang lld
    Fedora           dnf install clang lld
    macOS            brew install llvm lld"""

FLAGS = [
    "-std=c11",
    "-O3",
    "-msimd128",
    "-mbulk-memory",  # memory.copy instead of calls of memcpy()
    "-ffp-contract=off",
    "-fno-trapping-math",
    "-ffreestanding",
    "-nostdlib",
    "-DFREESTANDING=1",
    "-Wl,--no-entry",
    "-Wl,--strip-all",
]
# What kernels take of a C library, which here are instructions.
BUILTINS = ("sqrt", "fabs", "copysign")
HEADERS = ("math.h", "string.h")


def wasm_of(files: Mapping[str, str], main: str, compiler: str | None = None) -> bytes:
    """Compiles the C file `main`, which may include the other files. Raises CompilerError."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in {**dict.fromkeys(HEADERS, ""), **files}.items():
            (folder / file).write_text(text, encoding="utf-8")
        target = folder / "model.wasm"
        command = [*_compiler(compiler), *FLAGS, *_definitions(), f"-I{folder}", str(folder / main), "-o", str(target)]
        run_compiler(command, name, main, HOW_TO_GET_CLANG, "wasm-ld")
        return target.read_bytes()


def _compiler(asked: str | None) -> list[str]:
    if asked is not None:
        if shutil.which(asked) is None:
            raise CompilerError(f"there is no C compiler {asked!r}.\n{HOW_TO_GET_CLANG}")
        return [asked, "--target=wasm32"]
    if shutil.which("clang") and shutil.which("wasm-ld"):
        return ["clang", "--target=wasm32"]
    if zig := zig_command():
        return [*zig, "--target=wasm32-freestanding", "-fno-sanitize=undefined"]
    raise CompilerError(f"a page needs a compiler for WebAssembly, and none was found.\n{HOW_TO_GET_CLANG}")


def _definitions() -> Iterator[str]:
    yield "-DINFINITY=__builtin_inff()"
    yield '-DNAN=__builtin_nanf("")'
    yield "-Dmemcpy=__builtin_memcpy"
    for name in BUILTINS:
        yield f"-D{name}=__builtin_{name}"
        yield f"-D{name}f=__builtin_{name}f"

"""Plain C -> WebAssembly without imports, by clang or by the package ziglang.

It has the bits of strict mode: WebAssembly rounds as IEEE 754 says, and has no fused multiply-add.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
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
    "-DMODEL_NO_WEIGHTS",  # the page brings them
    "-Wl,--no-entry",
    "-Wl,--strip-all",
]


def wasm_of(files: Mapping[str, str], compiler: str | None = None) -> bytes:
    """Compiles C files, which may include each other. Raises CompilerError."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        sources = [str(folder / file) for file in files if file.endswith(".c")]
        target = folder / "model.wasm"
        command = [*_compiler(compiler), *FLAGS, *sources, "-o", str(target)]
        run_compiler(command, name, "the page's C", {"unable to execute": f"\n{HOW_TO_GET_CLANG}"})
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

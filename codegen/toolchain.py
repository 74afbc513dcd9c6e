"""The C compiler: which one there is, and the command that makes a module of a generated file.

On Linux and macOS the compiler runs directly. On Windows setuptools finds Visual Studio's. The package ziglang brings a
compiler for all three, which is used where there is no other.
"""

import functools
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codegen.backends.shared import csrc

sysconfig.get_config_vars()  # now: in older Pythons, threads that come first at once would see only some of them

# The environment's CFLAGS may have -ffast-math or parts of it. The last two flags undo that, and at linking they keep
# gcc from making the process flush subnormals. They turn errno and traps on, so they come before what turns those off;
# clang warns of that unless traps were off before.
EXACT_FLAGS = ["-O3", "-fno-trapping-math", "-fno-fast-math", "-fno-unsafe-math-optimizations"]
# Contraction to fused multiply-add would round differently from the interpreted engine, and with -std=c11 gcc for s390x
# computes float32 in float64. gcc makes no vectors of a selection that might trap. What the C of a registered op calls
# has to be there. The rest is hygiene and speed.
UNIX_FLAGS = [
    "-std=gnu11",
    *EXACT_FLAGS,
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Werror=implicit-function-declaration",
    "-fvisibility=hidden",
    "-g0",
]
# gcc compiles the kernels with -O3 and the rest of a module, which is most of it, with -O2: half the time, and smaller.
SMALL_FLAGS = ["-O2", "-DKERNELS_O3=1"]
# Of a wheel: 4 KB less of two modules, at the same speed. What has to be inlined says so.
WHEEL_FLAGS = ["-fno-inline-functions", "-fno-plt", "-fno-asynchronous-unwind-tables", "-fno-ident"]
# And 20 KB less from gcc, which compiles the kernels with -O3 whatever it is told of the rest, fills no pages, makes no
# copies of loops for their first or last iterations, and leaves instructions in the order in which they deflate best.
_LEFT_OUT = ["split-loops", "peel-loops", "aggressive-loop-optimizations", "early-inlining"]
_LEFT_OUT += ["inline-small-functions", "caller-saves", "schedule-insns2"]
GCC_WHEEL_FLAGS = (
    ["-Os", *[f"-fno-{name}" for name in (*_LEFT_OUT, "align-loops", "align-jumps", "align-functions")]],
    ["-Wl,--build-id=none,-z,noseparate-code"],
)
MSVC_FLAGS = ["/std:c11", "/O2", "/fp:precise"]
JOBS = 8  # of gcc at once: each takes up to 200 MB
# zig compiles for the present processor, and with traps for undefined behaviour, unless it is told otherwise.
ZIG_FLAGS = ["-mcpu=baseline", "-fno-sanitize=undefined"]

HOW_TO_GET_A_COMPILER = """\
It takes a C11 compiler and Python's headers:
    any system       pip install 'micrograd-nn[compiler]'
    Debian, Ubuntu   apt install gcc python3-dev
    Fedora           dnf install gcc python3-devel
    Alpine           apk add gcc musl-dev python3-dev
    macOS            xcode-select --install
    Windows          Visual Studio Build Tools, "Desktop development with C++"
The environment's CC names another compiler."""


class CompilerError(RuntimeError):
    """There is no C compiler, or it failed. The message says what it said, or how to get one."""


@dataclass(frozen=True)
class Toolchain:
    """How a module is compiled. Without a command, by setuptools."""

    command: tuple[str, ...] = ()
    is_zig: bool = False

    def identity(self) -> str:
        """Changes with the compiler. Asking the compiler for its version would take longer."""
        if not self.command:
            return "setuptools"
        spec = importlib.util.find_spec("ziglang") if self.is_zig else None
        path = Path(spec.origin if spec is not None and spec.origin else shutil.which(self.command[0]) or "").resolve()
        status = path.stat()
        return repr((self.command, str(path), status.st_size, status.st_mtime_ns))


def compile_flags(compiler_type: str) -> list[str]:
    """What every module is compiled with. The environment's CFLAGS come before, so these win."""
    return MSVC_FLAGS if compiler_type == "msvc" else UNIX_FLAGS


def wheel_flags(compiler_type: str) -> tuple[list[str], list[str]]:
    """What a module of a wheel is compiled and linked with: smaller and as fast, without stubs for calls of libraries,
    and without what only debuggers read, names and unwind tables, unless the environment's CFLAGS ask for it."""
    flags = compile_flags(compiler_type)
    if compiler_type == "msvc":
        return flags, []
    flags = [*flags, *SMALL_FLAGS]
    compiler = _of_setuptools()
    if sys.platform != "linux" or "-g" in os.environ.get("CFLAGS", "").split() or "tcc" in compiler:
        return flags, EXACT_FLAGS
    for_compiler, for_linker = GCC_WHEEL_FLAGS if "gcc" in compiler else ([], [])
    return [*flags, *WHEEL_FLAGS, *for_compiler], [*EXACT_FLAGS, "-Wl,-s", *for_linker]


def find_toolchain(compiler: str | None = None) -> Toolchain:
    """The compiler of this name; else the environment's CC, Python's own, any other, or zig's.

    Raises CompilerError if there is none.
    """
    if compiler is not None and not isinstance(compiler, str):
        raise TypeError(f"compiler must be the command of a C compiler, not {compiler!r}")
    if asked := compiler or os.environ.get("CC"):
        command = _words(asked, "compiler" if compiler else "the environment's CC", os.name == "posix")
        if command and (found := shutil.which(command[0])):
            if os.path.dirname(command[0]):  # the compiler runs in another folder
                command[0] = os.path.abspath(found)
            return Toolchain(tuple(command), is_zig=_is_zig(command))
        where = "" if compiler else ", which the environment's CC names"
        raise CompilerError(f"there is no C compiler {asked!r}{where}.\n{HOW_TO_GET_A_COMPILER}")
    if os.name == "posix" or "GCC" in sys.version:
        for candidate in (str(sysconfig.get_config_var("CC") or "cc"), "cc", "gcc", "clang"):
            command = shlex.split(candidate)
            if shutil.which(command[0]):
                return Toolchain(tuple(command))
    elif _has_visual_studio():
        return Toolchain()
    if zig := zig_command():
        return Toolchain(zig, is_zig=True)
    raise CompilerError(f"compiling a model needs a C compiler, and none was found.\n{HOW_TO_GET_A_COMPILER}")


def compile_extension(source: Path, name: str, compiler: str | None, flags: Sequence[str]) -> Path:
    """Runs the C compiler on one generated file and puts the module beside it.

    Raises CompilerError with what the compiler says if it fails.
    """
    toolchain = find_toolchain(compiler)
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        built = Path(folder, f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}")
        if toolchain.command:
            compile_to(toolchain, source, built, flags)
        else:
            built = _by_setuptools(source, name, folder, flags)
        target = source.parent / built.name
        os.replace(built, target)
    return target


def compile_to(toolchain: Toolchain, source: Path, target: Path, flags: Sequence[str]) -> None:
    """Makes a module of one generated file by a compiler that has a command. Raises CompilerError if it fails."""
    command = _command(toolchain, source, target, flags)
    _run(command, str(target.parent), source)
    if not target.is_file():
        raise CompilerError(f"compiling {source} wrote no module:\n{shlex.join(command)}")


def zig_command() -> tuple[str, ...]:
    """Of the package ziglang; empty without it."""
    return (sys.executable, "-m", "ziglang", "cc") if importlib.util.find_spec("ziglang") is not None else ()


def zig_toolchain() -> Toolchain | None:
    """zig's compiler, if that is what find_toolchain() would choose: setuptools knows the others."""
    try:
        found = find_toolchain()
    except CompilerError:
        return None
    return found if found.is_zig else None


def _words(text: str, name: str, posix: bool = True) -> list[str]:
    try:
        return shlex.split(text, posix=posix)
    except ValueError as error:
        raise CompilerError(f"{name} has an open quote or a last backslash: {text!r}") from error


def _of_setuptools() -> str:
    """What the compiler is called that setuptools runs; "" for its own choice."""
    command = _words(os.environ.get("CC") or str(sysconfig.get_config_var("CC") or ""), "the environment's CC")
    return Path(command[0]).name if command else ""


def _is_zig(command: Sequence[str]) -> bool:
    """Whether it is `zig cc` or `python -m ziglang cc`."""
    return "ziglang" in command or Path(command[0]).stem == "zig"


def _command(toolchain: Toolchain, source: Path, target: Path, flags: Sequence[str]) -> list[str]:
    """Compiles and links in one step."""
    include = sysconfig.get_path("include")
    platform = sysconfig.get_path("platinclude")
    asked = [_words(os.environ.get(name, ""), f"the environment's {name}") for name in ("CFLAGS", "LDFLAGS")]
    jobs = 1 if toolchain.is_zig or "-O0" in flags else min(JOBS, _processors())
    # gcc writes a Makefile, and quotes no names in it.
    is_safe = re.fullmatch(r"[\w ./+,@%-]*", tempfile.gettempdir()) is not None
    is_divided = jobs > 1 and is_safe and _divides_files((*toolchain.command, *asked[0], *asked[1]))
    return [
        *toolchain.command,
        *([f"-flto={jobs}"] if is_divided else []),
        *asked[0],
        *UNIX_FLAGS,
        *(ZIG_FLAGS if toolchain.is_zig else []),
        *(["-fPIC"] if os.name == "posix" else []),
        *flags,
        *(f"-I{folder}" for folder in dict.fromkeys((str(csrc()), include, platform))),
        str(source),
        "-o",
        str(target),
        *_linker_flags(toolchain, any(flag.startswith("-DPy_LIMITED_API") for flag in flags)),
        *asked[1],
        *(["-lm"] if os.name == "posix" else []),  # for the C of registered ops, and tcc's sqrt()
    ]


@functools.cache
def _divides_files(command: Sequence[str]) -> bool:
    """Whether this is gcc whose functions of one file are compiled beside each other while it links: -flto=JOBS.

    The module is the same for any number of jobs. Not all linkers know gcc's way: LLVM's leaves the functions out.
    """
    if sys.platform != "linux":
        return False
    asking = [*command, "-v", "-Wl,--version"]
    try:
        said = subprocess.run(asking, capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        return False
    is_linked_by_gnu = "GNU ld" in said.stdout or "GNU gold" in said.stdout
    return "Supported LTO compression" in said.stderr and is_linked_by_gnu


def _processors() -> int:
    """Of this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _linker_flags(toolchain: Toolchain, is_limited: bool) -> list[str]:
    if os.name != "posix":
        exact = f"{sys.version_info.major}{sys.version_info.minor}{getattr(sys, 'abiflags', '')}"
        version = "3" if is_limited else exact
        return ["-shared", f"-L{Path(sys.base_prefix, 'libs')}", f"-lpython{version}"]
    if toolchain.is_zig:
        return ["-dynamiclib", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    return str(sysconfig.get_config_var("LDSHARED") or "cc -shared").split()[1:]


def _run(command: Sequence[str], folder: str, source: Path) -> None:
    run_compiler(command, folder, str(source), {"Python.h": f"\n{HOW_TO_GET_A_COMPILER}"})


def run_compiler(command: Sequence[str], folder: str, source: str, hints: Mapping[str, str]) -> None:
    """Raises CompilerError with what the compiler says if it fails, and with the hints for what stands in that."""
    try:
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CompilerError(f"the C compiler {command[0]!r} does not run: {error.strerror}") from error
    if run.returncode == 0:
        return
    said = f"{run.stdout}{run.stderr}"
    help = "".join(hint for sign, hint in hints.items() if sign in said)
    raise CompilerError(f"compiling {source} failed:\n{shlex.join(command)}\n{said}{help}")


# Run in a separate Python process: setuptools works in the current folder, reads its pyproject.toml and prints.
_SETUP = """
import json, sys
from setuptools import Extension, setup
options = json.loads(sys.argv[1])
setup(
    name=options["name"],
    py_modules=[],
    ext_modules=[Extension(**options)],
    script_args=["--quiet", "build_ext", "--build-lib", "built", "--build-temp", "temporary"],
)
"""


def _by_setuptools(source: Path, name: str, folder: str, flags: Sequence[str]) -> Path:
    options = {
        "name": name,
        "sources": [str(source)],
        "include_dirs": [str(csrc())],
        "extra_compile_args": [*compile_flags("msvc"), *flags],
    }
    _run([sys.executable, "-c", _SETUP, json.dumps(options)], folder, source)
    (built,) = Path(folder, "built").glob(f"{name}.*")
    return built


def _has_visual_studio() -> bool:
    """Whether setuptools would find a compiler."""
    if importlib.util.find_spec("setuptools") is None:
        return False
    script = "from setuptools._distutils.ccompiler import new_compiler\nnew_compiler(compiler='msvc').initialize()"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == 0

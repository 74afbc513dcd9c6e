"""A Program compiled in many ways, fast: C compilers called directly, headers precompiled.

Example: Toolchain(folder).systems(program, folder, ["gcc -O3"]) gives the engine, the interpreter of the ir, the Python
lowerings, straight-line C and loops in C by tcc, and both by gcc -O3 at each SIMD level of the processor.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

from codegen.backends.shared import csrc
from codegen.passes.freeze import frozen_program, weights_of
from codegen.pipeline import Compiled, batch_of, build_graph, compile_program
from codegen.program import Program
from codegen.reference.verify_loops import verify_loops
from codegen.schedule.pipeline import c_passes, single_images, stages
from codegen.schedule.target import Target
from codegen.toolchain import UNIX_FLAGS
from tools.fuzz_compiler.reference import Engine, Interpreter, LoopInterpreter, with_rows
from tools.fuzz_compiler.systems import LEVELS, Module, System

COMMANDS = ("gcc -O0", "gcc -O3", "clang -O0", "clang -O3")
NAME = "model"
Systems: TypeAlias = dict[str, System]
FEW_STATEMENTS = 300  # nodes of the ir, up to which straight-line C goes to gcc and clang too: they are slow at it
FLAGS = [*(flag for flag in UNIX_FLAGS if not flag.startswith("-O")), "-fPIC"]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
# What every module includes and what takes a compiler longest to read.
HEADER = """\
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
"""
# The wrappers are the same in every module, and the test suite has them optimised. They take half of a compiler's time.
WRAPPERS = "#include <module.h>\n"
UNOPTIMISED = {
    "gcc": f'#pragma GCC optimize("O0")\n{WRAPPERS}',
    "clang": f"#pragma clang optimize off\n{WRAPPERS}#pragma clang optimize on\n",
}


class Toolchain:
    """The C compilers of this machine. `quick` compiles what has one SIMD level: tcc if there is one."""

    def __init__(self, folder: Path, often: Sequence[str] = ()) -> None:
        """Commands that are used `often` get a precompiled header in the folder, by precompile()."""
        self.includes = [f"-I{csrc()}", f"-I{sysconfig.get_paths()['include']}"]
        self.commands = [command for command in COMMANDS if shutil.which(command.split()[0])]
        if not self.commands:
            raise FileNotFoundError("found neither gcc nor clang")
        self.folder, self.often = folder, often
        self.headers: dict[str, list[str]] = {}
        self.quick = "tcc" if shutil.which("tcc") else self.commands[0]

    def precompile(self, commands: Sequence[str]) -> None:
        """The headers of these commands, unless they are there: before a process is forked that takes them."""
        for command in set(commands) & set(self.often) - self.headers.keys():
            self.headers[command] = self._precompile(command)

    def _precompile(self, command: str) -> list[str]:
        """The arguments by which a compiler takes the precompiled header."""
        header = self.folder / command.replace(" ", "") / "header.h"
        header.parent.mkdir(parents=True)
        header.write_text(HEADER)
        compiler, level = command.split()
        suffix = ".gch" if compiler == "gcc" else ".pch"
        target = header.with_name(header.name + suffix)
        subprocess.run([compiler, level, *FLAGS, *self.includes, "-x", "c-header", header, "-o", target], check=True)
        return ["-include", str(header)] if compiler == "gcc" else ["-include-pch", str(target)]

    def systems(
        self, program: Program, folder: Path, commands: list[str], python: str, only: str | None = None
    ) -> Systems:
        """Everything that computes the same bits; or, with `only`, the first of it and what has that in its name.

        `python` is the lowering of the generated Python, "loops" or "straightline".
        float32 has no reference: only C, and only loops, compute in it, so at least two compilers must.
        """
        if program.dtype == "float32":
            commands = commands or self.commands[:1]
        graph = cache(partial(build_graph, program))
        loops, statements = (
            cache(partial(_compiled, program, "loops")),
            cache(partial(_compiled, program, "straightline")),
        )
        makers: list[tuple[str, Callable[[], System]]] = []
        if program.dtype == "float64":
            makers += [
                ("engine", lambda: Engine(program)),
                ("interpreter", lambda: Interpreter(program, graph())),
                ("loops, interpreted", lambda: _interpreted(program, loops())),
                (f"Python, {python}", lambda: _python(program, folder, python)),
                (
                    f"straight-line, {self.quick}",
                    lambda: self.module(program, statements(), folder / "quick", self.quick),
                ),
            ]
        if self.quick == "tcc":
            makers.append(("loops, tcc", lambda: self.module(program, loops(), folder / "tcc", "tcc")))
        for command in commands:
            lowerings = {"loops": loops}
            if program.dtype == "float64" and len(graph()) <= FEW_STATEMENTS:
                lowerings["straight-line"] = statements
            for lowering, compiled in lowerings.items():
                place = folder / f"{lowering} {command}"
                module = cache(partial(self._by, command, program, compiled, place))
                makers += [(f"{lowering}, {command}, {level}", partial(_at_level, module, level)) for level in LEVELS]
        found: Systems = {}
        for name, make in makers:
            if only is None or not found or only in name:
                with suppress(ImportError):  # a level that is not on this processor
                    found[name] = make()
        return found

    def _by(self, command: str, program: Program, compiled: Callable[[], Compiled], folder: Path) -> Module:
        return self.module(program, compiled(), folder, command)

    def frozen(self, program: Program, data: list[float], folder: Path, commands: list[str]) -> dict[str, Module]:
        """The Program frozen with these parameters, all finite: by `quick`, and by each command at each SIMD level."""
        frozen = frozen_program(program, weights_of(program, data))
        compiled = compile_program(frozen, NAME)
        found = {self.quick: self.module(frozen, compiled, folder / "frozen", self.quick)}
        for command in commands:
            module = self.module(frozen, compiled, folder / f"frozen {command}", command)
            for level in LEVELS:
                with suppress(ImportError):  # a level that is not on this processor
                    found[f"{command}, {level}"] = module.at_level(level)
        return found

    def module(self, program: Program, compiled: Compiled, folder: Path, command: str) -> Module:
        """The C compiled by one command. Raises RuntimeError with the compiler's output where that fails."""
        folder.mkdir()
        compiler, *level = command.split()
        for name, text in compiled.files.items():
            (folder / name).write_text(text.replace(WRAPPERS, UNOPTIMISED[compiler]) if "-O3" in level else text)
        source, target = folder / f"{NAME}.c", folder / f"{NAME}.so"
        flags = ["-shared"] if compiler == "tcc" else [*level, *FLAGS, *WARNINGS, "-shared"]
        arguments = [compiler, *flags, *self.includes, *self.headers.get(command, [])]
        arguments += [str(source), "-o", str(target), "-lm"]
        done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
        if compiler == "tcc" and "initializer element is not constant" in done.stderr:
            return self.module(program, compiled, folder / "instead", self.commands[0])  # tcc has no nan in its tables
        if done.returncode:
            raise RuntimeError(f"{command} failed ({done.returncode}): {done.stderr}")
        return Module(program, target, NAME)


def _interpreted(program: Program, compiled: Compiled) -> LoopInterpreter:
    """The loops that C is printed from. Raises ValueError if those after any pass are not legal."""
    target, found = Target.of(program), compiled.found
    assert found is not None
    verify_loops(found.loops, is_padded=False)
    batch = batch_of(found, target)
    found = single_images(found, target, batch.phases if batch is not None else {})
    for _, loops in stages(found, c_passes(found, target, in_module=True)):
        verify_loops(loops)
    return LoopInterpreter(program, with_rows(loops, found.loops), found)


def _python(program: Program, folder: Path, lowering: str) -> Module:
    path = folder / f"{lowering}.py"
    path.write_text(compile_program(program, NAME, lowering, target="python").text)
    return Module(program, path, NAME)


def _compiled(program: Program, lowering: str) -> Compiled:
    return compile_program(program, NAME, lowering)


def _at_level(module: Callable[[], Module], level: str) -> Module:
    return module().at_level(level)

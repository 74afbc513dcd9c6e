"""The float32 functions at all arguments, power at millions of pairs: compiles and runs exhaustive.c.

A step of 1 takes some two minutes a function; an odd step reaches all exponents. Functions decrease where they should
not at the "reversals", counted between neighbours that are `step` apart.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from codegen.backends.shared import csrc
from codegen.toolchain import UNIX_FLAGS
from tools.functions.compiled import LEVELS, levels, source


def measure(folder: Path, names: Sequence[str], step: int) -> bool:
    """Prints the errors. Whether all are within 1 ulp."""
    functions, program = folder / "functions.c", folder / "exhaustive"
    functions.write_text(source(is_float32=True) + "\n", encoding="utf-8")
    command = ["gcc", *UNIX_FLAGS, *LEVELS[levels()[-1]], f"-I{csrc()}", f'-DFUNCTIONS="{functions}"']
    command += [str(Path(__file__).with_name("exhaustive.c")), "-o", str(program), "-lm"]
    subprocess.run(command, check=True)
    return subprocess.run([str(program), str(step), *names], check=False).returncode == 0

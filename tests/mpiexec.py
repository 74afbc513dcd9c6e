"""mpiexec as the tests start it: that of the wheel mpich, and Open MPI where the system has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from commands import environment

without_mpi = pytest.mark.skipif(sys.platform == "win32", reason="there is no wheel of mpich for Windows")

# `micrograd` after a change, which is Python, to one rank or to "all"
CHANGED = """
import os, sys
rank, change, *arguments = sys.argv[1:]
if rank != "all":
    from mpi4py import MPI
if rank == "all" or MPI.COMM_WORLD.rank == int(rank):
    exec(change)
from micrograd.__main__ import main
sys.exit(main(arguments))
"""


@dataclass(frozen=True)
class Mpi:
    """An MPI library and its mpiexec."""

    command: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)

    def start(
        self, ranks: int, *arguments: object, change: str = "", on: int | str = "all", **variables: str
    ) -> subprocess.Popen[str]:
        """`micrograd` with these arguments on so many ranks."""
        python = ["-c", CHANGED, str(on), change] if change else ["-m", "micrograd"]
        return subprocess.Popen(
            [*self.command, "-n", str(ranks), sys.executable, *python, *map(str, arguments)],
            env=environment(**self.variables, **variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, ranks: int, *arguments: object, **how: str) -> subprocess.CompletedProcess[str]:
        """Ranks that wait for ever are a failure."""
        with self.start(ranks, *arguments, **how) as process:
            try:
                out, err = process.communicate(timeout=300)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def good(self, ranks: int, *arguments: object, **how: str) -> str:
        done = self.run(ranks, *arguments, **how)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


MPICH = Mpi((str(Path(sysconfig.get_path("scripts"), "mpiexec")),))
OPENMPI = Mpi(
    ("mpiexec.openmpi", "--oversubscribe", "--bind-to", "none"),
    {
        "MPI4PY_LIBMPI": "libmpi.so.40",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    },
)
needs_openmpi = pytest.mark.skipif(shutil.which("mpiexec.openmpi") is None, reason="there is no Open MPI")
OPENMPI_NIGHTLY = pytest.param(OPENMPI, id="openmpi", marks=[needs_openmpi, pytest.mark.nightly])
LIBRARIES = [pytest.param(MPICH, id="mpich"), pytest.param(OPENMPI, id="openmpi", marks=needs_openmpi)]


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that has ended may still wait for its parent to ask how."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # a system without /proc, or it has ended just now
        return not Path("/proc/self").exists()

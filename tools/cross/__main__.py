"""Compiles the modules for other processors and systems, runs what can be emulated, and compares it with this machine.

Needs Debian 12 on x86-64; as root it installs the tools that are missing. Exit code 1 where anything is wrong.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

from tools.cross import compile_only, emulate, report
from tools.cross.builds import Failed
from tools.cross.packages import Missing, install_tools, unpack_python
from tools.cross.sources import ROOT, cases, write

CACHE = ROOT / ".cache" / "cross"


def main() -> int:
    """0 where everything agrees, 1 where not. Raises Missing, and Failed where this machine's own modules fail."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Missing(f"make cross needs Debian 12 on x86-64, and this is {sys.platform} on {platform.machine()}")
    install_tools()
    unpack_python(emulate.PROCESSORS.values(), CACHE)
    work, chosen = CACHE / "work", cases()
    shutil.rmtree(work, ignore_errors=True)
    write(work / "sources", chosen)
    compile_only.prepare(CACHE / "arm64" / "usr" / "include" / "python3.11", work / "headers")
    print("compiling and emulating, some minutes", flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        measured = emulate.start(pool, CACHE, work, chosen)
        compiled = [
            pool.submit(compile_only.row, system, work / "sources", work / "headers", work / f"objects{i}")
            for i, system in enumerate(compile_only.SYSTEMS)
        ]
        if not measured[emulate.NATIVE].result().runs["nn_fused"].info["fma"]:
            raise Missing("make cross needs a processor with AVX2 and fused multiply-add, to compare with")
        rows = emulate.rows(measured, CACHE, work, chosen) + [future.result() for future in compiled]
    differences = report.library(emulate.libraries(measured), emulate.ARGUMENTS)
    print(f"\n{differences}\n\n{report.results(rows)}")
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Missing, Failed) as error:
        sys.exit(f"error: {error}")

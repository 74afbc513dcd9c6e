"""Compiles the models for other processors and systems, runs them where it can, and compares them with this machine.

Needs Debian 12 on x86-64; as root it installs the tools that are missing. Exit code 1 where anything is wrong. With
`--quick` it takes six of the thirteen programs. With the argument `wheels` it makes wheels for other systems instead:
see tools/cross/wheels.py.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

from tools.cross import compile_only, emulate, epoch, interpreters, report, trained, wheels, without_python
from tools.cross.builds import Failed
from tools.cross.driver import EPOCH
from tools.cross.packages import Missing, install_tools, unpack_python
from tools.cross.sources import ROOT, cases, write

CACHE = ROOT / ".cache" / "cross"


def main(arguments: list[str]) -> int:
    """0 where everything agrees, 1 where not. Raises Missing, and Failed where this machine's own modules fail."""
    if arguments not in ([], ["--quick"]):
        raise Failed(f"the arguments are --quick, or wheels and those of wheels, not {' '.join(arguments)}")
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Missing(f"make cross needs Debian 12 on x86-64, and this is {sys.platform} on {platform.machine()}")
    install_tools()
    unpack_python(emulate.DEBIAN.values(), CACHE)
    work, chosen = CACHE / "work", [case for case in cases() if case.is_quick or not arguments]
    shutil.rmtree(work, ignore_errors=True)
    write(work / "sources", chosen)
    trained.write(work / "sources" / "trains", trained.trained(chosen))
    digits = epoch.load()
    epoch.write(work / "digits", digits.train_images, digits.train_labels)
    compile_only.prepare(CACHE / "arm64" / "usr" / "include" / "python3.11", work / "headers")
    print("compiling and emulating, some minutes", flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        emulated = emulate.start(pool, CACHE, work, [case.name for case in chosen])
        interpreted = interpreters.start(pool, work, [case.name for case in chosen if case.in_python])
        plain = without_python.start(pool, work, chosen, emulated[emulate.NATIVE])
        training = trained.start(pool, work, chosen, emulated[emulate.NATIVE])
        compiled = [
            pool.submit(compile_only.row, system, work / "sources", work / "headers", work / f"objects{i}")
            for i, system in enumerate(compile_only.SYSTEMS)
        ]
        if not emulated[emulate.NATIVE].result()["nn_fused"].info["fma"]:
            raise Missing("make cross needs a processor with AVX2 and fused multiply-add, to compare with")
        expected = emulate.reference(emulated)
        rows = [
            *emulate.rows(emulated, expected, CACHE, work),
            *without_python.rows(plain, expected),
            *trained.rows(training, expected),
            *interpreters.rows(interpreted, expected),
            *(future.result() for future in compiled),
        ]
    here = emulated[emulate.NATIVE].result()
    print(
        f"\nCompared with this machine, x86-64 at the SIMD level {here['nn'].info['simd']}.\n"
        f"Data of the epoch: {digits.source}, {len(digits.train_labels):,} images.\n"
        f"SHA-256 of the weights after it: {epoch.sha256(here[EPOCH])}\n\n{report.results(rows)}"
    )
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    try:
        sys.exit(wheels.main(sys.argv[2:]) if sys.argv[1:2] == ["wheels"] else main(sys.argv[1:]))
    except (Missing, Failed) as error:
        sys.exit(f"error: {error}")

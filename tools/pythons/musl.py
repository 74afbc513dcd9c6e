"""Compiled modules in CPython on musl, where a thread's stack is small and libc another.

The numbers of the models must be this machine's, to the bit; then come calls in threads with 128 KB, musl's default.
There is no zlib and no NumPy, whose wheel for musl does not run beside Debian's libraries.
"""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

from tools.cross.builds import Build, Target, run
from tools.cross.compare import Reference
from tools.cross.sources import ROOT, cases, write
from tools.pythons import build

SMALL_STACKS = """
import threading
threading.stack_size(128 * 1024)
import nn
images, labels = bytes(range(196)) * 4 * 2000, bytes(range(10)) * 200
alone = nn.train(images, labels, batch_size=300), nn.evaluate(images, labels), nn.predict_batch(images)
nn.reset(1)
together = []
def work():
    together.append(nn.train(images, labels, batch_size=300, threads=4))
    together.append(nn.evaluate(images, labels, threads=4))
    together.append(nn.predict_batch(images, threads=4))
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert tuple(together) == alone
"""


def main(arguments: list[str]) -> int:
    """0 where everything agrees. Raises Failed."""
    python = str(build.python("musl"))
    headers = run([python, "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"]).decode().strip()
    work = build.CACHE / "musl-work"
    shutil.rmtree(work, ignore_errors=True)
    chosen = cases()
    names = [case.name for case in chosen]
    write(work / "sources", chosen)
    runs = []
    for name, compiler, include, runner in (
        ("glibc", "gcc", sysconfig.get_paths()["include"], Target("this machine")),
        ("musl", "musl-gcc", headers, Target("musl", python=python)),
    ):
        Build("x86-64", (compiler,), (Path(include),)).compile(work / "sources", names, work / name)
        runs.append(runner.measure(work / name, names, work / "numbers" / name))
    wrong = Reference([runs[0]]).differences(runs[1])
    print(f"{len(names)} models, {sum(found.count for found in runs[1].values()):,} numbers", flush=True)
    settings = {"PYTHONPATH": f"{work / 'musl'}:{ROOT}"}
    run([python, "-P", "-c", SMALL_STACKS], settings)
    print("\n".join(wrong) or "same bits")
    return int(bool(wrong))

"""make wheel: sdist and wheel as a release makes them, audited, and installed into empty environments.

The source archive is made twice, in folders of different names, one of them with a space, and from each archive a
wheel by `pip wheel` in isolation. The archives must hold the same files, and the wheels be equal byte for byte. They
must pass twine, abi3audit and auditwheel, and the wheel stay below its size limit. In the unpacked sdist the whole
suite must be collected, and what it says of the project's files must hold. The wheel's plugin for setuptools builds
the example project. Then every Python from 3.11 on that this machine has installs the wheel, offline, into an
environment that has nothing else, runs the example of the README, and compares the modules with the interpreted
engine. With --newer, and as root, so do the Pythons of Debian's unstable branch, in a folder of their own.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNSTABLE = ROOT / ".cache" / "sid"
NEWER = ("3.14", "3.15")
LIMIT = 860_000  # bytes of a wheel: two modules, and the compiler
OLDEST = (3, 11)
IS_ABI3 = sys.version_info[:2] == OLDEST and not sysconfig.get_config_var("Py_GIL_DISABLED")

EXAMPLE = """
import sys, sysconfig, time
before = set(sys.modules)
start = time.perf_counter()
import nn
import nn_infer
milliseconds = (time.perf_counter() - start) * 1000
assert set(sys.modules) - before <= {"nn", "nn_infer"}, "importing nn imports something else"
images = [(i % 10, bytes((i * j) % 256 for j in range(784))) for i in range(10)]
first = nn.evaluate(b"".join(p for _, p in images), bytes(l for l, _ in images))[0]
for _ in range(20):
    for label, pixels in images:
        nn.zero_grad()
        nn.forward(label, pixels)
        nn.backward()
        nn.update()
last = nn.evaluate(b"".join(p for _, p in images), bytes(l for l, _ in images))[0]
assert last < first / 2, (first, last)
assert nn_infer.predict(bytes(784)) in range(10)
gil = "GIL" if getattr(sys, "_is_gil_enabled", lambda: True)() else "no GIL"
version = sys.version.split()[0]
print(f"{version}, {gil}: loss {first:.3f} -> {last:.3f}, import {milliseconds:.1f} ms, {nn.info()['simd']}")
"""


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """What a command prints. Raises SystemExit with all of it where it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}")
    return done.stdout


def checkout(folder: Path) -> None:
    """The files that git knows, as they are in the working tree."""
    for name in run("git", "ls-files", "-z", cwd=ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)


def commit_time() -> str:
    """For SOURCE_DATE_EPOCH: when the commit was made, so that archives do not depend on when they are."""
    return run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()


def twice(folder: Path) -> tuple[Path, Path]:
    """The sdist and the wheel. Raises SystemExit where a second build gives other bytes."""
    epoch = commit_time()
    builds: list[tuple[Path, Path]] = []
    for name in ("first", "the second"):
        place = folder / name
        checkout(place / "source")
        out = place / "dist"
        run(sys.executable, "-m", "build", "--sdist", "--outdir", out, place / "source", SOURCE_DATE_EPOCH=epoch)
        (sdist,) = out.glob("*.tar.gz")
        run(
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--no-cache-dir",
            "-w",
            out,
            sdist,
            SOURCE_DATE_EPOCH=epoch,
        )
        (wheel,) = out.glob("*.whl")
        builds.append((sdist, wheel))
    (sdist, wheel), (other_sdist, other_wheel) = builds
    if contents(sdist) != contents(other_sdist):
        raise SystemExit(f"{sdist.name}: two builds of one commit hold other files")
    if wheel.read_bytes() != other_wheel.read_bytes():
        raise SystemExit(f"{wheel.name}: two builds of one commit give other bytes")
    for path in (sdist, wheel):
        print(f"{path.name}: {path.stat().st_size:,} bytes, twice the same")
    return sdist, wheel


def contents(archive: Path) -> dict[str, bytes]:
    """The files of an sdist. Its own bytes hold the time at which it was made."""
    with tarfile.open(archive) as tar:
        files = [(member.name, tar.extractfile(member)) for member in tar.getmembers() if member.isfile()]
        return {name: file.read() for name, file in files if file is not None}


def audit(sdist: Path, wheel: Path) -> None:
    """What the tools of the packaging world say. Raises SystemExit for a complaint."""
    if wheel.stat().st_size > LIMIT:
        raise SystemExit(f"{wheel.name} has {wheel.stat().st_size:,} bytes, more than {LIMIT:,}")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    print("twine check --strict: passed")
    if IS_ABI3:
        if "-cp311-abi3-" not in wheel.name:
            raise SystemExit(f"{wheel.name}: CPython 3.11 must build for the limited API")
        run(sys.executable, "-m", "abi3audit", "--strict", wheel)
        print("abi3audit --strict: passed")
    if sys.platform == "linux":
        shown = run(sys.executable, "-m", "auditwheel", "show", wheel)
        tag = re.search(r'following platform tag:\s*"(\w+)"', shown)
        if tag is None or not tag[1].startswith(("manylinux", "musllinux")):
            raise SystemExit(f"auditwheel finds no platform tag for {wheel.name}:\n{shown}")
        print(f"auditwheel: consistent with {tag[1]}")


ABOUT_FILES = ("benchmarks", "compile_cost", "contributing", "docs", "metadata", "security")


def try_sdist(sdist: Path, wheel: Path, folder: Path) -> None:
    """Collects all tests in the unpacked sdist, with the wheel installed, and runs those that read other files."""
    with tarfile.open(sdist) as tar:
        tar.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    run(sys.executable, "-m", "venv", folder / "tested")
    inside = folder / "tested" / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(inside, "-m", "pip", "install", "--disable-pip-version-check", f"{wheel}[test]")
    collected = run(inside, "-m", "pytest", "--quiet", "--collect-only", cwd=source).splitlines()[-1]
    files = [f"tests/test_{name}.py" for name in ABOUT_FILES]
    example(wheel, source / "examples" / "irisnet", folder)
    print(f"in the sdist: {collected}; {run(inside, '-m', 'pytest', '--quiet', *files, cwd=source).splitlines()[-1]}")


def example(wheel: Path, source: Path, folder: Path) -> None:
    """Builds the example project in isolation, by the plugin of the wheel, and uses it where there is nothing else."""
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-cache-dir", "-w", folder / "example")
    run(*pip, source, cwd=folder, PIP_FIND_LINKS=str(wheel.parent))
    (built,) = (folder / "example").glob("*.whl")
    run(sys.executable, "-m", "venv", folder / "user")
    user = folder / "user" / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(user, "-m", "pip", "install", "--no-index", "--disable-pip-version-check", built)
    print(f"{built.name}: {run(user, '-m', 'irisnet', cwd=folder).splitlines()[0]}")


WHO = "import sys, sysconfig; print(sys.implementation.name, *sys.version_info[:2], sysconfig.get_config_var('SOABI'))"


def pythons() -> Iterator[Path]:
    """One of each CPython from 3.11 on, this one first: on the path, and what pyenv has."""
    found = [Path(sys.executable)]
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found += sorted(Path(folder).glob("python3.[0-9][0-9]*"))
    found += sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob("3.*/bin/python"))
    seen: set[str] = set()
    for path in found:
        try:
            told = subprocess.run(
                [path, "-c", WHO], capture_output=True, text=True, check=True, timeout=30
            ).stdout.split()
        except (OSError, subprocess.SubprocessError):
            continue
        if told[0] == "cpython" and tuple(map(int, told[1:3])) >= OLDEST and told[3] not in seen:
            seen.add(told[3])
            yield path


def fits(python: Path, wheel: Path) -> bool:
    """Whether a wheel is for this Python: an abi3 wheel is for all that have a GIL, any other for just one."""
    tag = run(python, "-c", "import sysconfig; print(sysconfig.get_config_var('SOABI'))").strip()
    is_free_threaded = re.match(r"cpython-3\d+t", tag) is not None
    return not is_free_threaded if "-abi3-" in wheel.name else f"-{tag.split('-')[1]}-" in wheel.name.replace("cp", "")


def try_out(wheel: Path, folder: Path) -> None:
    """Installs the wheel into an empty environment of each Python, without a network, and uses it."""
    for number, python in enumerate(python for python in pythons() if fits(python, wheel)):
        environment = folder / f"empty {number}"
        run(python, "-m", "venv", environment)
        inside = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
        run(inside, "-m", "pip", "install", "--no-index", "--disable-pip-version-check", wheel)
        listed = run(inside, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check").split()
        names = {re.split("[=@]", line)[0] for line in listed} - {"pip", "setuptools"}
        if names != {"micrograd-nn"}:
            raise SystemExit(f"{python}: besides micrograd-nn there is {names}")
        print(f"installed and used: {run(inside, '-c', EXAMPLE, cwd=environment).strip()}")
        print(run(inside, "-m", "micrograd", "check", cwd=environment).splitlines()[-1])


def try_out_newer(wheel: Path) -> None:
    """The same with Pythons that this system does not have: those of Debian's unstable branch."""
    packages = ",".join(f"python{version}-venv" for version in NEWER)
    if not UNSTABLE.exists():
        print("fetching Debian's unstable Pythons", flush=True)
        UNSTABLE.parent.mkdir(exist_ok=True)
        unfinished = UNSTABLE.with_name("sid.unfinished")
        run("debootstrap", "--variant=minbase", f"--include={packages}", "sid", unfinished)
        unfinished.rename(UNSTABLE)
    shutil.copy(wheel, UNSTABLE / "tmp")
    for version in NEWER:
        inside = ("chroot", UNSTABLE, "/tmp/empty/bin/python")
        run("chroot", UNSTABLE, f"/usr/bin/python{version}", "-m", "venv", "--clear", "/tmp/empty")
        run(*inside, "-m", "pip", "install", "--no-index", "--disable-pip-version-check", f"/tmp/{wheel.name}")
        print(f"installed and used: {run(*inside, '-c', EXAMPLE).strip()}")
        print(run(*inside, "-m", "micrograd", "check").splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--newer", action="store_true", help="the Pythons of Debian's unstable branch too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sdist, wheel = twice(folder)
        audit(sdist, wheel)
        try_sdist(sdist, wheel, folder)
        try_out(wheel, folder)
        if options.newer:
            try_out_newer(wheel)
        options.output.mkdir(parents=True, exist_ok=True)
        for path in (sdist, wheel):
            shutil.copy(path, options.output)
            print(options.output / path.name)


if __name__ == "__main__":
    main()

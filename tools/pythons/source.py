"""The source of CPython, fetched and checked by apt: from Debian's next release, with a state of its own.

The machine's own apt learns of nothing. Where Debian is found, and its keys, are what this machine has already.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools.cross.builds import Failed, run

SUITE, PACKAGE = "trixie", "python3.13"  # the first CPython that can be built without a GIL
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def fetch(folder: Path) -> Path:
    """The unpacked source. Raises Failed."""
    source = folder / "source"
    if source.is_dir():
        return source
    apt = folder / "apt"
    shutil.rmtree(apt, ignore_errors=True)
    settings = {"APT_CONFIG": str(_configuration(apt))}
    downloads = apt / "downloads"
    downloads.mkdir()
    run(["apt-get", "--quiet", "update"], settings)
    run(["sh", "-c", f"cd '{downloads}' && apt-get --quiet source --download-only {PACKAGE}"], settings)
    unpacked = apt / "unpacked"
    unpacked.mkdir()
    (archive,) = downloads.glob("*.orig.tar.*z")
    run(["tar", "--extract", f"--file={archive}", f"--directory={unpacked}", "--strip-components=1"])
    unpacked.rename(source)
    shutil.rmtree(apt)
    return source


def _configuration(folder: Path) -> Path:
    """Of an apt that knows the sources of that release alone, and keeps everything in a folder."""
    if not shutil.which("apt-get") or not KEYS.is_file():
        raise Failed("CPython's source comes from Debian's packages, and this machine has no apt or not Debian's keys")
    listed = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"])
    if not listed.strip():
        raise Failed("apt knows no archive of Debian; apt-get update may help")
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    archive = listed.decode().split()[0]
    (folder / "sources.list").write_text(f"deb-src [signed-by={KEYS}] {archive} {SUITE} main\n")
    lines = [
        f'Dir::State "{folder}";',
        f'Dir::State::status "{folder}/status";',
        f'Dir::Cache "{folder}/cache";',
        f'Dir::Etc::sourcelist "{folder}/sources.list";',
        f'Dir::Etc::sourceparts "{os.devnull}";',
        'APT::Sandbox::User "root";',
    ]
    configuration = folder / "apt.conf"
    configuration.write_text("\n".join(lines) + "\n")
    return configuration

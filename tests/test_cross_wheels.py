"""Cross-built wheels that are assembled wrongly, or audits that overlook a library. `make cross-wheels` makes them."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from tools.cross import wheels, zig
from tools.cross.assemble import assemble, modules
from tools.cross.builds import Failed

INFO = "iris-1.0.dist-info"
FILES = {
    "iris/__init__.py": b"from . import net\n",
    "iris/net.abi3.so": b"ELF",
    "iris/net.pyi": b"x: int\n",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-abi3-linux_x86_64\n\n",
    f"{INFO}/RECORD": b"outdated",
}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "iris-1.0-cp311-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("system", zig.SYSTEMS, ids=lambda system: system.tag)
def test_a_wheel_for_another_system(system: zig.System, wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "net").write_bytes(b"other")
    assert modules(wheel) == ["iris.net"]
    made = assemble(wheel, {"iris.net": tmp_path / "net"}, system.suffix, system.tag, tmp_path / "out")
    assert made.name == f"iris-1.0-cp311-abi3-{system.tag}.whl"
    with zipfile.ZipFile(made) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    module = "iris/net.pyd" if system.tag.startswith("win") else "iris/net.abi3.so"
    assert set(files) == set(FILES) - {"iris/net.abi3.so"} | {module}
    assert files[module] == b"other"
    assert files[f"{INFO}/WHEEL"].decode().splitlines()[2] == f"Tag: cp311-abi3-{system.tag}"
    *lines, last = files[f"{INFO}/RECORD"].decode().splitlines()
    assert last == f"{INFO}/RECORD,,"
    for line in lines:
        name, digest, size = line.split(",")
        content = files.pop(name)
        padded = digest.removeprefix("sha256=") + "="
        assert (base64.urlsafe_b64decode(padded), int(size)) == (hashlib.sha256(content).digest(), len(content))
    assert set(files) == {f"{INFO}/RECORD"}
    again = assemble(wheel, {"iris.net": tmp_path / "net"}, system.suffix, system.tag, tmp_path / "again")
    assert again.read_bytes() == made.read_bytes()


def test_a_module_that_was_not_compiled(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has the modules \['iris\.net'\], but \[\] were compiled"):
        assemble(wheel, {}, ".pyd", "win_amd64", tmp_path)
    assert list(tmp_path.iterdir()) == [wheel]


def test_the_import_library_has_functions_and_data() -> None:
    pytest.importorskip("abi3info")
    lines = zig.stable_abi().splitlines()
    assert lines[:2] == ["LIBRARY python3.dll", "EXPORTS"]
    assert "PyModuleDef_Init" in lines
    assert "PyExc_ValueError DATA" in lines
    assert "PyExc_ValueError" not in lines


LINKED = {
    "win_arm64": ({"python3.dll", "api-ms-win-crt-heap-l1-1-0.dll", "KERNEL32.dll"}, {"libgcc_s.dll"}),
    "macosx_11_0_arm64": ({"/usr/lib/libSystem.B.dylib"}, {"/usr/local/lib/libomp.dylib"}),
    "musllinux_1_2_aarch64": ({"musllinux_1_2_aarch64"}, {"linux_aarch64"}),
}


@pytest.mark.parametrize("tag", LINKED)
def test_what_modules_may_link_to(tag: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (system,) = (system for system in zig.SYSTEMS if system.tag == tag)
    good, more = LINKED[tag]
    monkeypatch.setattr(wheels, "run", lambda command: b"")
    monkeypatch.setattr(wheels, "linked_by", lambda system, wheel: good)
    assert wheels.audit(system, [tmp_path])[0] == []
    monkeypatch.setattr(wheels, "linked_by", lambda system, wheel: good | more)
    assert len(wheels.audit(system, [tmp_path])[0]) == 1

    def fail(command: list[str]) -> bytes:
        raise Failed("abi3audit: a symbol of no stable ABI")

    monkeypatch.setattr(wheels, "run", fail)
    assert "abi3audit: a symbol of no stable ABI" in wheels.audit(system, [tmp_path])[0]

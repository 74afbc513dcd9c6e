"""micrograd cache"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from micrograd import cache
from micrograd.__main__ import main


def test_path_size_and_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*options: str) -> str:
        assert main(["cache", *options]) == 0
        return capsys.readouterr().out.strip()

    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path))
    place = tmp_path / "models"
    assert said("--path") == str(place)
    assert said("--size") == "0"
    assert said("--clear") == f"removed 0 models from {place}"
    cache.write(place, "1" * 64, b"x" * 1000)
    (tmp_path / "mnist").write_bytes(b"not a model")
    size = (place / f"{'1' * 64}.model").stat().st_size
    assert said("--size") == str(size)
    assert said() == f"{place}: 1 model, {size:,} bytes"
    assert said("--clear") == f"removed 1 model from {place}"
    assert list(place.iterdir()) == []
    assert (tmp_path / "mnist").exists()


def test_files_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$MICROGRAD_CACHE may be a folder that has a folder of models already."""
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path))
    place = tmp_path / "models"
    place.mkdir()
    for name in ("tokenizer.model", "weights.safetensors"):
        (place / name).write_text("mine")
        os.utime(place / name, (0, 0))
    left = place / "tmpabc"
    left.mkdir()
    (left / "nn.c").write_text("")
    os.utime(left, (0, 0))
    cache.write(place, "1" * 64, b"")
    assert main(["cache", "--clear"]) == 0
    assert sorted(path.name for path in place.iterdir()) == ["tokenizer.model", "weights.safetensors"]


def test_one_option_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["cache", "--size", "--clear"])
    assert capsys.readouterr().err.startswith("error: ")

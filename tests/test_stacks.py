"""Threads with small stacks, as musl gives by default: no array on a stack grows with the model."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable

import models
import numpy as np
import pytest
from harness import Extension, nightly_but

from codegen import Program
from codegen.backends.shared import csrc
from codegen.build import write_sources
from codegen.passes.freeze import frozen_program
from codegen.pipeline import compile_program
from codegen.toolchain import UNIX_FLAGS
from micrograd import optim

CLIPPED = optim.clip_norm(optim.adam(), 1.0)

# Each model small, and with more of what it has.
GROWING: dict[str, list[Callable[[], Program]]] = {
    "wide": [lambda: models.mlp((16, 40, 2)), lambda: models.mlp((16, 2000, 2))],
    "deep": [lambda: models.mlp((30, 20, 20, 5)), lambda: models.mlp((30, 300, 300, 20))],
    "float32": [lambda: models.mlp((16, 40, 3), dtype="float32"), lambda: models.mlp((16, 1500, 30), dtype="float32")],
    "recurrence": [lambda: models.recurrence(3, 4, 8), lambda: models.recurrence(3, 40, 70)],
    "convolution": [lambda: models.convolution(8, 2), lambda: models.convolution(16, 6)],
    "attention": [lambda: models.attention(3, 4), lambda: models.attention(12, 20)],
    "residual": [lambda: models.residual(8, 2), lambda: models.residual(90, 2)],
    "clipped": [lambda: models.mlp(update=CLIPPED), lambda: models.mlp((16, 200, 20), update=CLIPPED)],
    "gather": [lambda: models.gather(20, 9), lambda: models.gather(80, 20)],
}
LARGEST_FRAME = 12 * 1024


def frames(program: Program, folder, lowering: str) -> str:
    """gcc's warnings of frames that are too large, as a module is really compiled."""
    source = write_sources(compile_program(program, "model", lowering), folder, "model")
    options = ["-I", str(csrc()), "-I", sysconfig.get_path("include"), "-c", "-o", "/dev/null"]
    flags = [*UNIX_FLAGS, f"-Wstack-usage={LARGEST_FRAME}"]
    run = subprocess.run(["gcc", *flags, *options, str(source)], capture_output=True, text=True, check=True)
    return run.stderr


@pytest.mark.skipif(not shutil.which("gcc"), reason="reads warnings of gcc")
@pytest.mark.parametrize("kind", nightly_but(["recurrence", "clipped"], GROWING))
def test_no_frame_grows_with_the_model(kind, tmp_path):
    assert frames(GROWING[kind][-1](), tmp_path, "loops") == ""


@pytest.mark.skipif(not shutil.which("gcc"), reason="reads warnings of gcc")
@pytest.mark.nightly
def test_no_frame_of_a_frozen_or_a_straight_line_model_is_large(tmp_path):
    program = models.mlp((30, 100, 20))
    frozen = frozen_program(program, {t.name: np.full(t.shape, 0.01) for t in program.tensors})
    assert frames(frozen, tmp_path, "loops") == ""
    assert frames(models.mlp(), tmp_path, "straightline") == ""


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which("gcc"), reason="reads warnings of gcc")
def test_an_array_that_grows_with_the_model_is_found(tmp_path, monkeypatch):
    planted = shutil.copytree(csrc(), tmp_path / "csrc")
    header = planted / "rows.h"
    text = header.read_text()
    assert text.count("real sum[MAX_LANES];") == 3
    header.write_text(text.replace("real sum[MAX_LANES];", "real sum[ROW_FACTORS + MAX_LANES];"))
    monkeypatch.setitem(frames.__globals__, "csrc", lambda: planted)
    small, large = (frames(make(), tmp_path, "loops") for make in GROWING["wide"])
    assert "stack usage" not in small
    assert "stack usage" in large


SMALL_STACKS = """
import sys, threading
from codegen import load_extension

threading.stack_size(int(sys.argv[3]))
module = load_extension(sys.argv[1], sys.argv[2])
inputs, count = module.info()["inputs"], 300
images, labels = bytes(i % 7 * 30 for i in range(inputs * count)), bytes(i % 2 for i in range(count))

def call():
    for batch_size in (1, 20, count):
        module.train(images, labels, batch_size=batch_size, threads=4, check_finite=True)
    views = module.state_dict(), module.grad_dict()
    module.train(images, labels, batch_size=50, threads=4, seed=1)
    del views
    module.evaluate(images, labels, threads=4)
    module.predict_batch(images, threads=4)
    module.forward(1, images[:inputs])
    module.backward()
    module.update()
    module.outputs(images[:inputs])
    module.load_state_dict(module.grad_dict())
    module.reset(3)
    done.append(1)

done = []
thread = threading.Thread(target=call)
thread.start()
thread.join()
print(done)
"""


@pytest.mark.slow
def test_everything_runs_in_threads_with_stacks_of_64_kilobytes(run_python, tmp_path):
    extension = Extension(models.mlp((70, 300, 2)), tmp_path, "loops", flags=["-O0"])  # whole tiles of rows
    assert run_python(SMALL_STACKS, str(extension.path), extension.name, str(64 * 1024)).strip() == "[1]"


@pytest.mark.nightly
def test_twenty_thousand_units_in_threads_with_stacks_of_128_kilobytes(run_python, tmp_path):
    extension = Extension(models.mlp((16, 20000, 2)), tmp_path, "loops")
    assert run_python(SMALL_STACKS, str(extension.path), extension.name, str(128 * 1024)).strip() == "[1]"

"""One model, exported four times: module, frozen module, plain C and WebAssembly say the same of all test images."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from harness import nightly_but
from plain_c import PlainC

import codegen
from codegen.build import load_extension
from codegen.mnist import program
from codegen.passes.freeze import set_weights
from codegen.weights import read_weights
from micrograd.data import mnist

WEIGHTS = Path(__file__).resolve().parent.parent / "weights" / "mnist.safetensors"
CLASSES, PIXELS = 10, 784

IN_PAGE = """
#include "digits.h"

static struct digits_model model;
static unsigned char image[DIGITS_INPUTS];
static double logits[DIGITS_LOGITS];

unsigned char *start(void);
double *look(void);
int predict(void);

unsigned char *start(void)
{
    digits_init(&model);
    return image;
}

double *look(void)
{
    digits_logits(&model, image, logits);
    return logits;
}

int predict(void) { return digits_predict(&model, image); }
"""
NODE = """
const { readFileSync, writeFileSync } = require("fs");
const [program, images, found] = process.argv.slice(2);
const pixels = readFileSync(images), count = pixels.length / 784;
WebAssembly.instantiate(readFileSync(program), {}).then(({ instance }) => {
    const { memory, start, look, predict } = instance.exports;
    const at = start(), classes = new Uint8Array(count), logits = new Float64Array(10 * count);
    for (let i = 0; i < count; i++) {
        new Uint8Array(memory.buffer).set(pixels.subarray(784 * i, 784 * i + 784), at);
        classes[i] = predict();
        logits.set(new Float64Array(memory.buffer, look(), 10), 10 * i);
    }
    writeFileSync(found, Buffer.concat([classes, Buffer.from(logits.buffer)]));
});
"""


def in_web_assembly(sources: Path, images: bytes, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Classes and logits of plain C that clang compiles for a page, without a C library."""
    (folder / "page.c").write_text(IN_PAGE)
    (folder / "run.js").write_text(NODE)
    (folder / "images").write_bytes(images)
    exports = [f"-Wl,--export={name}" for name in ("start", "look", "predict")]
    flags = ["--target=wasm32", "-O3", "-msimd128", "-ffreestanding", "-nostdlib", "-Wl,--no-entry", *exports]
    warnings = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
    command = ["clang", *flags, *warnings, f"-I{sources}", "page.c", f"{sources}/digits.c", "-o", "page.wasm"]
    subprocess.run(command, cwd=folder, check=True)
    subprocess.run(["node", "run.js", "page.wasm", "images", "found"], cwd=folder, check=True)
    found, count = (folder / "found").read_bytes(), len(images) // PIXELS
    return np.frombuffer(found, np.uint8, count), np.frombuffer(found, np.float64, offset=count).reshape(-1, CLASSES)


@pytest.mark.parametrize("most", nightly_but([1000], [1000, 10_000]))
@pytest.mark.skipif(
    not all(map(shutil.which, ("gcc", "clang", "node", "wasm-ld"))), reason="no clang for wasm32, or node"
)
def test_the_four_exports_agree_on_test_images(most: int, tmp_path: Path):
    data = mnist.load(source="auto" if os.environ.get("MICROGRAD_MNIST") else "digits")
    images, weights = data.test_images[: most * PIXELS], read_weights(WEIGHTS)
    count = len(images) // PIXELS
    model = program()
    set_weights(model, weights)
    module = codegen.compile(model)
    module.load_state_dict({name: np.array(array, dtype=np.float64) for name, array in weights.items()})
    classes = np.frombuffer(module.predict_batch(images), np.uint8)
    logits = np.asarray(module.outputs_batch(images)["logits"]).reshape(count, CLASSES)

    frozen = load_extension(codegen.freeze(model, weights, tmp_path / "frozen", "digits_frozen"))
    assert bytes(frozen.predict_batch(images)) == classes.tobytes()
    assert np.asarray(frozen.outputs_batch(images)["logits"]).tobytes() == logits.tobytes()

    model.initial = None  # else a fresh model has the weights that its distributions give
    plain = PlainC(model, tmp_path / "plain", flags=["-O2"], name="digits")
    pixels = np.frombuffer(images, np.uint8).reshape(count, PIXELS)
    assert bytes(plain.predict(image) for image in pixels) == classes.tobytes()
    assert b"".join(plain.output("logits", image).tobytes() for image in pixels) == logits.tobytes()

    in_page = in_web_assembly(tmp_path / "plain", bytes(images), tmp_path)
    assert in_page[0].tobytes() == classes.tobytes()
    assert in_page[1].tobytes() == logits.tobytes()

"""Pages that do something else in a browser than the compiled module: bits, drawings, forms, training."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest
from test_parts import X, mixed

import codegen
from codegen import Floats, Program
from codegen.build import narrowed
from codegen.pages.page import write_page
from codegen.passes.freeze import frozen_program, weights_of
from codegen.weights import read_weights
from micrograd import optim
from micrograd.data import mnist
from micrograd.engine import Value
from micrograd.noise import Bernoulli, Noise
from tools.fuzz_compiler.reference import Engine

playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
    pytest.mark.skipif(not shutil.which("wasm-ld"), reason="needs clang and wasm-ld"),
]
WEIGHTS = Path(__file__).resolve().parent.parent / "weights" / "mnist.safetensors"
IMAGES = 1000

# Lines through points of the drawing area, from 0 to 1.
STROKES = {
    0: [
        [(0.5, 0.2), (0.35, 0.3), (0.3, 0.5), (0.35, 0.7), (0.5, 0.8), (0.65, 0.7), (0.7, 0.5), (0.65, 0.3), (0.5, 0.2)]
    ],
    1: [[(0.5, 0.2), (0.5, 0.8)]],
    2: [[(0.33, 0.32), (0.42, 0.2), (0.6, 0.22), (0.65, 0.36), (0.55, 0.55), (0.32, 0.78), (0.7, 0.78)]],
    3: [
        [(0.35, 0.22), (0.55, 0.2), (0.64, 0.33), (0.55, 0.46), (0.44, 0.48)],
        [(0.44, 0.48), (0.6, 0.52), (0.67, 0.66), (0.55, 0.8), (0.34, 0.77)],
    ],
    4: [[(0.38, 0.2), (0.32, 0.52), (0.66, 0.52)], [(0.62, 0.2), (0.6, 0.82)]],
    7: [[(0.3, 0.22), (0.68, 0.22), (0.46, 0.8)]],
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        # As root, Chromium wants no sandbox; the page is our own.
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def show(browser: Any) -> Iterator[Any]:
    """show(page) -> the page, opened from its file, offline. What the browser complains about fails the test."""
    complaints: list[str] = []
    context = browser.new_context(offline=True, viewport={"width": 1000, "height": 1100})

    def opened(path: Path) -> Any:
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready]")
        return page

    yield opened
    context.close()
    assert complaints == []


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits") / "digits.html"
    return write_page(codegen.load("codegen.mnist"), path, read_weights(WEIGHTS))


def draw(page: Any, strokes: list[list[tuple[float, float]]]) -> None:
    """With a mouse, as a user does; then waits for the frame that shows the answer."""
    page.click("#clear")
    box = page.locator("#pad").bounding_box()
    for stroke in strokes:
        points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
        page.mouse.move(*points[0])
        page.mouse.down()
        for point in points[1:]:
            page.mouse.move(*point, steps=8)
        page.mouse.up()
    frames(page)


def frames(page: Any) -> None:
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def outputs(page: Any, examples: np.ndarray) -> list[np.ndarray]:
    """What the page's model makes of each example, as bits."""
    text = base64.b64encode(examples.tobytes()).decode()
    script = """([text, size]) => {
        const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
        const view = new Uint8Array(inputs[0].buffer, inputs[0].byteOffset, size);
        const found = [];
        for (let i = 0; i < bytes.length; i += size) {
            view.set(bytes.subarray(i, i + size));
            const bits = new Uint8Array(Real.from(outputs().flat()).buffer);
            found.push(btoa(String.fromCharCode(...bits)));
        }
        return found;
    }"""
    rows = page.evaluate(script, [text, examples[0].nbytes])
    return [np.frombuffer(base64.b64decode(row), dtype=np.uint8) for row in rows]


def expected(model: Any, examples: np.ndarray) -> list[np.ndarray]:
    found = model.outputs_batch(examples)
    rows = np.concatenate([np.array(found[name]).reshape(len(examples), -1) for name in found], axis=1)
    return [np.frombuffer(row.tobytes(), dtype=np.uint8) for row in rows]


def test_bits_of_a_thousand_images(show: Any, digits: Path):
    data = mnist.load()
    images = np.frombuffer(data.test_images, dtype=np.uint8).reshape(-1, mnist.SIDE**2)
    images = np.resize(images, (IMAGES, mnist.SIDE**2))
    program = codegen.load("codegen.mnist")
    model = codegen.compile(frozen_program(program, read_weights(WEIGHTS)))
    for found, right in zip(outputs(show(digits), images), expected(model, images), strict=True):
        assert np.array_equal(found, right)


@pytest.mark.parametrize("digit", STROKES)
def test_a_drawn_digit_is_read(show: Any, digits: Path, digit: int):
    page = show(digits)
    draw(page, STROKES[digit])
    assert page.inner_text("#answer") == str(digit)
    best = page.locator("#bars .best").all_inner_texts()
    assert best[0] == str(digit)
    assert float(best[1].removesuffix(" %")) > 50


def test_where_a_drawing_lies_and_how_large_it_is_does_not_matter(show: Any, digits: Path):
    page = show(digits)
    levels = []
    for scale, x0, y0 in ((1.0, 0.0, 0.0), (0.55, 0.4, 0.05), (0.55, 0.0, 0.4)):
        draw(page, [[(x0 + scale * x, y0 + scale * y) for x, y in stroke] for stroke in STROKES[7]])
        assert page.inner_text("#answer") == "7"
        levels.append(np.array(page.evaluate("Array.from(levels)")).reshape(28, 28))
    for picture in levels:
        rows, columns = np.nonzero(picture.sum(axis=1))[0], np.nonzero(picture.sum(axis=0))[0]
        assert max(rows[-1] - rows[0], columns[-1] - columns[0]) + 1 == 20
        for axis in (0, 1):
            centre = (picture.sum(axis=axis) * (np.arange(28) + 0.5)).sum() / picture.sum()
            assert abs(centre - 14) <= 0.5
    assert np.abs(levels[1] - levels[2]).mean() < 2


def test_strokes_are_undone_and_cleared(show: Any, digits: Path):
    page = show(digits)
    assert page.inner_text("#answer") == "–"
    draw(page, STROKES[4])
    assert page.inner_text("#answer") == "4"
    page.click("#unstroke")
    frames(page)
    assert page.evaluate("strokes.length") == 1
    page.focus("#clear")
    page.keyboard.press("Enter")
    frames(page)
    assert page.inner_text("#answer") == "–"
    assert page.evaluate("Math.max(...levels)") == 0


def test_a_finger_draws_too(browser: Any, digits: Path):
    context = browser.new_context(offline=True, has_touch=True, viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto(digits.as_uri())
    page.wait_for_selector("body[data-ready]")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate('getComputedStyle(document.getElementById("pad")).touchAction') == "none"
    page.tap("#pad")
    frames(page)
    assert page.evaluate("strokes.length") == 1
    context.close()


def test_training_changes_the_answer(show: Any, digits: Path):
    page = show(digits)
    page.get_by_role("button", name="It is 1", exact=True).click()
    assert page.inner_text("#trained") == "Draw something first."
    draw(page, STROKES[7])
    before = page.locator("#bars .number").all_inner_texts()
    for _ in range(20):
        page.get_by_role("button", name="It is 1", exact=True).click()
        if page.inner_text("#answer") == "1":
            break
    assert page.inner_text("#answer") == "1"
    first, last = map(float, page.inner_text("#trained").removeprefix("Loss ").removesuffix(".").split(" → "))
    assert first > last
    trained = page.locator("#bars .number").all_inner_texts()
    page.click("#undo")
    assert page.locator("#bars .number").all_inner_texts() != trained
    page.click("#reset")
    assert page.locator("#bars .number").all_inner_texts() == before
    assert page.inner_text("#answer") == "7"
    assert page.locator("#reset").is_disabled()
    assert page.locator("#undo").is_disabled()


def test_training_has_the_bits_of_the_module(show: Any, digits: Path):
    """Five steps with one drawing, here and there."""
    page = show(digits)
    draw(page, STROKES[4])
    page.fill("#rate", "0.02")
    page.fill("#steps", "5")
    page.get_by_role("button", name="It is 9", exact=True).click()
    image = np.array(page.evaluate("Array.from(inputs[0])"), dtype=np.uint8)
    model = codegen.compile(codegen.load("codegen.mnist"))
    model.load_state_dict({name: array.astype(float) for name, array in read_weights(WEIGHTS).items()})
    for _ in range(5):
        model.zero_grad()
        model.accumulate(image[None], bytes([9]))
        model.update(learning_rate=0.02)
    (found,), (right,) = outputs(page, image[None]), expected(model, image[None])
    assert np.array_equal(found, right)


def test_a_rate_that_is_too_large_is_named(show: Any, digits: Path):
    page = show(digits)
    draw(page, STROKES[4])
    page.fill("#rate", "1e308")
    page.get_by_role("button", name="It is 9", exact=True).click()
    assert page.inner_text("#trained").endswith("It grew: try a smaller rate, after Undo.")
    page.click("#undo")
    assert page.inner_text("#answer") == "4"


def test_what_it_looks_at_is_the_gradient_of_the_answer(show: Any, digits: Path):
    page = show(digits)
    draw(page, STROKES[3])
    found = page.evaluate("Array.from(new Real(wasm.memory.buffer, wasm.look(3), 784))")
    program = codegen.load("codegen.mnist")
    frozen_program(program, read_weights(WEIGHTS))
    Engine(program).forward(0, page.evaluate("Array.from(levels)"))
    for value in program.input_values:
        value.grad = 0.0
    program.outputs["logits"][3].backward()
    assert found == [value.grad for value in program.input_values]
    picture = 'document.getElementById("eye").toDataURL()'
    before = page.evaluate(picture)
    page.check("#overlay")
    assert page.evaluate(picture) != before
    assert page.locator("#legend").is_visible()


def form(tmp_path: Path, **given: Any) -> tuple[Path, Program]:
    x = models.values(3)
    y = [(x[0] * 2.0 + x[1]).tanh(), x[1] - x[2] * x[0]]
    program = Program(Floats(x), None, {}, None, {"y": y, "z": [x[0].exp()]})
    return write_page(program, tmp_path / "form.html", **given), program


def test_sliders_and_numbers(show: Any, tmp_path: Path):
    data = np.array([[-1.0, 0.0, 2.0], [3.0, 1.0, 5.0]])
    path, program = form(tmp_path, data=data, features=["long", "wide", "high"])
    page, model = show(path), codegen.compile(frozen_program(program, weights_of(program)))
    assert page.locator("#form label").all_inner_texts() == ["long", "wide", "high"]
    assert page.evaluate("Array.from(inputs[0])") == [1.0, 0.5, 3.5]
    page.get_by_label("wide").and_(page.locator("[type=number]")).fill("0.25")
    slider = page.get_by_label("long").and_(page.locator("[type=range]"))
    slider.focus()
    page.keyboard.press("End")
    assert page.evaluate("Array.from(inputs[0])") == [3.0, 0.25, 3.5]
    shown = page.locator("#bars .number").all_inner_texts()
    assert [float(text) for text in shown] == pytest.approx(model.outputs([3.0, 0.25, 3.5])["y"], rel=1e-3)
    page.get_by_label("wide").and_(page.locator("[type=number]")).fill("")
    assert page.evaluate("inputs[0][1]") == 0.25  # what is no number changes nothing
    assert page.locator("#training").is_hidden()
    assert page.locator("#drawing").is_hidden()


def test_a_title_is_text(show: Any, tmp_path: Path):
    path, _ = form(tmp_path, title="<img src=x onerror=alert(1)></title><script>alert(2)</script>")
    page = show(path)
    assert page.inner_text("h1").startswith("<img src=x")
    assert page.title().endswith("<script>alert(2)</script>")


def number(page: Any, field: str) -> Any:
    return page.locator(f'[id="{field}"]')


def same(page: Any, model: Any, example: Any) -> None:
    """The page's outputs have the bits of the module's."""
    right = [x for numbers in model.outputs(example).values() for x in numbers]
    assert page.evaluate("outputs().flat()") == right


def test_a_form_of_many_parts_and_targets(show: Any, tmp_path: Path):
    program = mixed()
    page, model = show(write_page(program, tmp_path / "mixed.html")), codegen.compile(mixed())
    example = {name: part[1] for name, part in X.items()}
    for i, part in enumerate(example.values()):
        for k, x in enumerate(np.ravel(part).tolist()):
            number(page, f"input{i}.{k}").fill(str(x))
    same(page, model, example)
    assert page.locator("#fields legend").all_inner_texts() == ["pixels", "maß", "word"]
    assert page.inner_text("#answer") == str(model.predict(example))
    number(page, "target0.0").fill("0.5")
    number(page, "target1.0").fill("2")
    page.fill("#rate", "0.1")
    page.fill("#steps", "2")
    page.get_by_role("button", name="Train").click()
    for _ in range(2):
        model.forward({"weight": [0.5], "label": 2}, example)
        model.zero_grad()
        model.backward()
        model.update(learning_rate=0.1)
    same(page, model, example)
    number(page, "input2.1").fill("4")  # a word that the vocabulary does not have
    same(page, model, example)
    page.click("#reset")
    same(page, codegen.compile(mixed()), example)


def test_float32_and_a_rule_with_state(show: Any, tmp_path: Path):
    program = replace(models.mlp(dtype="float32"), update=optim.adam(), learning_rate=0.05)
    page, model = show(write_page(program, tmp_path / "adam.html")), codegen.compile(program)
    example = bytes(range(0, 240, 20))
    for k, x in enumerate(example):
        number(page, f"input0.{k}").fill(str(x))
    same(page, model, example)
    page.fill("#steps", "3")
    page.get_by_role("button", name="It is 2", exact=True).click()
    for _ in range(3):
        model.forward(2, example)
        model.zero_grad()
        model.backward()
        model.update()
    same(page, model, example)


@pytest.mark.parametrize("storage", ["float16", "bfloat16", "int8", None])
def test_weights_are_widened_to_what_they_were_rounded_to(show: Any, tmp_path: Path, storage: str | None):
    w, b, x = models.values(12), models.values(1), models.values(4)
    w[0].data, w[5].data, b[0].data = 1e-7, -0.3, 3.1  # a denormal float16
    for i, value in enumerate(w[6:]):
        value.data = (-1.0) ** i / (i + 3)
    y = [sum((a * c for a, c in zip(w[4 * k : 4 * k + 4], x, strict=True)), start=b[0]) for k in range(3)]
    parameters = {"w": np.array(w, dtype=object).reshape(3, 4), "b": b, "none": [Value(0.0)]}
    program = Program(Floats(x), None, parameters, None, {"y": y})
    page = show(write_page(program, tmp_path / "page.html", storage=storage))
    right = weights_of(program)
    model = codegen.compile(frozen_program(narrowed(program, storage), right))
    examples = np.concatenate([np.zeros((1, 4)), np.eye(4), [[1e3, 1.0, 1.0, 1.0]]]).astype(model.info()["dtype"])
    assert np.array_equal(outputs(page, examples), expected(model, examples))
    assert (3.1 in right["b"]) == (storage is None)


def test_a_loss_without_targets_is_trained_too(show: Any, tmp_path: Path):
    (x,), (w,) = models.values(1), models.values(1)
    program = Program(Floats([x]), None, {"w": w}, (w * x - x) ** 2, {"y": [w * x, x * 0.25]})
    page, model = show(write_page(program, tmp_path / "page.html")), codegen.compile(program)
    number(page, "input0.0").fill("0.5")
    page.fill("#steps", "1")
    page.get_by_role("button", name="Train").click()
    model.forward(None, [0.5])
    model.backward()
    model.update()
    same(page, model, [0.5])
    assert "%" not in "".join(page.locator("#bars .number").all_inner_texts())  # they do not add up to 1


def test_a_model_with_noise_only_predicts(show: Any, tmp_path: Path):
    x, w, mask = models.values(2), models.values(2), models.values(2)
    for value in w:
        value.data = 1.5
    y = [a * b * m for a, b, m in zip(x, w, mask, strict=True)]
    program = Program(Floats(x), None, {"w": w}, y[0] + y[1], {"y": y}, noise=Noise(mask, Bernoulli(0.5, 2.0)))
    page = show(write_page(program, tmp_path / "noise.html"))
    number(page, "input0.1").fill("3")
    assert page.evaluate("outputs().flat()") == [0.0, 4.5]
    assert page.locator("#training").is_hidden()

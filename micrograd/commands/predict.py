"""micrograd eval | predict: tests saved weights, and shows images with the model's predictions."""

from __future__ import annotations

import argparse
import math
import sys
from operator import eq
from pathlib import Path
from typing import Any

from micrograd.commands.command_line import whole
from micrograd.commands.errors import UsageError
from micrograd.commands.images import PIXELS, read_image
from micrograd.commands.inputs import add_matching, compiled_model, data_options, load_data, load_weights, matching_of
from micrograd.commands.train_model import Recipe, add_model
from micrograd.data import mnist
from micrograd.data.mnist import SIDE

EXAMPLES = 10  # images that `predict` shows by default
BLOCKS = " ▀▄█"  # for two pixels, one above the other: none, the upper, the lower, both
SHADES = " .:-=+*#%@"  # for two pixels in encodings without blocks, from black to white
BAR = 30  # characters of a certain prediction


def add_parsers(commands: Any) -> None:
    """`commands`: what the tree adds parsers to."""
    eval_parser = commands.add_parser(
        "eval",
        parents=[data_options()],
        description="The loss and the accuracy of weights on the test images, and the accuracy digit by digit: "
        "those that come with the module, or saved ones.",
    )
    eval_parser.set_defaults(command=evaluate)
    add_model(eval_parser.add_argument_group("the model that --load is of"))
    add_load(eval_parser)

    predict_parser = commands.add_parser(
        "predict",
        parents=[data_options()],
        description=f"Show images and what the model makes of them: the files given, or one of the test images, or "
        f"the first {EXAMPLES} of them.",
    )
    predict_parser.set_defaults(command=predict)
    add_model(predict_parser.add_argument_group("the model that --load is of"))
    add_load(predict_parser)
    add = predict_parser.add_argument
    add("--index", type=whole(0, 2**63 - 1), metavar="I", help="the number of a test image, from 0")
    add(
        "files",
        nargs="*",
        type=Path,
        metavar="IMAGE",
        help=f"a PNG of any size, or {SIDE} x {SIDE} pixels as {PIXELS} bytes or a binary PGM (P5); dark strokes "
        "on light paper are inverted",
    )


def add_load(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--load", type=Path, metavar="FILE", help="the weights (default: those that come with the module)"
    )
    add_matching(parser.add_argument)


def loaded(options: argparse.Namespace) -> Any:
    """The model with the weights of --load, or nn_infer, which has its own."""
    recipe, how = Recipe.of(options), matching_of(options, options.load, "--load")
    if options.load is None:
        if recipe != Recipe():
            raise UsageError("another model than that of nn_infer needs --load FILE")
        return compiled_model("nn_infer")
    model = recipe.compiled()
    load_weights(model, options.load, how)
    return model


def evaluate(options: argparse.Namespace) -> int:
    model = loaded(options)
    data = load_data(options)
    predictions = model.predict_batch(data.test_images)
    right = sum(map(eq, data.test_labels, predictions))
    if options.load is None:
        loss, weights = mean_loss(model, data), f"those of nn_infer, {model.info()['weights'][:16]}"
    else:
        loss, weights = model.evaluate(data.test_images, data.test_labels)[0], str(options.load)
    print(f"test loss      {loss:.4f}")
    print(f"test accuracy  {right / len(data.test_labels):.2%} of {len(data.test_labels):,} images")
    print(f"weights        {weights}")
    print(f"data           {data.source}")
    print("\ndigit  images   right  accuracy")
    for digit in range(mnist.CLASSES):
        pairs = zip(data.test_labels, predictions, strict=True)
        answers = [prediction for label, prediction in pairs if label == digit]
        right = answers.count(digit)
        share = f"{right / len(answers):.2%}" if answers else "-"
        print(f"{digit:5}  {len(answers):6,}  {right:6,}  {share:>8}")
    return 0


def mean_loss(frozen: Any, data: mnist.Data) -> float:
    """The cross-entropy of a model that only predicts, on the test images."""
    losses = []
    rows = frozen.outputs_batch(data.test_images)["logits"].tolist()
    for label, logits in zip(data.test_labels, rows, strict=True):
        top = max(logits)
        losses.append(top - logits[label] + math.log(math.fsum(math.exp(logit - top) for logit in logits)))
    return math.fsum(losses) / len(losses)


def predict(options: argparse.Namespace) -> int:
    if options.files and (options.index is not None or options.data is not None or options.digits):
        raise UsageError("image files exclude --index, --data and --digits")
    model = loaded(options)
    if options.files:
        for path in options.files:
            show(model, str(path), read_image(path), None)
        return 0
    data = load_data(options)
    count = len(data.test_labels)
    if options.index is not None and options.index >= count:
        raise UsageError(f"--index must be 0..{count - 1}, got {options.index}")
    for i in range(min(count, EXAMPLES)) if options.index is None else [options.index]:
        show(model, f"test image {i}", data.test_images[i * PIXELS : (i + 1) * PIXELS], data.test_labels[i])
    return 0


def show(nn: Any, title: str, pixels: bytes, label: int | None) -> None:
    """Prints an image and, beside it, the probability of each digit."""
    best = nn.predict(pixels)
    truth = "" if label is None else f", true label {label} ({'right' if best == label else 'wrong'})"
    print(f"{title}: predicted {best}{truth}")
    blocks = can_print(BLOCKS)
    rows = [f"{row}  " for row in picture(pixels, blocks)]
    has_probabilities = "probabilities" in nn.info()["outputs"]
    for digit, probability in enumerate(nn.probabilities(pixels) if has_probabilities else ()):
        bar = (BLOCKS[-1] if blocks else "#") * (round(BAR * probability) if probability == probability else 0)
        rows[digit + 2] += f"  {digit} {probability:7.2%} {bar}"
    print("\n".join(row.rstrip() for row in rows) + "\n")


def picture(pixels: bytes, blocks: bool) -> list[str]:
    """14 lines of 28 characters, two pixels in each: a character is about twice as high as it is wide."""
    lines = []
    for top in range(0, PIXELS, 2 * SIDE):
        pairs = zip(pixels[top : top + SIDE], pixels[top + SIDE : top + 2 * SIDE], strict=True)
        if blocks:
            lines.append("".join(BLOCKS[(upper >= 96) + 2 * (lower >= 96)] for upper, lower in pairs))
        else:
            lines.append("".join(SHADES[(upper + lower) * len(SHADES) // 512] for upper, lower in pairs))
    return lines


def can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True

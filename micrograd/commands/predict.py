"""micrograd eval | predict: tests saved weights, and shows images with the model's predictions, or writes them."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from micrograd.commands import shards
from micrograd.commands.command_line import whole
from micrograd.commands.images import PIXELS, read_image
from micrograd.commands.inputs import add_matching, compiled_model, data_options, load_data, load_weights, matching_of
from micrograd.commands.train_model import Recipe, add_model
from micrograd.data.mnist import CLASSES, SIDE
from micrograd.data.shards import images, labelled
from micrograd.errors import UsageError

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

EXAMPLES = 10  # images that `predict` shows by default
BLOCKS = " ▀▄█"  # for two pixels, one above the other: none, the upper, the lower, both
SCORES = [("label", "u1"), ("class", "u1"), ("loss", "f8")]  # of an image of a shard
SHADES = " .:-=+*#%@"  # for two pixels in encodings without blocks, from black to white
BAR = 30  # characters of a certain prediction


def add_parsers(commands: Any) -> None:
    eval_parser = commands.add_parser(
        "eval",
        parents=[data_options()],
        description="The loss and the accuracy of weights on the test images, and the accuracy digit by digit: "
        "those that come with the module, or saved ones. Or those on a folder of shards: .npy and idx files, each with "
        "a file of labels.",
    )
    eval_parser.set_defaults(command=evaluate)
    add_model(eval_parser.add_argument_group("the model that --load is of"))
    add_load(eval_parser)
    shards.add_options(eval_parser)
    eval_parser.add_argument(
        "shards", nargs="?", type=Path, metavar="DIR", help="a folder of shards instead of the test images"
    )

    predict_parser = commands.add_parser(
        "predict",
        parents=[data_options()],
        description=f"Show images and what the model makes of them: the files given, or one of the test images, or "
        f"the first {EXAMPLES} of them. Or write the classes of all images of a folder of shards, .npy and idx files.",
    )
    predict_parser.set_defaults(command=predict)
    add_model(predict_parser.add_argument_group("the model that --load is of"))
    add_load(predict_parser)
    shards.add_options(predict_parser)
    add = predict_parser.add_argument
    add("--index", type=whole(0, 2**63 - 1), metavar="I", help="the number of a test image, from 0")
    add(
        "files",
        nargs="*",
        type=Path,
        metavar="IMAGE",
        help=f"a PNG of any size, or {SIDE} x {SIDE} pixels as {PIXELS} bytes or a binary PGM (P5); dark strokes "
        "on light paper are inverted; or one folder of shards",
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
    if options.shards is not None:
        return evaluate_shards(options)
    shards.check_unused(options)
    model = loaded(options)
    data = load_data(options)
    predictions = model.predict_batch(data.test_images)
    if options.load is None:
        losses = losses_of(model, data.test_images, data.test_labels)
        loss = math.fsum(losses) / len(losses)
    else:
        loss = model.evaluate(data.test_images, data.test_labels)[0]
    seen, right = [0] * CLASSES, [0] * CLASSES
    for label, prediction in zip(data.test_labels, predictions, strict=True):
        seen[label] += 1
        right[label] += label == prediction
    print_scores(loss, seen, right, options, data.source)
    return 0


def evaluate_shards(options: argparse.Namespace) -> int:
    """As if all shards were one: the losses of images are added in order, as model.evaluate() does."""
    import numpy as np

    if options.data is not None or options.digits:
        raise UsageError("a folder of shards excludes --data and --digits")
    files = shards.Job(options, options.shards, loaded, scores, has_labels=True).run()
    if files is None:
        return 0
    total, seen, right = 0.0, np.zeros(CLASSES, int), np.zeros(CLASSES, int)
    for file in files:
        rows = np.load(file, allow_pickle=False)
        total = float(np.cumsum([total, *rows["loss"]])[-1])
        seen += np.bincount(rows["label"], minlength=CLASSES)
        right += np.bincount(rows["label"][rows["label"] == rows["class"]], minlength=CLASSES)
    if not seen.any():
        raise UsageError(f"{options.shards}: no images in its shards")
    source = f"{shards.counted(files)} in {options.shards}, results in {options.output}"
    print_scores(total / int(seen.sum()), seen.tolist(), right.tolist(), options, source)
    return 0


def scores(model: Any, shard: Path) -> Array:
    """Label, class and loss of each image of a shard."""
    import numpy as np

    found = []
    for pixels, labels in labelled(shard):
        rows = np.empty(len(labels), SCORES)
        rows["label"] = bytearray(labels)
        rows["class"] = bytearray(model.predict_batch(pixels))
        rows["loss"] = losses_of(model, pixels, labels)
        found.append(rows)
    return np.concatenate([np.empty(0, SCORES), *found])


def classes(model: Any, shard: Path) -> Array:
    """The class of each image of a shard."""
    import numpy as np

    return np.frombuffer(b"".join(model.predict_batch(pixels) for pixels in images(shard)), np.uint8)


def losses_of(model: Any, pixels: bytes, labels: bytes) -> list[float]:
    """The loss of each image: the model's own, or the cross-entropy of one that only predicts."""
    if hasattr(model, "evaluate"):
        view = memoryview(pixels)
        each = [view[i : i + PIXELS] for i in range(0, len(pixels), PIXELS)]
        return [model.evaluate(image, [label])[0] for image, label in zip(each, labels, strict=True)]
    losses = []
    for label, logits in zip(labels, model.outputs_batch(pixels)["logits"].tolist(), strict=True):
        top = max(logits)
        losses.append(top - logits[label] + math.log(math.fsum(math.exp(logit - top) for logit in logits)))
    return losses


def print_scores(
    loss: float, seen: Sequence[int], right: Sequence[int], options: argparse.Namespace, source: str
) -> None:
    """seen, right: images of each digit, and how many of them were recognised."""
    own = options.load is None
    weights = f"those of nn_infer, {loaded(options).info()['weights'][:16]}" if own else str(options.load)
    print(f"test loss      {loss:.4f}")
    print(f"test accuracy  {sum(right) / sum(seen):.2%} of {sum(seen):,} images")
    print(f"weights        {weights}")
    print(f"data           {source}")
    print("\ndigit  images   right  accuracy")
    for digit, (count, good) in enumerate(zip(seen, right, strict=True)):
        share = f"{good / count:.2%}" if count else "-"
        print(f"{digit:5}  {count:6,}  {good:6,}  {share:>8}")


def predict(options: argparse.Namespace) -> int:
    folders = [path for path in options.files if path.is_dir()]
    if folders:
        return predict_shards(options, folders[0])
    shards.check_unused(options)
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


def predict_shards(options: argparse.Namespace, folder: Path) -> int:
    if len(options.files) > 1 or options.index is not None or options.data is not None or options.digits:
        raise UsageError("a folder of shards excludes other images, --index, --data and --digits")
    files = shards.Job(options, folder, loaded, classes).run()
    if files is not None:
        print(f"classes of {shards.counted(files)} in {folder}: {options.output}")
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
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return False
    return True

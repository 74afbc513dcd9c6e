"""micrograd train: each option once, what excludes what, and runs that are resumed with all of it.

Models are compiled here with few units; the cache keeps them for the tests that follow.
"""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import nn
import numpy as np
import pytest
from commands import Result, Train, same_bits, stop_after
from safetensors.numpy import load_file

from micrograd import optim, schedules, training
from micrograd.__main__ import main
from micrograd.commands import checkpoint
from micrograd.commands.run_log import Table
from micrograd.commands.train_model import OPTIMIZERS, SCHEDULES, Recipe
from micrograd.data import mnist, shift

ALL = ("--batch-size", 4, "--schedule", "cosine", "--shift", 2, "--validation", 0.2, "--learning-rate", 0.05)
SMALL = ("--hidden", 3, "--limit", 40, "--epochs", 1)

MODEL = """
from codegen import Label, Pixels, Program
from micrograd.engine import Value
from micrograd.functional import cross_entropy, softmax
from micrograd.nn import MLP

def program():
    pixels = [Value(0) for _ in range({pixels})]
    one_hot = [Value(0) for _ in range({classes})]
    mlp = MLP({pixels}, [2, {classes}])
    logits = mlp(pixels)
    return Program(
        inputs=Pixels(pixels, 1 / 255), targets=Label(one_hot), parameters=mlp.named_parameters(),
        loss=cross_entropy(logits, one_hot), outputs={{"logits": logits}}, learning_rate=0.01, description="two units",
    )
"""


def rows(path: Path) -> list[dict[str, float]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: float(text or "nan") for name, text in row.items()} for row in csv.DictReader(file)]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles without optimization."""
    import codegen

    original = codegen.compile
    monkeypatch.setattr(codegen, "compile", lambda program: original(program, optimize=0))


def good(train: Train, *options: object) -> Result:
    done = train(*options)
    assert (done.code, done.err) == (0, "")
    return done


# ---- the numbers of a run


def test_it_is_fit(train: Train, data: Path, tmp_path: Path) -> None:
    """Shift, schedule, validation and limit, as the library has them."""
    good(train, *ALL, "--limit", 200, "--epochs", 3, "--seed", 6, "--save", tmp_path / "w", "--log", tmp_path / "l.csv")
    images = mnist.read(data)
    steps = 3 * 160 // 4
    nn.reset(6)
    history = training.fit(
        nn,
        images.train_images[: 784 * 200],
        images.train_labels[:200],
        epochs=3,
        batch_size=4,
        learning_rate=schedules.cosine(0.05, steps, lowest=0.05 / 100),
        seed=6,
        validation=0.2,
        test=(images.test_images, images.test_labels),
        augment=shift.by(2),
    )
    found = load_file(tmp_path / "w")
    assert all(found[name].tobytes() == view.tobytes() for name, view in nn.state_dict().items())
    for row, epoch in zip(rows(tmp_path / "l.csv"), history.epochs, strict=True):
        assert row.pop("seconds") > 0
        assert row.pop("epoch") == epoch.number
        assert row == {name: getattr(epoch, name) for name in row}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(train: Train, tmp_path: Path, name: str) -> None:
    log = tmp_path / "log.csv"
    good(train, "--schedule", name, "--learning-rate", 0.05, "--batch-size", 5, "--epochs", 3, "--log", log)
    expected = schedules.rates(SCHEDULES[name](0.05, 180), 180)
    assert [row["learning_rate"] for row in rows(log)] == [expected[59], expected[119], expected[179]]
    assert max(expected) == pytest.approx(0.05, rel=1e-12)
    assert name == "constant" or expected[179] < 0.006


def test_the_rate_that_is_not_given_follows_the_batch() -> None:
    rates = [Recipe().default_rate(nn, size) for size in (1, 8, 1000)]
    assert rates == [0.0125, 0.1, 0.5]
    assert Recipe(momentum=0.9).default_rate(nn, 8) == pytest.approx(0.01)
    assert Recipe(optimizer="sgd").default_rate(nn, 8) == 0.1
    assert Recipe(optimizer="adam").default_rate(nn, 8) == 0.001
    assert Recipe(optimizer="lion").default_rate(nn, 8) == 0.0001


def test_defaults(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = (
        "--batch-size 8 --learning-rate 0.1 --schedule linear-warmup --shift 1 --seed 1 --epochs 10 --optimizer sgd"
    )
    written += " --momentum 0 --weight-decay 0 --hidden 50 --activation relu --dtype float64"
    for name, options in (("plain", []), ("written", written.split())):
        assert main(["train", "--data", str(data), *options, "--save", str(tmp_path / name)]) == 0
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "written").read_bytes()


def test_early_stopping_and_the_best_weights(train: Train, tmp_path: Path) -> None:
    path, log = tmp_path / "best", tmp_path / "run"
    options = ("--validation", 0.1, "--limit", 100, "--early-stopping", 2, "--epochs", 60, "--log", log)
    done = good(train, *options, "--save", path, "--save-best")
    found = re.search(r"^best epoch     (\d+) \(([\d.]+)% of the images held out\)$", done.out, re.M)
    assert found
    best = int(found[1])
    table = rows(log / "log.csv")
    assert len(done.epochs) == len(table) == best + 2 < 60
    assert "stopped early  after 2 epochs without a better one" in done.out
    assert f"saved          {path}: the weights after epoch {best}, the best" in done.out
    scores = [row["validation_accuracy"] for row in table]
    assert scores.index(max(scores)) == best - 1
    good(train, *options[:4], "--epochs", best, "--save", tmp_path / "as far")
    assert same_bits(path, tmp_path / "as far")
    assert same_bits(log / "weights.safetensors", path)


def test_quiet(train: Train) -> None:
    done = good(train, "--quiet", "--epochs", 1)
    assert done.epochs == []
    assert "test accuracy" in done.out


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("MICROGRAD_MNIST"), reason="needs the real MNIST in $MICROGRAD_MNIST")
@pytest.mark.parametrize(("seed", "right"), [(1, 9825), (2, 9820), (3, 9807)])
def test_the_defaults_reach_98_percent(seed: int, right: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--seed", str(seed)]) == 0
    assert f"\ntest accuracy  {right / 100:.2f}%\n" in capsys.readouterr().out  # the same bits everywhere


# ---- other models


def test_layers_activation_and_dtype(
    train: Train, quick: None, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w"
    options = ("--hidden", 3, 2, "--activation", "tanh", "--dtype", "float32", "--limit", 40, "--epochs", 2)
    done = good(train, *options, "--save", path, "--hash")
    assert done.out.startswith("MLP 784-3-2-10, tanh, softmax cross-entropy: float32, sgd\n")
    shapes = {name: tensor.shape for name, tensor in load_file(path).items()}
    assert shapes["layers.0.weight"] == (3, 784)
    assert shapes["layers.1.weight"] == (2, 3)
    assert all((tensor.astype(np.float32) == tensor).all() for tensor in load_file(path).values())
    # What is saved can be loaded, also into float32 and by other commands; a checkpoint of it goes on to the same bits.
    good(train, *options, "--load", path)
    capsys.readouterr()
    assert main(["eval", "--data", str(data), "--load", str(path), *map(str, options[:7])]) == 0
    tested = re.search(r"test accuracy  ([\d.]+%)", done.out)
    assert tested
    assert f"test accuracy  {tested[1]} of 100 images" in capsys.readouterr().out
    assert main(["predict", "--data", str(data), "--load", str(path), *map(str, options[:7]), "--index", "3"]) == 0
    assert main(["predict", *map(str, options[:7])]) == 2
    assert "another model than that of nn_infer needs --load FILE" in capsys.readouterr().err
    common = (*options, "--checkpoint", tmp_path / "c", "--save", tmp_path / "again")
    assert train(*common[:-4], "--checkpoint", tmp_path / "c", "--epochs", 1).code == 0
    good(train, *common, "--resume")
    assert same_bits(path, tmp_path / "again")


@pytest.mark.parametrize("name", OPTIMIZERS[1:])
def test_the_rule_of_an_optimizer(name: str) -> None:
    momentum = 0.5 if name == "rmsprop" else 0.0
    rule = Recipe(hidden=(2,), optimizer=name, weight_decay=0.25, momentum=momentum).program().update
    options = {"weight_decay": 0.25} | ({"momentum": 0.5} if momentum else {})
    expected = getattr(optim, name)(**options)
    state = tuple(0.125 * (i + 1) for i in range(len(expected.state)))
    assert isinstance(rule, optim.Rule)
    assert rule(0.5, 0.75, state, 3.0, 0.1) == expected(0.5, 0.75, state, 3.0, 0.1)


@pytest.mark.slow
def test_an_optimizer_goes_on_from_what_it_keeps(
    train: Train, quick: None, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, momenta, their squares and the number of the step, all to the bit, also in float32."""
    options = ("--optimizer", "adam", "--weight-decay", 0.1, "--hidden", 3, "--dtype", "float32")
    common = (*options, *ALL, "--limit", 100, "--epochs", 2, "--every", 40)
    whole = good(train, *common, "--checkpoint", tmp_path / "other", "--save", tmp_path / "whole")
    assert whole.out.startswith("MLP 784-3-10, relu, softmax cross-entropy: float32, adam, weight decay 0.1\n")
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        assert train(*common, "--checkpoint", path).code == 130
    kept = {name for name in load_file(path) if name.startswith("optimizer.")}
    assert "optimizer.step" in kept
    assert len(kept) == 1 + 2 * 4
    good(train, *common, "--checkpoint", path, "--save", tmp_path / "saved", "--resume")
    assert same_bits(tmp_path / "saved", tmp_path / "whole")
    assert same_bits(path, tmp_path / "other")
    good(train, *options, "--limit", 40, "--epochs", 1, "--load", path)  # the weights alone
    done = train(*common, "--checkpoint", path, "--weight-decay", 0.2, "--resume")
    was, now = (f"adam, weight decay {x}" for x in (0.1, 0.2))
    assert done.err == f"error: {path}: the optimizer was {was} in this checkpoint's run, now it is {now}\n"


def test_a_model_of_your_own(train: Train, quick: None, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL.format(pixels=784, classes=10) + "\n\ndef net():\n    return program()\n")
    saved = tmp_path / "saved"
    done = good(
        train, "--model", f"{path}:net", "--limit", 40, "--epochs", 1, "--log", tmp_path / "run", "--save", saved
    )
    assert done.out.startswith("two units: float64, its own optimizer\n")
    described = json.loads((tmp_path / "run" / "run.json").read_text())
    assert described["recipe"]["model"] == f"{path}:net"
    shown = ["predict", "--data", str(data), "--load", str(saved), "--model", str(path), "--index", "3"]
    assert main(shown) == 0  # without probabilities, which this model does not have
    assert Recipe(model=str(path)).default_rate(types.SimpleNamespace(info=lambda: {"learning_rate": 0.01}), 8) == 0.01


def test_a_model_with_an_optimizer_keeps_it(
    train: Train, quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text(
        MODEL.format(pixels=784, classes=10)
        + "\n\ndef adam():\n    from micrograd import optim\n    found = program()\n    found.update = optim.adam()\n"
        "    return found\n\n\nplain, program = program, adam\n".replace("program()", "plain()")
    )
    monkeypatch.chdir(tmp_path)
    options = ("--model", "model.py", "--limit", 40, "--epochs", 1)
    done = train(*options, "--momentum", 0.9)
    assert done.code == 2
    assert "model.py has an optimizer: --momentum and --weight-decay are for one of --optimizer" in done.err
    good(train, *options, "--optimizer", "sgd", "--momentum", 0.9)
    good(train, *options, "--log", "run")
    described = json.loads((tmp_path / "run" / "run.json").read_text())
    assert described["recipe"]["model"] == str(tmp_path / "model.py")  # for a report from any folder


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("program = 3", "must define a function program()"),
        ("def program():\n    return missing", "model.py:2: NameError: name 'missing' is not defined"),
        (MODEL.format(pixels=9, classes=10), "its inputs must be 784 Pixels"),
        (MODEL.format(pixels=784, classes=3), "its targets must be a Label of 10 classes"),
    ],
)
def test_models_that_do_not_fit(train: Train, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "model.py"
    path.write_text(text)
    done = train("--model", path)
    assert done.code == 2
    assert done.err.startswith(f"error: {path}")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_without_a_compiler(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    done = train("--hidden", 2)
    assert done.code == 2
    assert "no C compiler 'no-such-compiler'" in done.err
    assert "pip install 'micrograd-nn[compiler]'" in done.err
    assert done.err.count("\n") == 1


# ---- options that are refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--validation", 0), "--validation: expected a number above 0 and below 1, got 0"),
        (("--validation", 1), "--validation: expected a number above 0 and below 1, got 1"),
        (("--validation", "half"), "--validation: expected a number, got 'half'"),
        (("--validation", 0.001), "a share of 300 examples that leaves some on both sides, got 0.001"),
        (("--momentum", 1), "--momentum: expected a number from 0 to below 1, got 1"),
        (("--momentum", 0.9, "--optimizer", "adam"), "--momentum is for --optimizer sgd or rmsprop, not adam"),
        (("--weight-decay", -1), "--weight-decay: expected a number from 0 on, got -1"),
        (("--optimizer", "magic"), "--optimizer: invalid choice: 'magic'"),
        (("--schedule", "up"), "--schedule: invalid choice: 'up'"),
        (("--schedule", "one-cycle", "--limit", 2, "--epochs", 1), "--schedule one-cycle: one_cycle() needs a top"),
        (("--shift", 28), "--shift: expected 0..27, got 28"),
        (("--limit", 1), "--limit: expected 2.."),
        (("--hidden", 0), "--hidden: expected 1..10000, got 0"),
        (("--activation", "step"), "--activation: invalid choice: 'step'"),
        (("--dtype", "int8"), "--dtype: invalid choice: 'int8'"),
        (("--model", "m.py", "--hidden", 3), "--model excludes --hidden"),
        (("--model", "m.py", "--activation", "tanh"), "--model excludes --activation"),
        (("--model", "nowhere.py"), "nowhere.py: No such file or directory"),
        (("--early-stopping", 3), "--early-stopping needs --validation X"),
        (("--save-best",), "--save-best needs --validation X"),
        (("--save-best", "--validation", 0.1), "--save-best needs --save FILE"),
        (("--save", "x.csv", "--log", "x.csv"), "--save and --log must be two files, got x.csv for both"),
        (("--log", "c.previous", "--checkpoint", "c"), "--log must be no file of --checkpoint c"),
        (("--log", "r", "--checkpoint", "r/weights.safetensors"), "--log and --checkpoint must be two files"),
        (("--log", "r", "--save", "r/log.csv"), "--save and --log must be two files, got r for both"),
        (("--log", "r", "--save", "r/run.json"), "--save and --log must be two files, got r for both"),
        (("--log", "no/where.csv"), "no/where.csv: No such file or directory"),
    ],
)
def test_refused(train: Train, options: tuple[object, ...], message: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    done = train(*options)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err


def test_a_run_that_diverges_says_so(train: Train, tmp_path: Path) -> None:
    done = train("--learning-rate", 1e300, "--log", tmp_path / "l.csv")
    assert done.code == 2
    assert re.search(
        r"error: the training loss of epoch 1 is \S+, nothing is saved: a smaller --learning-rate may help, ",
        done.err,
        re.M,
    )
    assert rows(tmp_path / "l.csv") == []


# ---- runs that are resumed


@pytest.mark.parametrize("writes", [1, 2, 5])
def test_going_on_with_schedule_shift_and_validation(
    train: Train, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    common = (*ALL, "--epochs", 3, "--every", 80, "--save-best", "--early-stopping", 3)
    files = ("--checkpoint", tmp_path / "other", "--save", tmp_path / "whole", "--log", tmp_path / "whole.csv")
    whole = good(train, *common, *files)
    log, saved = tmp_path / "log.csv", tmp_path / "saved"
    with monkeypatch.context() as patch:
        stop_after(patch, writes)
        stopped = train(*common, "--checkpoint", path, "--save", saved, "--log", log)
    assert stopped.code == 130
    resumed = good(train, *common, "--checkpoint", path, "--save", saved, "--log", log, "--resume")
    assert stopped.epochs + resumed.epochs == whole.epochs
    good(train, *ALL, "--epochs", 3, "--save-best", "--save", tmp_path / "uncut")
    assert same_bits(saved, tmp_path / "whole")
    assert same_bits(saved, tmp_path / "uncut")
    for ours, theirs in zip(rows(log), rows(tmp_path / "whole.csv"), strict=True):
        assert ours.pop("seconds") > 0
        assert theirs.pop("seconds") > 0
        assert ours.keys() == theirs.keys()
        assert all(ours[name] == pytest.approx(theirs[name], rel=1e-14) for name in ours)


def test_the_end_of_an_early_stop_is_an_end(train: Train, path: Path) -> None:
    common = ("--validation", 0.1, "--limit", 100, "--early-stopping", 2, "--epochs", 60, "--checkpoint", path)
    first = good(train, *common)
    again = good(train, *common, "--resume")
    assert again.epochs == []
    assert "stopped early" in again.out
    assert re.findall("best epoch.*", again.out) == re.findall("best epoch.*", first.out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shift", 1), "--shift was 2 in this checkpoint's run, now it is 1"),
        (("--schedule", "constant"), "--schedule was cosine in this checkpoint's run, now it is constant"),
        (("--validation", 0.3), "--validation was 0.2 in this checkpoint's run, now it is 0.3"),
        (("--limit", 100), "--limit was None in this checkpoint's run, now it is 100"),
        (("--epochs", 4), "--epochs was 1 in this checkpoint's run, now it is 4"),
    ],
)
def test_what_changes_the_bits_must_stay(train: Train, path: Path, options: tuple[object, ...], message: str) -> None:
    good(train, *ALL, "--epochs", 1, "--checkpoint", path)
    done = train(*ALL, "--epochs", 1, "--checkpoint", path, "--resume", *options)
    assert (done.code, done.err) == (2, f"error: {path}: {message}\n")


def test_the_best_weights_must_still_be_there(train: Train, path: Path, tmp_path: Path) -> None:
    options = ("--validation", 0.2, "--checkpoint", path, "--save-best", "--save")
    good(train, *options, tmp_path / "one", "--epochs", 1)
    done = train(*options, tmp_path / "other", "--epochs", 2, "--resume")
    assert (done.code, done.err.split(": ")[1]) == (2, str(tmp_path / "other"))
    assert "of a run that had saved its best" in done.err


# ---- logs


def test_a_folder_of_a_run(train: Train, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    good(train, *ALL, "--epochs", 2, "--log", folder)
    assert {path.name for path in folder.iterdir()} >= {"log.csv", "run.json", "weights.safetensors"}
    described = json.loads((folder / "run.json").read_text())
    assert (described["shift"], described["validation"], described["learning_rate"]) == (2, 0.2, 0.05)
    info = nn.info()
    assert checkpoint.load_metadata(folder / "weights.safetensors")["digest"] == info["digest"]
    assert len(rows(folder / "log.csv")) == 2
    assert all(math.isfinite(number) for row in rows(folder / "log.csv") for number in row.values())


def test_a_resumed_log_has_each_epoch_once(tmp_path: Path) -> None:
    """A run may be killed after an epoch's row and before its checkpoint."""
    table = Table(tmp_path / "log.csv")
    table.begin(1)
    epochs = [training.Epoch(i, 0.5 / i, 0.1, math.nan, math.nan, 1 / 3, 0.9, i * 1e-3) for i in (1, 2, 3)]
    for epoch in epochs:
        table.add(epoch)
    table.begin(3)
    table.add(epochs[2])
    assert list(map(str, table.rows())) == list(map(str, epochs))
    table.begin(1)
    assert table.rows() == []


def test_a_row_that_was_cut_off_is_none(tmp_path: Path) -> None:
    table = Table(tmp_path / "log.csv")
    table.begin(1)
    epochs = [training.Epoch(i, 0.5 / i, 0.1, math.nan, math.nan, 1 / 3, 0.9, i * 1e-3) for i in (1, 2)]
    for epoch in epochs:
        table.add(epoch)
    table.path.write_bytes(table.path.read_bytes()[:-4])
    assert list(map(str, table.rows())) == [str(epochs[0])]
    table.begin(2)
    table.add(epochs[1])
    assert list(map(str, table.rows())) == list(map(str, epochs))


def test_a_log_that_is_full_costs_no_weights(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Table, "add", full)
    log, weights = tmp_path / "log.csv", tmp_path / "w.safetensors"
    done = train("--log", log, "--save", weights, "--epochs", 1)
    assert done.code == 0
    assert done.err.endswith(f"warning: {log}: No space left on device\n")
    assert weights.exists()


def test_the_data_of_the_environment_is_not_replaced(
    train: Train, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MICROGRAD_MNIST", str(data))
    (found, *_) = data.glob("t10k-labels*")
    done = train("--save", found)
    assert done.code == 2
    assert f"--save must be no file of --data {data}" in done.err


def test_another_table_is_not_taken_for_a_log(train: Train, path: Path, tmp_path: Path) -> None:
    log = tmp_path / "other.csv"
    common = ("--checkpoint", path, "--log", log)
    good(train, *common, "--epochs", 1)
    log.write_text("a,b\n1,2\n")
    done = train(*common, "--epochs", 2, "--resume")
    assert (done.code, done.err) == (2, f"error: {log}: not a table that micrograd train --log has written\n")


def test_tensorboard_gets_the_same_numbers(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the package: what it is told, epoch by epoch."""
    told: list[Any] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            told.append(folder)

        def add_event(self, event: Any) -> None:
            told.append(event)

        def flush(self) -> None:
            pass

        def close(self) -> None:
            told.append("closed")

    for name in ("tensorboard", "tensorboard.summary", "tensorboard.summary.writer"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    module = types.ModuleType("event_file_writer")
    monkeypatch.setattr(module, "EventFileWriter", Writer, raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", module)
    monkeypatch.setattr("micrograd.commands.run_log.add_events", lambda w, n, numbers: w.add_event((n, numbers)))
    folder = tmp_path / "run"
    good(train, "--epochs", 2, "--log", folder)
    assert told[0] == str(folder)
    assert told[-1] == "closed"
    for (number, numbers), row in zip(told[1:-1], rows(folder / "log.csv"), strict=True):
        assert number == row["epoch"]
        assert numbers == {name: x for name, x in row.items() if name != "epoch" and not math.isnan(x)}

"""Commands that print the wrong thing, end with the wrong code, or show a traceback: in processes of their own."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nn
import numpy as np
import pytest
from commands import PLAIN, environment, error, good, run, same_bits
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from codegen.passes.freeze import rounded
from codegen.weights import read_weights
from micrograd.__main__ import main
from micrograd.commands.images import read_image
from micrograd.commands.predict import picture

ROOT = Path(__file__).resolve().parent.parent
NO_NN = "import sys; sys.modules['nn'] = None\nfrom micrograd.__main__ import main\nsys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What a training run printed and saved."""
    path = tmp_path_factory.mktemp("trained") / "model.safetensors"
    return good("train", *PLAIN, "--data", data, "--epochs", 2, "--seed", 5, "--save", path), path


# ---- help


@pytest.mark.parametrize("command", ["train", "eval", "predict"])
def test_help(command: str) -> None:
    assert command in good("--help")
    text = good(command, "--help")
    assert "--data DIR" in text
    assert "--digits" in text
    assert "--load FILE" in text


# ---- train


def test_train_prints_a_line_for_each_epoch_and_a_summary(data: Path, trained: tuple[str, Path]) -> None:
    out, path = trained
    epochs = re.findall(r"^epoch (\d)/2: training loss \d\.\d+, test loss \d\.\d+, test accuracy ([\d.]+)%$", out, re.M)
    assert [number for number, _ in epochs] == ["1", "2"]
    accuracies = [float(accuracy) for _, accuracy in epochs]
    best = max(accuracies)
    assert f"test accuracy  {accuracies[1]:.2f}%" in out
    assert f"best epoch     {accuracies.index(best) + 1} ({best:.2f}%)" in out
    assert re.search(r"^training       [\d.]+ s, [\d,]+ images/s, [\d.]+ µs per image$", out, re.M)
    assert f"data           the idx files in {data}" in out
    assert f"saved          {path}: the weights after the last epoch" in out


def test_what_is_saved(trained: tuple[str, Path]) -> None:
    shapes = {name: tensor.shape for name, tensor in load_file(trained[1]).items()}
    assert shapes == {
        "layers.0.weight": (50, 784),
        "layers.0.bias": (50,),
        "layers.1.weight": (10, 50),
        "layers.1.bias": (10,),
    }
    with safe_open(trained[1], framework="numpy") as file:
        assert set(file.metadata()) == {"architecture", "digest", "version", "sha256"}


def test_the_same_command_gives_the_same_weights(data: Path, trained: tuple[str, Path], tmp_path: Path) -> None:
    again, other = tmp_path / "again", tmp_path / "other"
    good("train", *PLAIN, "--data", data, "--epochs", 2, "--seed", 5, "--save", again)
    good("train", *PLAIN, "--data", data, "--epochs", 2, "--seed", 6, "--save", other)
    assert again.read_bytes() == trained[1].read_bytes()
    assert not same_bits(other, trained[1])


def test_the_seed_means_what_the_help_says(data: Path, trained: tuple[str, Path], tmp_path: Path) -> None:
    script = f"""
import nn
from pathlib import Path
from micrograd.commands import checkpoint
from micrograd.data import mnist
data = mnist.read(Path({str(data)!r}))
nn.reset(5)
nn.train(data.train_images, data.train_labels, seed=5)
nn.train(data.train_images, data.train_labels, seed=6)
checkpoint.save("model", nn.state_dict(), {{}})
"""
    subprocess.run([sys.executable, "-c", script], env=environment(), cwd=tmp_path, check=True, timeout=60)
    assert same_bits(tmp_path / "model", trained[1])


def test_going_on_from_a_file_is_as_if_never_stopped(data: Path, trained: tuple[str, Path], tmp_path: Path) -> None:
    """Epoch 2 of seed 5 is shuffled as epoch 1 of seed 6 is, and the file has every bit of the weights."""
    half = tmp_path / "half"
    good("train", *PLAIN, "--data", data, "--epochs", 1, "--seed", 5, "--save", half)
    good("train", *PLAIN, "--data", data, "--epochs", 1, "--seed", 6, "--load", half, "--save", half)
    assert same_bits(half, trained[1])


@pytest.mark.slow
def test_the_settings_reach_the_model(data: Path, trained: tuple[str, Path], tmp_path: Path) -> None:
    common = ("train", *PLAIN, "--data", data, "--epochs", 2, "--seed", 5, "--save", tmp_path / "model")
    good(*common, "--batch-size", 7)
    assert not same_bits(tmp_path / "model", trained[1])
    shutil.copy(tmp_path / "model", tmp_path / "one thread")
    good(*common, "--batch-size", 7, "--threads", 2)
    assert same_bits(tmp_path / "model", tmp_path / "one thread")
    good(*common, "--learning-rate", 0.02)
    assert not same_bits(tmp_path / "model", trained[1])
    good(*common, "--learning-rate", nn.info()["learning_rate"], "--batch-size", 1)  # the model's own
    assert same_bits(tmp_path / "model", trained[1])


def test_data_from_the_environment(data: Path) -> None:
    assert f"the idx files in {data}" in good("train", "--epochs", 1, MICROGRAD_MNIST=str(data))


@pytest.mark.slow
def test_training_on_the_built_in_digits() -> None:
    out = good("train", "--digits", "--epochs", 1)
    assert "data           the built-in digits" in out
    found = re.search(r"test accuracy  ([\d.]+)%", out)
    assert found
    assert 90 < float(found[1]) < 99.5


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_ctrl_c(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    command = [sys.executable, "-m", "micrograd", "train", "--data", data, "--epochs", 10**9, "--save", path]
    process = subprocess.Popen(
        list(map(str, command)), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("epoch 3/"):
                break
        assert not path.exists()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert re.fullmatch(r"interrupted in epoch [\d]+ of 1000000000, at about image \d+ of 300\n", err)
    assert f"saved          {path}: the weights as of the last whole step" in out
    assert "test loss      " not in out  # nobody has tested these weights
    assert "best epoch     " in out
    tensors = load_file(path)
    assert len(tensors) == 4
    assert all(np.isfinite(tensor).all() for tensor in tensors.values())
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX's")
def test_a_bar_for_whoever_looks(data: Path) -> None:
    import pty
    import termios

    reader, writer = pty.openpty()
    termios.tcsetwinsize(writer, (24, 120))  # rows, columns
    command = [sys.executable, "-m", "micrograd", "train", "--data", str(data), "--epochs", "2"]
    eager = environment(TQDM_MININTERVAL="0")
    result = subprocess.run(command, env=eager, stdout=subprocess.PIPE, stderr=writer, text=True, timeout=60)
    os.close(writer)
    shown = b""
    try:
        while chunk := os.read(reader, 65536):
            shown += chunk
    except OSError:
        pass  # how Linux reports the end
    os.close(reader)
    assert result.returncode == 0
    assert b"epoch 1/2" in shown
    assert b"/600" in shown
    assert b"loss " in shown
    assert result.stdout.count("epoch ") == 3
    assert "\r" not in result.stdout


def test_a_loss_that_is_not_a_number_ends_the_training(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    message = error("train", "--data", data, "--learning-rate", 1e300, "--save", path)
    assert message.startswith("error: the training loss of epoch 1 is nan, nothing is saved: a smaller --learning-rate")
    assert not path.exists()


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (1e200, "the test loss after epoch 1 is nan, nothing is saved: "),
        (1e-3, None),
    ],
)
def test_weights_that_the_last_step_ruined_are_not_saved_over_good_ones(
    data: Path,
    trained: tuple[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rate: float,
    message: str | None,
) -> None:
    """The loss of the only step is that of the weights before it."""
    path = tmp_path / "model"
    shutil.copy(trained[1], path)
    options = ["train", *PLAIN, "--data", data, "--limit", 8, "--batch-size", 8, "--epochs", 1]
    code = main(list(map(str, [*options, "--learning-rate", rate, "--load", path, "--save", path])))
    assert (code, path.read_bytes() == trained[1].read_bytes()) == ((0, False) if message is None else (2, True))
    assert message is None or capsys.readouterr().err.startswith(f"error: {message}a smaller --learning-rate may help")


def test_check_finite_names_the_weight_and_the_step(data: Path) -> None:
    message = error("train", *PLAIN, "--data", data, "--learning-rate", 1e300, "--check-finite")
    assert re.search(
        r"epoch 1: train\(\) stopped before step 2 \(image \d+\), which makes layers\.\S+\[.* nan", message
    )


def test_check_finite_saves_the_last_weights_that_are_finite(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    result = run("train", *PLAIN, "--data", data, "--learning-rate", 1e300, "--check-finite", "--save", path)
    assert result.returncode == 2
    assert "stopped before step 2" in result.stderr
    assert f"saved          {path}: the weights as of the last whole step" in result.stdout
    numbers = np.concatenate([weights.ravel() for weights in load_file(path).values()])
    assert np.isfinite(numbers).all()
    assert np.abs(numbers).max() > 1e250  # those after the first step


# ---- eval


def test_eval(data: Path, trained: tuple[str, Path]) -> None:
    out, path = trained
    lines = good("eval", "--data", data, "--load", path).splitlines()
    tested = re.search(r"^test loss      ([\d.]+)\ntest accuracy  ([\d.]+)%$", out, re.M)
    assert tested
    assert lines[0] == f"test loss      {tested[1]}"
    assert lines[1] == f"test accuracy  {tested[2]}% of 100 images"
    start = next(i for i, line in enumerate(lines) if line.startswith("digit"))
    table = [line.split() for line in lines[start + 1 :]]
    assert [int(row[0]) for row in table] == list(range(10))
    labels = (data / "t10k-labels-idx1-ubyte").read_bytes()[8:]
    assert [int(row[1]) for row in table] == [labels.count(digit) for digit in range(10)]
    assert sum(int(row[2]) for row in table) == round(float(tested[2]))
    assert all(row[3] == f"{int(row[2]) / int(row[1]):.2%}" for row in table)


def test_eval_rates_the_shipped_weights(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = data / "rounded.safetensors"
    shipped_ones = read_weights(ROOT / "weights" / "mnist.safetensors")
    save_file({name: rounded("int8", np.float64(tensor)) for name, tensor in shipped_ones.items()}, weights)
    assert main(["eval", "--data", str(data)]) == 0
    shipped = capsys.readouterr().out
    assert main(["eval", "--data", str(data), "--load", str(weights)]) == 0
    assert "weights        those of nn_infer, 40cf76f9aa00c15c\n" in shipped
    loaded = capsys.readouterr().out.replace(str(weights), "those of nn_infer, 40cf76f9aa00c15c")
    assert shipped == loaded


# ---- predict


def test_predict_shows_the_first_ten(data: Path, trained: tuple[str, Path]) -> None:
    out = good("predict", "--data", data, "--load", trained[1])
    labels = (data / "t10k-labels-idx1-ubyte").read_bytes()[8:]
    titles = re.findall(r"^test image (\d+): predicted (\d), true label (\d) \((right|wrong)\)$", out, re.M)
    assert [(int(i), int(label)) for i, _, label, _ in titles] == list(enumerate(labels[:10]))
    assert all((predicted == label) == (verdict == "right") for _, predicted, label, verdict in titles)
    assert "█" in out


def test_predict_one(data: Path, trained: tuple[str, Path]) -> None:
    out = good("predict", "--data", data, "--load", trained[1], "--index", 99)
    assert out.startswith("test image 99: predicted ")
    shares = re.findall(r"  (\d) +([\d.]+)%", out)
    assert [int(digit) for digit, _ in shares] == list(range(10))
    assert abs(sum(float(share) for _, share in shares) - 100) < 0.1
    best = max(shares, key=lambda share: float(share[1]))[0]
    assert f"predicted {best}, " in out


def test_predict_in_ascii(data: Path, trained: tuple[str, Path]) -> None:
    out = good("predict", "--data", data, "--load", trained[1], "--index", 0, PYTHONIOENCODING="ascii")
    assert out.isascii()
    assert "?" not in out
    assert "%" in out
    assert "#" in out


def test_predict_files(data: Path, trained: tuple[str, Path], tmp_path: Path) -> None:
    pixels = (data / "t10k-images-idx3-ubyte").read_bytes()[16 : 16 + 784]
    (tmp_path / "raw").write_bytes(pixels)
    (tmp_path / "pgm").write_bytes(b"P5\n# a comment\n28 28\n255\n" + pixels)
    out = good("predict", "--load", trained[1], tmp_path / "raw", tmp_path / "pgm")
    raw, pgm = out.split("\n\n" + str(tmp_path))
    assert raw.startswith(f"{tmp_path / 'raw'}: predicted ")
    assert raw.splitlines()[1:] == pgm.rstrip("\n").splitlines()[1:]


def test_predict_with_the_weights_that_come_with_the_module(data: Path, tmp_path: Path) -> None:
    import nn_infer

    pixels = (data / "t10k-images-idx3-ubyte").read_bytes()[16 : 16 + 784]
    (tmp_path / "raw").write_bytes(pixels)
    assert good("predict", tmp_path / "raw").startswith(f"{tmp_path / 'raw'}: predicted {nn_infer.predict(pixels)}\n")


def test_pictures() -> None:
    pixels = bytearray(784)
    pixels[0] = pixels[28 + 1] = pixels[2] = pixels[28 + 2] = 255
    assert picture(bytes(pixels), blocks=True) == ["▀▄█" + 25 * " "] + 13 * [28 * " "]
    ascii_rows = picture(bytes(pixels), blocks=False)
    assert ascii_rows[0][:4] == "==@ "
    assert len(ascii_rows) == 14


def test_a_pipe_that_is_closed_early(data: Path, trained: tuple[str, Path]) -> None:
    command = [sys.executable, "-m", "micrograd", "predict", "--data", str(data), "--load", str(trained[1])]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX")
def test_standard_output_that_is_closed_from_the_start():
    command = f'"{sys.executable}" -m micrograd cache >&-'
    run = subprocess.run(command, shell=True, env=environment(), capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


# ---- the user's errors


WRONG_ARGUMENTS = {
    ("train", "--epochs", "0"): "--epochs: expected 1..1000000000, got 0",
    ("train", "--epochs", "many"): "--epochs: expected a whole number, got 'many'",
    ("train", "--batch-size", "-1"): "--batch-size: expected 1..",
    ("train", "--threads", "65"): "--threads: expected 1..64, got 65",
    ("train", "--learning-rate", "0"): "--learning-rate: expected a positive number, got 0",
    ("train", "--learning-rate", "nan"): "--learning-rate: expected a positive number, got nan",
    ("train", "--learning-rate", "inf"): "--learning-rate: expected a positive number, got inf",
    ("train", "--learning-rate", "fast"): "--learning-rate: expected a number, got 'fast'",
    ("train", "--seed", "-1"): "--seed: expected 0..",
    ("train", "--seed", str(2**63)): "--seed: expected 0..",
    ("train", "--data", "x", "--digits"): "--digits: not allowed with argument --data",
    ("train", "--colour", "red"): "micrograd train has no option --colour",
    ("eval", "--hidden", "3"): "another model than that of nn_infer needs --load FILE",
    ("predict", "--load", "x", "--index", "-1"): "--index: expected 0..",
    ("predict", "--load", "x", "--index", "1", "image"): "image files exclude --index, --data and --digits",
}


@pytest.mark.parametrize("arguments", WRONG_ARGUMENTS)
def test_wrong_arguments(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(arguments)
    except SystemExit as exit_:
        code = exit_.code  # type: ignore[assignment]
    err = capsys.readouterr().err
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert WRONG_ARGUMENTS[arguments] in err  # type: ignore[index]


def test_missing_data(tmp_path: Path) -> None:
    assert f"{tmp_path}: no train-images-idx3-ubyte" in error("train", "--data", tmp_path)
    assert "nowhere: no such folder" in error("train", "--data", "nowhere")
    assert "nowhere: no such folder" in error("train", MICROGRAD_MNIST="nowhere")


def test_damaged_data(data: Path, tmp_path: Path) -> None:
    for file in data.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(b"damaged")
    assert "t10k-images-idx3-ubyte: truncated" in error("train", "--data", tmp_path)


def test_missing_and_damaged_weights(data: Path, trained: tuple[str, Path], tmp_path: Path) -> None:
    assert "nowhere: No such file" in error("eval", "--data", data, "--load", "nowhere")
    damaged = tmp_path / "damaged"
    damaged.write_bytes(trained[1].read_bytes()[:-1])
    assert f"{damaged}: not a whole safetensors file" in error("predict", "--data", data, "--load", damaged)
    save_file({**load_file(trained[1]), "layers.1.bias": np.zeros(11)}, damaged)
    message = error("train", "--data", data, "--load", damaged)
    assert "'layers.1.bias' has the shape (11,), expected (10,)" in message


@pytest.mark.slow
def test_weights_of_other_names_are_loaded_by_map_and_match(
    data: Path, trained: tuple[str, Path], tmp_path: Path
) -> None:
    names = {f"layers.{i}.{part}": f"fc{i}.{part}" for i in range(2) for part in ("weight", "bias")}
    renamed, transposed = tmp_path / "renamed", tmp_path / "transposed"
    save_file({names[name]: tensor for name, tensor in load_file(trained[1]).items()}, renamed)
    save_file({name: np.ascontiguousarray(tensor.T) for name, tensor in load_file(trained[1]).items()}, transposed)
    expected = good("eval", "--data", data, "--load", trained[1])
    assert "shapes leave one way: --map fc" in error("eval", "--data", data, "--load", renamed)
    maps = [word for name, other in names.items() for word in ("--map", f"{other}={name}")]
    for path, options in ((renamed, ["--match"]), (renamed, maps), (transposed, ["--transpose", "*.weight"])):
        found = good("eval", "--data", data, "--load", path, *options)
        assert found.replace(str(path), str(trained[1])) == expected
    for command in ("train", "eval", "predict"):
        message = error(command, "--data", data, "--match")
        assert message == "error: --map, --transpose and --match are for --load FILE\n"


def test_a_place_that_cannot_be_saved_to_is_noticed_before_training(tmp_path: Path) -> None:
    result = run("train", "--data", "nowhere", "--save", tmp_path)
    assert result.stderr.startswith(f"error: {tmp_path}: ")
    assert f"error: {tmp_path / 'no' / 'model'}: No such file" in error("train", "--save", tmp_path / "no" / "model")


def test_an_index_too_high(data: Path, trained: tuple[str, Path]) -> None:
    message = error("predict", "--data", data, "--load", trained[1], "--index", 100)
    assert "--index must be 0..99, got 100" in message


BAD_IMAGES = {
    "short": (bytes(783), "783 bytes and no PNG or binary PGM (P5) header, expected one of these or 784 bytes"),
    "empty": (b"", "0 bytes and no PNG or binary PGM"),
    "ascii": (b"P2\n28 28\n255\n" + bytes(784), "no PNG or binary PGM"),
    "size": (b"P5 32 32 255\n" + bytes(1024), "32 x 32 pixels up to 255, expected 28 x 28"),
    "depth": (b"P5 28 28 65535\n" + bytes(1568), "28 x 28 pixels up to 65535, expected 28 x 28 pixels up to 255"),
    "truncated": (b"P5 28 28 255\n" + bytes(780), "780 bytes follow the PGM header, expected 784"),
    "trailing": (b"P5 28 28 255\n" + bytes(785), "785 bytes follow the PGM header, expected 784"),
}


@pytest.mark.parametrize("kind", BAD_IMAGES)
def test_bad_images(tmp_path: Path, kind: str) -> None:
    content, message = BAD_IMAGES[kind]
    path = tmp_path / "image"
    path.write_bytes(content)
    with pytest.raises(Exception, match=re.escape(f"{path}: ")) as caught:
        read_image(path)
    assert message in str(caught.value)


@pytest.mark.parametrize("header", [b"P5 28 28 255\n", b"P5\n#x\n28\n# y z\n28\t255 ", b"P5\r\n28 28\r255\r"])
def test_good_images(tmp_path: Path, header: bytes) -> None:
    pixels = bytes(range(256)) * 3 + b"\n#P5 28 28 255 \n"
    assert len(pixels) == 784
    (tmp_path / "image").write_bytes(header + pixels)
    assert read_image(tmp_path / "image") == pixels


def test_a_bad_image_is_one_line(trained: tuple[str, Path], tmp_path: Path) -> None:
    assert f"{tmp_path}: " in error("predict", "--load", trained[1], tmp_path)  # a folder
    (tmp_path / "image").write_bytes(b"GIF89a")
    assert "6 bytes and no PNG or binary PGM" in error("predict", "--load", trained[1], tmp_path / "image")


def test_without_the_compiled_module_it_says_how_to_get_it() -> None:
    command = [sys.executable, "-c", NO_NN, "train"]
    result = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert "nn is not installed: pip install micrograd-nn" in result.stderr


@pytest.mark.skipif(os.name != "posix", reason="closes descriptors as a POSIX shell does")
@pytest.mark.parametrize(
    "command",
    [
        "train --digits --limit 100 --epochs 1 2>&-",
        "train --digits --limit 100 --epochs 1 --quiet 2>&-",
        "predict --digits --index 3 >&-",
        "draw model.py -o - >&-",
    ],
)
def test_a_closed_stream_is_no_error(command: str, tmp_path: Path) -> None:
    """As under a daemon: Python has None in its place."""
    (tmp_path / "model.py").write_text("from codegen.mnist import program\n")
    script = f"exec {shlex.quote(sys.executable)} -m micrograd {command}"
    done = subprocess.run(
        ["sh", "-c", script], env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")

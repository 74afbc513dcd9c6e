"""What the README shows, in a process of its own: for test_workflows.py, which starts it in unusual conditions.

    python tests/workflows.py main|thread DATA NAME...

in the main thread, or in one with a stack of 256 KB, on digits in the folder DATA. Each workflow prints a line with a
digest of its numbers, which no condition may change.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
STACK = 256 * 1024


def listing(text: str) -> str:
    """The README's one Python listing with this text."""
    (found,) = [code for code in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL) if text in code]
    return found


def command(*arguments: object) -> str:
    """micrograd ARGUMENTS, in this process; what it prints, without times."""
    from micrograd.__main__ import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
    assert not code, printed.getvalue()
    return re.sub(r"\S+ (s|images/s|µs)\b", "", printed.getvalue())


def weights() -> list[bytes]:
    import nn

    return [view.tobytes() for view in nn.state_dict().values()]


def the_loop(data: Path) -> object:
    from micrograd.data import mnist

    digits = mnist.read(data)
    images = [(label, digits.train_images[784 * i : 784 * (i + 1)]) for i, label in enumerate(digits.train_labels)]
    exec(listing("for label, pixels in images"), {"images": images})
    return weights()


def the_trained_net(data: Path) -> object:
    import nn_infer

    pixels = bytes(range(196)) * 4
    exec(listing("nn_infer.predict(pixels)"), {"pixels": pixels})
    return nn_infer.predict(pixels), nn_infer.probabilities(pixels), nn_infer.predict_batch(pixels * 600, threads=3)


def every_call(data: Path) -> object:
    """The table under "What it can do"."""
    import nn
    import numpy as np

    from micrograd.data import mnist

    digits = mnist.read(data)
    images, labels = digits.train_images, digits.train_labels
    nn.reset(3)
    seen: list[object] = [nn.forward(labels[0], images[:784])]
    nn.backward()
    nn.update(0, 1, learning_rate=0.1)
    seen += [nn.predict(images[:784]), nn.probabilities(images[:784]), nn.outputs(images[:784])]
    options: dict[str, Any] = {"batch_size": 7, "learning_rate": 0.01, "seed": 5, "progress": lambda *_: None}
    seen += [nn.train(images, labels, epochs=2, threads=threads, **options) for threads in (1, 4)]
    seen += [nn.train(images, labels, batch_size=300, threads=4, check_finite=True)]
    seen += [nn.predict_batch(images, threads=4), nn.evaluate(images, labels, threads=4)]
    view = np.asarray(nn.state_dict()["layers.0.bias"])
    view += 1.0
    seen += [nn.data(39_200), nn.grad(0), [grad.tobytes() for grad in nn.grad_dict().values()]]
    nn.load_state_dict({name: np.array(weight) for name, weight in nn.state_dict().items()})
    assert "mode" in nn.info()
    return seen, weights()


def the_commands(data: Path) -> object:
    common = ["--data", data, "--batch-size", 8]
    said = command("train", *common, "--epochs", 2, "--save", "model.safetensors", "--hash")
    said += command("eval", "--data", data, "--load", "model.safetensors")
    return said + command("predict", "--data", data, "--load", "model.safetensors", "--index", 3)


def a_run_that_resumes(data: Path) -> object:
    run = [
        "train",
        "--data",
        data,
        "--checkpoint",
        "run.safetensors",
        "--resume",
        "--every",
        104,
        "--schedule",
        "constant",
    ]
    said = command(*run, "--epochs", 1)
    return said, command(*run, "--epochs", 2, "--hash")


def a_model_of_your_own(data: Path) -> object:
    import numpy as np

    namespace: dict[str, Any] = {}
    exec(listing("import codegen\n"), namespace)
    x = np.random.default_rng(0).random((500, 2))
    namespace |= {"X": x, "Y": x @ [0.3, 0.5]}
    exec(listing("tiny.train"), namespace)
    tiny = namespace["tiny"]
    losses = tiny.train(namespace["X"], namespace["Y"], batch_size=64, threads=4)
    return losses, [tiny.data(i) for i in range(3)], tiny.outputs(x[0])


def other_targets(data: Path) -> object:
    import codegen

    namespace: dict[str, Any] = {}
    exec(listing("import codegen\n").split("path = ")[0], namespace)
    program = namespace["program"]
    module = codegen.load_extension(codegen.build(program, "build", "tiny_python", target="python"), "tiny_python")
    plain = codegen.freeze(program, {"w": [0.5, 0.25], "b": 1.0}, "build", "tiny_c", target="c")
    return module.forward(array("d", [0.5]), array("d", [0.5, 0.25])), plain.read_text()


def explained_and_drawn(data: Path) -> object:
    model = ROOT / "docs" / "four_neurons.py"
    said = command("explain", model)
    for what in ("graph", "ir", "loops"):
        command("draw", model, "--what", what, "--output", f"{what}.dot")
        said += Path(f"{what}.dot").read_text()
    return said


def one_node(data: Path) -> object:
    from micrograd.engine import Value

    x = Value(0.5, label="x")
    loss = (x * 3 + 1).tanh() ** 2
    loss.backward()
    return loss.to_json(), loss.compile(), x.grad


def the_check(data: Path) -> object:
    return command("check")


def frozen(data: Path) -> object:
    """Without an interpreter in the end: examples/c/main.c."""
    command("train", "--data", data, "--save", "frozen.safetensors")
    command("freeze", "codegen.mnist", "frozen.safetensors", "--name", "my_digits")
    command("freeze", "codegen.mnist", "frozen.safetensors", "--standalone")
    flags = ["-O1", "-Ibuild", str(ROOT / "examples" / "c" / "main.c"), "build/nn_infer.c", "-o", "digit"]
    subprocess.run(["gcc", *flags], check=True)
    Path("digit.pgm").write_bytes(b"P5 28 28 255\n" + bytes(range(196)) * 4)
    return subprocess.run(["./digit", "digit.pgm"], check=True, capture_output=True).stdout


def in_float32(data: Path) -> object:
    import codegen

    namespace: dict[str, Any] = {"codegen": codegen}
    exec(listing('dtype="float32"'), namespace)
    nn32 = codegen.load_extension(namespace["path"], "nn32")
    images, labels = bytes(range(196)) * 4 * 300, bytes(range(10)) * 30
    return nn32.train(images, labels, batch_size=64, threads=4), nn32.evaluate(images, labels)


QUICK = [
    *(the_loop, the_trained_net, every_call, the_commands, a_run_that_resumes),
    *(other_targets, explained_and_drawn, one_node),
]
LONG = [the_check, a_model_of_your_own, frozen, in_float32]
WORKFLOWS: dict[str, Callable[[Path], object]] = {workflow.__name__: workflow for workflow in [*QUICK, *LONG]}


def run(data: Path, names: list[str]) -> None:
    for name in names:
        digest = hashlib.sha256(repr(WORKFLOWS[name](data)).encode()).hexdigest()
        print(name, digest[:16], flush=True)


def main(where: str, data: str, *names: str) -> None:
    if where == "main":
        run(Path(data), list(names))
        return
    failed: list[BaseException] = []

    def work() -> None:
        try:
            run(Path(data), list(names))
        except BaseException as error:
            failed.append(error)

    threading.stack_size(STACK)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What a typed program does with the installed modules: checked by mypy --strict and pyright, and run."""

import nn
import nn_infer
import numpy as np
import numpy.typing as npt

from codegen import Floats, Program, compile_program
from micrograd.engine import Value


def steps(label: int, pixels: bytes) -> list[float]:
    losses: list[float] = []
    for step in range(3):
        nn.zero_grad()
        losses.append(nn.forward(label, pixels))
        nn.backward()
        nn.update(step, 1, learning_rate=0.5)
    return losses


def epochs(images: bytes, labels: bytes) -> tuple[float, float]:
    seen: list[float] = []

    def progress(done: int, total: int, loss: float) -> None:
        seen.append(done / total * loss)

    losses: list[float] = nn.train(images, memoryview(labels), batch_size=2, seed=1, threads=2, progress=progress)
    assert len(losses) == 1
    assert seen
    summed: float = nn.accumulate(images, labels, threads=2)
    assert summed > 0
    loss, accuracy = nn.evaluate(bytearray(images), labels, threads=None)
    return loss, accuracy


def inference(images: bytes) -> dict[str, tuple[float, ...]]:
    pixels = np.frombuffer(images, np.uint8).reshape(-1, 784)
    first: npt.NDArray[np.uint8] = pixels[0]
    digit: int = nn.predict(first)
    digits: bytes = nn.predict_batch(pixels, threads=2)
    assert digits[0] == digit
    assert nn.probabilities(first) == nn.outputs(first)["probabilities"]
    frozen: int = nn_infer.predict(images[:784])
    assert nn_infer.predict_batch(images, progress=lambda done, total, nothing: None)[0] == frozen
    return nn_infer.outputs(images[:784])


def parameters() -> float:
    state = nn.state_dict()
    bias = state["layers.0.bias"]
    bias[3] = 0.25
    weight = np.asarray(state["layers.0.weight"])
    nn.load_optimizer_state(nn.optimizer_state())
    nn.load_state_dict({name: np.array(view) for name, view in state.items()})
    nn.reset(np.uint8(1))
    return float(weight[0, 0]) + nn.data(0) + nn.grad(np.int64(1)) + nn.grad_dict()["layers.1.weight"][3, 4]


def about() -> str:
    about, frozen = nn.info(), nn_infer.info()
    parameters: int = about["parameters"]
    assert sum(about["outputs"].values()) == 20
    return f"{about['architecture']}, {parameters} parameters, {frozen['weight_type']}, {nn.__version__}"


def by_hand() -> str:
    w, x, y = Value(0.5), Value(0.0), Value(0.0)
    out = (w * x + 1.0).tanh()
    loss: Value = (out - y) ** 2
    loss.backward()
    gradient: float = w.grad
    program = Program(Floats([x]), Floats([y]), {"w": w}, loss, {"out": [out]}, learning_rate=0.1 + gradient)
    return compile_program(program, "sample").text


def main() -> None:
    images, labels = bytes(range(196)) * 4 * 6, bytes(range(6))
    nn.reset(1)
    first, *_, last = steps(3, images[:784])
    assert last < first
    loss, accuracy = epochs(images, labels)
    assert loss > 0.0 <= accuracy
    assert set(inference(images)) == {"logits", "probabilities"}
    assert parameters() != 0.0
    print(about())
    assert "PyInit_sample" in by_hand()


if __name__ == "__main__":
    main()

"""Two moons: a max-margin classifier, as in micrograd's demo, compiled.

`python examples/moons.py moons.svg` draws the decision boundary as well. That needs Matplotlib.
"""

import math
import random
import sys
from array import array

import codegen
from codegen import Floats, Program
from micrograd.engine import Value
from micrograd.functional import total
from micrograd.nn import MLP

POINTS, STEPS = 100, 100

# Two noisy half circles, one upside down inside the other, labelled 1 and -1.
random.seed(1337)
points, labels = array("d"), array("d", [1.0, -1.0] * (POINTS // 2))
for label in labels:
    angle = random.uniform(0, math.pi)
    x, y = (math.cos(angle), math.sin(angle)) if label > 0 else (1 - math.cos(angle), 0.5 - math.sin(angle))
    points.extend([random.gauss(x, 0.1), random.gauss(y, 0.1)])

model = MLP(2, [16, 16, 1])
position, side = [Value(0), Value(0)], Value(0)
score = model(position)
hinge = (1 - side * score).relu()  # 0 for a point on its own side, with a margin
decay = 1e-4 * total([p * p for p in model.parameters()])
program = Program(
    inputs=Floats(position),
    targets=Floats([side]),
    parameters=model.named_parameters(),
    loss=hinge + decay,
    outputs={"score": [score]},
)
moons = codegen.load_extension(codegen.build(program, "build", "moons"), "moons")


def score_at(x: float, y: float) -> float:
    return moons.outputs(array("d", [x, y]))["score"][0]


for step in range(STEPS):
    rate = 1.0 - 0.9 * step / STEPS
    (loss,) = moons.train(points, labels, batch_size=POINTS, learning_rate=rate, epochs=1)
    if step % 20 == 0 or step == STEPS - 1:
        scores = map(score_at, points[::2], points[1::2])
        right = sum(score * label > 0 for score, label in zip(scores, labels, strict=True))
        print(f"step {step + 1:3}: loss {loss:.4f}, then {right} of {POINTS} right")

if len(sys.argv) > 1:
    from matplotlib import pyplot as plt

    across, up = [i / 20 for i in range(-30, 51)], [i / 20 for i in range(-20, 31)]
    grid = [[score_at(x, y) for x in across] for y in up]
    plt.figure(figsize=(6, 4)).gca().set_aspect("equal")
    plt.contourf(across, up, grid, levels=[-math.inf, 0, math.inf], colors=["#f4c7a1", "#a8c9e8"])
    plt.contour(across, up, grid, levels=[-1, 0, 1], colors="black", linewidths=[0.5, 1.5, 0.5])
    plt.scatter(points[::2], points[1::2], c=["#1f77b4" if s > 0 else "#d95f02" for s in labels], edgecolors="white")
    plt.savefig(sys.argv[1], bbox_inches="tight")

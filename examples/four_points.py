"""A perceptron learns four points, twice: interpreted, node by node, and compiled. Both end with the same bits."""

import random
from array import array

import codegen
from codegen import Floats, Program
from micrograd.engine import Value
from micrograd.nn import MLP

points = [[2.0, 3.0, -1.0], [3.0, -1.0, 0.5], [0.5, 1.0, 1.0], [1.0, 1.0, -1.0]]
targets = [1.0, -1.0, -1.0, 1.0]
STEPS, RATE = 20, 0.15


def perceptron() -> MLP:
    random.seed(3)
    return MLP(3, [4, 4, 1], activation="tanh", last_nonlin=True)


# Interpreted. The gradients of the four points add up, then one update goes against them.
model = perceptron()
for step in range(1, STEPS + 1):
    model.zero_grad()
    interpreted = 0.0
    for point, target in zip(points, targets, strict=True):
        loss = (model(point) - target) ** 2
        loss.backward()
        interpreted += loss.data
    for p in model.parameters():
        p.data -= RATE * p.grad
    if step in (1, 2, 3, 5, 10, 20):
        print(f"step {step:2}: loss {interpreted:.5f}")
print("outputs:", *(f"{model(point).data:.3f}" for point in points))

# Compiled: the same expression, written once, with leaves that stand for any point and any target.
template, x, y = perceptron(), [Value(0) for _ in range(3)], Value(0)
program = Program(
    inputs=Floats(x),
    targets=Floats([y]),
    parameters=template.named_parameters(),
    order=template.parameters(),
    loss=(template(x) - y) ** 2,
)
nn = codegen.load_extension(codegen.build(program, "build", "four_points"), "four_points")
for _ in range(STEPS):
    nn.zero_grad()
    compiled = 0.0
    for point, target in zip(points, targets, strict=True):
        compiled += nn.forward(array("d", [target]), array("d", point))
        nn.backward()
    nn.update(learning_rate=RATE)

print("last loss, interpreted:", interpreted.hex())
print("last loss, compiled:   ", compiled.hex())
weights = [p.data.hex() for p in model.parameters()]
same = sum(nn.data(i).hex() == weight for i, weight in enumerate(weights))
print(f"{same} of {len(weights)} weights have the same bits, the first one {weights[0]}")

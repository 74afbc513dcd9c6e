"""One neuron, tanh(x1*w1 + x2*w2 + b): forward, backward, and once more with tanh made of smaller pieces.

`python examples/neuron.py neuron.dot` also writes the graph down, for Graphviz to draw: `dot -Tsvg -O neuron.dot`.
In a notebook, draw_dot(o) shows it at once.
"""

import sys
from pathlib import Path

from micrograd.draw import to_dot
from micrograd.engine import Value

x1, x2 = Value(2.0, label="x1"), Value(0.0, label="x2")  # inputs
w1, w2 = Value(-3.0, label="w1"), Value(1.0, label="w2")  # weights
b = Value(6.8813735870195432, label="b")  # bias, chosen for gradients that come out even

n = x1 * w1 + x2 * w2 + b
n.label = "n"
o = n.tanh()
o.label = "o"
o.backward()

# tanh passes on 1 - o^2 of the gradient. w2 gets it times x2: while x2 is 0, w2 does not matter.
print(f"n = {n.data:.4f}, o = tanh(n) = {o.data:.4f}, 1 - o^2 = {1 - o.data**2:.4f}")
leaves = (x1, w1, x2, w2, b)
gradients = [leaf.grad for leaf in leaves]
if len(sys.argv) > 1:
    Path(sys.argv[1]).write_text(to_dot(o), encoding="utf-8")

# tanh(n) = (exp(2n) - 1) / (exp(2n) + 1): more nodes, the same function, so the same gradients.
for leaf in leaves:
    leaf.grad = 0.0
e = (2 * (x1 * w1 + x2 * w2 + b)).exp()
pieces = (e - 1) / (e + 1)
pieces.backward()
print(f"from pieces: o = {pieces.data:.4f}")
for leaf, gradient in zip(leaves, gradients, strict=True):
    print(f"  do/d{leaf.label}   tanh {gradient:7.4f}   pieces {leaf.grad:7.4f}")

"""Gradients by hand: L = a * (b + c * d), and the chain rule from L back to a, b, c and d, against backward().

`python examples/by_hand.py by_hand.dot` also writes the graph down, for Graphviz to draw: `dot -Tsvg -O by_hand.dot`.
In a notebook, draw_dot(L) shows it at once.
"""

import sys
from pathlib import Path

from micrograd.draw import to_dot
from micrograd.engine import Value

a = Value(-2.0, label="a")
b = Value(10.0, label="b")
c = Value(2.0, label="c")
d = Value(-3.0, label="d")
e = c * d
e.label = "e"
f = b + e
f.label = "f"
L = a * f
L.label = "L"
print(f"L = a * (b + c * d) = {L.data}")

# By hand, from the result to the leaves. A product passes on the gradient times the other factor,
# a sum passes it on to both terms unchanged.
by_hand = {"L": 1.0}
by_hand["a"] = by_hand["L"] * f.data
by_hand["f"] = by_hand["L"] * a.data
by_hand["b"] = by_hand["f"]
by_hand["e"] = by_hand["f"]
by_hand["c"] = by_hand["e"] * d.data
by_hand["d"] = by_hand["e"] * c.data

L.backward()
for value in (L, a, f, b, e, c, d):
    print(f"  dL/d{value.label}   by hand {by_hand[value.label]:5.1f}   backward() {value.grad:5.1f}")
    assert by_hand[value.label] == value.grad

if len(sys.argv) > 1:
    Path(sys.argv[1]).write_text(to_dot(L), encoding="utf-8")

# A small step of every leaf along its gradient makes L larger.
for leaf in (a, b, c, d):
    leaf.data += 0.01 * leaf.grad
print(f"after a step of 0.01 times the gradient: L = {L.recompute():.4f}")

"""What a derivative is: how much a result moves when an input is nudged. backward() gives the same, without nudging."""

from micrograd.engine import Value


def f(x):
    return 3 * x**2 - 4 * x + 5


def g(a, b, c):
    return a * b + c


# One input. The smaller the nudge h, the closer the quotient comes to the derivative, 6x - 4.
x = Value(3.0)
y = f(x)
y.backward()
print(f"f(x) = 3x^2 - 4x + 5; f(3) = {y.data}")
for h in (0.1, 0.001, 0.00001):
    print(f"  (f(3 + h) - f(3)) / h = {(f(3 + h) - f(3)) / h:8.5f}   h = {h:g}")
print(f"  x.grad                = {x.grad:8.5f}")

# At the bottom of the parabola, x = 2/3, it is flat.
bottom = Value(2 / 3)
f(bottom).backward()
print(f"  x.grad at x = 2/3     = {bottom.grad:8.5f}")

# Three inputs, three derivatives: nudge one input and leave the others alone.
inputs = [Value(2.0), Value(-3.0), Value(10.0)]
d = g(*inputs)
d.backward()
print(f"g(a, b, c) = a*b + c; g(2, -3, 10) = {d.data}")
h = 0.00001
for i, name in enumerate("abc"):
    nudged = [value.data for value in inputs]
    nudged[i] += h
    print(f"  nudging {name}: {(g(*nudged) - d.data) / h:8.5f}   {name}.grad = {inputs[i].grad:8.5f}")

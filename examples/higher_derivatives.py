"""Derivatives that are Values: a gradient is more nodes of the same graph, so it can be differentiated and compiled.

Reverse mode starts from a result and reaches every leaf, forward mode starts from a leaf and reaches every result. Both
read the derivatives of an operation from its row in the op table, as backward() and the compiler do.
"""

import random
from array import array
from math import cos, sin

import codegen
from codegen import Floats, Program
from micrograd.engine import Value
from micrograd.functional import total
from micrograd.nn import MLP
from micrograd.ops import BY_SYMBOL, power
from micrograd.order import creation


def slopes(node):
    """Each operand of a node, with the derivative of the node by it as a Value or a number."""
    exponent = [] if node._exponent is None else [node._exponent]  # a number, which belongs to its node
    for i, operand in enumerate(node._prev):
        row = power if exponent else BY_SYMBOL[node._op]
        slope = row.slope(i, node, [*node._prev, *exponent])
        if slope is not None:
            yield operand, slope


def reverse(result, leaves):
    """The derivatives of one result by every leaf."""
    found = {result: Value(1.0)}
    for node in reversed(creation([result])):
        if node in found:
            for operand, slope in slopes(node):
                term = found[node] * slope
                found[operand] = found[operand] + term if operand in found else term
    return [found.get(leaf, Value(0.0)) for leaf in leaves]


def forward(results, direction):
    """The derivatives of every result along `direction`, which maps leaves to numbers or Values."""
    found = dict(direction)
    for node in creation(results):
        terms = [found[operand] * slope for operand, slope in slopes(node) if operand in found]
        if terms:
            found[node] = total(terms)
    return [found.get(result, Value(0.0)) for result in results]


def difference(result, leaf, h=1e-5):
    """(f(x + h) - f(x - h)) / 2h."""
    x, found = leaf.data, []
    for leaf.data in (x + h, x - h, x):
        found.append(result.recompute())
    return (found[0] - found[1]) / (2 * h)


def one_variable():
    """Each derivative is that of the one before; all four are one graph."""
    x = Value(1.2)
    y = (x**2).sin()
    print(f"sin(x^2) at x = {x.data}: {y.data:.6f}")
    for order in range(1, 5):
        before, (y,) = y, reverse(y, [x])
        near = difference(before, x)
        print(f"  derivative {order}: {y.data:10.6f}   by difference {near:10.6f}   {len(y.topo()):3} nodes")


def many_variables():
    """Reverse mode has all derivatives of a loss at once, forward mode one direction at a time.

    Forward mode over reverse mode: the matrix of second derivatives times a vector, without the matrix.
    """
    random.seed(1337)
    model = MLP(3, [4, 4, 1], lecture=True)
    loss = (model([2.0, 3.0, -1.0]) - 1.0) ** 2
    parameters = model.parameters()
    gradient = reverse(loss, parameters)
    one_by_one = [forward([loss], {p: Value(1.0)})[0] for p in parameters]
    apart = max(abs(a.data - b.data) for a, b in zip(gradient, one_by_one, strict=True))
    print(f"MLP(3, [4, 4, 1]) and its loss: {len(parameters)} parameters, {len(loss.topo())} nodes")
    print(f"  gradient, reverse: {len(creation(gradient)):5,} nodes, 1 pass")
    print(f"  gradient, forward: {len(creation(one_by_one)):5,} nodes, {len(parameters)} passes")
    print(f"  they differ by less than 1e-15: {apart < 1e-15}")
    vector = [random.uniform(-1, 1) for _ in parameters]
    product = forward(gradient, {p: Value(v) for p, v in zip(parameters, vector, strict=True)})
    near = sum(difference(gradient[0], p) * v for p, v in zip(parameters, vector, strict=True))
    print(f"  second derivatives times a vector: {len(creation(product)):,} nodes")
    print(f"  its first element {product[0].data:.6f}, by differences {near:.6f}")


def slopes_only():
    """A loss made of derivatives, compiled: a net learns sin(x^2) between 0 and 2 from its slope alone."""
    random.seed(1)
    model = MLP(1, [16, 16, 1], activation="tanh")
    x, slope = Value(0), Value(0)
    value = model([x])
    (tangent,) = forward([value], {x: 1.0})
    program = Program(
        inputs=Floats([x]),
        targets=Floats([slope]),
        parameters=model.named_parameters(),
        loss=(tangent - slope) ** 2,
        outputs={"value": [value]},
    )
    print("A net that learns from slopes:", codegen.compile_program(program).explanation().splitlines()[-1])
    nn = codegen.load_extension(codegen.build(program, "build", "slopes"), "slopes")
    places = array("d", [i / 25 for i in range(51)])
    wanted = array("d", [2 * x * cos(x * x) for x in places])
    for epochs in (1, 99, 1900):
        loss = nn.train(places, wanted, batch_size=17, learning_rate=0.01, epochs=epochs, seed=1)[-1]
        print(f"  after {epochs:4} more epochs: mean square error of the slope {loss:.4f}")
    start, *found = [nn.outputs(array("d", [x]))["value"][0] for x in (0.0, 0.5, 1.0, 1.5, 2.0)]
    for x, value in zip((0.5, 1.0, 1.5, 2.0), found, strict=True):
        print(f"  sin({x}^2) = {sin(x * x):7.4f}   learned {value - start:7.4f}")  # up to a constant


if __name__ == "__main__":
    one_variable()
    many_variables()
    slopes_only()

"""Listings of others, as usage: karpathy's demo, lectures and exercises, Max Bernstein's essay, notes on Values.

Each test does what a listing does, by the names that it uses; the numbers are those that its author saw.
"""

from __future__ import annotations

import functools
import io
import json
import math
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from test_lecture import XS, YS

from codegen.backends.shared import csrc
from micrograd.engine import Max, Value
from micrograd.nn import MLP, Layer, Neuron
from micrograd.statements import definitions_code

# karpathy: the lectures


def test_lecture_derivative_by_difference():
    def lol() -> float:
        h = 0.001
        a, b, c, f = (Value(x) for x in (2.0, -3.0, 10.0, -2.0))
        first = (a * b + c) * f
        a = Value(2.0 + h)
        return ((a * b + c) * f).data - first.data

    a, b, c, f = (Value(x, label=name) for x, name in ((2.0, "a"), (-3.0, "b"), (10.0, "c"), (-2.0, "f")))
    e = a * b
    e.label = "e"
    d = e + c
    d.label = "d"
    out = d * f
    out.label = "L"
    assert repr(out) == "Value(data=-8, grad=0)"
    out.backward()
    assert [v.grad for v in (a, b, c, d, e, f)] == [6.0, -4.0, -2.0, -2.0, -2.0, 4.0]
    assert lol() / 0.001 == pytest.approx(a.grad)
    for leaf in (a, b, c, f):
        leaf.data += 0.01 * leaf.grad
    assert out.recompute() == pytest.approx(-7.286496)


def tanh_by_exp(x: Value) -> Value:
    e = (2 * x).exp()
    return (e - 1) / (e + 1)


def tanh_by_closure(x: Value) -> Value:
    t = (math.exp(2 * x.data) - 1) / (math.exp(2 * x.data) + 1)
    out = Value(t, (x,), "tanh")

    def _backward() -> None:
        x.grad += (1 - t**2) * out.grad

    out._backward = _backward
    return out


@pytest.mark.parametrize("tanh", [Value.tanh, tanh_by_exp, tanh_by_closure])
def test_lecture_neuron(tanh: Callable[[Value], Value]):
    x1, x2, w1, w2 = Value(2.0), Value(0.0), Value(-3.0), Value(1.0)
    n = x1 * w1 + x2 * w2 + Value(6.8813735870195432)
    o = tanh(n)
    assert o.data == pytest.approx(0.7071067811865476)
    o.backward()
    assert [v.grad for v in (x1, w1, x2, w2)] == pytest.approx([-1.5, 1.0, 0.5, 0.0])


def test_lecture_backward_by_hand():
    """Each node's _backward in turn, then over a topological order of one's own."""
    x, w = Value(2.0), Value(-3.0)
    o = (x * w).tanh()
    order: list[Value] = []
    visited = set()

    def build_topo(v: Value) -> None:
        if v not in visited:
            visited.add(v)
            for child in v._prev:
                build_topo(child)
            order.append(v)

    build_topo(o)
    o.grad = 1.0
    for node in reversed(order):
        node._backward()
    by_hand = (x.grad, w.grad)
    x.grad = w.grad = 0.0
    o.backward()
    assert (x.grad, w.grad) == by_hand


def test_lecture_a_node_used_twice():
    a = Value(3.0)
    b = a + a
    b.backward()
    assert a.grad == 2.0
    a, b = Value(-2.0), Value(3.0)
    ((a * b) * (a + b)).backward()
    assert (a.grad, b.grad) == (-3.0, -8.0)


def test_lecture_training_loop():
    random.seed(3)
    n = MLP(3, [4, 4, 1], activation="tanh", last_nonlin=True)
    assert len(n.parameters()) == 41
    losses = []
    for _ in range(60):
        ypred = [n(x) for x in XS]
        loss = sum((yout - ygt) ** 2 for ygt, yout in zip(YS, ypred, strict=True))
        for p in n.parameters():
            p.grad = 0.0
        loss.backward()
        for p in n.parameters():
            p.data += -0.1 * p.grad
        losses.append(loss.data)
    assert losses[-1] < 0.05 < losses[0]
    assert [round(y.data) for y in ypred] == YS


def test_lecture_inputs_by_map():
    random.seed(1337)
    n = Neuron(2)
    y = n(list(map(Value, [1, -2])))
    assert n(map(Value, [1, -2])).data == y.data
    assert repr(Layer(2, 2)) == "Layer of [ReLUNeuron(2), ReLUNeuron(2)]"


# karpathy: trace_graph


class Pictured:
    """What the notebook's draw_dot asks of a graphviz.Digraph."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self.edges: list[tuple[str, str]] = []

    def node(self, name: str, label: str) -> None:
        self.nodes[name] = label

    def edge(self, tail: str, head: str) -> None:
        self.edges.append((tail, head))


def draw_dot(root: Value) -> Pictured:
    """As the notebook does it: an operation's node for every n whose _op is true."""
    dot = Pictured()
    nodes: set[Value] = set()
    waiting = [root]
    while waiting:
        v = waiting.pop()
        if v not in nodes:
            nodes.add(v)
            waiting += v._prev
    for n in nodes:
        dot.node(str(id(n)), "{ data %.4f | grad %.4f }" % (n.data, n.grad))  # noqa: UP031
        if n._op:
            dot.node(str(id(n)) + n._op, n._op)
            dot.edge(str(id(n)) + n._op, str(id(n)))
        for child in n._prev:
            dot.edge(str(id(child)), str(id(n)) + n._op)
    return dot


def test_a_pasted_draw_dot_shows_leaves_as_leaves():
    random.seed(1337)
    y = Neuron(2)([Value(1.0), Value(-2.0)]) ** 3
    y.backward()
    dot = draw_dot(y)
    labels = sorted(label for label in dot.nodes.values() if not label.startswith("{"))
    assert labels == sorted(["*", "*", "+", "+", "ReLU", "**3"])
    heads = {head for _, head in dot.edges}
    leaves = [str(id(v)) for v in y.topo() if not v._prev]
    assert len(leaves) == 5
    assert not heads & set(leaves)
    assert all(tail in dot.nodes and head in dot.nodes for tail, head in dot.edges)


# karpathy: the demo


@pytest.mark.slow
def test_demo():
    random.seed(1337)
    model = MLP(2, [8, 8, 1])
    assert repr(model).startswith("MLP of [Layer of [ReLUNeuron(2), ")
    rng = random.Random(1)
    X = [[rng.uniform(-1, 1), rng.uniform(-1, 1)] for _ in range(30)]
    y = [1 if a > b else -1 for a, b in X]

    def loss() -> tuple[Value, float]:
        inputs = [list(map(Value, xrow)) for xrow in X]
        scores = list(map(model, inputs))
        losses = [(1 + -yi * scorei).relu() for yi, scorei in zip(y, scores, strict=True)]
        data_loss = sum(losses) * (1.0 / len(losses))
        reg_loss = 1e-4 * sum(p * p for p in model.parameters())
        accuracy = [(yi > 0) == (scorei.data > 0) for yi, scorei in zip(y, scores, strict=True)]
        return data_loss + reg_loss, sum(accuracy) / len(accuracy)

    for k in range(40):
        total_loss, acc = loss()
        model.zero_grad()
        total_loss.backward()
        learning_rate = 1.0 - 0.9 * k / 100
        for p in model.parameters():
            p.data -= learning_rate * p.grad
    assert acc == 1.0


# karpathy: the exercises, and the essay's sin(x**2)


def test_sine_of_a_square():
    x = Value(1.5)
    (x**2).sin().backward()
    assert x.grad == pytest.approx(math.cos(1.5**2) * 2 * 1.5, rel=1e-15)


def test_exercise_sine():
    def f(a: Value, b: Value, c: Value) -> Value:
        return -(a**3) + (3 * b).sin() - 1.0 / c + b**2.5 - a**0.5

    leaves = [Value(2.0), Value(3.0), Value(4.0)]
    out = f(*leaves)
    assert out.data == pytest.approx(6.336362190988558, rel=1e-14)
    out.backward()
    assert [v.grad for v in leaves] == pytest.approx([-12.353553390593273, 10.25699027111255, 0.0625], rel=1e-14)


def test_exercise_softmax():
    def softmax(logits: list[Value]) -> list[Value]:
        counts = [logit.exp() for logit in logits]
        denominator = sum(counts)
        return [c / denominator for c in counts]

    logits = [Value(0.0), Value(3.0), Value(-2.0), Value(1.0)]
    loss = -softmax(logits)[3].log()
    loss.backward()
    assert loss.data == pytest.approx(2.1755153626167147, rel=1e-14)
    expected = [0.041772570515350445, 0.8390245074625319, 0.005653302662216329, -0.8864503806400986]
    assert [v.grad for v in logits] == pytest.approx(expected, rel=1e-14)


# The essay


def compiled(tmp_path: Path, text: str) -> str:
    """What a C program prints. tcc, which the essay uses, if it is installed."""
    (tmp_path / "essay.c").write_text(text)
    compiler = next((name for name in ("tcc", "gcc", "cc") if shutil.which(name)), None)
    if compiler is None:
        pytest.skip("needs a C compiler")
    flags = [] if compiler == "tcc" else ["-O0", "-ffp-contract=off"]
    program = tmp_path / "essay"
    command = [compiler, *flags, f"-I{csrc()}", str(tmp_path / "essay.c"), "-o", str(program)]
    subprocess.run([*command, *(["-lm"] if compiler != "tcc" else [])], check=True, timeout=60)
    return subprocess.run([str(program)], check=True, capture_output=True, text=True, timeout=60).stdout


def c_program(size: int, definitions: str, body: str) -> str:
    head = (
        '#include <math.h>\n#include <stdio.h>\n#define FLOAT32 0\n#include "ops.h"\n'
        if definitions
        else ("#include <math.h>\n#include <stdio.h>\n")
    )
    return f"{head}{definitions}\nstatic double data[{size}], grad[{size}];\nint main(void) {{\n{body}\nreturn 0;\n}}\n"


def test_essay_every_node_compiled_by_itself(tmp_path: Path):
    a, b, c = Value(2), Value(3), Value(4)
    e = a * b + c * 5
    body = "\n".join(v.compile() for v in e.topo())
    text = c_program(e._id + 1, "", f'{body}\nprintf("%.1f\\n", data[{e._id}]);')
    assert compiled(tmp_path, text) == "26.0\n"


def test_essay_listing_in_a_new_process(run_python: Callable):
    script = """
from micrograd.engine import Value
x = Value(1)
y = Value(2)
z = x * y
order = z.topo()
for v in order:
    print(v.compile())
x = Value(1, _op='weight')
y = Value(2, _op='weight')
z = x * y
for v in z.topo():
    print(v.backward_compile())
"""
    assert run_python(script).splitlines() == [
        *("data[0] = 1.0;", "data[1] = 2.0;", "data[2] = data[0]*data[1];"),
        *("[]", "[]", "['grad[3] += data[4]*grad[5];', 'grad[4] += data[3]*grad[5];']"),
    ]


def gen_update(f: io.StringIO, model: MLP, learning_rate: float) -> None:
    for o in model.parameters():
        assert o._op in ("weight", "bias"), repr(o._op)
        print(f"data[{o._id}] -= {learning_rate} * {o.getgrad()};", file=f)


def gen_set_input(inp: list[Value]) -> str:
    return "".join(f"data[{o._id}] = buf[{idx}];\n" for idx, o in enumerate(inp))


def stable_softmax(output: list[Value]) -> list[Value]:
    max_ = functools.reduce(Max, output)
    exps = [(o - max_).exp() for o in output]
    sum_ = sum(exps)
    return [o / sum_ for o in exps]


def test_essay_a_model_by_its_own_generators(tmp_path: Path):
    """The essay's test.py: set_input, forward, backward and update are printed node by node."""
    random.seed(1337)
    model = MLP(3, [4, 2])
    inp = [Value(0, (), "input") for _ in range(3)]
    expected_onehot = [Value(0, (), "input") for _ in range(2)]
    assert [i._id for i in inp] == list(range(inp[0]._id, inp[0]._id + len(inp)))
    softmax_output = stable_softmax(model(inp))
    loss = -sum(exp * (act + 0.0001).log() for exp, act in zip(expected_onehot, softmax_output, strict=True))
    topo = loss.topo()
    params = frozenset(model.parameters())
    update = io.StringIO()
    gen_update(update, model, 0.1)
    lines = [
        "const double buf[] = {0.5, -1.0, 2.0, 0.0, 1.0};",
        *(o.set(o.data.hex()) for o in model.parameters()),
        gen_set_input([*inp, *expected_onehot]),
        "for (int step = 0; step < 3; step++) {",
        *(line for o in topo if (line := o.compile())),
        *(f"grad[{o._id}] = 0;" for o in topo),
        f"{loss.getgrad()} = 1;",
        *(line for o in reversed(topo) for line in o.backward_compile()),
        update.getvalue(),
        f'printf("%.10f\\n", {loss.var()}); }}',
    ]
    size = max(o._id for o in [*topo, *params]) + 1
    found = [float(x) for x in compiled(tmp_path, c_program(size, definitions_code(loss), "\n".join(lines))).split()]
    for leaf, x in zip([*inp, *expected_onehot], [0.5, -1.0, 2.0, 0.0, 1.0], strict=True):
        leaf.data = x
    for number in found:
        assert loss.recompute() == pytest.approx(number, abs=1e-9)
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.data -= 0.1 * p.grad
    assert len(found) == 3
    assert found[2] < found[0]


@pytest.mark.parametrize("op", ["", "input"])
def test_essay_constants_and_inputs_have_no_gradient(op: str):
    leaf = Value(3, (), op)
    assert leaf.var() == f"data[{leaf._id}]"
    assert leaf.set("7") == f"data[{leaf._id}] = 7;"
    assert leaf.setgrad("1.0") == []
    with pytest.raises(RuntimeError, match=r"constants and inputs have no gradient in C, and Value\(data=3"):
        leaf.getgrad()
    w = Value(3, _op="weight")
    assert (w.getgrad(), w.setgrad("x")) == (f"grad[{w._id}]", [f"grad[{w._id}] += x;"])
    assert (w * w).getgrad().startswith("grad[")


class Dot(Value):
    """The essay's Dot operator: one node for a whole sum of products."""

    def __init__(self, left_arr: list[Value], right_arr: list[Value]) -> None:
        data = sum(a.data * b.data for a, b in zip(left_arr, right_arr, strict=True))
        super().__init__(data, tuple({*left_arr, *right_arr}), "dot")
        self.left_arr = left_arr
        self.right_arr = right_arr

    def compile(self, graph: Value | None = None) -> str:
        products = (f"{li.var()}*{ri.var()}" for li, ri in zip(self.left_arr, self.right_arr, strict=True))
        return self.set("+".join(products))

    def backward_compile(self, graph: Value | None = None) -> list[str]:
        result = []
        for li, ri in zip(self.left_arr, self.right_arr, strict=True):
            result += li.setgrad(f"{ri.var()}*{self.getgrad()}")
            result += ri.setgrad(f"{li.var()}*{self.getgrad()}")
        return result


def test_essay_dot():
    w = [Value(x, _op="weight") for x in (1.0, 2.0)]
    x = [Value(x, (), "input") for x in (3.0, 4.0)]
    out = Dot(w, x)
    total = out + Value(1.0)
    assert total.data == 12.0
    assert out.compile() == f"data[{out._id}] = {w[0].var()}*{x[0].var()}+{w[1].var()}*{x[1].var()};"
    assert out.backward_compile() == [f"{a.getgrad()} += {b.var()}*grad[{out._id}];" for a, b in zip(w, x, strict=True)]
    assert total.backward_compile() == [f"grad[{out._id}] += grad[{total._id}];"]
    with pytest.raises(ValueError, match=r"no op is called 'dot': micrograd\.ops\.register"):
        total.backward()


def test_essay_xor():
    random.seed(1337)
    model = MLP(2, [4, 1])
    db = [(bytes([0, 0]), 0), (bytes([0, 1]), 1), (bytes([1, 0]), 1), (bytes([1, 1]), 0)]
    losses = []
    for _ in range(100):
        model.zero_grad()
        epoch_loss = 0.0
        for pixels, label in db:
            loss = (model(pixels) - label) ** 2
            epoch_loss += loss.data
            loss.backward()
        for p in model.parameters():
            p.data -= 0.1 * p.grad / len(db)
        losses.append(epoch_loss / len(db))
    assert losses[-1] < losses[0] / 2


def test_essay_training_script():
    """test.py's loop by `import nn`: sums of bytes and ints, no data structure of ours."""
    import nn

    nn.reset(1)
    rng = random.Random(1)
    db = [(i % 10, rng.randbytes(784)) for i in range(20)]
    first = last = 0.0
    for epoch in range(3):
        nn.zero_grad()
        epoch_loss = 0.0
        for label, pixels in db:
            im_loss = nn.forward(label, pixels)
            assert not math.isnan(im_loss)
            epoch_loss += im_loss
            nn.backward()
        nn.update(epoch, len(db))
        first, last = (first or epoch_loss), epoch_loss
    assert last < first


# Notes on Values


def test_notes_a_of_b_plus_cd():
    """By hand, by difference and by backward."""

    def f(a: float, b: float, c: float, d: float) -> float:
        return a * (b + c * d)

    a, b, c, d = numbers = [-2.0, 10.0, 2.0, -3.0]
    by_hand = [b + c * d, a, a * d, a * c]
    assert by_hand == [4, -2, 6, -4]
    leaves = [Value(x) for x in numbers]
    out = f(*leaves)
    out.backward()
    assert [leaf.gradient for leaf in leaves] == by_hand
    h = 1e-6
    for i, slope in enumerate(by_hand):
        moved = [x + h * (i == j) for j, x in enumerate(numbers)]
        assert (f(*moved) - f(*numbers)) / h == pytest.approx(slope, rel=1e-6)


def test_notes_words():
    a, b = Value(2.0), Value(3.0)
    out = a * b
    assert (out.value, out.gradient, out.children) == (6.0, 0.0, (a, b))
    assert out.operation == "*"
    assert out.operation.opstr() == "*"
    assert (out**3).operation.opstr() == "**3"
    assert a.operation.opstr() == ""
    out.gradient = 1.0
    for child, other in ((a, b), (b, a)):
        child.gradient += other.value * out.gradient
    a.value = 5.0
    assert (a.grad, b.grad, a.data, out.recompute()) == (3.0, 2.0, 5.0, 15.0)
    document = json.loads(out.to_json())
    assert (document["value"], document["operation"], len(document["children"])) == (15.0, "*", 2)

"""Pictures: what stands in the DOT text, that Graphviz takes it, and that no graph is too large."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import models
import pytest
from harness import slow_but

from codegen import Floats, Program, compile_program, load
from codegen.backends import pictures as draw
from codegen.backends.pictures import MAX_BOXES, MAX_EDGES
from codegen.ir.loops import For, Pass, statements
from codegen.mnist import program as mnist_program
from micrograd import dot
from micrograd.draw import LIMIT, draw_dot, to_dot, to_json, trace
from micrograd.engine import Value
from micrograd.nn import MLP

FOUR_NEURONS = Path(__file__).resolve().parent.parent / "docs" / "four_neurons.py"
DEEP = 20_000
NODE = re.compile(r'^ *"((?:[^"\\]|\\.)*)" \[label="((?:[^"\\]|\\.)*)"(.*)\]$')
EDGE = re.compile(r'^ *"([^"]*)" -> "([^"]*)"(?: \[(.*)\])?$')
needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz's program dot")


def by_hand() -> Value:
    a, b, c, d = (Value(x, label=name) for x, name in ((2.0, "a"), (-3.0, "b"), (10.0, "c"), (-2.0, "d")))
    out = a * (b + c * d)
    out.label = "L"
    out.backward()
    return out


def read(text: str) -> tuple[dict[str, tuple[str, str]], list[tuple[str, str, str]]]:
    """Nodes (name: label, other attributes) and edges (tail, head, attributes) of a DOT file."""
    nodes, edges = {}, []
    for line in text.splitlines():
        if edge := EDGE.match(line):
            edges.append((edge[1], edge[2], edge[3] or ""))
        elif node := NODE.match(line):
            assert node[1] not in nodes
            nodes[node[1]] = node[2], node[3]
    assert text.startswith("digraph {\n")
    assert text.endswith("}\n")
    for tail, head, _ in edges:
        assert tail in nodes, tail
        assert head in nodes, head
    return nodes, edges


def rendered(text: str) -> bytes:
    done = subprocess.run(["dot", "-Tsvg"], input=text.encode(), capture_output=True, timeout=60, check=True)
    assert done.stderr == b""
    return done.stdout


def svg_texts(svg: bytes) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


# A Value graph, node by node


def test_trace_has_every_node_and_every_use():
    a, b = Value(2.0), Value(3.0)
    product = a * b
    out = product + product
    nodes, edges = trace(out)
    assert nodes == [a, b, product, out]
    assert edges == [(a, product), (b, product), (product, out), (product, out)]


def test_the_boxes_of_the_notebook():
    nodes, edges = read(to_dot(by_hand()))
    assert [label for name, (label, _) in nodes.items() if name.startswith("n")] == [
        "{a|data 2|grad -23}",
        "{b|data -3|grad 2}",
        "{c|data 10|grad -4}",
        "{d|data -2|grad 20}",
        "{data -20|grad 2}",
        "{data -23|grad 2}",
        "{L|data -46|grad 1}",
    ]
    assert {name: label for name, (label, _) in nodes.items() if name.startswith("op")} == {
        "op4": "*",
        "op5": "+",
        "op6": "*",
    }
    assert {(tail, head) for tail, head, _ in edges} == {
        *(("n2", "op4"), ("n3", "op4"), ("op4", "n4"), ("n1", "op5"), ("n4", "op5")),
        *(("op5", "n5"), ("n0", "op6"), ("n5", "op6"), ("op6", "n6")),
    }


def test_numbers_have_four_digits():
    text = to_dot(Value(0.123456789) * Value(123456.0) + Value(math.inf) * Value(math.nan))
    for number in ("0.1235", "1.235e+05", "1.524e+04", "inf", "nan"):
        assert f"data {number}|" in text


def test_an_exponent_is_shown():
    x, y = Value(2.0), Value(3.0)
    nodes, edges = read(to_dot(x**3 + x**-0.5 + x**y))
    assert {"**3", "**-0.5", "**"} <= {label for label, _ in nodes.values()}
    assert [tail for tail, _, attributes in edges if 'label="exponent"' in attributes] == ["n4"]


def test_leaves_say_what_they_are_for():
    w, x = Value(1.0, _op="weight"), Value(2.0, _op="input", label="x1")
    nodes, _ = read(to_dot(w * x))
    assert nodes["n0"][0] == "{weight|data 1|grad 0}"
    assert nodes["n1"][0] == "{x1|data 2|grad 0}"
    assert len({re.search("fillcolor=.*", nodes[name][1] + "fillcolor=white")[0] for name in ("n0", "n1", "n2")}) == 3
    assert not {"op0", "op1"} & set(nodes)


def test_a_label_can_be_given_later():
    out = Value(1.0) + 2.0
    out.label = "sum"
    assert "{sum|data 3|grad 0}" in to_dot(out)


def test_directions():
    assert 'rankdir="LR"' in to_dot(Value(1.0))
    down = to_dot(Value(1.0, label="a"), rankdir="TB")
    assert 'rankdir="TB"' in down
    assert 'label="a|data 1|grad 0"' in down  # Graphviz turns records: side by side here, too
    with pytest.raises(ValueError, match=r"rankdir must be 'LR' .* or 'TB' .*, got 'UP'"):
        to_dot(Value(1.0), rankdir="UP")


@pytest.mark.parametrize("function", [trace, to_dot, to_json, draw_dot])
def test_only_values_are_drawn(function: Callable):
    with pytest.raises(TypeError, match="starts at a Value, not at float"):
        function(1.0)


LABELS = ["a|b", "{x}", "<y>", 'say "hi"', "back\\slash", "end\\", "&lt;", "a & b", "ä → ∑", "\\N", "%d", "a\\"]


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("a|b", r"a\|b"),
        ("{x}<y>", r"\{x\}\<y\>"),
        ("two\nlines", r"two\nlines"),
        ("two\r\nlines\t\0", r"two\nlines  "),
        ("back\\slash", r"back\\slash"),
        ("a & b", "a &amp; b"),
        ("x" * 100, "x" * 59 + "…"),
        (17, "17"),
    ],
)
def test_labels_are_escaped(label: object, text: str):
    assert dot.escaped(label) == text


def test_quotes_do_not_end_a_label():
    assert r'label="{say \"hi\"|data' in to_dot(Value(1.0, label='say "hi"'))


@needs_dot
def test_graphviz_reads_labels_as_they_were_meant():
    order = [Value(1.0, label=label) for label in LABELS]
    out = order[0]
    for leaf in order[1:]:
        out = out + leaf
    shown = svg_texts(rendered(to_dot(out)))
    assert [label for label in LABELS if label not in shown] == []
    assert shown.count("data 1") == len(LABELS)


# graphviz objects


def test_draw_dot_is_the_same_text_as_a_digraph():
    graphviz = pytest.importorskip("graphviz")
    out = by_hand()
    picture = draw_dot(out, format="png", rankdir="TB")
    assert isinstance(picture, graphviz.Digraph)
    assert picture.source == to_dot(out, rankdir="TB")
    assert picture.format == "png"
    assert out.render_graph().source == to_dot(out)
    assert out.render_graph().format == "svg"


@needs_dot
def test_a_notebook_shows_svg():
    pytest.importorskip("graphviz")
    bundle = by_hand().render_graph()._repr_mimebundle_()
    assert "grad -23" in svg_texts(bundle["image/svg+xml"].encode())


def test_what_is_missing_is_said(run_python: Callable, monkeypatch: pytest.MonkeyPatch):
    script = """
import sys
sys.modules["graphviz"] = sys.modules["numpy"] = None
from micrograd.draw import draw_dot, to_dot, to_json, trace
from micrograd.engine import Value
out = Value(1.0) + 2.0
print(len(trace(out)[0]), len(to_dot(out)) > 100, len(to_json(out)) > 100, "codegen" in sys.modules)
for call in (draw_dot, Value.render_graph, lambda out: to_dot(out, limit=2)):
    try:
        call(out)
    except ModuleNotFoundError as error:
        print(error)
"""
    assert run_python(script).splitlines() == [
        "3 True True False",
        "drawing needs the package graphviz: pip install 'micrograd-nn[draw]'",
        "drawing needs the package graphviz: pip install 'micrograd-nn[draw]'",
        "compiling a model needs numpy and setuptools: pip install 'micrograd-nn[compile]'",
    ]
    pytest.importorskip("graphviz")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.warns(UserWarning, match=r"program dot, which is not on the PATH: install it with apt.*graphviz\.org"):
        assert draw_dot(Value(1.0)).source == to_dot(Value(1.0))
    with pytest.raises(dot.DrawError, match=r"program dot, which is not on the PATH"):
        dot.render([], "svg")


@needs_dot
def test_rendering():
    pytest.importorskip("graphviz")
    assert dot.render([dot.node("a", "b")], "png").startswith(b"\x89PNG")
    assert dot.render([dot.node("a", "b")], "pdf").startswith(b"%PDF")
    with pytest.raises(dot.DrawError, match=r"dot failed: .*syntax error"):
        dot.render(["nonsense ["], "svg")


# Large graphs


def test_a_deep_graph_is_no_recursion():
    out = models.chain(DEEP // 2)
    text = to_dot(out)
    assert text.count("shape=") == DEEP + 1  # operations, and the records' default
    nodes, edges = read(to_dot(out, limit=LIMIT))
    assert len(nodes) < 10
    assert len(edges) < 20


def test_beyond_the_limit_groups_are_drawn():
    out = models.chain(100)
    assert len(out.topo()) == 202 > LIMIT
    assert "as groups" in to_dot(out, limit=LIMIT)
    assert to_dot(out, limit=202) == to_dot(out, limit=None) == to_dot(out)
    if pytest.importorskip("graphviz"):
        assert draw_dot(out).source == to_dot(out, limit=LIMIT)
        assert draw_dot(out, limit=None).source == to_dot(out)


@pytest.fixture(scope="module")
def mnist() -> Program:
    return mnist_program()


@pytest.mark.slow
def test_mnist_is_ten_boxes(mnist: Program):
    loss = mnist.loss
    nodes, edges = read(to_dot(loss, limit=LIMIT))
    assert len(nodes) == 9
    labels = {label: name for name, (label, _) in nodes.items()}
    first, second = labels["50 x relu(sum(P, 784 x mul(P, X)))"], labels["10 x sum(P, 50 x mul(P, R))"]
    flows = {(tail, head): attributes for tail, head, attributes in edges}
    assert 'label="39,250"' in flows[labels["parameters (39,760)"], first]
    assert 'label="784"' in flows[labels["inputs (794)"], first]
    assert 'label="50"' in flows[first, second]
    widths = [float(re.search(r'penwidth="([\d.]+)"', text)[1]) for text in flows.values()]
    assert max(widths) == widths[list(flows).index((labels["parameters (39,760)"], first))] > 3
    assert min(widths) == 1
    nodes, _ = read(dot.text(draw.scalars(mnist)))
    assert {"inputs (784)", "targets (10)"} < {label for label, _ in nodes.values()}
    assert len(nodes) == 10


def test_plain_leaves_are_constants():
    model = MLP(20, [10])
    nodes, _ = read(to_dot(sum(model([float(i) for i in range(20)]), Value(0.0)), limit=LIMIT))
    assert "10 x sum(P, 20 x mul(P, C))" in {label for label, _ in nodes.values()}


@pytest.mark.slow
@needs_dot
def test_the_picture_of_an_irregular_graph_is_bounded():
    out = models.irregular(12_000)
    assert len(out.topo()) > 10_000
    text = to_dot(out, limit=LIMIT)
    nodes, edges = read(text)
    assert len(nodes) == MAX_BOXES + 2  # the parameters, and the note
    assert len(edges) == MAX_EDGES
    assert [re.match(r"[\d,]+ roots of [\d,]+ other shapes", label) is not None for label, _ in nodes.values()].count(
        True
    ) == 1
    assert re.fullmatch(r"the [\d,]+ thinnest edges are not drawn", nodes["note"][0])
    rendered(text)


def test_groups_of_one_shape_share_a_box_before_any_is_left_out():
    x, out = Value(0.5, _op="weight"), Value(1.0, _op="input")
    for _ in range(1000):
        out = (out * x).tanh() + out
    nodes, edges = read(to_dot(out, limit=LIMIT))
    (name,) = [name for name, (label, _) in nodes.items() if label == "999 x add(tanh(mul(R, P)), R)|loss"]
    assert any(tail == head == name for tail, head, _ in edges)  # the steps depend on one another
    assert len(nodes) < 10


# What the compiler sees


@pytest.fixture(scope="module")
def four_neurons():
    return load(FOUR_NEURONS)


def test_the_scalars_of_a_program_have_its_names(four_neurons):
    nodes, _ = read(dot.text(draw.scalars(four_neurons)))
    names = {label.split("|")[0].strip("{") for name, (label, _) in nodes.items() if name.startswith("n")}
    assert {f"weight[{i}, {j}]" for i in range(4) for j in range(3)} < names
    assert {"bias[3]", "input[0]", "input[2]", "target[0]"} < names
    assert "grad" not in names


def test_a_program_with_a_threshold_can_be_drawn():
    x, w = Value(0.0), Value(0.5)
    program = Program(Floats([x]), None, {"w": w}, w * x, {"out": [w]}, threshold=0.0)
    nodes, _ = read(dot.text(draw.scalars(program)))
    assert len(nodes) == 4  # two leaves, the product and its box


def test_the_ir_is_drawn_pass_by_pass(four_neurons):
    text = dot.text(draw.ir(four_neurons))
    clusters = re.findall(r'subgraph "cluster_(\w+)".*\n *label="(.*?)"', text)
    assert clusters == [
        ("simplify", "simplify: 109 nodes"),
        ("powers", "powers: 116 nodes"),
        ("autodiff", "autodiff: 117 nodes"),
        ("trace", "trace: 56 nodes"),
    ]
    nodes, edges = read(text)
    assert nodes["trace_26"][0] == "%26 = relu %25"
    assert nodes["autodiff_55"][0] == "%55 = pow %53 %54|loss"
    assert nodes["powers_55"][0] == "%55 = mul %53 %53|loss"
    assert nodes["simplify_50"][0] == "%50 = add %49 %47|output out"
    assert nodes["simplify_61"][0] == "%61 = add %60 %59|gradient 11"
    assert [(tail, head) for tail, head, _ in edges if head == "simplify_61"] == [
        ("simplify_60", "simplify_61"),
        ("simplify_59", "simplify_61"),
    ]
    adjoint = {name for name, (_, attributes) in nodes.items() if draw.ADJOINT in attributes}
    assert not any(name.startswith("trace") for name in adjoint)
    assert {name for name in adjoint if name.startswith("autodiff")} == {f"autodiff_{n}" for n in range(56, 117)}
    bold = {name for name, (_, attributes) in nodes.items() if "penwidth" in attributes}
    assert len(bold) == 4 * 2 + 3 * 16


@pytest.mark.slow
def test_a_large_ir_is_drawn_as_groups(mnist: Program):
    text = dot.text(draw.ir(mnist))
    assert 'label="simplify: 240,408 nodes as groups of equal shape"' in text
    nodes, _ = read(text)
    assert len(nodes) < 100
    labels = [label for name, (label, _) in nodes.items() if name.startswith("simplify")]
    assert "39,200 x add(G, mul(X, R))|new gradients in grad[]" in labels
    assert "10 x sum(P, 50 x mul(P, R))|output logits" in labels
    assert "1 x mul(R, -1)|loss" in labels


def test_the_loops_are_those_of_the_c(four_neurons):
    text = dot.text(draw.loops(four_neurons))
    nodes, edges = read(text)
    assert nodes["box0"][0] == r"4 x relu(sum(P, 3 x mul(P, X)))|i \< 4\lactive k \< 3, i \< 4\l|value[GROUP_0]"
    assert nodes["box1"][0] == "1 x sum(4 x R)|output out|no loop|value[O_OUT]"
    assert nodes["data[P_WEIGHT]"][0] == "data[P_WEIGHT]|weight (4, 3)"
    assert nodes["value[TARGET]"][0] == "value[TARGET]|1 number"
    counts = {(tail, head): re.search(r'label="([\d,]+)"', attributes) for tail, head, attributes in edges}
    assert {ends: count[1] if count else "1" for ends, count in counts.items()} == {
        ("data[P_WEIGHT]", "box0"): "12",
        ("data[P_BIAS]", "box0"): "4",
        ("value[INPUT]", "box0"): "3",
        ("box0", "box1"): "4",
        ("box1", "box2"): "1",
        ("value[TARGET]", "box2"): "1",
        ("box2", "box3"): "1",
        ("box2", "box4"): "1",
        ("box4", "box5"): "1",
        ("box0", "box5"): "4",
        ("box5", "box6"): "4",
        ("value[INPUT]", "box6"): "3",
        ("box5", "box7"): "4",
        ("box6", "grad[P_WEIGHT]"): "12",
        ("box7", "grad[P_BIAS]"): "4",
    }


def test_loops_over_kernels_are_frames():
    """Six steps of a recurrence: the last sum over states has nothing to add to, and the first one is of zeros."""
    text = dot.text(draw.loops(models.recurrence(6)))
    frames = re.findall(r'subgraph "cluster_(\w+)" \{\s+label="(.*?)" labeljust(.*?)\}', text, re.DOTALL)
    assert [(name, head) for name, head, _ in frames] == [("loop2_0", "t < 5"), ("loop18_0", "t < 5")]
    assert re.findall(r'label="(.*?)\|', frames[0][2]) == ["25 x tanh(sum(P, 2 x R))", "25 x sum(5 x mul(P, R))"]
    first, second = re.findall(r'"box\d+"(?= \[)', frames[0][2])
    assert {f"{first} -> {second}", f"{second} -> {first}"} <= set(re.findall(r'".*?" -> ".*?"', text))


@needs_dot
def test_edges_from_frame_to_frame_are_drawn():
    """Of a chain of single units, whose boxes in different frames stand one above the other."""
    x, y, parameters = models.values(1), models.values(1), {}
    unit = x[0]
    for i in range(6):
        parameters[f"w{i}"], parameters[f"b{i}"] = weight, bias = [Value(0.5)], [Value(0.1)]
        unit = (bias[0] + weight[0] * unit).tanh()
    loops = draw.loops(Program(Floats(x), Floats(y), parameters, (unit - y[0]) ** 2, {"unit": [unit]}))
    assert sum(line.startswith("subgraph") for line in loops) >= 2
    subprocess.run(["dot", "-Tsvg"], input=dot.text(loops).encode(), capture_output=True, check=True)


def loop_heads(label: str) -> list[str]:
    """`i < 4` and the like, as a box has them."""
    lines = [line for field in label.split("|") for line in re.sub(r"\\([<>{}])", r"\1", field).split("\\l")]
    return [head for line in lines for head in re.findall(r"\w+ < \d+", line)]


PROGRAMS = {**models.REGULAR, **{f"random {i}": lambda i=i: models.random_programs(i, 2) for i in range(8)}}


@pytest.mark.parametrize("name", slow_but(["mlp", "recurrence", "edges"], PROGRAMS, nightly=[*PROGRAMS][::2]))
def test_every_kind_of_model_can_be_drawn(name: str):
    program = PROGRAMS[name]()
    pictures = [draw.scalars(program), draw.ir(program), draw.ir(program, limit=5), draw.loops(program)]
    if program.outputs:
        predicts = replace(
            program, loss=None, targets=None, initial=None, outputs=dict([next(iter(program.outputs.items()))])
        )
        pictures += [draw.scalars(predicts), draw.ir(predicts), draw.loops(predicts)]
    for lines in pictures:
        read(dot.text(lines))
    compiled = compile_program(program)
    kernels = [*compiled.loops.kernels, *(k for k in compiled.plain.kernels if k.passes == Pass.ROW_GRADIENTS)]
    every = [stmt for kernel in kernels for nest in kernel.nests for stmt in statements(nest)]
    loops = {f"{stmt.counter} < {stmt.count}" for stmt in every if isinstance(stmt, For)}
    heads = {head for label, _ in read(dot.text(pictures[3]))[0].values() for head in loop_heads(label)}
    assert heads or name in ("edges", "random 1")
    for head in heads:
        assert head in loops
    if shutil.which("nop"):  # Graphviz's parser and printer
        for lines in pictures:
            subprocess.run(["nop"], input=dot.text(lines).encode(), capture_output=True, check=True)

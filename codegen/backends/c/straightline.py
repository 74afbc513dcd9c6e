"""Forward ir -> C without loops: one statement per node, and one for each contribution to a gradient.

Example input, with a parameter %0 and an input %1:

    %2 = mul %0 %1
    %3 = relu %2

becomes:

    value[3] = data[0] * value[0];
    value[4] = op_relu(value[3]);

and, with adjoints behind the values and all but the parameters' starting from zero at each pass:

    value[7] += op_step(value[4]) * value[8];
    grad[0] += value[0] * value[7];
    value[6] += data[0] * value[7];

Nothing is simplified and autodiff is not involved: this is micrograd's own `_backward`, node by node, as the op table
prints it. It is the baseline that the loops are measured against, and a second opinion on what a gradient is.
"""

from __future__ import annotations

from codegen.backends.c.kernels import Call, Functions, Kernels, definitions
from codegen.backends.expressions import Arithmetic
from codegen.backends.shared import declared_layout
from codegen.ir.graph import LEAVES, Graph, Op
from codegen.ir.loops import Pass
from codegen.passes.updates import Updates
from codegen.program import Program
from codegen.reroll.groups import Ints, passes_of
from codegen.reroll.names import tensor_names
from micrograd import ops
from micrograd.statements import Dialect, Text

MAX_STATEMENTS = 1000  # in a function: compile time is superlinear in its length


def straightline(graph: Graph, program: Program, updates: Updates | None = None) -> Kernels:
    """Statements for a traced graph, in functions of at most MAX_STATEMENTS."""
    tensors, places = declared_layout(program)
    if program.loss is None:
        _inline_weights(graph, program)
    size = len(graph)
    target_offset = len(program.input_values)
    first = target_offset + len(program.target_leaves)  # node n is value[first + n], its adjoint comes `size` later
    texts = _Arrays(graph, places, target_offset, first, Arithmetic.of(program))

    statements: list[tuple[Pass, str]] = []
    observed = set(graph.roots())
    for n, mask in enumerate(passes_of(graph, program.prediction)):
        if graph.op[n] not in LEAVES or n in observed:
            text = texts.operand(n) if graph.op[n] in LEAVES else texts.definition(n)
            statements.append((Pass(mask), f"value[{first + n}] = {text.text};"))
    if program.loss is not None:
        statements += _backward(graph, texts, first)
    functions, calls = _functions(statements)
    return Kernels(
        lowering="straightline",
        definitions=definitions(texts.dialect.used, updates, Arithmetic.of(program)),
        updates=updates,
        tables=[],
        functions=Functions(functions, [Call(passes, name) for passes, name in calls]),
        offsets=[
            ("INPUT", 0),
            ("TARGET", target_offset),
            *([("NOISE", target_offset + len(program.target_values))] if program.noise else []),
            *([("LOSS", first + graph.loss)] if graph.loss >= 0 else []),
        ],
        tensors=tensors,
        tensor_names=tensor_names(tensor.name for tensor in program.tensors),
        row_tensors=[],
        reads_inputs=True,
        value_count=first + (1 if program.loss is None else 2) * size,
        data_count=sum(tensor.size for tensor in tensors),
        loss=first + graph.loss if graph.loss >= 0 else -1,
        outputs={name: [first + n for n in nodes] for name, nodes in graph.outputs.items()},
        metrics={name: first + n for name, n in graph.metrics.items()},
        input_gradients={graph.a[n]: first + size + n for n in range(size) if graph.op[n] == Op.INPUT},
    )


def _inline_weights(graph: Graph, program: Program) -> None:
    """The parameters of a model that only predicts, as constants in the statements that use them."""
    for n, op in enumerate(graph.op):
        if op == Op.PARAM:
            graph.op[n] = Op.CONST
            graph.a[n] = graph.constant_number(program.parameter_values[graph.a[n]].data)


def _backward(graph: Graph, texts: _Arrays, first: int) -> list[tuple[Pass, str]]:
    """The statements of micrograd's backward(), from the loss to the leaves."""
    size = len(graph)
    statements = [
        (Pass.GRADIENTS, f"memset(value + {first + size}, 0, {size} * sizeof(real));"),
        (Pass.GRADIENTS, f"{texts.adjoint(graph.loss).text} += 1.0;"),
    ]
    reached = bytearray(size)
    reached[graph.loss] = 1
    for n in range(size - 1, -1, -1):
        if not reached[n]:
            continue
        for i, operand in enumerate(texts.operands(n)):
            if ops.row(graph.op[n]).partials[i] is None:
                continue
            reached[operand] = 1
            if graph.op[operand] != Op.CONST:
                statements.append((Pass.GRADIENTS, f"{texts.adjoint(operand).text} += {texts.contribution(n, i)};"))
    return statements


class _Arrays:
    """Parameters in data[] and grad[]; inputs, targets, values and then their adjoints in value[]."""

    def __init__(self, graph: Graph, places: Ints, target_offset: int, first: int, arithmetic: Arithmetic) -> None:
        self.graph, self.size, self.dialect = graph, len(graph), Dialect(arithmetic.literal)
        self.places, self.target_offset, self.first = places, target_offset, first

    def operands(self, n: int) -> list[int]:
        """The nodes that an operation takes; none for a leaf."""
        op = self.graph.op[n]
        return [] if op in LEAVES else [self.graph.a[n], self.graph.b[n]][: ops.row(op).arity]

    def definition(self, n: int) -> Text:
        """What an operation computes from its operands."""
        return self.dialect.definition(ops.row(self.graph.op[n]), [self.operand(x) for x in self.operands(n)])

    def contribution(self, n: int, i: int) -> str:
        """What a node adds to the adjoint of its operand i."""
        operands = [self.operand(x) for x in self.operands(n)]
        return self.dialect.contribution(ops.row(self.graph.op[n]), i, self.operand(n), operands, self.adjoint(n))

    def operand(self, n: int) -> Text:
        """A node where it is used: one C primary expression."""
        return Text(self._operand(n), self.dialect)

    def adjoint(self, n: int) -> Text:
        """The variable that a node's adjoint is accumulated in."""
        if self.graph.op[n] == Op.PARAM:
            return Text(f"grad[{self.places[self.graph.a[n]]}]", self.dialect)
        return Text(f"value[{self.first + self.size + n}]", self.dialect)

    def _operand(self, n: int) -> str:
        number = self.graph.a[n]
        match self.graph.op[n]:
            case Op.CONST:
                return self.dialect.literal(self.graph.constants[number])
            case Op.PARAM:
                return f"data[{self.places[number]}]"
            case Op.INPUT:
                return f"value[{number}]"
            case Op.TARGET:
                return f"value[{self.target_offset + number}]"
            case _:
                return f"value[{self.first + n}]"


def _functions(statements: list[tuple[Pass, str]]) -> tuple[list[str], list[tuple[Pass, str]]]:
    text: list[str] = []
    calls: list[tuple[Pass, str]] = []
    start = 0
    while start < len(statements):
        end = start
        while end < len(statements) and end - start < MAX_STATEMENTS and statements[end][0] == statements[start][0]:
            end += 1
        name = f"part_{len(calls)}"
        text += [f"NOT_JOINED static void AT_LEVEL({name})(struct workspace *restrict w)", "{"]
        text += ["    real *restrict const value = w->value;"]
        text += [f"    {statement}" for _, statement in statements[start:end]]
        text += ["}", ""]
        calls.append((statements[start][0], name))
        start = end
    return text, calls

"""ir -> C, one statement a node: how micrograd graphs were compiled before there were loops.

Example input:

    %2 = mul %0 %1
    %3 = relu %2

becomes:

    value[2] = data[0] * value[1];
    value[3] = op_relu(value[2]);

Kept as the baseline that the loops are measured against, and as a second opinion on what a graph means.
"""

from __future__ import annotations

import numpy as np

from codegen.emit import literal
from codegen.groups import Need, needs
from codegen.ir import LEAVES, Graph, Op
from codegen.layout import TensorPlace
from codegen.module import Kernels
from codegen.names import tensor_names
from codegen.ops import C
from codegen.program import Program

CHUNK = 1000  # statements in a function: compilers are super-linear in its length


def straightline(graph: Graph, program: Program) -> Kernels:
    """One statement a node, in functions of at most CHUNK statements."""
    tensors: list[TensorPlace] = []
    places = np.zeros(len(program.parameter_values), dtype=np.int64)
    offset = 0
    for tensor in program.tensors:
        strides = tuple(int(np.prod(tensor.shape[a + 1 :])) for a in range(len(tensor.shape)))
        tensors.append(TensorPlace(tensor, offset, strides))
        places[list(tensor.numbers)] = offset + np.arange(len(tensor.numbers))
        offset += len(tensor.numbers)
    target_offset = len(program.inputs.values)
    first = target_offset + len(program.target_values)

    def leaf(n: int) -> str:
        number = graph.a[n]
        match Op(graph.op[n]):
            case Op.CONST:
                return literal(graph.constants[number])
            case Op.PARAM:
                return f"data[{places[number]}]"
            case Op.GRAD:
                return f"grad[{places[number]}]"
            case Op.INPUT:
                return f"value[{number}]"
            case Op.TARGET:
                return f"value[{target_offset + number}]"
            case _:
                return f"value[{first + n}]"

    statements: list[tuple[Need, str]] = []
    masks = needs(graph, program.prediction)
    leaf_ops = {int(op) for op in LEAVES}
    observed = {graph.loss, *(n for nodes in graph.outputs.values() for n in nodes)}
    gradient_of = {n: f"grad[{places[parameter]}]" for parameter, n in graph.gradients.items()}
    for n in range(len(graph)):
        if graph.op[n] in leaf_ops:
            if n in observed:
                statements.append((Need(masks[n]), f"value[{first + n}] = {leaf(n)};"))
            continue
        operands = [leaf(x) for x in (graph.a[n], graph.b[n]) if x >= 0]
        text = C[Op(graph.op[n])].format(*operands)
        statements.append((Need(masks[n]), f"{gradient_of.get(n, f'value[{first + n}]')} = {text};"))

    functions: list[str] = []
    calls: list[tuple[Need, str]] = []
    start = 0
    while start < len(statements):
        end = start
        while end < len(statements) and end - start < CHUNK and statements[end][0] == statements[start][0]:
            end += 1
        name = f"part_{len(calls)}"
        functions += [f"static void AT_LEVEL({name})(struct workspace *restrict w)", "{"]
        functions += ["    double *restrict const value = w->value;"]
        functions += [f"    {text}" for _, text in statements[start:end]]
        functions += ["    (void)value;", "}", ""]
        calls.append((statements[start][0], name))
        start = end
    return Kernels(
        lowering="straightline",
        tables=[],
        functions=functions,
        calls=calls,
        offsets=[("INPUT", 0), ("TARGET", target_offset)],
        tensors=tensors,
        tensor_names=tensor_names(tensor.name for tensor in program.tensors),
        row_tensors=[],
        value_count=first + len(graph),
        data_count=offset,
        loss=first + graph.loss,
        outputs={name: [first + n for n in nodes] for name, nodes in graph.outputs.items()},
    )

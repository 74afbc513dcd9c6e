"""Forward ir -> with the gradient of an output by the inputs: what a net looks at.

Example: of a model with the output logits, two of them,

    look = logits[0] * seed[0] + logits[1] * seed[1]

is differentiated as a loss would be, but by the inputs. Its seeds are targets behind all others, chosen by a caller;
the derivatives are metrics of the graph, which have a pass of their own, named 0, 1, ... by their inputs.
"""

from __future__ import annotations

from dataclasses import replace

from codegen import checks
from codegen.ir.graph import Graph, Op
from codegen.passes.autodiff import differentiate
from codegen.program import Program
from micrograd.engine import Value
from micrograd.noise import Noise


def add_output_gradients(graph: Graph, program: Program, output: str) -> Program:
    """Appends the nodes for one output; returns the Program with the seeds, as its noise."""
    seeds = [Value(0.0) for _ in program.outputs[output]]
    first, terms = len(program.target_leaves), []
    for i, n in enumerate(graph.outputs[output]):
        terms.append(graph.add(Op.MUL, n, graph.add(Op.TARGET, first + i)))
    look = terms[0]
    for term in terms[1:]:
        look = graph.add(Op.ADD, look, term)
    loss, graph.loss = graph.loss, look
    differentiate(graph, input_gradients=True)
    graph.metrics = {str(i): n for i, n in sorted(graph.input_gradients.items())}
    graph.loss, graph.gradients, graph.input_gradients = loss, {}, {}
    return replace(program, noise=[*program.noises, Noise(seeds, (0.0, 1.0))])


def checked_output(program: Program, output: object) -> str:
    """The name of an output that has such a gradient. Raises ValueError for any other."""
    name = checks.name("the output whose gradients are wanted", output)
    if name not in program.outputs:
        raise ValueError(f"gradients of an output: {name!r} is none of the outputs {list(program.outputs)}")
    if not program.input_values:
        raise ValueError("a model without inputs has no gradients of outputs by them")
    return name

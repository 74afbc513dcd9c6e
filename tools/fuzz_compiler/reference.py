"""A Program run without a compiler, behind the API of a compiled module: what the tests compare with.

`Engine` runs micrograd's own Values, `Interpreter` the ir, `LoopInterpreter` the loops. All are slow, plain, and meant
to be believed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import TypeAlias

from codegen.ir.graph import Graph
from codegen.ir.loops import DATA, Loops, Pass
from codegen.program import Label, Program
from codegen.reference.interpret import State, interpret, new_state, run
from codegen.reroll.layout import FIRST_TOKEN
from codegen.schedule.pipeline import Rerolled
from micrograd import optim
from micrograd.initial import Normal
from micrograd.noise import drawn, mean, moved
from micrograd.order import creation

Example: TypeAlias = "tuple[int | Sequence[float] | None, Sequence[float]]"  # target and inputs


def generator_of(program: Program) -> Random:
    """The generator of a fresh module, which has drawn the initial weights and draws noise next."""
    rng = Random(program.seed)
    declared = {number: tensor.initial for tensor in program.tensors for number in tensor.numbers}
    for _, distribution in sorted(declared.items()):
        if isinstance(distribution, Normal) or (distribution is not None and distribution[0] < distribution[1]):
            drawn(distribution, rng)
    return rng


class Reference:
    """Inputs, targets and the update, which are the same for both."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.data = [p.data for p in program.parameter_values]
        self.grads = [0.0] * len(self.data)
        tensors = {t.name: [program.parameter_values[n] for n in t.numbers] for t in program.tensors}
        self.random = generator_of(program)
        self.example: Example = (None, ())
        self.last: tuple[list[float], list[float]] = ([], [])  # targets and noise, and inputs, of the last forward()
        self.optimizer = optim.Optimizer(tensors, program.rules) if program.rules else None

    def _run_rules(self, batch_size: int, rate: float) -> None:
        values = self.program.parameter_values
        before = [(value.data, value.grad) for value in values]
        for value, data, grad in zip(values, self.data, self.grads, strict=True):
            value.data, value.grad = data, grad
        assert self.optimizer is not None
        self.optimizer.step(batch_size, rate)
        self.data = [value.data for value in values]
        for value, (data, grad) in zip(values, before, strict=True):
            value.data, value.grad = data, grad

    def forward(self, target: int | Sequence[float] | None, inputs: Sequence[float]) -> float:
        """The loss, nan where there is none. `target` is a class, a list of numbers or None, as the Program has it."""
        self.example = target, inputs
        inputs = moved(inputs, self.program.shift, self.random)
        noise = [drawn(one.distribution, self.random) for one in self.program.noises for _ in one.values]
        ts, xs = self.leaves(target, inputs)
        self.last = [*ts, *noise], xs
        return self.run(*self.last)

    def at_rest(self, target: int | Sequence[float] | None, inputs: Sequence[float]) -> float:
        """The loss with the means of all noise."""
        ts, xs = self.leaves(target, inputs)
        return self.run([*ts, *self.means()], xs)

    def means(self) -> list[float]:
        return [mean(one.distribution) for one in self.program.noises for _ in one.values]

    def leaves(self, target: int | Sequence[float] | None, inputs: Sequence[float]) -> tuple[list[float], list[float]]:
        """Targets and inputs as numbers."""
        xs = list(inputs)
        for part in self.program.input_parts if len(xs) else ():
            if part.kind == "pixels":
                leaves = slice(part.first, part.first + part.count)
                xs[leaves] = [float(x) * part.scale for x in xs[leaves]]
        if isinstance(self.program.targets, Label):
            ts = [float(i == target) for i in range(len(self.program.target_values))]
        else:
            ts = list(target) if isinstance(target, Sequence) else []
        return ts, xs

    def run(self, targets: list[float], inputs: list[float]) -> float:
        raise NotImplementedError

    def backward(self) -> None:
        raise NotImplementedError

    def outputs(self) -> dict[str, list[float]]:
        """The named outputs of the inputs of the last forward(), as a prediction has them."""
        if not self.program.noise and self.program.shift is None:
            return self.observed()
        self.at_rest(*self.example)
        found = self.observed()
        self.run(*self.last)  # what backward() goes back from
        return found

    def observed(self) -> dict[str, list[float]]:
        """The named outputs of the last run()."""
        raise NotImplementedError

    def zero_grad(self) -> None:
        self.grads = [0.0] * len(self.grads)

    def update(self, batch_size: int = 1, learning_rate: float | None = None) -> None:
        """data -= learning_rate * grad / batch_size, or what the Program's rules say."""
        rate = self.program.rate if learning_rate is None else learning_rate
        if self.optimizer is not None:
            self._run_rules(batch_size, rate)
            return
        self.data = [p - rate * g / batch_size for p, g in zip(self.data, self.grads, strict=True)]

    def train(self, examples: Sequence[Example], batch_size: int = 1, threads: int = 1) -> float:
        """One epoch over (target, inputs) in order; returns the mean loss. No bit depends on `threads`."""
        total = 0.0
        for start in range(0, len(examples), batch_size):
            batch = examples[start : start + batch_size]
            self.zero_grad()
            for target, inputs in batch:
                total += self.forward(target, inputs)
                self.backward()
            self.update(len(batch))
        return total / len(examples)

    def evaluate(self, examples: Sequence[Example], threads: int = 1) -> float:
        """The mean loss over (target, inputs)."""
        total = 0.0
        for target, inputs in examples:
            total += self.at_rest(target, inputs)
        return total / len(examples)


class Engine(Reference):
    """micrograd itself: the leaves are set, the graph is computed again, gradients flow back over Values."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.order = creation(program.roots())

    def run(self, targets: list[float], inputs: list[float]) -> float:
        program = self.program
        for values, numbers in (
            (program.parameter_values, self.data),
            (program.input_values, inputs),
            (program.target_leaves, targets),
        ):
            for value, number in zip(values, numbers, strict=True):
                value.data = number
        for value in self.order:
            value._forward()
        return program.loss.data if program.loss is not None else math.nan

    def backward(self) -> None:
        for value, grad in zip(self.program.parameter_values, self.grads, strict=True):
            value.grad = grad
        if self.program.loss is not None:
            self.program.loss.backward()
        self.grads = [value.grad for value in self.program.parameter_values]

    def observed(self) -> dict[str, list[float]]:
        return {name: [v.data for v in values] for name, values in self.program.outputs.items()}


class Interpreter(Reference):
    """The final ir, node by node."""

    def __init__(self, program: Program, graph: Graph) -> None:
        super().__init__(program)
        self.graph = graph
        self.inputs: list[float] = []
        self.targets: list[float] = []
        self.values: list[float] = []

    def run(self, targets: list[float], inputs: list[float]) -> float:
        self.inputs, self.targets = inputs, targets
        self.values = interpret(self.graph, self.data, self.grads, inputs, targets)
        return self.values[self.graph.loss] if self.graph.loss >= 0 else math.nan

    def backward(self) -> None:
        values = interpret(self.graph, self.data, self.grads, self.inputs, self.targets)
        for parameter, n in self.graph.gradients.items():
            self.grads[parameter] = values[n]

    def observed(self) -> dict[str, list[float]]:
        return {name: [self.values[n] for n in nodes] for name, nodes in self.graph.outputs.items()}


def with_rows(scheduled: Loops, plain: Loops) -> Loops:
    """Scheduled loops with the rows of tokens, and the gradients of rows, which hand-written code has in a module."""
    rows = [kernel for kernel in plain.kernels if kernel.passes == Pass.ROW_GRADIENTS]
    tokens = [kernel for kernel in plain.kernels if kernel.passes & Pass.TOKEN_ROWS]
    return scheduled.with_kernels([*tokens, *scheduled.kernels, *rows])


class LoopInterpreter(Reference):
    """The loops of a Program, plain or scheduled, statement by statement.

    `numbers` says where the parameters are in data[], and where the loss and each output are in value[]. Parallel loops
    run in three parts, from the last to the first.
    """

    PARTS = 3

    def __init__(self, program: Program, loops: Loops, rerolled: Rerolled) -> None:
        super().__init__(program)
        self.loops, self.rerolled = loops, rerolled
        self.places = rerolled.layout.parameter_index.tolist()
        self.state: State | None = None

    def run(self, targets: list[float], inputs: list[float]) -> float:
        self.state = state = self._fresh_state(targets, inputs)
        run(state, Pass.LOSS | Pass.OUTPUTS | Pass.PREDICTION)
        place = self.rerolled.place_of(self.rerolled.graph.loss)
        return self._number(state.images[0][place]) if place >= 0 else math.nan

    def backward(self) -> None:
        state = self.state
        assert state is not None
        for place, number in zip(self.places, self.grads, strict=True):
            state.grad[place] = number
        run(state, Pass.GRADIENTS, skip=Pass.LOSS)
        run(state, Pass.DENSE_GRADIENTS | Pass.ROW_GRADIENTS, parts=self.PARTS)
        self.grads = [self._number(state.grad[place]) for place in self.places]

    def observed(self) -> dict[str, list[float]]:
        assert self.state is not None
        values, graph = self.state.images[0], self.rerolled.graph
        return {
            name: [self._number(values[self.rerolled.place_of(n)]) for n in nodes]
            for name, nodes in graph.outputs.items()
        }

    def _fresh_state(self, targets: list[float], inputs: list[float]) -> State:
        data: list[float | None] = [None] * self.loops.lengths[DATA]
        for place, number in zip(self.places, self.data, strict=True):
            data[place] = number
        state = new_state(self.loops, data, [None] * len(data))
        values = state.images[0]
        places = self.rerolled.layout.input_index.tolist()
        for place, x in zip(places, inputs, strict=True):
            if place < FIRST_TOKEN:
                values[place] = x
        state.tokens = [[x for place, x in sorted(zip(places, inputs, strict=True)) if place >= FIRST_TOKEN]]
        inputs = [x for place, x in zip(places, inputs, strict=True) if place < FIRST_TOKEN]
        start = self.rerolled.layout.target_offset
        values[start : start + len(targets)] = targets
        state.active = [[i for i, x in enumerate(inputs) if x != 0.0 or self._has_nonfinite_row(data, i)]]
        return state

    def _has_nonfinite_row(self, data: list[float | None], row: int) -> bool:
        for tensor in self.rerolled.rows.values():
            start = tensor.place.offset + row * tensor.row_length
            if not all(math.isfinite(x) for x in data[start : start + tensor.lanes] if x is not None):
                return True
        return False

    @staticmethod
    def _number(x: float | None) -> float:
        assert x is not None, "an observed number has not been computed"
        return x

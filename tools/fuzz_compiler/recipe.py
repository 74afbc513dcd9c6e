"""A Program as plain data, which can be cut smaller and written down as Python.

Example: the Program of the loss (w * x).relu(), with one weight and one input, is the recipe

    nodes       leaf 0.5, leaf 0.0, "*" 0 1, "ReLU" 2
    inputs      1
    parameters  w: 0
    loss        3

and the text

    v0 = Value(0.5)
    v1 = Value(0.0)
    v2 = v0 * v1
    v3 = v2.relu()
    program = Program(inputs=Floats([v1]), targets=None, parameters={"w": v0}, loss=v3)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from codegen.program import Floats, Label, Pixels, Program, Tokens
from micrograd.engine import Value
from micrograd.names import power as power_text
from micrograd.ops import BY_SYMBOL, power
from micrograd.order import creation
from tools.fuzz_compiler.rules import random_rule, seed_of

Numbers: TypeAlias = "int | list[Any]"  # the number of a node, or evenly nested lists of them


@dataclass(frozen=True)
class Node:
    """A leaf has its data, "" as op and no operands. `exponent` is the constant one of "**"."""

    op: str = ""
    operands: tuple[int, ...] = ()
    data: float = 0.0
    exponent: float | None = None


@dataclass(frozen=True)
class Recipe:
    """Nodes in topological order; the rest names them by number. `settings` are the Program's other arguments."""

    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    scale: float | None  # of pixels; None for floats
    targets: tuple[int, ...] | None
    is_label: bool
    parameters: dict[str, Numbers]
    order: tuple[int, ...] | None
    outputs: dict[str, tuple[int, ...]]
    loss: int
    settings: dict[str, Any]
    kinds: tuple[tuple[str, str, int, int, float], ...] = ()  # name, kind, leaves, classes and scale of each part

    @classmethod
    def of(cls, program: Program) -> Recipe:
        assert program.loss is not None
        leaves = [*program.parameter_values, *program.input_values, *program.target_values]
        order = creation([*program.roots(), *leaves])
        numbers = {id(value): i for i, value in enumerate(order)}

        def number(nested: Any) -> Any:
            return numbers[id(nested)] if isinstance(nested, Value) else [number(inner) for inner in nested]

        parameters = {name: number(nested) for name, nested in program.parameters.items()}
        ordered = tuple(number(program.parameter_values))
        return cls(
            nodes=tuple(
                Node(BY_SYMBOL[v._op].symbol, tuple(number(v._prev)), exponent=v._exponent)
                if v._prev
                else Node(data=v.data)
                for v in order
            ),
            inputs=tuple(number(program.input_values)),
            scale=program.inputs.scale if isinstance(program.inputs, Pixels) else None,
            kinds=tuple((p.name, p.kind, p.count, p.classes, p.scale) for p in program.input_parts)
            if program.converts_inputs
            else (),
            targets=None if program.targets is None else tuple(number(program.target_values)),
            is_label=isinstance(program.targets, Label),
            parameters=parameters,
            order=None if list(ordered) == list(flatten([*parameters.values()])) else ordered,
            outputs={name: tuple(number(values)) for name, values in program.outputs.items()},
            loss=number(program.loss),
            settings=({} if program.update is None else {"rule": seed_of(program.update)})
            | {
                name: value
                for name in ("learning_rate", "initial", "seed", "dtype", "fma", "reorder")
                if (value := getattr(program, name)) != Program.__dataclass_fields__[name].default
            },
        )

    def program(self) -> Program:
        values: list[Value] = []
        for node in self.nodes:
            op = node.op if node.exponent is None else power_text(node.exponent)
            value = Value(node.data, tuple(values[n] for n in node.operands), op)
            value._exponent = node.exponent
            values.append(value)

        def nested(numbers: Numbers) -> Any:
            return values[numbers] if isinstance(numbers, int) else [nested(inner) for inner in numbers]

        settings = {name: value for name, value in self.settings.items() if name != "rule"}
        if "rule" in self.settings:
            settings["update"] = random_rule(self.settings["rule"])
        inputs = nested(list(self.inputs))
        targets = None if self.targets is None else nested(list(self.targets))
        return Program(
            inputs=self._declared(inputs)
            if self.kinds
            else Floats(inputs)
            if self.scale is None
            else Pixels(inputs, self.scale),
            targets=None if targets is None else Label(targets) if self.is_label else Floats(targets),
            parameters={name: nested(numbers) for name, numbers in self.parameters.items()},
            loss=values[self.loss],
            outputs={name: nested(list(numbers)) for name, numbers in self.outputs.items()},
            order=None if self.order is None else nested(list(self.order)),
            **settings,
        )

    def _declared(self, inputs: list[Any]) -> dict[str, Any]:
        """The inputs by name. ValueError if they do not have the number of leaves that the parts have."""
        found: dict[str, Any] = {}
        for name, kind, count, classes, scale in self.kinds:
            values, inputs = inputs[:count], inputs[count:]
            if len(values) < count:
                raise ValueError(f"{name} has {count} leaves")
            rows = [values[i : i + classes] for i in range(0, count, classes or count)]
            found[name] = Tokens(rows) if classes else Pixels(values, scale) if kind == "pixels" else Floats(values)
        if inputs:
            raise ValueError(f"no part has {len(inputs)} of the inputs")
        return found

    def _declared_text(self) -> str:
        parts, first = [], 0
        for name, kind, count, classes, scale in self.kinds:
            values = self.inputs[first : first + count]
            first += count
            rows = [values[i : i + classes] for i in range(0, count, classes or count)]
            text = f"Tokens({_text(rows)})" if classes else f"Floats({_text(values)})"
            parts.append(f"{name!r}: {_pixels(values, scale) if kind == 'pixels' else text}")
        return f"{{{', '.join(parts)}}}"

    def text(self) -> str:
        """Python statements that define `program`. They need Program and its kinds, Value, math, random_rule."""
        lines = [f"v{i} = {self._expression(node)}" for i, node in enumerate(self.nodes)]
        inputs = f"Floats({_text(self.inputs)})" if self.scale is None else _pixels(self.inputs, self.scale)
        inputs = self._declared_text() if self.kinds else inputs
        targets = "None" if self.targets is None else f"{'Label' if self.is_label else 'Floats'}({_text(self.targets)})"
        arguments = {
            "inputs": inputs,
            "targets": targets,
            "parameters": _dictionary(self.parameters),
            "loss": f"v{self.loss}",
        }
        if self.outputs:
            arguments["outputs"] = _dictionary(self.outputs)
        if self.order is not None:
            arguments["order"] = _text(self.order)
        arguments |= {name: _literal(value) for name, value in self.settings.items() if name != "rule"}
        if "rule" in self.settings:
            arguments["update"] = f"random_rule({self.settings['rule']})"
        return "\n".join([*lines, "program = Program(", *(f"    {k}={v}," for k, v in arguments.items()), ")"])

    def _expression(self, node: Node) -> str:
        operands = [f"v{n}" for n in node.operands]
        if not operands:
            return f"Value({_literal(node.data)})"
        row = BY_SYMBOL[node.op]
        if not row.is_infix and row is not power:
            if hasattr(Value, row.name):
                return f"{operands[0]}.{row.name}({', '.join(operands[1:])})"
            return f"{operands[0]}.apply({', '.join([repr(row.name), *operands[1:]])})"
        return f" {node.op} ".join(operands if node.exponent is None else [*operands, f"({_literal(node.exponent)})"])

    def leaves(self) -> set[int]:
        """What is declared: parameters, inputs and targets."""
        return {*flatten([*self.parameters.values()]), *self.inputs, *(self.targets or ())}

    def without_dead_nodes(self) -> Recipe:
        """Renumbered, without the nodes that nothing needs."""
        needed = {self.loss, *self.leaves(), *(n for numbers in self.outputs.values() for n in numbers)}
        for i in reversed(range(len(self.nodes))):
            if i in needed:
                needed.update(self.nodes[i].operands)
        kept = [i for i in range(len(self.nodes)) if i in needed]
        new = {old: i for i, old in enumerate(kept)}
        nodes = [replace(self.nodes[i], operands=tuple(new[n] for n in self.nodes[i].operands)) for i in kept]
        return replace(self, nodes=tuple(nodes)).renumbered(new.__getitem__)

    def renumbered(self, new: Callable[[int], int]) -> Recipe:
        """With other numbers wherever nodes are named, but not in the nodes' own operands."""

        def nested(numbers: Any) -> Any:
            return new(numbers) if isinstance(numbers, int) else type(numbers)(map(nested, numbers))

        return replace(
            self,
            inputs=nested(self.inputs),
            targets=None if self.targets is None else nested(self.targets),
            parameters={name: nested(numbers) for name, numbers in self.parameters.items()},
            order=None if self.order is None else nested(self.order),
            outputs={name: nested(numbers) for name, numbers in self.outputs.items()},
            loss=new(self.loss),
        )


def flatten(numbers: Numbers) -> Iterator[int]:
    if isinstance(numbers, int):
        yield numbers
    else:
        for inner in numbers:
            yield from flatten(inner)


def _pixels(inputs: tuple[int, ...], scale: float) -> str:
    return f"Pixels({_text(inputs)}, scale={_literal(scale)})"


def _text(numbers: Any) -> str:
    return f"v{numbers}" if isinstance(numbers, int) else f"[{', '.join(map(_text, numbers))}]"


def _dictionary(named: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f'"{name}": {_text(numbers)}' for name, numbers in named.items()) + "}"


def _literal(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "math.nan" if value != value else "math.inf" if value > 0 else "-math.inf"
    return repr(value)

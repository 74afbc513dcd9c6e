"""A failing Program -> a smaller one that still fails.

Example: a net of 900 nodes in which a maximum of two equal operands gets a wrong gradient becomes

    v0 = Value(1.0)
    v1 = v0.max(v0)
    program = Program(inputs=Floats([]), targets=None, parameters={"p": [v0]}, loss=v1)

As in delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002), halves are
tried first, then quarters, down to single nodes, and again from the start until nothing helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tools.fuzz_compiler.recipe import Node, Recipe, flatten

Fails = Callable[[Recipe], bool]


def reduce_recipe(recipe: Recipe, fails: Fails) -> Recipe:
    """The smallest recipe found for which `fails` is still true. `recipe` itself must fail."""
    recipe = recipe.without_dead_nodes()
    while True:
        before = recipe
        for simplify in (_settings, _outputs, _loss, _nodes, _leaves, _tensors, _constants):
            recipe = _improve(recipe, simplify, fails)
        if recipe == before:
            return recipe


def _improve(recipe: Recipe, candidates: Callable[[Recipe], Iterator[Recipe]], fails: Fails) -> Recipe:
    """Follows candidates as long as one of them fails too; each time anew, since they are made from the recipe."""
    tried: set[str] = set()
    found = True
    while found:
        found = False
        for candidate in candidates(recipe):
            smaller = candidate.without_dead_nodes()
            key = repr(smaller)
            if smaller == recipe or key in tried:
                continue
            tried.add(key)
            if fails(smaller):
                recipe, found = smaller, True
                break
    return recipe


def _pieces(count: int) -> Iterator[range]:
    """Everything, halves, quarters, ... single ones; the last first, since later nodes need earlier ones."""
    size = count
    while size:
        for start in reversed(range(0, count, size)):
            yield range(start, min(start + size, count))
        size //= 2


def _settings(recipe: Recipe) -> Iterator[Recipe]:
    yield replace(recipe, settings={})
    for name in recipe.settings:
        yield replace(recipe, settings={k: v for k, v in recipe.settings.items() if k != name})
    yield replace(recipe, order=None)
    if recipe.is_label:
        yield replace(recipe, is_label=False)
    if recipe.kinds:
        yield replace(recipe, kinds=())
    if recipe.scale is not None:
        yield replace(recipe, scale=None)
        yield replace(recipe, scale=1.0)


def _outputs(recipe: Recipe) -> Iterator[Recipe]:
    for name, numbers in recipe.outputs.items():
        yield replace(recipe, outputs={k: v for k, v in recipe.outputs.items() if k != name})
        for piece in _pieces(len(numbers)):
            if len(piece) < len(numbers):
                kept = tuple(n for i, n in enumerate(numbers) if i not in piece)
                yield replace(recipe, outputs=recipe.outputs | {name: kept})


def _loss(recipe: Recipe) -> Iterator[Recipe]:
    """Another node as the loss: the earlier, the smaller the graph."""
    computed = [i for i, node in enumerate(recipe.nodes[: recipe.loss]) if node.operands]
    for i in computed[:: max(len(computed) // 50, 1)]:
        yield replace(recipe, loss=i)
    for i in recipe.nodes[recipe.loss].operands:
        yield replace(recipe, loss=i)


def _nodes(recipe: Recipe) -> Iterator[Recipe]:
    """Nodes that are left out: their users take the first or the last operand, or a constant instead."""
    computed = [i for i, node in enumerate(recipe.nodes) if node.operands]
    for piece in _pieces(len(computed)):
        chosen = {computed[i] for i in piece}
        for operand in (0, -1):
            yield _bypass(recipe, chosen, operand)
        nodes = [Node(data=0.5) if i in chosen else node for i, node in enumerate(recipe.nodes)]
        yield replace(recipe, nodes=tuple(nodes))


def _bypass(recipe: Recipe, chosen: set[int], operand: int) -> Recipe:
    instead = list(range(len(recipe.nodes)))
    nodes = []
    for i, node in enumerate(recipe.nodes):
        operands = tuple(instead[n] for n in node.operands)
        nodes.append(replace(node, operands=operands))
        if i in chosen:
            instead[i] = operands[operand]
    return replace(recipe, nodes=tuple(nodes)).renumbered(instead.__getitem__)


def _leaves(recipe: Recipe) -> Iterator[Recipe]:
    """Fewer inputs, targets and parameters: what was one becomes a constant."""
    for numbers, name in ((recipe.inputs, "inputs"), (recipe.targets or (), "targets")):
        for piece in _pieces(len(numbers)):
            kept = tuple(n for i, n in enumerate(numbers) if i not in piece)
            if name == "inputs":
                yield replace(recipe, inputs=kept)
            elif kept or not recipe.is_label:
                yield replace(recipe, targets=kept)
    if recipe.targets is not None:
        yield replace(recipe, targets=None, is_label=False)
    for name, nested in recipe.parameters.items():
        yield _with_parameters(recipe, {k: v for k, v in recipe.parameters.items() if k != name})
        if isinstance(nested, list):
            for piece in _pieces(len(nested)):
                kept_rows = [row for i, row in enumerate(nested) if i not in piece]
                if kept_rows:
                    yield _with_parameters(recipe, recipe.parameters | {name: kept_rows})


def _tensors(recipe: Recipe) -> Iterator[Recipe]:
    """Tensors of fewer dimensions; all in one."""
    for name, nested in recipe.parameters.items():
        if isinstance(nested, list):
            yield _with_parameters(recipe, recipe.parameters | {name: list(flatten(nested))})
    yield _with_parameters(recipe, {"p": list(flatten([*recipe.parameters.values()]))})


def _with_parameters(recipe: Recipe, parameters: dict[str, int | list[object]]) -> Recipe:
    kept = set(flatten([*parameters.values()]))
    settings = dict(recipe.settings)
    if "initial" in settings:
        if settings["initial"].keys() < parameters.keys() or not parameters.keys() <= settings["initial"].keys():
            del settings["initial"]
        else:
            settings["initial"] = {name: settings["initial"][name] for name in parameters}
    order = None if recipe.order is None else tuple(n for n in recipe.order if n in kept)
    parameters = {name: nested for name, nested in parameters.items() if nested != []}
    return replace(recipe, parameters=parameters, order=order, settings=settings)


def _constants(recipe: Recipe) -> Iterator[Recipe]:
    """Rounder numbers in leaves and exponents."""
    for simple in (1.0, 2.0, 0.5):
        for piece in _pieces(len(recipe.nodes)):
            yield replace(recipe, nodes=tuple(_rounded(recipe.nodes, set(piece), simple)))


def _rounded(nodes: Sequence[Node], chosen: set[int], simple: float) -> Iterator[Node]:
    for i, node in enumerate(nodes):
        if i not in chosen or (node.data in (0.0, 0.5, 1.0, 2.0) and node.exponent is None):
            yield node
        elif node.exponent is not None:
            yield replace(node, exponent=2.0)
        else:
            yield node if node.operands else replace(node, data=simple)

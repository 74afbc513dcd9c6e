"""The names that generated code and explanations use for tensors and groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from codegen.ir.graph import Graph
from codegen.reroll.layout import GroupLayout


def tensor_names(names: Iterable[str]) -> list[str]:
    """C names for named tensors: `layers.0.weight` is P_LAYERS_0_WEIGHT; names that would clash get a number."""
    return unique_names("P_" + c_identifier(name).upper() for name in names)


def c_identifier(name: str) -> str:
    """The name with _ for each character that a C identifier cannot contain."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def unique_names(names: Iterable[str]) -> list[str]:
    """The names, with _2, _3, ... after those that occur again."""
    taken: set[str] = set()
    result: list[str] = []
    for name in names:
        unique, n = name, 2
        while unique in taken:
            unique, n = f"{name}_{n}", n + 1
        taken.add(unique)
        result.append(unique)
    return result


def group_names(graph: Graph, groups: Sequence[GroupLayout]) -> list[tuple[str, str]]:
    """Names and titles of groups: LOSS and loss; O_LOGITS and logits for an output `logits`; GROUP_3 and group_3."""
    output_of = {n: output for output, nodes in graph.outputs.items() for n in nodes}
    names = []
    for stored in groups:
        roots = stored.group.roots.tolist()
        outputs = {output_of.get(n) for n in roots}
        (output,) = outputs if len(outputs) == 1 else (None,)
        if roots == [graph.loss]:
            names.append(("LOSS", "loss"))
        elif output is not None:
            names.append((f"O_{c_identifier(output).upper()}", output))
        else:
            names.append((f"GROUP_{stored.number}", f"group_{stored.number}"))
    unique = unique_names(name for name, _ in names)
    return [(name, title) for name, (_, title) in zip(unique, names, strict=True)]

"""Shapes -> runs: what a root adds up, as equal terms side by side.

Example input: the shape relu(sum(P, 784 x mul(P, X))) becomes two runs, 1 x P and 784 x mul(P, X), combined by add, and
relu on top of them. The leaves of a root are in the order of its runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from codegen.ir.graph import Op
from codegen.reroll.groups import Ints
from codegen.reroll.trees import Shapes


@dataclass(frozen=True)
class Run:
    """`count` equal terms of a sum (or the one expression of a root without a sum): columns of Group.leaves.

    `distance`: of its terms, in columns, where those of other runs are between them; else 0.
    """

    shape: int
    count: int
    kinds: list[int]
    column: int
    distance: int = 0

    def columns(self, leaves: Ints) -> Ints:
        """The run's part of a leaf matrix, as instances x terms x leaves of one term."""
        width = len(self.kinds)
        if not self.distance:
            part = leaves[:, self.column : self.column + self.count * width]
            return part.reshape(len(leaves), self.count, width)
        return leaves[:, self.column + self.distance * np.arange(self.count)[:, None] + np.arange(width)]

    def term(self, k: int) -> Run:
        """One of its terms."""
        return replace(self, count=1, column=self.column + k * (self.distance or len(self.kinds)), distance=0)


def split_shape(shapes: Shapes, shape: int, is_gradient: bool) -> tuple[list[Run], list[int], int | None]:
    """A root's shape as runs of terms, the unary ops on top of them, and how the terms are combined.

    A gradient is always a sum: of the old gradient and the term of this image.
    """
    if is_gradient and shapes.terms(shape) is None:
        old, term = shapes.operands(shape)
        return [Run(old, 1, [Op.GRAD], 0), Run(term, 1, shapes.kinds(term), 1)], [], Op.ADD
    post: list[int] = []
    top = shape
    while not shapes.is_leaf(top) and shapes.terms(top) is None and len(shapes[top]) == 2:
        post.insert(0, shapes[top][0])
        top = shapes[top][1]  # type: ignore[assignment]
    terms = shapes.terms(top)
    if terms is None:
        return [Run(shape, 1, shapes.kinds(shape), 0)], [], None
    result, column = [], 0
    for s, count in terms:
        result.append(Run(s, count, shapes.kinds(s), column))
        column += count * len(result[-1].kinds)
    return result, post, shapes[top][0]


def equal_rows(matrix: Ints) -> list[Ints]:
    """The row numbers of each different row, in the order of first appearance."""
    if (matrix == matrix[0]).all():
        return [np.arange(len(matrix))]
    rows: dict[bytes, list[int]] = {}
    for i, row in enumerate(np.ascontiguousarray(matrix)):
        rows.setdefault(row.tobytes(), []).append(i)
    return [np.array(found) for found in rows.values()]

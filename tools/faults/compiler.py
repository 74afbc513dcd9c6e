"""Faults of what comes before the schedule: the passes over scalars, the loops found again; and of what prints."""

from __future__ import annotations

from tools.faults.fault import Fault

FAULTS = [
    Fault(
        "a gradient that forgets what was there",
        "codegen/passes/autodiff.py",
        "before = graph.add(Op.GRAD, graph.a[n])",
        "before = graph.const(0.0)",
    ),
    Fault(
        "the operands of a derivative swapped",
        "codegen/passes/autodiff.py",
        "places = [n, graph.a[n], graph.b[n]]",
        "places = [n, graph.b[n], graph.a[n]]",
    ),
    Fault(
        "an exponent without a gradient",
        "codegen/passes/autodiff.py",
        "Slope.of(row, i) for i in range(row.arity)",
        "Slope.of(row, i) for i in range(1)",
    ),
    Fault(
        "the derivative by the left operand used for both",
        "micrograd/texts.py",
        "slope = op.slope(i, result, operands)",
        "slope = op.slope(0, result, operands)",
    ),
    Fault(
        "both operands of a tie get the gradient",
        "micrograd/translate.py",
        'ast.GtE: ">="',
        'ast.GtE: ">"',
    ),
    Fault(
        "an inverse power as a power of the inverse",
        "codegen/passes/powers.py",
        "graph.add(Op.DIV, graph.const(1.0), power(graph, x))",
        "power(graph, graph.add(Op.DIV, graph.const(1.0), x))",
        seed=28,
    ),
    Fault(
        "x * 0 folded to 0",
        "codegen/passes/simplify.py",
        "                if value == 1.0 if op",
        "                if value == 0.0 and op == Op.MUL:\n                    return x\n"
        "                if value == 1.0 if op",
        seed=64,
    ),
    Fault(
        "x * -1 taken for x",
        "codegen/passes/simplify.py",
        "if value == 1.0 if op == Op.MUL",
        "if abs(value) == 1.0 if op == Op.MUL",
    ),
    Fault(
        "nodes that share their first operand merged",
        "codegen/passes/simplify.py",
        "known[o].setdefault(x * size + y, n)",
        "known[o].setdefault(x * size + max(y, 0) // 2, n)",
    ),
    Fault(
        "a short form for an argument that is far from 0",
        "codegen/backends/c/printer.py",
        '"if (!beyond) {"',
        '"if (1) {"',
        test="tests/test_near.py",
    ),
    Fault(
        "a product on the right without parentheses",
        "codegen/backends/expressions.py",
        "{sign} {bound(operands[1], PRIMARY)}",
        "{sign} {bound(operands[1], PRODUCT)}",
    ),
    Fault(
        "rows that momentum moves without a gradient are skipped",
        "codegen/passes/updates.py",
        'elif pack("<d", graph.constants[graph.a[condition]]) != pack("<d", neutral):',
        "elif graph.constants[graph.a[condition]] > neutral:",
        test="tests/test_updates.py::test_which_rows_are_skipped_is_found_in_the_rule",
    ),
    Fault(
        "a rule that takes each step for the first",
        "codegen/passes/updates.py",
        "(Op.INPUT, found.of_step)",
        "(Op.INPUT, found.of_step[1:2] + found.of_step[1:])",
    ),
    Fault(
        "a nan that a maximum drops",
        "micrograd/translate.py",
        'ast.Or: "|"',
        'ast.Or: "&"',
    ),
    Fault(
        "frozen: a weight tensor that is read transposed",
        "codegen/passes/freeze.py",
        "arrays[tensor.name].ravel().tolist()",
        "arrays[tensor.name].T.ravel().tolist()",
    ),
    Fault(
        "a wrong stride of tensors with padding", "codegen/reroll/layout.py", "stride // by_axis.itemsize for", "1 for"
    ),
    Fault(
        "a wrong stride of the term loop",
        "codegen/reroll/affine.py",
        "loops.append(Loop(count, stride))",
        "loops.append(Loop(count, abs(stride)))",
    ),
    Fault(
        "a nest that covers one row too many",
        "codegen/reroll/affine.py",
        "int(regular.argmin()))",
        "int(regular.argmin()) + 1)",
    ),
    Fault(
        "tables that start at the second row",
        "codegen/reroll/affine.py",
        "offsets = rows - rows[0]",
        "offsets = rows - rows[1]",
    ),
    Fault(
        "a dropped term: the last of a chain",
        "codegen/reroll/trees.py",
        "parts = [operand(term) for term in reversed(terms)]",
        "parts = [operand(term) for term in reversed(terms[1:] if len(terms) > 4 else terms)]",
    ),
    Fault(
        "swapped operands of max",
        "codegen/reroll/trees.py",
        "tree = (intern((o, s, t)), s_leaves + t_leaves, s_size + t_size + 1)",
        "tree = (intern((o, t, s)), t_leaves + s_leaves, s_size + t_size + 1)",
    ),
    Fault(
        "terms added from the last to the first",
        "codegen/reroll/trees.py",
        "parts = [operand(term) for term in reversed(terms)]",
        "parts = [operand(term) for term in terms]",
    ),
    Fault(
        "a sum that takes in a sum on the right",
        "codegen/reroll/trees.py",
        "if 0 < tree[2] <= MAX_TREE or (tree[2] == 0 and sum_allowed):",
        "if tree[2] <= MAX_TREE:",
    ),
    Fault(
        "groups in the order of their nodes alone",
        "codegen/reroll/groups.py",
        "            if not waits[user]:",
        "            if waits[user] >= 0:",
    ),
    Fault(
        "an output that a prediction does not compute",
        "codegen/reroll/groups.py",
        "Pass.OUTPUTS: everything,",
        "Pass.OUTPUTS: everything[:1],",
    ),
    Fault(
        "depth within a component that ignores a leaf",
        "codegen/reroll/groups.py",
        "for leaf in leaves if leaf in inside and leaf != n",
        "for leaf in leaves[:1] if leaf in inside and leaf != n",
    ),
    Fault(
        "a padded row that is one element short",
        "codegen/reroll/layout.py",
        "shape[-1] = padded(shape[-1], layout.cache_line)",
        "shape[-1] = padded(shape[-1] - 1, layout.cache_line) if shape[-1] > 4 else shape[-1]",
    ),
    Fault(
        "terms that all read what the first reads",
        "codegen/reroll/loops.py",
        "first = int(self.nest.first[column]) + offset",
        "first = int(self.nest.first[column])",
    ),
    Fault(
        "a loop over two terms whose distance says nothing",
        "codegen/reroll/lower.py",
        "if piece.length == 2 and",
        "if len(offsets) == 2 and",
        test="tests/test_segments.py",
    ),
    Fault(
        "rows of a box as far apart as they are long",
        "codegen/reroll/boxes.py",
        "return rows * self.length + _within(self.counts)",
        "return rows * (self.length - 1) + _within(self.counts)",
        test="tests/test_boxes.py",
    ),
    Fault(
        "a box that reads outside of what its part reads",
        "codegen/reroll/boxes.py",
        "(whole.max(axis=0) > rows.max(axis=0)).any()",
        "False",
        test="tests/test_boxes.py",
    ),
    Fault(
        "terms in turns that advance unevenly",
        "codegen/reroll/segments.py",
        "(steps[0, period:] == steps[0, :-period]).all(axis=1)",
        "True",
        test="tests/test_segments.py",
    ),
    Fault(
        "terms in turns that instances take differently",
        "codegen/reroll/segments.py",
        "alike = (steps == steps[:1]).all(axis=(0, 2)) &",
        "alike = (steps == steps[:1]).any(axis=(0, 2)) &",
        test="tests/test_segments.py",
    ),
    Fault(
        "terms of two shapes in one run",
        "codegen/reroll/segments.py",
        "& (those.keys[period:] == those.keys[:-period])",
        "",
        test="tests/test_segments.py",
    ),
]

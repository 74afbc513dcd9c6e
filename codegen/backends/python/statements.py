"""Expression trees -> Python, one statement for each root: for small graphs.

Example input: the root relu(sum(P, 3 x mul(P, X))) becomes

    r0 = value[4] = relu(p12 + p0 * x0 + p1 * x1 + p2 * x2)
"""

from codegen.backends.python.kernels import INDENT, PASSES, assigned, expr_text, parameters, wrapped
from codegen.ir.graph import Graph, Op
from codegen.ir.loops import GRAD, VALUE, Apply, Const, Expr, Index, Name, Pass, Place
from codegen.program import Program
from codegen.reroll.groups import Ints, passes_of
from codegen.reroll.loops import tree
from codegen.reroll.runs import split_shape
from codegen.reroll.trees import Trees, find_trees

MOST_TERMS = 100  # of an expression, which is walked recursively
PART = "part"  # of a longer sum


class StraightLine:
    """A small graph, one statement for each root, with parameters, inputs, targets and roots in local variables.

    Names: p0, p1, ... parameters, x inputs, t targets, r the roots. `slots` maps a root to its index in value[], after
    inputs and targets; the roots of the loss come first.
    """

    def __init__(self, graph: Graph, program: Program, places: Ints) -> None:
        self.graph, self.places = graph, places
        self.trees: Trees = find_trees(graph)
        self.inputs, self.targets = len(program.input_values), len(program.target_leaves)
        masks = passes_of(graph, program.prediction)
        parameter_of = {n: i for i, n in graph.gradients.items() if self.trees.leaves_of[n] != (n,)}
        kept = set(graph.input_gradients.values())
        observed = [n for n in self.trees.roots if masks[n] & ~Pass.GRADIENTS or n in kept]
        adjoints = [n for n in self.trees.roots if n not in observed and n not in parameter_of]
        order = sorted(observed, key=lambda n: not masks[n] & Pass.LOSS)
        self.slots = {n: self.inputs + self.targets + i for i, n in enumerate(order)}
        self.of_loss = sum(bool(masks[n] & Pass.LOSS) for n in order)
        self.names = {n: f"r{i}" for i, n in enumerate([*order, *adjoints])}
        self.statements: list[tuple[int, list[str], set[str]]] = []  # which passes need it, its lines, what it reads
        for n in self.trees.roots:
            if n in parameter_of:
                target = f"{GRAD}[{places[parameter_of[n]]}]"
            elif n in self.names and (n in self.slots or self.trees.leaves_of[n] != (n,)):
                target = f"{self.names[n]} = {VALUE}[{self.slots[n]}]" if n in self.slots else self.names[n]
            else:
                continue
            self.statements.append((masks[n], *self.statement(n, target, n in parameter_of)))

    def statement(self, n: int, target: str, is_gradient: bool) -> tuple[list[str], set[str]]:
        """Its lines, and the local variables that it reads."""
        shapes = self.trees.shapes
        runs, post, combine = split_shape(shapes, self.trees.shape_of[n], is_gradient)
        kinds = [kind for run in runs for _ in range(run.count) for kind in run.kinds]
        operands = [self.operand(leaf, kind) for leaf, kind in zip(self.trees.leaves_of[n], kinds, strict=True)]
        leaves = iter(operands)
        terms = [tree(shapes, run.shape, leaves) for run in runs for _ in range(run.count)]
        adds = is_gradient and len(terms) == 2  # to the old gradient
        total, *others = terms[adds:]
        lines: list[str] = []
        for i, term in enumerate(others, 1):
            assert combine is not None
            total = Apply(combine, (total, term))
            if i % MOST_TERMS == 0:
                lines += assigned(PART, "=", expr_text(total))
                total = Name(PART)
        for op in post:
            total = Apply(op, (total,))
        names = {operand.name for operand in operands if isinstance(operand, Name)}
        return [*lines, *assigned(target, "+=" if adds else "=", expr_text(total))], names

    def operand(self, n: int, kind: int) -> Expr:
        number = self.graph.a[n]
        match kind:
            case Op.CONST:
                return Const(self.graph.constants[number])
            case Op.PARAM:
                return Name(f"p{self.places[number]}")
            case Op.GRAD:
                return Place(GRAD, Index(int(self.places[number])))
            case Op.INPUT:
                return Name(f"x{number}")
            case Op.TARGET:
                return Name(f"t{number}")
            case _:
                return Name(self.names[n])

    def functions(self) -> list[str]:
        lines: list[str] = []
        leaves = [f"x{i}" for i in range(self.inputs)] + [f"t{i}" for i in range(self.targets)]
        for name, need in PASSES.items():
            backward = bool(need & Pass.GRADIENTS)
            skip = Pass.LOSS if backward else Pass(0)  # forward() has computed these
            known = leaves + [f"r{i}" for i in range(self.of_loss)] if backward else leaves
            chosen = [statement for statement in self.statements if statement[0] & need and not statement[0] & skip]
            body = [line for _, found, _ in chosen for line in found]
            read = {name for *_, names in chosen for name in names}
            unpacked = [
                *unpack([f"p{i}" for i in range(len(self.places))], "data", read),
                *unpack(known, f"value[:{len(known)}]", read),
            ]
            lines += ["", "", f"def {name}({parameters(need)}):"]
            lines += [INDENT + line for line in [*unpacked, *body] or ["pass"]]
        return lines


def unpack(names: list[str], source: str, read: set[str]) -> list[str]:
    """Local variables for the elements of a list, if any of them is read."""
    if read.isdisjoint(names):
        return []
    if len(names) > 12:
        return ["(", *wrapped(", ".join(names) + ","), f") = {source}"]
    return [f"{', '.join(names)}{',' * (len(names) == 1)} = {source}"]

"""A graph that is coloured before it is drawn: a depth-first walk that leaves its marks in the nodes."""

from micrograd.engine import Value

WHITE, GREY, BLACK = "white", "grey", "black"


def nodes_of(root):
    found, stack = [], [root]
    while stack:
        n = stack.pop()
        if n not in found:
            found.append(n)
            stack.extend(n._prev)
    return found


def colour(root):
    for n in nodes_of(root):
        setattr(n, "_vis_color", WHITE)  # noqa: B010
        n._vis_depth = None

    def visit(n, depth):
        n._vis_color = GREY
        n._vis_depth = depth
        for child in n._prev:
            if getattr(child, "_vis_color", WHITE) == WHITE:
                visit(child, depth + 1)
        n._vis_color = BLACK

    visit(root, 0)


def to_dot(root):
    lines = ["digraph {", 'rankdir="LR"']
    for n in nodes_of(root):
        fill = "lightblue" if not n._prev else "salmon" if n.grad < 0 else "palegreen"
        n._vis_color = fill
        lines.append(f'{id(n)} [label="{n.label or n._op} {n.data:.2f}" style=filled fillcolor={n._vis_color}]')
        lines += [f"{id(child)} -> {id(n)}" for child in n._prev]
    return "\n".join([*lines, "}"])


def main():
    """The coloured nodes, their colours after the walk, and the picture's text."""
    a, b, c = Value(2.0, label="a"), Value(-3.0, label="b"), Value(10.0, label="c")
    out = (a * b + c) * (a - 5).tanh()
    out.label = "L"
    out.backward()
    colour(out)
    walked = [(n._vis_color, n._vis_depth) for n in nodes_of(out)]
    return nodes_of(out), walked, to_dot(out)


if __name__ == "__main__":
    print(main()[2])

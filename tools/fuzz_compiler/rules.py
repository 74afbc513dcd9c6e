"""Random rules of updates. Each is a seed's: the same seed gives the same rule.

Example: random_rule(Random(3).randrange(100)) may keep two numbers for each parameter, one of them the largest gradient
so far, and move the parameter by tanh(g) times a rate that fades away with the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from micrograd import ops, optim

FIRST = (0.0, 0.0, 0.0, 1.0, -0.5)
CONSTANTS = (0.1, 0.9, 0.999, -1.0, 2.0, 1e-8)
KNOWN: tuple[Callable[[], optim.Rule], ...] = (
    optim.sgd,
    lambda: optim.sgd(0.9),
    lambda: optim.sgd(0.5, nesterov=True, weight_decay=0.1),
    lambda: optim.adam(amsgrad=True),
    optim.adamw,
    lambda: optim.rmsprop(momentum=0.5, centered=True),
    optim.adagrad,
    optim.lion,
)
# None of them tells 0.0 from -0.0, which the compiler may exchange.
UNARY: tuple[Callable[[Any], Any], ...] = (
    lambda x: 0.9 * x,
    lambda x: -x,
    ops.tanh,
    ops.absolute,
    ops.relu,
    ops.step,
    lambda x: ops.sqrt(ops.absolute(x) + 1e-8),
    lambda x: ops.exp(-ops.absolute(x)),
    lambda x: 1.0 - ops.power(0.9, ops.absolute(x)),
)
BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x / (ops.absolute(y) + 1e-8),
    ops.maximum,
    ops.minimum,
)


def random_rule(seed: int) -> optim.Rule:
    """A rule of micrograd.optim, perhaps clipped, or an expression. Its name is this call."""
    rng = Random(seed)
    rule = rng.choice(KNOWN)() if rng.random() < 0.4 else _expression(seed, rng)
    if rng.random() < 0.2:
        rule = optim.clip_value(rule, 0.01)
    if rng.random() < 0.2:
        rule = optim.clip_norm(rule, 0.1)
    if rng.random() < 0.2:
        rule = optim.scale_rate(rule, 0.5)
    return optim.Rule(rule.function, rule.state, rule.rate, rule.takes_norm, f"random_rule({seed})")


def seed_of(rule: Any) -> int:
    """The seed of a random_rule()."""
    return int(rule.name.removeprefix("random_rule(").removesuffix(")"))


def _expression(seed: int, rng: Random) -> optim.Rule:
    state = {f"number_{k}": rng.choice(FIRST) for k in range(rng.choice([0, 0, 1, 1, 2, 3]))}
    length = rng.randint(0, 8)

    def function(p: Any, g: Any, state: tuple[Any, ...], step: Any, rate: Any) -> tuple[Any, tuple[Any, ...]]:
        draw = Random(seed)  # the same in each call
        pool = [p, g, g, *state, rate, step]
        for _ in range(length):
            if draw.random() < 0.4:
                pool.append(draw.choice(UNARY)(draw.choice(pool)))
            else:
                other = draw.choice([*pool, draw.choice(CONSTANTS)])
                pool.append(draw.choice(BINARY)(draw.choice(pool), other))
        move = draw.choice(pool)
        new = draw.choice([p - rate * g, p - rate * move, p - rate * move, p * 0.9 - rate * move, move])
        kept = [draw.choice([x, 0.9 * x + g, draw.choice(pool)]) for x in state]
        return new, tuple(kept)

    return optim.Rule(function, state)

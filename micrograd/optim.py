"""Optimisers as functions of numbers: what one step makes of one parameter.

    def rule(p, g, state, step, rate):
        ...
        return p, state

`p` is a parameter and `g` its gradient, divided by the size of the batch. `state` is a tuple of numbers that the rule
keeps for each parameter, `step` the number of the step, from 1, and `rate` the learning rate. A rule computes with
operators, with methods of Values and with the rows of micrograd.ops, which all take floats as well. `rule()` says what
its state is called and starts from:

    @rule(velocity=0.0)
    def heavy_ball(p, g, state, step, rate):
        (velocity,) = state
        velocity = 0.9 * velocity - rate * g
        return p + velocity, (velocity,)

`Optimizer` runs a rule over interpreted Values, `codegen.Program(update=heavy_ball)` compiles it, to the same bits.
A rule is traced once, so it cannot compare or branch on its arguments.

The formulas and defaults are those of torch.optim (PyTorch 2), whose documentation cites the papers; Lion's are those
of its authors. Some are rearranged: what depends on the step alone is computed once for all parameters.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from micrograd import ops, rows
from micrograd.engine import Value
from micrograd.order import creation
from micrograd.schedules import finite, whole

State: TypeAlias = "tuple[Any, ...]"
Function: TypeAlias = Callable[..., "tuple[Any, State]"]
Rules: TypeAlias = "Rule | Function | Mapping[str, Rule | Function]"

LEARNING_RATE = 0.1  # of rules that name none

# Momentum that fades away would end as denormal numbers, which make most processors tens of times slower. So each
# number of a state is rounded to a multiple of 2**-953 (in float32 of 2**-109): it comes back as (x + TINY) - TINY.
TINY, TINY_FLOAT32 = 2.0**-900, 2.0**-85


@dataclass(frozen=True)
class Rule:
    """A function, and what it needs to run.

    state   name -> first value, of each number that it keeps for a parameter
    rate    the learning rate of a Program or an Optimizer that names none
    takes_norm   whether the function has a sixth argument: the norm of the gradients of all parameters together
    """

    function: Function
    state: Mapping[str, float] = field(default_factory=dict)
    rate: float = LEARNING_RATE
    takes_norm: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"a rule is a function, not {type(self.function).__name__}")
        if not self.name:
            object.__setattr__(self, "name", getattr(self.function, "__name__", "rule"))
        if not isinstance(self.state, Mapping):
            raise TypeError(f"{self.name}: the state maps names to numbers, it is no {type(self.state).__name__}")
        for name, first in self.state.items():
            if not isinstance(name, str) or not name.isidentifier():
                raise ValueError(f"{self.name}: a number of the state has an identifier as its name, not {name!r}")
            if isinstance(first, bool) or not isinstance(first, int | float) or not math.isfinite(first):
                raise ValueError(f"{self.name}: {name} starts from a finite number, not from {first!r}")
        object.__setattr__(self, "state", {str(name): float(first) for name, first in self.state.items()})
        if isinstance(self.rate, bool) or not isinstance(self.rate, int | float) or not math.isfinite(self.rate):
            raise ValueError(f"{self.name}: the learning rate is a finite number, not {self.rate!r}")

    def __call__(self, p: Any, g: Any, state: State, step: Any, rate: Any, norm: Any = None) -> tuple[Any, State]:
        """What the function makes of a parameter and its state."""
        if not self.takes_norm:
            return self.function(p, g, state, step, rate)
        if norm is None:
            raise TypeError(f"{self.name} needs the norm of all gradients as its sixth argument")
        return self.function(p, g, state, step, rate, norm)

    def __repr__(self) -> str:
        return f"<rule {self.name}, state: {', '.join(self.state) or 'none'}>"


def rule(**state: float) -> Callable[[Function], Rule]:
    """A decorator: the names and first values of what the function keeps for each parameter."""
    return lambda function: Rule(function, state)


def as_rule(given: Rule | Function) -> Rule:
    """A rule, also of a plain function that keeps no state."""
    if getattr(given, "__module__", "") == __name__ and (name := getattr(given, "__qualname__", "")) in globals():
        raise TypeError(f"{name} makes a rule: write {name}()")
    return given if isinstance(given, Rule) else Rule(given)


# The rules


def sgd(momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0) -> Rule:
    """Gradient descent (torch.optim.SGD)."""
    _check("sgd", momentum=momentum, weight_decay=weight_decay)
    if nesterov and not momentum:
        raise ValueError("sgd: nesterov needs a momentum")

    def plain(p: Any, g: Any, state: State, step: Any, rate: Any) -> tuple[Any, State]:
        return p - rate * _decayed(p, g, weight_decay), ()

    def heavy(p: Any, g: Any, state: State, step: Any, rate: Any) -> tuple[Any, State]:
        g = _decayed(p, g, weight_decay)
        buffer = momentum * state[0] + g
        return p - rate * (g + momentum * buffer if nesterov else buffer), (buffer,)

    if not momentum:
        return Rule(plain, {}, 1e-3, name="sgd")
    return Rule(heavy, {"momentum_buffer": 0.0}, 1e-3, name="sgd")


def adam(
    betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0, amsgrad: bool = False
) -> Rule:
    """Adam (torch.optim.Adam; Kingma and Ba, 2015). `weight_decay` is added to the gradient."""
    _check("adam", betas, eps=eps, weight_decay=weight_decay)

    def adam(p: Any, g: Any, state: State, step: Any, rate: Any) -> tuple[Any, State]:
        return _adam(p, _decayed(p, g, weight_decay), state, step, rate, betas, eps)

    return Rule(adam, _ADAM | ({"max_exp_avg_sq": 0.0} if amsgrad else {}), 1e-3)


def adamw(
    betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False
) -> Rule:
    """Adam with decoupled weight decay (torch.optim.AdamW; Loshchilov and Hutter, 2019)."""
    _check("adamw", betas, eps=eps, weight_decay=weight_decay)

    def adamw(p: Any, g: Any, state: State, step: Any, rate: Any) -> tuple[Any, State]:
        return _adam(_shrunk(p, rate, weight_decay), g, state, step, rate, betas, eps)

    return Rule(adamw, _ADAM | ({"max_exp_avg_sq": 0.0} if amsgrad else {}), 1e-3)


_ADAM = {"exp_avg": 0.0, "exp_avg_sq": 0.0}


def _adam(
    p: Any, g: Any, state: State, step: Any, rate: Any, betas: tuple[float, float], eps: float
) -> tuple[Any, State]:
    """With an amsgrad's third number of state, or without. Both bias corrections are in `size` and `small`."""
    first, second = betas
    root = ops.sqrt(1.0 - ops.power(second, step))
    size, small = rate * root / (1.0 - ops.power(first, step)), eps * root
    mean = first * state[0] + (1.0 - first) * g
    square = second * state[1] + (1.0 - second) * (g * g)
    largest = tuple([ops.maximum(x, square) for x in state[2:]])
    return p - size * mean / (ops.sqrt((*largest, square)[0]) + small), (mean, square, *largest)


def rmsprop(
    alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0, momentum: float = 0.0, centered: bool = False
) -> Rule:
    """RMSprop (torch.optim.RMSprop; Hinton's lecture of 2012)."""
    _check("rmsprop", alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum)
    names = ("square_avg", *(["grad_avg"] if centered else []), *(["momentum_buffer"] if momentum else []))

    def rmsprop(p: Any, g: Any, state: State, step: Any, rate: Any) -> tuple[Any, State]:
        g, kept = _decayed(p, g, weight_decay), dict(zip(names, state, strict=True))
        square = kept["square_avg"] = alpha * kept["square_avg"] + (1.0 - alpha) * (g * g)
        if centered:
            mean = kept["grad_avg"] = alpha * kept["grad_avg"] + (1.0 - alpha) * g
            square = square - mean * mean
        move = g / (ops.sqrt(square) + eps)
        if momentum:
            move = kept["momentum_buffer"] = momentum * kept["momentum_buffer"] + move
        return p - rate * move, tuple(kept.values())

    return Rule(rmsprop, dict.fromkeys(names, 0.0), 1e-2)


def adagrad(
    lr_decay: float = 0.0, weight_decay: float = 0.0, initial_accumulator_value: float = 0.0, eps: float = 1e-10
) -> Rule:
    """Adagrad (torch.optim.Adagrad; Duchi, Hazan and Singer, 2011)."""
    _check("adagrad", lr_decay=lr_decay, weight_decay=weight_decay, initial=initial_accumulator_value, eps=eps)

    def adagrad(p: Any, g: Any, state: State, step: Any, rate: Any) -> tuple[Any, State]:
        g = _decayed(p, g, weight_decay)
        size = rate / (1.0 + (step - 1.0) * lr_decay) if lr_decay else rate
        total = state[0] + g * g
        return p - size * g / (ops.sqrt(total) + eps), (total,)

    return Rule(adagrad, {"sum": initial_accumulator_value}, 1e-2)


def lion(betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0) -> Rule:
    """Lion (Chen et al., Symbolic Discovery of Optimization Algorithms, 2023): steps of one size, signs of momentum.

    A parameter whose gradient is inf or nan becomes nan.
    """
    _check("lion", betas, weight_decay=weight_decay)

    def lion(p: Any, g: Any, state: State, step: Any, rate: Any) -> tuple[Any, State]:
        (mean,) = state
        move = betas[0] * mean + (1.0 - betas[0]) * g
        sign = ops.step(move) - ops.step(-move) + (move - move)
        return _shrunk(p, rate, weight_decay) - rate * sign, (betas[1] * mean + (1.0 - betas[1]) * g,)

    return Rule(lion, {"exp_avg": 0.0}, 1e-4)


def _decayed(p: Any, g: Any, weight_decay: float) -> Any:
    return g + weight_decay * p if weight_decay else g


def _shrunk(p: Any, rate: Any, weight_decay: float) -> Any:
    return p * (1.0 - rate * weight_decay) if weight_decay else p


def _check(name: str, betas: object = (0.0, 0.0), **numbers: object) -> None:
    """Raises TypeError or ValueError for what is no finite number >= 0, and for betas that are not below 1."""
    if not isinstance(betas, Sequence) or len(betas) != 2:
        raise TypeError(f"{name}: betas are two numbers, not {betas!r}")
    for what, number in [*(("betas", beta) for beta in betas), *numbers.items()]:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise TypeError(f"{name}: {what} must be an int or a float, not {number!r}")
        end, wanted = (1.0, "in [0, 1)") if what == "betas" else (math.inf, "finite and >= 0")
        if not 0 <= number < end:
            raise ValueError(f"{name}: {what} must be {wanted}, got {number}")


# Rules made of rules


def clip_value(given: Rule | Function, bound: float) -> Rule:
    """The rule, with gradients limited to -bound .. bound (torch.nn.utils.clip_grad_value_)."""
    inner = as_rule(given)
    _check("clip_value", bound=bound)

    def clipped(p: Any, g: Any, state: State, step: Any, rate: Any, *norm: Any) -> tuple[Any, State]:
        return inner(p, ops.minimum(ops.maximum(g, -bound), bound), state, step, rate, *norm)

    return replace(inner, function=clipped)


def clip_norm(given: Rule | Function, bound: float) -> Rule:
    """The rule, with all gradients scaled down together where their norm exceeds the bound
    (torch.nn.utils.clip_grad_norm_). The norm is that of all parameters, also of those that other rules update."""
    inner = as_rule(given)
    _check("clip_norm", bound=bound)

    def clipped(p: Any, g: Any, state: State, step: Any, rate: Any, norm: Any) -> tuple[Any, State]:
        share = ops.minimum(bound / (norm + 1e-6), 1.0)
        return inner(p, g * share, state, step, rate, *([norm * share] if inner.takes_norm else []))

    return replace(inner, function=clipped, takes_norm=True)


def scale_rate(given: Rule | Function, factor: float) -> Rule:
    """The rule, at a multiple of the learning rate."""
    inner = as_rule(given)
    _check("scale_rate", factor=factor)

    def scaled(p: Any, g: Any, state: State, step: Any, rate: Any, *norm: Any) -> tuple[Any, State]:
        return inner(p, g, state, step, rate * factor, *norm)

    return replace(inner, function=scaled)


def rules_of(given: Rules, names: Iterable[str]) -> dict[str, Rule]:
    """The rule of each tensor. A mapping has names or patterns like "*.bias"; the first that fits counts.

    Raises TypeError for what is no rule, ValueError for a tensor without one, and for a pattern that fits none.
    """
    names = list(names)
    if not isinstance(given, Mapping):
        return dict.fromkeys(names, as_rule(given))
    found: dict[str, Rule] = {}
    for pattern, each in given.items():
        if not isinstance(pattern, str):
            raise TypeError(f"rules are mapped from names of tensors, or patterns of names, not from {pattern!r}")
        fits = [name for name in names if name == pattern or fnmatchcase(name, pattern)]
        if not fits:
            raise ValueError(f"{pattern!r} fits none of the tensors {', '.join(names)}")
        chosen = as_rule(each)
        found |= {name: chosen for name in fits if name not in found}
    for name in names:
        if name not in found:
            raise ValueError(f"no rule fits the tensor {name!r}: add '*' at the end for all others")
    return {name: found[name] for name in names}


# What a rule is to others: expressions of Values


@dataclass(frozen=True)
class Traced:
    """A rule as Values: the leaves that stand for its arguments, and what becomes of a parameter and its state."""

    p: Value
    g: Value
    state: tuple[Value, ...]
    step: Value
    rate: Value
    norm: Value
    new_p: Value
    new_state: tuple[Value, ...]

    @property
    def of_step(self) -> tuple[Value, Value, Value]:
        """The leaves that are the same for all parameters."""
        return self.step, self.rate, self.norm

    @property
    def results(self) -> tuple[Value, ...]:
        return self.new_p, *self.new_state


def traced(given: Rule, tiny: float = TINY) -> Traced:
    """Calls a rule once. What it returns as its state, except what it has not changed, is rounded: see TINY.

    Raises TypeError or ValueError if it does not return a number and a tuple of numbers.
    """
    p, g, step, rate, norm = map(Value, (0.5, 0.25, 1.0, 0.125, 1.0))
    state = tuple([Value(first) for first in given.state.values()])
    try:
        result = given(p, g, state, step, rate, norm)
    except TypeError as error:
        raise TypeError(f"the rule {given.name} cannot be traced: {error}") from error
    except (IndexError, ValueError) as error:
        kept = ", ".join(given.state) or "none: @rule(name=0.0) declares one"
        raise ValueError(f"the rule {given.name} cannot be traced: {error}; its state is {kept}") from error
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"the rule {given.name} must return the parameter and a tuple of its state, not {result!r}")
    new_p, new_state = result
    if not isinstance(new_state, tuple | list):
        raise TypeError(f"the rule {given.name} must return its state as a tuple, not as {type(new_state).__name__}")
    if len(new_state) != len(state):
        raise ValueError(
            f"the rule {given.name} returned {len(new_state)} numbers of state, but it declares {len(state)}"
            f": {', '.join(given.state) or '@rule(name=0.0) declares one'}"
        )
    first, *numbers = [_as_value(given.name, x) for x in (new_p, *new_state)]
    settled = [x if x is old else x + tiny + -tiny for x, old in zip(numbers, state, strict=True)]
    found = Traced(p, g, state, step, rate, norm, first, tuple(settled))
    _check_leaves(given.name, found)
    _check_constants(given, found)
    return found


def _as_value(name: str, number: object) -> Value:
    if isinstance(number, Value):
        return number
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError(f"the rule {name} must return numbers, not {type(number).__name__}")
    return Value(number)


def _check_leaves(name: str, found: Traced) -> None:
    """Values from outside of the rule would be constants, which nobody expects of them."""
    known = {*found.state, found.p, found.g, *found.of_step}
    own = creation(found.results)
    oldest = min(leaf._id for leaf in known)
    for leaf in own:
        if not leaf._prev and leaf not in known and leaf._id < oldest:
            raise ValueError(f"the rule {name} reads {leaf!r}, a Value that is none of its arguments: use a float")


def _check_constants(given: Rule, found: Traced) -> None:
    """With other numbers, too, the rule must compute what its trace does."""
    others = [0.75 * leaf.data - 0.5 for leaf in (*found.of_step, found.p, found.g, *found.state)]
    step, rate, norm, p, g, *state = others
    steps = _Steps(found)
    steps.start(step, rate, norm)
    expected, *_ = steps.run(p, g, state)
    again, _ = given(Value(p), Value(g), tuple(map(Value, state)), *map(Value, (step, rate, norm)))
    if not (_as_value(given.name, again).data == expected or expected != expected):
        raise ValueError(f"the rule {given.name} computes with .data, which is a constant once traced: use Values")


class Optimizer:
    """Runs rules over the floats of interpreted Values.

    parameters   Values; for different rules, a mapping of names to (nested lists of) Values
    rule         a rule, or a mapping of names or patterns to rules: see rules_of()

    `state` is the rules' state: name -> a list with a number for each Value; with unnamed parameters the names are
    those of the rule. `steps` counts.
    """

    def __init__(
        self,
        parameters: Iterable[Value] | Mapping[str, Any],
        rule: Rules,
        learning_rate: float | None = None,
    ) -> None:
        named = parameters if isinstance(parameters, Mapping) else {"": parameters}
        self.tensors = {name: list(_elements(name, nested)) for name, nested in named.items()}
        every = [value for values in self.tensors.values() for value in values]
        if len(set(every)) < len(every):
            raise ValueError("one Value is among the parameters twice")
        self.rules = rules_of(rule, self.tensors)
        first = next(iter(self.rules.values()), Rule(sgd().function))
        self.learning_rate = first.rate if learning_rate is None else learning_rate
        self.steps = 0
        self._traced = {name: _Steps(traced(rule)) for name, rule in self.rules.items()}
        self.state = {
            f"{name}.{slot}".lstrip("."): [start] * len(self.tensors[name])
            for name, rule in self.rules.items()
            for slot, start in rule.state.items()
        }

    @property
    def learning_rate(self) -> float:
        """That of a step that is given none. Raises TypeError or ValueError when it is set to anything else."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._learning_rate = finite("learning_rate", rate)

    def zero_grad(self) -> None:
        for values in self.tensors.values():
            for value in values:
                value.grad = 0.0

    def step(self, batch_size: int = 1, learning_rate: float | None = None) -> None:
        """One step of every parameter, with the gradient grad / batch_size. Raises TypeError or ValueError."""
        rate = self.learning_rate if learning_rate is None else finite("learning_rate", learning_rate)
        batch_size = whole("batch_size", batch_size)
        gradients = {name: [x.grad / batch_size for x in values] for name, values in self.tensors.items()}
        takes_norm = any(rule.takes_norm for rule in self.rules.values())
        norm = global_norm([g for each in gradients.values() for g in each]) if takes_norm else 0.0
        self.steps += 1
        for name, values in self.tensors.items():
            steps = self._traced[name]
            steps.start(float(self.steps), rate, norm)
            slots = [self.state[f"{name}.{slot}".lstrip(".")] for slot in self.rules[name].state]
            for i, (value, g) in enumerate(zip(values, gradients[name], strict=True)):
                value.data, *numbers = steps.run(value.data, g, [slot[i] for slot in slots])
                for slot, number in zip(slots, numbers, strict=True):
                    slot[i] = number


class _Steps:
    """A traced rule that is computed again and again: first what all parameters share."""

    def __init__(self, found: Traced) -> None:
        self.traced = found
        leaves = {found.p, found.g, *found.state}
        self.shared: list[Value] = []
        self.own: list[Value] = []
        for node in creation(found.results):
            if node._prev:
                of_parameter = any(x in leaves for x in node._prev)
                (self.own if of_parameter else self.shared).append(node)
                if of_parameter:
                    leaves.add(node)

    def start(self, step: float, rate: float, norm: float) -> None:
        for leaf, number in zip(self.traced.of_step, (step, rate, norm), strict=True):
            leaf.data = number
        _compute(self.shared)

    def run(self, p: float, g: float, state: Sequence[float]) -> list[float]:
        found = self.traced
        found.p.data, found.g.data = p, g
        for leaf, number in zip(found.state, state, strict=True):
            leaf.data = number
        _compute(self.own)
        return [result.data for result in found.results]


def _compute(nodes: Iterable[Value]) -> None:
    for node in nodes:
        node.data = rows.FORWARD[node._op](node)


def _elements(name: str, nested: Any) -> Iterator[Value]:
    if isinstance(nested, Value):
        yield nested
        return
    if isinstance(nested, str) or not isinstance(nested, Iterable):
        raise TypeError(f"the parameters{f' {name!r}' if name else ''} must be Values, not {type(nested).__name__}")
    for inner in nested:
        yield from _elements(name, inner)


def global_norm(numbers: Sequence[float]) -> float:
    """The square root of the sum of squares, of which no bit depends on the order of the numbers.

    They are scaled so that the largest is below 1. Each square is cut into a multiple of a power of 2 and a rest: both
    are multiples of so large a number that none of the additions rounds (Demmel and Nguyen, Fast Reproducible
    Floating-Point Summation, 2013).
    """
    largest = 0.0
    for x in numbers:
        largest = ops.maximum.function(largest, abs(x))
    if not 0.0 < largest < math.inf:
        return largest
    exponent = max(math.frexp(largest)[1], -1000)
    scale = math.ldexp(1.0, -exponent)
    high, low = norm_cuts(len(numbers))
    total = rest = 0.0
    for x in numbers:
        square = (x * scale) * (x * scale)
        part = (square + high) - high
        total += part
        rest += ((square - part) + low) - low
    root = ops.sqrt.function(total + rest)
    return math.ldexp(root, exponent) if exponent + math.frexp(root)[1] <= 1024 else math.inf


def norm_cuts(count: int) -> tuple[float, float]:
    """What global_norm() adds and takes away: with so many numbers below 1, all sums are exact."""
    bits = max(count - 1, 0).bit_length() + 1
    return math.ldexp(1.0, bits), math.ldexp(1.5, 2 * bits - 52)

"""Learning rates that change from step to step: functions of the number of the step, which begins at 0.

`nn.train(learning_rate=...)` takes any function of the step, these or your own, and evaluates it for all steps of all
epochs before the first one; `nn.update(step, learning_rate=...)` calls it with the step. Each docstring names the class
of torch.optim.lr_scheduler whose formula it is. After the last step of a schedule its last rate stays. The functions of
micrograd.ieee make the same rates of them on every platform.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from numbers import Real
from operator import index
from typing import TypeAlias

from micrograd.ieee import cos, power

Schedule: TypeAlias = Callable[[int], float]


def constant(rate: float) -> Schedule:
    """Always the same rate."""
    rate = finite("rate", rate)
    return lambda step: rate


def step(rate: float, every: int, gamma: float = 0.1) -> Schedule:
    """rate * gamma ** (step // every), as StepLR(step_size=every) has it."""
    rate, every, gamma = finite("rate", rate), whole("every", every), finite("gamma", gamma)
    return lambda step: rate * power(gamma, float(step // every))


def cosine(rate: float, steps: int, lowest: float = 0.0) -> Schedule:
    """lowest + (rate - lowest) * (1 + cos(pi * step / steps)) / 2, as CosineAnnealingLR(T_max=steps) has it."""
    rate, steps, lowest = finite("rate", rate), whole("steps", steps), finite("lowest", lowest)
    return lambda step: _between(rate, lowest, min(step / steps, 1.0))


def linear_warmup(schedule: Schedule | float, steps: int, start: float = 0.0) -> Schedule:
    """A straight line from start * schedule(0) to schedule(0), which it reaches at `steps`; then the schedule begins.

    As SequentialLR has it with a LinearLR(start_factor=start, total_iters=steps) and another one after it.
    """
    steps, start = whole("steps", steps), finite("start", start)
    after = schedule if callable(schedule) else constant(schedule)
    return lambda step: after(step - steps) if step >= steps else after(0) * (start + (1 - start) * step / steps)


def one_cycle(
    highest: float, steps: int, pct_start: float = 0.3, div_factor: float = 25.0, final_div_factor: float = 1e4
) -> Schedule:
    """Up from highest / div_factor and down to highest / div_factor / final_div_factor, along half cosines.

    As OneCycleLR(max_lr=highest, total_steps=steps) has it: the highest rate is that of step pct_start * steps - 1, the
    lowest that of step steps - 1.
    """
    highest, steps, pct_start = finite("highest", highest), whole("steps", steps), finite("pct_start", pct_start)
    if not (div_factor and final_div_factor):
        raise ValueError(f"div_factor and final_div_factor must not be 0, got {div_factor} and {final_div_factor}")
    div_factor, final_div_factor = finite("div_factor", div_factor), finite("final_div_factor", final_div_factor)
    if not 0 < pct_start * steps - 1 < steps - 1:
        raise ValueError(
            f"one_cycle() needs a top between the first and the last step: with pct_start={pct_start} and "
            f"steps={steps}, it is at step {pct_start * steps - 1:g}"
        )
    first, top, last = highest / div_factor, pct_start * steps - 1, steps - 1
    lowest = first / final_div_factor

    def rate(step: int) -> float:
        if step <= top:
            return _between(first, highest, step / top)
        return _between(highest, lowest, min((step - top) / (last - top), 1.0))

    return rate


def rates(schedule: Schedule | float, steps: int) -> array[float]:
    """The rates of the steps 0..steps - 1: what `nn.train` uses, for a plot or a loop of your own."""
    rate = schedule if callable(schedule) else constant(schedule)
    return array("d", [rate(step) for step in range(whole("steps", steps, 0))])


def _between(first: float, last: float, part: float) -> float:
    """From the first to the last rate along half a cosine."""
    return last + (first - last) * ((1 + cos(math.pi * part)) / 2)


def whole(what: str, number: object, least: int = 1) -> int:
    """An int, or what has an __index__, but no bool. Raises TypeError or ValueError."""
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{what} must be an int, not {type(number).__name__}")
    if (found := index(number)) < least:
        raise ValueError(f"{what} must be at least {least}, got {found}")
    return found


def finite(what: str, number: object) -> float:
    """A finite number as a float. Raises TypeError or ValueError."""
    if isinstance(number, bool) or not isinstance(number, Real):
        raise TypeError(f"{what} must be a number, not {type(number).__name__}")
    try:
        found = float(number)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise ValueError(f"{what} must be finite, got {found}")
    return found

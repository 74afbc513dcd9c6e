"""What `micrograd train` trains: the model that the wheel carries, or one that is compiled on the spot."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from micrograd import optim, schedules
from micrograd.commands.command_line import whole
from micrograd.commands.inputs import add_model_argument, compiled_model, compiler, compiling, load_program
from micrograd.errors import UsageError
from micrograd.model import CLASSES, HIDDEN, PIXELS
from micrograd.schedules import Schedule

if TYPE_CHECKING:
    from codegen import Program

STEPS = ("optimizer", "momentum", "weight_decay")  # fields of a Recipe that only training has
ACTIVATIONS = ("relu", "tanh", "sigmoid")
DTYPES = ("float64", "float32")
MAX_UNITS = 10_000
RATE_OF_AN_IMAGE, MAX_RATE = 0.0125, 0.5  # of gradient descent: the rate is that of an image times the batch size
SGD = "sgd"
BUILT_IN = "codegen.mnist"  # the model with other layers
OPTIMIZERS = (SGD, "adam", "adamw", "rmsprop", "adagrad", "lion")  # of micrograd.optim

# schedule(rate, steps of the run)
SCHEDULES: dict[str, Callable[[float, int], Schedule]] = {
    "constant": lambda rate, steps: schedules.constant(rate),
    "step": lambda rate, steps: schedules.step(rate, every=-(-steps // 3)),
    "cosine": lambda rate, steps: schedules.cosine(rate, steps, lowest=rate / 100),
    "linear-warmup": lambda rate, steps: with_warmup(rate, steps, -(-steps // 10)),
    "one-cycle": lambda rate, steps: schedules.one_cycle(rate, steps),
}
SCHEDULE = "linear-warmup"  # by default
WITHOUT_END = ("constant",)  # these do not depend on the number of epochs


def with_warmup(rate: float, steps: int, warm: int) -> Schedule:
    return schedules.linear_warmup(schedules.cosine(rate, max(steps - warm, 1), lowest=rate / 100), warm)


def add_model(group: Any) -> None:
    """The options of which Recipe.of() makes a model."""
    add = group.add_argument
    add(
        "--hidden",
        type=whole(1, MAX_UNITS),
        nargs="+",
        metavar="N",
        help="units of the hidden layers, first to last (default: 50)",
    )
    add("--activation", choices=ACTIVATIONS, help="of the hidden layers (default: relu)")
    add_model_argument(add, "--model", what="instead, with 784 Pixels and a Label as the images have them: ")
    add("--dtype", choices=DTYPES, help="of the numbers (default: float64, or what --model says)")


@dataclass(frozen=True)
class Recipe:
    """What a model is made of, and how a step updates it."""

    model: str | None = None  # a Python file or module, instead of the next two
    hidden: tuple[int, ...] = HIDDEN
    activation: str = "relu"
    dtype: str | None = None
    optimizer: str | None = None  # gradient descent, or what the file says
    momentum: float = 0.0
    weight_decay: float = 0.0

    @classmethod
    def of(cls, options: argparse.Namespace) -> Recipe:
        """Of the options of a command that trains, or only takes a model. Raises UsageError if they contradict."""
        if options.model is not None:
            for option in ("hidden", "activation"):
                if getattr(options, option) is not None:
                    raise UsageError(f"--model excludes --{option}: the file says what the model is")
        steps = {name: getattr(options, name) for name in STEPS if name in options}
        return cls(
            model=options.model,
            hidden=tuple(options.hidden or HIDDEN),
            activation=options.activation or "relu",
            dtype=options.dtype,
            **steps,
        )

    @property
    def is_built_in(self) -> bool:
        """Whether it is `nn`, which needs no compiler."""
        plain = replace(self, dtype=None, optimizer=None)
        return plain == Recipe() and self.dtype in (None, "float64") and self.optimizer in (None, SGD)

    @property
    def has_rule(self) -> bool:
        """Whether the steps are not what the model itself says."""
        return self.optimizer is not None or self.momentum > 0 or self.weight_decay > 0

    def update(self) -> str:
        """How a step uses the gradients, in words."""
        if self.model is not None and not self.has_rule:
            return "its own optimizer"
        settings = {"momentum": self.momentum, "weight decay": self.weight_decay}
        return ", ".join([self.optimizer or SGD, *(f"{name} {value:g}" for name, value in settings.items() if value)])

    def program(self) -> Program:
        """Raises UsageError for a file without a Program, or with one for other data, and OSError."""
        compiler()
        from codegen import Label, Pixels, mnist

        if self.model is None:
            program = mnist.program(hidden=self.hidden, activation=self.activation)
        else:
            program = load_program(self.model)
            targets = program.targets
            if not (isinstance(program.inputs, Pixels) and len(program.input_values) == PIXELS):
                raise UsageError(f"{self.model}: its inputs must be {PIXELS} Pixels, as the images have them")
            if not (isinstance(targets, Label) and len(program.target_values) == CLASSES) or program.prediction is None:
                raise UsageError(f"{self.model}: its targets must be a Label of {CLASSES} classes, and a prediction")
        if self.dtype is not None:
            program = replace(program, dtype=self.dtype)
        if self.has_rule and self.optimizer is None and program.update is not None:
            raise UsageError(f"{self.model} has an optimizer: --momentum and --weight-decay are for one of --optimizer")
        return replace(program, update=self.rule()) if self.has_rule else program

    def rule(self) -> optim.Rule:
        options = {"momentum": self.momentum, "weight_decay": self.weight_decay}
        make: Callable[..., optim.Rule] = getattr(optim, self.optimizer or SGD)
        return make(**{name: value for name, value in options.items() if value})

    def compiled(self) -> Any:
        """The model. Raises ImportError and UsageError where it cannot be had."""
        if self.is_built_in:
            return compiled_model()
        codegen = compiler()
        with compiling(self.model or BUILT_IN):
            return codegen.compile(self.program())

    def default_rate(self, model: Any, batch_size: int) -> float:
        """The highest learning rate where none is given."""
        if self.optimizer not in (None, SGD):
            return self.rule().rate
        if self.model is not None:
            return float(model.info()["learning_rate"])
        return min(RATE_OF_AN_IMAGE * batch_size, MAX_RATE) * (1 - self.momentum)


def reset(model: Any, seed: int) -> None:
    """First weights: drawn with the seed, or those of a model that says no distribution."""
    try:
        model.reset(seed)
    except ValueError:
        model.reset()

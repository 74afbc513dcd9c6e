"""What a generated module declares before the hand-written part, for that part to be checked against."""

from __future__ import annotations

from collections.abc import Callable

VERSION: str
DESCRIPTION: str
DIGEST: str
LOWERING: str
INPUT_COUNT: int
INPUT_PIXELS: bool
INPUT_SHAPE: tuple[int, ...]
INPUT_PARTS: list[tuple[str, str, str, str, int, int, float]]  # see parts.py; empty unless inputs are converted
TARGET_PARTS: list[tuple[str, str, str, str, int, int, float]]
INPUT_TYPE: str
TARGET_TYPE: str
INPUT_SCALE: float
TARGET: int  # where the targets begin in value[]; the inputs begin at 0
INPUT_NOUN: str  # one example in messages: image or row
TARGETS_NOUN: str
TARGET_COUNT: int
TARGET_LABEL: bool
TARGET_SHAPE: tuple[int, ...]
SHIFT: tuple[int, int, int] | None  # by how many pixels images are moved in training, their height and width
NOISE: int  # where the noise begins in value[]
NOISES: list[tuple[int, float, float, float, float, float, float]]  # see NoiseRow in codegen/backends/shared.py
LABEL_FIRST: int  # the target that is a label, among all targets,
LABEL_COUNT: int  # and its classes; 0 if there is none
VALUE_COUNT: int
LOSS: int  # -1 in a model that only predicts
OUTPUTS: dict[str, list[int]]
PREDICTION: str | None
THRESHOLD: float | None
HAS_CLASSES: bool
METRICS: dict[str, int]  # their places in value[]
INPUT_GRADIENTS: dict[int, int] | None  # the places of those that are not always 0, if the model has them
INPUT_NAMES: list[tuple[str, int, int]]  # of parts, with their first input and how many they are
LEARNING_RATE: float
SEED: int
TENSORS: list[tuple[str, tuple[int, ...], int, tuple[int, ...], Numbers]]
INITIAL: dict[str, tuple[float, float, float, float]] | None  # low, high; if not 0, a normal distribution's deviation
INITIAL_DATA: list[float]
ROW_TENSORS: list[tuple[int, int, int, int]]  # offset, length of a row, lanes, first factor in value[]
DENSE_SPANS: list[tuple[int, int]]  # what is not in rows
RULES: list[Rule]
TENSOR_RULES: dict[int, int]  # offset of a tensor -> which rule
STATE: dict[str, tuple[str, int, float]]  # name of a number that a rule keeps -> tensor, slot, first value
STATE_SLOTS: int
NORM_CUTS: tuple[float, float] | None  # for the norm of all gradients, if a rule takes it

Numbers = list[int] | tuple[int, tuple[int, ...]]
Active = list[tuple[int, float]]
Pass = Callable[[list[float], list[float], Active], None]  # data, value, active
Rule = Callable[[list[float], list[float], list[list[float]], int, int, float, list[float]], None]

prepare_step: Callable[[float, float, float], list[float]]  # step, rate, norm -> what a step computes once
rows_stay: Callable[[list[float]], bool]
compute_loss: Pass
compute_prediction: Pass
compute_outputs: Pass
compute_evaluation: Pass
compute_metrics: Pass
compute_gradients: Callable[[list[float], list[float], list[float], Active], None]  # data, grad, value, active

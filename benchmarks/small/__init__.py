"""Small models of many kinds, against the frameworks and against other checkouts of this project."""

from __future__ import annotations

from typing import Any

import numpy as np

Named = dict[str, np.ndarray[Any, np.dtype[Any]]]  # parameters by name, float64

"""The elementary functions: their errors, their edges, and the same bits in Python and in C.

The references are tools/functions/exact.py's. tools/functions measures millions of arguments.
"""

from __future__ import annotations

import ast
import ctypes
import hashlib
import math
import platform
import random
import re
import struct
import sys
from collections.abc import Callable, Iterable
from decimal import Decimal, localcontext
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from setuptools._distutils.ccompiler import new_compiler
from setuptools._distutils.sysconfig import customize_compiler

from codegen.backends.expressions import Arithmetic
from codegen.backends.shared import csrc
from codegen.toolchain import compile_flags
from micrograd import ieee, ops
from micrograd.definitions import NEAR_FORMS, c_definitions, chain_of, lane_template, staged_definitions
from micrograd.ieee import float32
from micrograd.translate import FLOAT32_MODULES, MODULES, Library, Untranslatable, library, named_source, source_of
from tools.functions.edges import ANY, EDGES, POWERS
from tools.functions.exact import EXACT, PRECISION, error_of

INF, NAN = math.inf, math.nan
LEAST, LEAST_NORMAL, MOST = 5e-324, sys.float_info.min, sys.float_info.max
UNARY = ("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "softplus", "sin", "cos", "erf", "gelu")
DOMAIN = {
    "exp": (-745.2, 709.78), "expm1": (-60, 709.78), "log": (0, MOST), "log1p": (-1, MOST), "tanh": (-30, 30),
    "sigmoid": (-745.2, 60), "softplus": (-745.2, MOST), "sin": (-MOST, MOST), "cos": (-MOST, MOST), "erf": (-8, 8),
    "gelu": (-38.6, MOST),
}  # fmt: skip


def same(a: float, b: float) -> bool:
    """Equal by bits, but all nans are equal."""
    return (a != a and b != b) or struct.pack("<d", a) == struct.pack("<d", b)


def arguments(name: str, count: int = 120) -> list[float]:
    """Of all exponents, and from the range of most interest."""
    rng = random.Random(name)
    low, high = DOMAIN[name]
    found = [math.ldexp(rng.choice((1, -1)) * rng.uniform(1, 2), rng.randint(-1074, 1023)) for _ in range(count)]
    found += [math.ldexp(rng.choice((1, -1)) * rng.uniform(1, 2), rng.randint(-12, 12)) for _ in range(count)]
    found += [rng.uniform(max(low, -50.0), min(high, 50.0)) for _ in range(count)]
    found += [rng.uniform(max(low, -1000.0), min(high, 1000.0)) for _ in range(count)]
    found += [LEAST, -LEAST, LEAST_NORMAL, -LEAST_NORMAL, 0.5, 2.0]
    return [x for x in found if low < x < high]


def bound(name: str) -> float:
    """The error that a function's docstring admits."""
    (found,) = re.findall(r"(?:within|error below) ([\d.]+) ulp", getattr(ieee, name).__doc__, re.IGNORECASE)
    return float(found)


def test_the_references():
    """Against values from tables, so that both do not err together."""
    with localcontext() as context:
        context.prec = PRECISION
        for name, x, digits in [
            ("exp", "1", "2.7182818284590452353602874713526624977572"),
            ("expm1", "1e-30", "1.0000000000000000000000000000005000000000e-30"),
            ("log1p", "1e-30", "0.9999999999999999999999999999995000000000e-30"),
            ("tanh", "0.5", "0.46211715726000975850231848364367254873029"),
            ("sin", "1e22", "-0.85220084976718880177270589375302936826"),
            ("cos", "1e22", "0.52321478539513894549759447338470949214"),
            ("erf", "0.5", "0.52049987781304653768274665389196452874"),
            ("erf", "3", "0.99997790950300141455862722387041767962"),
            ("gelu", "-1", "-0.15865525393145705141476745436796207752"),
        ]:
            assert abs(EXACT[name](Decimal(x)) / Decimal(digits) - 1) < Decimal("1e-33"), name


@pytest.mark.parametrize("name", UNARY)
def test_errors(name: str):
    function, worst, at = getattr(ieee, name), 0.0, 0.0
    found = arguments(name)
    assert len(found) > 150
    for x in found:
        error = error_of(name, (x,), function(x))
        if not error <= worst:
            worst, at = error, x
    assert 0.3 < worst <= bound(name), f"{name}({at!r})"


HARD = [  # where the parts of a quotient's correction are barely exact
    ("tanh", 1e-17, 1e-14),
    ("tanh", 3.9e-9, 4.1e-9),
    ("tanh", 0.17, 0.26),
    ("tanh", 17.5, 20.5),
    ("sigmoid", -40.0, -25.0),
    ("sigmoid", -33.62, -33.61),
    ("sigmoid", 25.0, 40.0),
    ("sigmoid", -745.2, -708.0),
]


@pytest.mark.parametrize(("name", "low", "high"), HARD)
def test_errors_where_a_quotient_is_hard_to_correct(name: str, low: float, high: float):
    function, rng = getattr(ieee, name), random.Random(9)
    for _ in range(400):
        x = rng.uniform(low, high)
        assert error_of(name, (x,), function(x)) <= bound(name), x
        assert function(x) <= function(math.nextafter(x, INF)), x


def test_errors_of_power():
    rng = random.Random(1)
    pairs = []
    for _ in range(400):
        x = rng.choice((rng.uniform(0.5, 2.0), math.ldexp(rng.uniform(1, 2), rng.randint(-1074, 1023))))
        pairs.append((x, rng.uniform(-744.0, 709.0) / (math.log(x) or 1.0)))
    pairs += [(rng.uniform(0, 10), rng.uniform(-5, 5)) for _ in range(200)]
    pairs += [(1 + LEAST_NORMAL**0.04, 1e12), (LEAST, -0.7), (LEAST, 0.99), (1.7, 3.5)]
    for pair in pairs:
        assert error_of("power", pair, ieee.power(*pair)) <= bound("power"), pair


def test_powers_as_they_are_written_by_hand():
    rng = random.Random(2)
    edges = [0.0, -0.0, INF, -INF, 1e200, -1e-200, LEAST]
    for x in [*edges, *[rng.uniform(-10, 10) for _ in range(100)]]:
        for y, written in [(1.0, x), (2.0, x * x), (3.0, x * x * x), (4.0, (x * x) * (x * x))]:
            assert same(ieee.power(x, y), written)
            assert same(ieee.power(x, -y), ieee.divide(1.0, written))
        root = ieee.square_root(x)
        assert same(ieee.power(x, 0.5), root)
        assert same(ieee.power(x, -0.5), ieee.divide(1.0, root))
        assert same(ieee.power(x, 0.0), 1.0)


BITS = {  # of float64 and of float32
    "exp": ("262f943a", "a2321a85"),
    "expm1": ("b0e567d6", "665f8426"),
    "log": ("9a34cb57", "875f6f6b"),
    "log1p": ("df9666e3", "2ea9b98a"),
    "tanh": ("9989c75f", "7b835656"),
    "sigmoid": ("da204c39", "3ff389cd"),
    "softplus": ("2d3c25e1", "fcff138c"),
    "sin": ("6cb0e443", "5f96aad4"),
    "cos": ("8bf32755", "e8efd1fc"),
    "erf": ("5b26dde4", "93497077"),
    "gelu": ("fbb1d858", "131620a0"),
    "power": ("4937df4d", "498e049f"),
}


def digest(results: Iterable[float]) -> str:
    """Of the bits, but for those of nans."""
    return hashlib.sha256(b"".join(struct.pack("<d", NAN if y != y else y) for y in results)).hexdigest()[:8]


@pytest.mark.parametrize("name", [*UNARY, "power"])
def test_every_release_has_the_same_bits(name: str):
    """A model trains to the same weights with every version. New digests are a change that users notice."""
    rng = random.Random(5)
    x = [sign * math.ldexp(1 + rng.random(), rng.randint(-9, 9)) for _ in range(600) for sign in (1, -1)]
    x += [sign * math.ldexp(1 + rng.random(), rng.randint(-99, 99)) for _ in range(300) for sign in (1, -1)]
    x += [-700 - 46 * rng.random() for _ in range(300)] + [-708 - 2 * rng.random() for _ in range(300)]
    rng.shuffle(x)
    found = []
    for function, numbers in [(getattr(ieee, name), x), (in_float32(name), [float(np.float32(y)) for y in x[:600]])]:
        operands = [[*map(abs, numbers)], numbers[::-1]] if name == "power" else [numbers]
        with np.errstate(all="ignore"):
            found.append(digest(map(function, *operands)))
    assert tuple(found) == BITS[name]


# Edges


def in_float32(name: str) -> Callable[..., float]:
    """The float32 function, of numbers that float32 holds; those without a kink have one of their own."""
    function = getattr(float32, name, None) or getattr(ieee, name)
    return lambda *operands: float(np.float32(function(*map(np.float32, operands))))


def near(found: float, expected: float) -> bool:
    """The same number of float64, or the same after rounding to float32."""
    return same(found, expected) or same(found, float(np.float32(expected)))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_edges(dtype: str):
    for name, edges in EDGES.items():
        function = getattr(ieee, name) if dtype == "float64" else in_float32(name)
        with np.errstate(all="ignore"):
            for x, expected in [*edges, (NAN, NAN)]:
                assert near(function(x), expected), f"{name}({x!r}) is {function(x)!r}"
    power = ieee.power if dtype == "float64" else in_float32("power")
    with np.errstate(all="ignore"):
        for x, y, expected in POWERS:
            assert near(power(x, y), expected), f"power({x!r}, {y!r}) is {power(x, y)!r}"


def test_the_last_finite_and_the_first_results():
    below = math.nextafter
    assert ieee.exp(709.782712893384) == float.fromhex("0x1.fffffffffff2ap+1023")
    assert ieee.exp(below(709.782712893384, INF)) == ieee.expm1(below(709.782712893384, INF)) == INF
    assert ieee.exp(-745.1332191019411) == LEAST
    assert ieee.exp(-745.1332191019412) == ieee.sigmoid(-745.1332191019412) == ieee.softplus(-745.1332191019412) == 0.0
    assert same(ieee.gelu(-LEAST), -0.0)
    assert [ieee.power(-1.0, 2.0**53 + i) for i in (-2, -1, 0)] == [1.0, -1.0, 1.0]
    for name in ("expm1", "log1p", "tanh", "sin"):
        assert getattr(ieee, name)(LEAST) == LEAST
    assert ieee.log(MOST) == 709.782712893384
    assert ieee.log(LEAST) == -744.4400719213812


# float32


def spacing(exact: np.ndarray) -> np.ndarray:
    """float32's unit in the last place of float64 numbers."""
    nearest = exact.astype(np.float32)
    nearest = np.where(np.abs(nearest) > np.abs(exact), np.nextafter(nearest, np.float32(0)), nearest)
    return np.spacing(np.abs(nearest)).astype(np.float64)


def float32_arguments(name: str, count: int = 150) -> np.ndarray:
    rng = np.random.default_rng(7)
    low, high = DOMAIN.get(name, (0.0, MOST))
    parts = [rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)]
    parts += [rng.uniform(max(low, -limit), min(high, limit), count).astype(np.float32) for limit in (2.0, 20.0, 110.0)]
    x = np.concatenate(parts)
    return x[np.isfinite(x) & (x > np.float64(low)) & (x < np.float64(high))]


@pytest.mark.parametrize("name", [*UNARY, "power"])
def test_errors_of_float32(name: str):
    x = float32_arguments(name)
    rng = np.random.default_rng(8)
    with np.errstate(all="ignore"):
        y = (rng.uniform(-100.0, 88.0, len(x)) / np.log(x)).astype(np.float32)
        operands = [x, np.where(rng.random(len(x)) < 0.5, y, rng.uniform(-5, 5, len(x)).astype(np.float32))]
        operands = operands if name == "power" else operands[:1]
        single, double = getattr(float32, name), getattr(ieee, name)
        found = [single(*numbers) for numbers in zip(*operands, strict=True)]
        exact = np.array([double(*map(float, numbers)) for numbers in zip(*operands, strict=True)])
        assert {type(y) for y in found} <= {np.float32, float}  # a float is a constant result
        finite = np.abs(exact) < np.finfo(np.float32).max
        error = np.abs(np.array(found, np.float64) - exact)[finite] / spacing(exact[finite])
        assert finite.sum() > 200
        assert error.max() <= 1.0, [float(numbers[finite][error.argmax()]).hex() for numbers in operands]


# C

ROWS = [row for row in ops.ROWS if row.c.endswith(")") and not row.is_registered]
BUILDS = [
    pytest.param("-O0", "float64", marks=pytest.mark.slow),
    ("-O0", "float32"),
    ("-O3", "float64"),
    pytest.param("-O3", "float32", marks=pytest.mark.slow),
]


def source(dtype: str) -> str:
    """Each function in lanes, as it is called elsewhere, and in stages if it has any."""
    arithmetic = Arithmetic(dtype)
    lines = [f"#define FLOAT32 {int(dtype == 'float32')}", "#define AT_LEVEL(name) name", '#include "ops.h"']
    lines += c_definitions(ROWS, arithmetic.literal, arithmetic.is_float32)
    lines += staged_definitions(_staged(dtype), arithmetic.literal, arithmetic.is_float32)
    for row in ROWS:
        operands = ["x[i]", "z[i]"][: row.arity]
        ways = {"lanes": lane_template(row, arithmetic.is_float32).format(*operands), "single": row.c.format(*operands)}
        for way, call in ways.items():
            lines += [f"void {way}_{row.name}(const real *restrict x, const real *restrict z, real *restrict y, int n)"]
            lines += [f"{{ (void)z; for (int i = 0; i < n; i++) y[i] = {call}; }}"]
    for row in _staged(dtype):
        lines += [f"void staged_{row.name}(const real *restrict x, const real *restrict z, real *restrict y, int n)"]
        lines += ["{", "    int i = n - n % CACHE_LINE;", "    (void)z;", "    memcpy(y, x, (size_t)i * sizeof(real));"]
        lines += [
            f"    each_{row.name}(y, n / CACHE_LINE);",
            f"    for (; i < n; i++) y[i] = op_{row.name}(x[i]);",
            "}",
        ]
    return "\n".join(lines) + "\n"


def _staged(dtype: str) -> list[ops.Row]:
    return [row for row in ROWS if chain_of(row, dtype == "float32")]


def compiled(text: str, folder: Path, optimisation: str) -> ctypes.CDLL:
    """A C file as a library: with -O3 in the vectors of this processor."""
    (folder / "functions.c").write_text(text)
    compiler = new_compiler()
    customize_compiler(compiler)
    flags = [
        flag for flag in compile_flags(compiler.compiler_type) if flag not in ("-O3", "/O2", "-fvisibility=hidden")
    ]
    if compiler.compiler_type == "msvc":
        flags += ["/Od" if optimisation == "-O0" else "/O2"]
    else:
        is_x86 = platform.machine().lower() in ("x86_64", "amd64")  # elsewhere the baseline has vectors
        native = ["-march=native"] if is_x86 and optimisation == "-O3" else []
        flags += [optimisation, *native, "-Wall", "-Wextra", "-Werror"]
    objects = compiler.compile(
        [str(folder / "functions.c")], str(folder), include_dirs=[str(csrc())], extra_postargs=flags
    )
    path = folder / ("functions.dll" if sys.platform == "win32" else "functions.so")
    exported = re.findall(r"^void (\w+)\(", text, flags=re.MULTILINE)
    compiler.link_shared_object(objects, str(path), export_symbols=exported)
    return ctypes.CDLL(str(path))


def many_arguments(dtype: type, count: int) -> tuple[np.ndarray, np.ndarray]:
    """All kinds of numbers, and every pair of the odd ones."""
    rng = np.random.default_rng(3)
    width = np.dtype(dtype).itemsize * 8
    patterns = rng.integers(0, 2**width, 2 * count, dtype=f"uint{width}").view(dtype)
    ranges = [rng.uniform(-limit, limit, 2 * count).astype(dtype) for limit in (1.5, 40.0, 750.0)]
    whole = rng.integers(-9, 10, 2 * count).astype(dtype)
    info = np.finfo(dtype)
    odd = [
        *ANY,
        0.5,
        -0.5,
        1.5,
        -1.5,
        2.0,
        3.0,
        -3.0,
        4.0,
        5.0,
        1e5,
        info.max,
        -info.max,
        info.tiny,
        info.smallest_subnormal,
    ]
    pairs = np.array(list(product(odd, odd)), dtype).T
    numbers = np.concatenate([patterns, *ranges, whole])
    x, z = rng.permutation(numbers).reshape(2, -1)
    return np.concatenate([x, pairs[0]]), np.concatenate([z, pairs[1]])


@cache
def expected(dtype: str) -> dict[str, np.ndarray]:
    """Python's results."""
    x, z = many_arguments(np.dtype(dtype).type, 500 if dtype == "float64" else 150)
    found = {}
    with np.errstate(all="ignore"):
        for row in ROWS:
            name = row.function.__name__
            function = getattr(ieee, name) if dtype == "float64" else in_float32(name)
            operands = [x.tolist(), z.tolist()][: row.arity]
            found[row.name] = np.array([function(*numbers) for numbers in zip(*operands, strict=True)], dtype)
    return found


def differing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where the bits differ, but for those of nans."""
    return np.nonzero(
        (a.view(f"uint{a.itemsize * 8}") != b.view(f"uint{b.itemsize * 8}")) & ~(np.isnan(a) & np.isnan(b))
    )[0]


@pytest.mark.parametrize(("optimisation", "dtype"), BUILDS)
def test_c_has_pythons_bits(tmp_path: Path, optimisation: str, dtype: str):
    loaded = compiled(source(dtype), tmp_path, optimisation)
    x, z = many_arguments(np.dtype(dtype).type, 500 if dtype == "float64" else 150)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, z)]
    ways = [*product(ROWS, ("lanes", "single")), *product(_staged(dtype), ("staged",))]
    for row, way in ways:
        y = np.empty_like(x)
        getattr(loaded, f"{way}_{row.name}")(*pointers, ctypes.c_void_p(y.ctypes.data), len(x))
        wrong = differing(y, expected(dtype)[row.name])
        assert not len(wrong), f"{way}, {row.name}({x[wrong[0]]!r}, {z[wrong[0]]!r}): {len(wrong)} differ"


@pytest.mark.parametrize("language", ["python", "c"])
def test_the_listings_of_the_page_are_current(language: str):
    page = (Path(__file__).resolve().parent.parent / "docs" / "functions.md").read_text(encoding="utf-8")
    definitions = source("float64") if language == "c" else "\n".join(library().sources.values())
    listings = re.findall(rf"```{language}\n(.*?)\n```", page, flags=re.DOTALL)
    assert listings
    assert all(listing in definitions for listing in listings)


# The translator


def translated(text: str, name: str = "f") -> str:
    return "\n".join(Library.of(text).translated(name, repr))


def test_a_function_becomes_straight_line_c():
    text = 'def f(x: float) -> float:\n    """Doubles."""\n    y = x + x\n    y = y * 1.5\n    return y - x\n'
    assert translated(text).splitlines() == [
        "/* Doubles. */",
        "INLINED real ieee_f(real x)",
        "{",
        "    const real y = x + x;",
        "    const real y_2 = y * 1.5;",
        "    return y_2 - x;",
        "}",
    ]


def test_early_returns_become_selections():
    text = """
def f(x: float) -> float:
    if x > 1.0:
        return 2.0
    y = x * x
    if y != y or x < -1.0:
        return y + 1.0
    return y
"""
    assert translated(text).splitlines()[2:-1] == [
        "    const real y = x * x;",
        "    const real chosen = y + 1.0;",
        "    const real result = ((y != y) | (x < -1.0)) ? chosen : y;",
        "    const real result_2 = (x > 1.0) ? 2.0 : result;",
        "    return result_2;",
    ]


def test_no_variable_is_a_word_of_c_or_a_macro_of_windows():
    text = "def f(double: float) -> float:\n    far = double + 1.0\n    op_exp = far * far\n    return op_exp\n"
    assert translated(text).splitlines() == [
        "INLINED real ieee_f(real double_)",
        "{",
        "    const real far_ = double_ + 1.0;",
        "    const real op_exp_ = far_ * far_;",
        "    return op_exp_;",
        "}",
    ]


def test_several_results_and_those_that_nobody_reads():
    text = """
def _parts(x: float) -> tuple[float, float]:
    if x > 1.0:
        return 1.0, x
    return x, 0.0


def f(x: float) -> float:
    unused = x * x
    first, _second = _parts(x)
    return first
"""
    parts, function = translated(text, "_parts"), translated(text)
    assert "struct ieee_parts { real result_0; real result_1; };" in parts
    assert "const real result_2 = (x > 1.0) ? x : 0.0;" in parts
    assert "const struct ieee_parts all = {result, result_2};" in parts
    assert "return all;" in parts
    assert "unused" not in function
    assert "second" not in function
    assert "const real first = parts.result_0;" in function


BAD = [
    ("for i in range(3):\n        x = x + 1.0\n    return x", "for i in range", "only assignments"),
    ("if x > 1.0:\n        x = 2.0\n    return x", "if x > 1.0", "only assignments"),
    ("return 1.0 if x else 2.0 ** x", "2.0 ** x", "not a form"),
    ("return x // 2.0", "x // 2.0", "not a form"),
    ("return True", "True", "not a form"),
    ("return y", "y", "not a form"),
    ("return other(x)", "other(x)", "other is no definition"),
    ("return math.sin(x)", "math.sin(x)", "sin is no definition"),
    ("return from_bits(to_bits(x) + x)", "to_bits(x) + x", "real_bits and real"),
    ("if x:\n        return 1.0\n    return x", "x", "no condition"),
    ("return 0.0 < x < 1.0", "0.0 < x < 1.0", "not a form"),
]


@pytest.mark.parametrize(("body", "expression", "reason"), BAD, ids=[expression for _, expression, _ in BAD])
def test_what_is_not_translated(body: str, expression: str, reason: str):
    with pytest.raises(Untranslatable, match=rf"^f: '{re.escape(expression)}.*' cannot be written as C: .*{reason}"):
        translated(f"def f(x: float) -> float:\n    {body}\n")


@pytest.mark.parametrize("head", ["def f(x) -> float:", "def f(x: str) -> float:", "def f(x: float):"])
def test_annotations_are_needed(head: str):
    with pytest.raises(Untranslatable, match="must be annotated"):
        translated(f"{head}\n    return x\n")


def test_sources_that_cannot_be_had():
    scale = 2.0
    with pytest.raises(Untranslatable, match="not a plain function"):
        source_of(lambda x: x * scale, "f")
    with pytest.raises(Untranslatable, match="not a plain function"):
        source_of(math.sin, "f")
    with pytest.raises(Untranslatable, match="not one def"):
        named_source("x = 1\ny = 2\n", "f")
    with pytest.raises(Untranslatable, match="not a def"):
        named_source("x = 1\n", "f")


def definitions(module: str) -> Iterable[tuple[str, str]]:
    """The names that a module of micrograd.ieee defines, and their text."""
    for node in ast.parse(Path(ieee.__file__).with_name(f"{module}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign | ast.FunctionDef):
            yield (node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node.targets[0])), ast.unparse(node)


def test_names_are_unique_among_the_modules_of_float64():
    """The library merges the modules, and generated Python has all of them in one."""
    names = [name for module in MODULES for name, _ in definitions(module)]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("is_float32", [False, True])
def test_every_definition_is_used(is_float32: bool):
    known = library(is_float32=is_float32)
    needed = known.needed([*(row.function.__name__ for row in ROWS), *NEAR_FORMS.values()])
    own = [name for module in FLOAT32_MODULES for name, _ in definitions(module)] if is_float32 else known.functions
    constants = {name for name in (own if is_float32 else known.constants) if name in known.constants}
    assert {name for name in own if name in known.functions} - set(needed) <= {"divide", "to_bits", "from_bits"}
    assert constants - set(known.used_constants(needed)) == set()

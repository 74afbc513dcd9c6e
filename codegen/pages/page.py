"""A Program and its weights -> one HTML file that runs the model, and trains it, without a server or a network.

The page has the model as WebAssembly, compiled from the plain C of codegen/backends/c. For inputs that are pictures one
draws; for all others there is a form. What page.js is told about the model is a JSON text:

    title, wasm             the latter compressed, in base64
    dtype                   of the numbers that WebAssembly takes and gives
    inputs, targets         kind, name and count of each part; ranges of sliders
    trains                  whether it does, or only predicts
    picture                 what is drawn: its height, width and box, and the numbers of no and of full ink; or null
    outputs, main           name and count of each output, and which is shown on top
    classCount, classes     of the prediction, 0 if it has none; what they are called, or null
    weights                 the parameters, stored narrow; null where they are constants in the code
    rate, looks             the learning rate; whether there are gradients of the prediction by the inputs
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen import checks
from codegen.backends.expressions import Arithmetic
from codegen.build import narrowed
from codegen.kinds import Part, Pixels, types_text
from codegen.passes.freeze import frozen_program, narrow, set_weights, weights_of
from codegen.passes.mistakes import ModelWarning
from codegen.pipeline import compile_program
from codegen.program import STORAGES, Array, Program
from codegen.toolchain import CompilerError, run_compiler, zig_command
from micrograd.engine import Value
from micrograd.files import write_if_changed

Rows = npt.NDArray[np.float64]

MAX_FIELDS = 256  # of a form
MIN_SIDE = 5  # pixels of a picture that one can draw
BOX = 20 / 28  # of a side: MNIST's digits fit into 20 x 20 of 28 x 28 pixels
FAINT = 0.1  # of full ink: less is paper
CHANNELS = (1, 3, 4)  # of a picture whose shape has three axes
HOW_TO_GET_CLANG = """\
It takes clang with wasm-ld, or zig:
    any system       pip install 'micrograd-nn[compiler]'
    Debian, Ubuntu   apt install clang lld
    Fedora           dnf install clang lld
    macOS            brew install llvm lld"""

WASM_FLAGS = [
    "-std=c11",
    "-O3",
    "-msimd128",
    "-mbulk-memory",  # memory.copy instead of calls of memcpy()
    "-ffp-contract=off",
    "-fno-trapping-math",
    "-ffreestanding",
    "-nostdlib",
    "-DMODEL_NO_WEIGHTS",  # the page brings them
    "-Wl,--no-entry",
    "-Wl,--strip-all",
]


@dataclass(frozen=True)
class Picture:
    """The only input, if it is drawn: its last two axes, and the numbers of an empty and of a full pixel.

    Drawings are scaled to fit into a box of this height and width.
    """

    height: int
    width: int
    low: float
    high: float
    box: tuple[int, int]


def write_page(
    program: Program,
    path: str | os.PathLike[str],
    weights: Mapping[str, npt.ArrayLike] | None = None,
    *,
    storage: str | None = None,
    title: str | None = None,
    classes: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    picture: tuple[int, int] | None = None,
    data: npt.ArrayLike | None = None,
    compiler: str | None = None,
) -> Path:
    """Writes the page of a model and returns its path.

    weights    by name, as state_dict() has them; default: those that the parameters have
    storage    "float16", "bfloat16" or "int8": weights are rounded to that and widened to float32; default: exact
    title      of the page; default: the Program's description
    classes    what the classes are called; default: their numbers
    features   what the inputs are called, in a form
    picture    the height and width of inputs that are to be drawn; default: those of the Program, see picture_of()
    data       examples of the inputs, in rows: sliders get their ranges, pictures the range of their pixels
    compiler   a command like clang, which must know wasm32; default: clang, else that of the package ziglang

    Raises ValueError for what does not fit the Program, CompilerError without a compiler.
    """
    if storage is not None:
        program = narrowed(program, checks.choice("storage", storage, STORAGES))
    if weights is not None:
        set_weights(program, weights, program.storage)
        program = replace(program, initial=None)
    rows = None if data is None else _rows(program, data)
    drawn = picture_of(program, picture, rows)
    about = {
        "title": title or program.description or "A model",
        **_inputs(program, drawn, features, rows),
        **_outputs(program, classes),
        **_code(program, drawn, compiler),
    }
    path = Path(path)
    write_if_changed(path, page_text(about, _summary(program)))
    return path


def page_text(about: dict[str, Any], summary: str) -> str:
    """page.html with everything in it. Only its own script and style, which have these hashes, can run."""
    script, style = (_file(name) for name in ("page.js", "page.css"))
    policy = [
        "default-src 'none'",
        f"script-src {_hash(script)} 'wasm-unsafe-eval'",
        f"style-src {_hash(style)}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    places = {
        "policy": "; ".join(policy),
        "title": html.escape(about["title"]),
        "about": html.escape(summary),
        "style": style,
        "script": script,
        "model": json.dumps(about, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    start, *rest = _file("page.html").split("@")
    return start + "".join(places.get(part, part) for part in rest)


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _packed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def _summary(program: Program) -> str:
    trains = " and trains" if program.loss is not None and not program.noises else ""
    count = f"{len(program.parameter_values):,} parameters"
    return f"{count}. The model runs{trains} in this page: nothing that you enter leaves it."


# Inputs


def picture_of(program: Program, size: tuple[int, int] | None = None, rows: Rows | None = None) -> Picture | None:
    """What is drawn, if the only input is a picture: pixels, or floats of a shape that says so, or of the size given.

    Pixels without a shape may be a square. Raises ValueError for a size that does not fit.
    """
    parts = program.input_parts
    is_drawable = len(parts) == 1 and parts[0].kind in ("pixels", "floats")
    if size is not None and not (is_drawable and min(size) > 0 and parts[0].count % (size[0] * size[1]) == 0):
        raise ValueError(f"the inputs are no picture of {size[0]} x {size[1]} pixels, but {types_text(parts)}")
    shape = size or (_shape(parts[0]) if is_drawable else None)
    if shape is None:
        return None
    height, width = shape
    low, high = (0.0, 255.0 if parts[0].kind == "pixels" else 1.0)
    if rows is not None and parts[0].kind == "floats":
        low, high = float(rows.min()), float(rows.max())
    box = (BOX * height, BOX * width)
    if rows is not None:
        box = _extent((rows.reshape(len(rows), -1, height, width) - low) / ((high - low) or 1.0) > FAINT)
    return Picture(height, width, low, high, (max(1, round(box[0])), max(1, round(box[1]))))


def _shape(part: Part) -> tuple[int, int] | None:
    side = math.isqrt(part.count)
    shape = part.shape or ((side, side) if part.kind == "pixels" and side * side == part.count else ())
    if len(shape) not in (2, 3) or min(shape[-2:]) < MIN_SIDE or (len(shape) == 3 and shape[0] not in CHANNELS):
        return None
    return shape[-2], shape[-1]


def _extent(strokes: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """The height and width of a box into which examples were scaled: the larger side of most of them fills it."""
    extents = []
    for axis in (2, 3):
        seen = np.asarray(strokes.any(axis=(1, 5 - axis)))  # the rows, then the columns that have strokes
        length = seen.shape[1]
        extents.append((length - seen[:, ::-1].argmax(axis=1) - seen.argmax(axis=1)) / length)
    share = float(np.median(np.maximum(*extents)))
    return share * strokes.shape[2], share * strokes.shape[3]


def _rows(program: Program, data: npt.ArrayLike) -> Rows:
    """Examples of the only input, each as a row."""
    parts = program.input_parts
    if len(parts) != 1 or parts[0].kind not in ("floats", "pixels"):
        raise ValueError(f"data gives ranges to one array of floats or pixels, but the inputs are {types_text(parts)}")
    rows = np.asarray(data, dtype=np.float64)
    if rows.ndim < 2 or not len(rows) or rows[0].size != parts[0].count or not np.isfinite(rows).all():
        raise ValueError(f"data must be rows of {parts[0].count} finite numbers, got the shape {rows.shape}")
    return rows.reshape(len(rows), -1)


def _inputs(
    program: Program, picture: Picture | None, features: Sequence[str] | None, rows: Rows | None
) -> dict[str, Any]:
    parts = program.input_parts
    described = [_part(part) for part in parts]
    if picture is not None:
        return {"inputs": described, "picture": asdict(picture)}
    count = sum(part.numbers for part in parts)
    if count > MAX_FIELDS:
        raise ValueError(
            f"a form has at most {MAX_FIELDS} fields, but the inputs are {types_text(parts)}: "
            "those of pictures are drawn if they are declared with their height and width"
        )
    if features is not None:
        if len(features) != count:
            raise ValueError(f"features must be {count} names, one for each input, got {len(features)}")
        names = iter(features)
        for part, text in zip(parts, described, strict=True):
            text["names"] = [next(names) for _ in range(part.numbers)]
    if rows is not None:
        found = {"low": rows.min(axis=0), "high": rows.max(axis=0), "start": rows.mean(axis=0)}
        described[0].update({name: [float(f"{x:.6g}") for x in column.tolist()] for name, column in found.items()})
    return {"inputs": described, "picture": None}


def _part(part: Part) -> dict[str, Any]:
    return {"kind": part.kind, "name": part.name, "count": part.numbers, "classes": part.classes}


# Outputs


def _outputs(program: Program, classes: Sequence[str] | None) -> dict[str, Any]:
    outputs = [{"name": name, "count": len(values)} for name, values in program.outputs.items()]
    if not outputs:
        raise ValueError("a page shows outputs, but the program declares none")
    names = list(program.outputs)
    main = names[0] if program.prediction is None else program.prediction
    count = _class_count(program)
    alike = [name for name in names if count > 1 and len(program.outputs[name]) == len(program.outputs[main])]
    shares = next((name for name in alike if _are_shares(program.outputs[name])), main)
    if classes is not None and len(classes) != count:
        raise ValueError(f"classes must be {count} names, one for each class of the prediction, got {len(classes)}")
    return {
        "outputs": outputs,
        "main": names.index(shares),
        "classCount": count,
        "classes": None if classes is None else list(classes),
    }


def _are_shares(values: Sequence[Value] | Array) -> bool:
    """Whether these are probabilities of classes: they are traced with some example, and add up to 1."""
    numbers = [value.data for value in values]
    return len(numbers) > 1 and min(numbers) >= 0 and math.isclose(math.fsum(numbers), 1.0, rel_tol=1e-6)


def _class_count(program: Program) -> int:
    if program.prediction is None:
        return 0
    return 2 if program.threshold is not None else len(program.outputs[program.prediction])


# Code and weights


def _code(program: Program, picture: Picture | None, compiler: str | None) -> dict[str, Any]:
    """The part of the text that has the model. It trains if it has a loss, and needs no random numbers for it."""
    if isinstance(program.inputs, Pixels):
        program = replace(program, inputs=replace(program.inputs, shift=0))
    trains = program.loss is not None and not program.noises
    model = _numbered(program if trains else _with_a_loss(program))
    gradients_of = model.prediction if picture is not None else None
    with warnings.catch_warnings():
        if not trains:
            warnings.simplefilter("ignore", ModelWarning)  # of a loss that is ours
        files = compile_program(model, "model", target="c", gradients_of=gradients_of).files
    wasm = wasm_of({**files, "page.c": page_c(model, gradients_of)}, compiler)
    return {
        "wasm": _packed(wasm),
        "dtype": program.dtype,
        "targets": [_part(part) for part in model.target_parts],
        "trains": trains,
        "weights": _weights(model),
        "rate": program.rate,
        "looks": gradients_of is not None,
    }


def _numbered(program: Program) -> Program:
    """Its outputs have names that C functions can have."""
    names = {name: f"output{i}" for i, name in enumerate(program.outputs)}
    outputs = {names[name]: values for name, values in program.outputs.items()}
    return replace(program, outputs=outputs, prediction=program.prediction and names[program.prediction])


def _with_a_loss(program: Program) -> Program:
    """A Program that only predicts as one that could be trained: then its weights are in its state, not in its code."""
    frozen = frozen_program(program, weights_of(program))
    first, *others = next(iter(frozen.outputs.values()))
    return replace(frozen, loss=sum(others, start=first * 1.0))


def page_c(model: Program, gradients_of: str | None) -> str:
    """What the page calls: functions that return where inputs, outputs and the model's state are."""
    real = Arithmetic.of(model).type
    types = {"pixels": "unsigned char", "label": "unsigned char", "floats": real, "tokens": "int32_t"}
    inputs = {f"input{i}": part for i, part in enumerate(model.input_parts)}
    targets = {f"target{i}": part for i, part in enumerate(model.target_parts)}
    most = max(len(model.parameter_values), len(model.input_values), *map(len, model.outputs.values()))
    given = ", ".join(["&model", *inputs])
    example = ", ".join([given, *targets])
    lines = [
        '#include "model.h"',
        "#define EXPORT(name) __attribute__((export_name(#name))) page_##name",
        "static struct model_model model;",
        f"static {real} numbers[{most}]; /* parameters that come, or results */",
        "void *EXPORT(state)(void) { return &model; }",
        "int EXPORT(state_bytes)(void) { return (int)sizeof(model); }",
        "void *EXPORT(parameters)(void) { return numbers; }",
        "void EXPORT(start)(void) { model_init(&model), model_set_parameters(&model, numbers); }",
    ]
    for name, part in {**inputs, **targets}.items():
        lines.append(f"static {types[part.kind]} {name}[{part.numbers}];")
        lines.append(f"void *EXPORT({name})(void) {{ return {name}; }}")
    for name in model.outputs:
        lines.append(f"void *EXPORT({name})(void) {{ return model_{name}({given}, numbers), numbers; }}")
    if model.prediction is not None:
        lines.append(f"int EXPORT(predict)(void) {{ return model_predict({given}); }}")
    lines.append(f"double EXPORT(loss)(void) {{ return model_forward({example}); }}")
    lines.append(f"double EXPORT(train)(double rate) {{ return model_train_batch({example}, 1, rate); }}")
    if gradients_of is not None:
        count = len(model.outputs[gradients_of])
        lines += [
            "void *EXPORT(look)(int answer)",
            "{",
            f"    static {real} weights[{count}];",
            f"    for (int i = 0; i < {count}; i++)",
            f"        weights[i] = {'i == answer' if count > 1 else 'answer ? 1 : -1'};",  # an only one is for 1
            f"    return model_input_gradients({given}, weights, numbers), numbers;",
            "}",
        ]
    return "\n".join(lines) + "\n"


def _weights(program: Program) -> dict[str, Any]:
    """All parameters as the page reads them: rounded to a type, or in the narrowest that holds all of them."""
    storage = program.storage
    if storage is not None:
        set_weights(program, weights_of(program), storage)
    arrays = list(weights_of(program).values())
    numbers = np.concatenate([np.zeros(0), *(array.ravel() for array in arrays)])
    if storage is None:
        with np.errstate(over="ignore"):
            kind = next(kind for kind in ("float16", "float32", "float64") if (numbers == numbers.astype(kind)).all())
        return {"kind": kind, "numbers": _packed(numbers.astype(f"<f{np.dtype(kind).itemsize}").tobytes())}
    stored = [narrow(storage, array) for array in arrays]
    described: dict[str, Any] = {
        "kind": storage,
        "numbers": _packed(b"".join(_little(each.numbers) for each in stored)),
    }
    if storage == "int8":
        rows = [(each.scales.size, each.numbers.size // each.scales.size) for each in stored]
        described |= {"rows": rows, "scales": _packed(b"".join(_little(each.scales) for each in stored))}
    return described


def _little(array: npt.NDArray[Any]) -> bytes:
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def wasm_of(files: Mapping[str, str], compiler: str | None = None) -> bytes:
    """Compiles C files, which may include each other, to WebAssembly without imports: by clang or by ziglang.

    It has the bits of strict mode: WebAssembly rounds as IEEE 754 says, and has no fused multiply-add. Raises
    CompilerError.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        sources = [str(folder / file) for file in files if file.endswith(".c")]
        target = folder / "model.wasm"
        command = [*_compiler(compiler), *WASM_FLAGS, *sources, "-o", str(target)]
        run_compiler(command, name, "the page's C", {"unable to execute": f"\n{HOW_TO_GET_CLANG}"})
        return target.read_bytes()


def _compiler(asked: str | None) -> list[str]:
    if asked is not None:
        if (found := shutil.which(asked)) is None:
            raise CompilerError(f"there is no C compiler {asked!r}.\n{HOW_TO_GET_CLANG}")
        return [os.path.abspath(found), "--target=wasm32"]  # it runs in another folder
    if shutil.which("clang") and shutil.which("wasm-ld"):
        return ["clang", "--target=wasm32"]
    if zig := zig_command():
        return [*zig, "--target=wasm32-freestanding", "-fno-sanitize=undefined"]
    raise CompilerError(f"a page needs a compiler for WebAssembly, and none was found.\n{HOW_TO_GET_CLANG}")

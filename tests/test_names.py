"""Names that a user chose and that collide: with C, C++, their libraries, Windows, or the rest of the generated code.

The kind of test that was missing: names had been tried one by one, as somebody thought of them. Here the lists come
from where the names are: from a compiler's headers, from the generated text itself, from Python, and from hypothesis.
"""

from __future__ import annotations

import builtins
import keyword
import re
import shutil
import subprocess
from array import array
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from harness import WARNINGS, nightly_but, slow_but
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from codegen import Floats, Program, build, compile_program, load_extension
from codegen.backends.c.standalone import OWN, function_names
from codegen.pipeline import checked_name
from codegen.reroll.names import DEVICES, HEADERS, comment, tensor_names, unique_names
from micrograd.engine import Value


def words(text: str) -> list[str]:
    return text.split()


ISSUE = words(
    """outputs w i inputs h int double static inline restrict typeof linux unix set_inputs compute_outputs 1 result
    value data workspace h_included predict images once shared grad sum k part parts count NULL main"""
)
C_KEYWORDS = words(
    """alignas alignof asm auto bool break case char class compl const const_cast constexpr continue co_await decltype
    default delete do double else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not not_eq nullptr operator or private protected public register requires return short
    signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef
    typeid typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor _Bool _Complex
    _Generic __asm__ __attribute__ __int64 __declspec near far small interface min max IN OUT ERROR DELETE CONST
    VOID TRUE I"""
)
ODD = [
    "W",
    "a b",
    "a.b",
    "a_b",
    "a-b",
    "*/",
    "/*",
    "//",
    "??/",
    "\\",
    "\n",
    '"',
    "'",
    "%s",
    "{0}",
    "ä",
    "Ä",
    "\u202e",
    "\u2028",
    "😀",
    "\x7f",
    "\x1b[2J",
    "_",
    "__",
    "-",
    "a" * 900,
    "O_PATH",
    "P_W",
    "path",
    "all",
    "GROUP_0",
    "ı",
]
HEADER_FILES = words(
    """assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic
    stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype fcntl pthread
    semaphore sched spawn unistd sys/mman sys/types sys/wait"""
)
WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
COMPILERS = [name for name in ("gcc", "clang", "tcc") if shutil.which(name)]
STRICT = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"]
UNARY = ("relu", "tanh", "exp", "sigmoid", "sin", "cos", "softplus", "erf", "expm1", "gelu")  # groups of their own
INPUTS = array("d", (0.5, -2.0))
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="no C compiler: gcc, clang or tcc")


def program(outputs: Sequence[str], parameters: Sequence[str] = ("w",), is_trained: bool = False) -> Program:
    """Each output is of another kind, and has a parameter of its own: one that is taken for another has other bits."""
    x, t = [Value(0.0), Value(0.0)], Value(0.0)
    weights = {name: [Value(0.5 + i), Value(0.25 * i)] for i, name in enumerate(parameters)}
    tensors = list(weights.values())
    found = {}
    for i, name in enumerate(outputs):
        w = tensors[i % len(tensors)]
        out = w[0] * x[0] + w[1] * x[1] + float(i)
        for _ in range(i // len(UNARY) + 1):
            out = getattr(out, UNARY[i % len(UNARY)])()
        found[name] = [out, out * x[0]][: i % 2 + 1]
    loss = sum((w[0] * w[1] for w in tensors), start=t * x[0]) if is_trained else None
    return Program(Floats(x), Floats([t]) if is_trained else None, weights, loss, found)


def reference(outputs: Sequence[str], parameters: Sequence[str]) -> list[list[float]]:
    """The same numbers under names that collide with nothing, in generated Python."""
    text = compile_program(
        program([f"out{i}" for i in range(len(outputs))], [f"w{i}" for i in range(len(parameters))]),
        "plain",
        "loops",
        "python",
    ).text
    namespace: dict[str, object] = {"__name__": "plain"}
    exec(text, namespace)
    return [list(values) for values in namespace["outputs"](INPUTS).values()]  # type: ignore[operator]


def in_c(declared: Program, folder: Path, module: str, compilers: Sequence[str] = COMPILERS) -> list[list[list[float]]]:
    """What a C program that includes NAME.h gets from each compiler; and NAME.h is C++, too."""
    header = build(declared, folder, module, target="c").with_suffix(".h")
    text = header.read_text()
    functions = re.findall(r"^void (\w+)\(", text, re.MULTILINE)
    assert len(functions) == len(declared.outputs)
    (space,) = re.findall(r"^struct (\w+) \{", text, re.MULTILINE)
    calls = "".join(
        f"double r{k}[{name.upper()}]; {name}(&s, x, r{k});"
        f'for (int j = 0; j < {name.upper()}; j++) printf("%a ", r{k}[j]); printf("\\n");\n'
        for k, name in enumerate(functions)
    )
    includes = "".join(f"#include <{name}>\n" for name in ("math.h", "stdio.h", "stdlib.h", "string.h", "stdint.h"))
    main = f"int main(void) {{ static struct {space} s; const double x[2] = {{0.5, -2.0}};\n{calls}return 0; }}\n"
    (folder / "calls_all.c").write_text(f'{includes}#include "{header.name}"\n{main}')
    (folder / "calls_all.cpp").write_text(f'#include <cmath>\n{includes}#include "{header.name}"\n{main}')
    results = []
    for compiler in compilers:
        flags = ["-Wall", "-Werror"] if compiler == "tcc" else STRICT
        run([compiler, *flags, "calls_all.c", f"{module}.c", "-o", "calls_all", "-lm"], folder)
        lines = subprocess.run([folder / "calls_all"], capture_output=True, text=True, check=True).stdout.splitlines()
        results.append([[float.fromhex(x) for x in line.split()] for line in lines])
    if shutil.which("g++"):
        run(["g++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "calls_all.cpp"], folder)
    return results


def run(command: Sequence[object], folder: Path) -> None:
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]


def batches(names: list[str], size: int) -> list[list[str]]:
    return [names[i : i + size] for i in range(0, len(names), size)]


@cache
def headers(compiler: str, text: str, *flags: str) -> frozenset[str]:
    """The macros, functions and types of some headers."""
    macros, declared = (
        subprocess.run(
            [compiler, *flags, "-E", mode, "-x", "c", "-"], input=text, capture_output=True, text=True
        ).stdout
        for mode in ("-dM", "-P")
    )
    types = re.findall(r"(\w+)(?:\[\d+\])?;", "".join(re.findall(r"typedef [^{};]*;", declared)))
    functions = re.findall(r"\b([A-Za-z_]\w*)\s*\(", declared)
    return frozenset([*re.findall(r"^#define (\w+)", macros, re.MULTILINE), *functions, *types])


def system_names() -> frozenset[str]:
    """Of C, POSIX and GNU, as far as this machine has headers; Windows's C library is below."""
    includes = "".join(f"#if __has_include(<{name}.h>)\n#include <{name}.h>\n#endif\n" for name in HEADER_FILES)
    return headers("gcc", includes, "-std=gnu11", "-D_GNU_SOURCE")


def windows_names() -> frozenset[str]:
    return headers("x86_64-w64-mingw32-gcc", "#include <windows.h>\n#include <fcntl.h>\n#include <process.h>\n")


@cache
def generated_words() -> frozenset[str]:
    """Every name in all generated files."""
    found = set()
    for is_trained, target, lowering in (
        (True, "extension", "loops"),
        (False, "extension", "straightline"),
        (False, "c", "loops"),
        (True, "python", "loops"),
        (False, "python", "straightline"),
    ):
        declared = program(["o", "q"], ["w", "b"], is_trained)
        found |= set(WORD.findall(compile_program(declared, "m", lowering, target).text))
    return frozenset(found)


def many_names() -> list[str]:
    found = [*ISSUE, *C_KEYWORDS, *ODD, *keyword.kwlist, *keyword.softkwlist, *dir(builtins)]
    return list(dict.fromkeys([*found, *sorted(generated_words() - {"__metadata__"})]))  # which no Program takes


@needs_compiler
@pytest.mark.parametrize("names", nightly_but([ODD[:16]], [ISSUE[:16], ISSUE[16:], ODD[:16], ODD[16:]]))
def test_ordinary_and_odd_names_in_plain_c(names, tmp_path):
    for found in in_c(program(names, names), tmp_path, "m"):
        assert found == reference(names, names)


@needs_compiler
@pytest.mark.parametrize("names", nightly_but([ODD], [ISSUE, ODD, C_KEYWORDS[:40]]))
def test_ordinary_and_odd_names_in_modules(names, tmp_path):
    """In an extension that trains, in one that predicts, and in Python."""
    expected = reference(names, names)
    for is_trained in (True, False):
        name = f"odd_{is_trained}".lower()
        path = build(program(names, names, is_trained), tmp_path, name, flags=[*WARNINGS, "-O0"])
        found = load_extension(path, name).outputs(INPUTS)
        assert list(found) == names
        assert [list(values) for values in found.values()] == expected
    for lowering in ("loops", "straightline"):
        namespace: dict[str, object] = {"__name__": "odd"}
        exec(compile_program(program(names, names, True), "odd", lowering, "python").text, namespace)
        found = namespace["outputs"](INPUTS)  # type: ignore[operator]
        assert {k: list(v) for k, v in found.items()} == dict(zip(names, expected, strict=True))


@needs_compiler
@pytest.mark.nightly
def test_every_known_name_in_plain_c(tmp_path):
    """Those of the generated files themselves, of Python, of C and C++: some hundreds of outputs and parameters."""
    names = many_names()
    assert len(names) > 800
    for i, some in enumerate(batches(names, 40)):
        folder = tmp_path / str(i)
        for found in in_c(program(some, some), folder, "m", COMPILERS[:1]):
            assert found == reference(some, some)


MODULES = words(
    """linux unix w i h int double NULL EOF I M GROUP LOSS INPUT TARGET _ __ _X a A set compute op input
    output real begin outputs weights workspace main std template and_eq DBL size UINT64 clock atomic M_PI
    STANDALONE AT chunk READS n M_ register bool true model level"""
)


@needs_compiler
@pytest.mark.parametrize("module", slow_but(MODULES[:1], MODULES[::20]))
def test_names_of_modules_in_plain_c(module, tmp_path):
    check_module(module, tmp_path)


@needs_compiler
@pytest.mark.parametrize("module", nightly_but(MODULES[::15], MODULES))
def test_more_names_of_modules_in_plain_c(module, tmp_path):
    check_module(module, tmp_path)


def check_module(module: str, folder: Path) -> None:
    outputs = ["inputs", "out", "OUT", "workspace", "predict", "t", "T", "1", "é", "max", "pi", "count", "level", "2"]
    for found in in_c(program(outputs), folder, module):
        assert found == reference(outputs, ["w"])


def pairs(words: Iterable[str]) -> list[tuple[str, str]]:
    """Modules and outputs whose names together are these words."""
    found = []
    for word in sorted(words):
        for cut in [match.start() for match in re.finditer("_", word)]:
            module, output = word[:cut], word[cut + 1 :]
            if module.isidentifier() and not keyword.iskeyword(module) and output:
                found.append((module, output))
    return found


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc, for its headers")
def test_no_name_of_plain_c_is_one_of_a_library():
    """For each name of C's headers, and each function of POSIX, the module and the output that would give it."""
    of_c = headers("gcc", "".join(f"#include <{name}.h>\n" for name in HEADER_FILES[:29]), "-std=c11")
    wanted = {word for word in of_c | system_names() if "_" in word.strip("_") and not word.startswith("_")}
    tried = 0
    for module, output in pairs(wanted):
        for name in {module, module.lower()}:
            (function,) = function_names(SimpleNamespace(outputs=[output]), name, OWN, set()).values()
            assert function.upper() not in of_c
            assert function not in (of_c if function.isupper() else system_names())
            tried += 1
    assert tried > 2000


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc, for its headers")
def test_no_offset_is_a_macro_of_the_systems():
    """P_ and O_ before names in capitals: sys/wait.h has P_ALL, fcntl.h O_PATH, and Windows O_TEXT."""
    system = system_names() | (windows_names() if shutil.which("x86_64-w64-mingw32-gcc") else frozenset())
    rest = {word[2:] for word in system if word.startswith(("P_", "O_"))}
    assert len(rest) > 20
    assert not set(tensor_names(sorted(rest))) & system
    assert not set(unique_names(f"O_{word}" for word in sorted(rest))) & system


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_a_macro_of_another_header_is_an_error_that_says_so(tmp_path):
    """windows.h has 20,000 macros, ERROR_INVALID_DATA among them."""
    build(program(["invalid_data"]), tmp_path, "error", target="c")
    command = ["gcc", "-fsyntax-only", "-DERROR_INVALID_DATA=13L", "error.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "another header has macros of these names" in done.stderr
    assert done.returncode


@pytest.mark.slow
def test_no_name_of_plain_c_is_one_of_its_own():
    """For each name in the source, the module and the output that would give it: kernels, offsets, tables, macros."""
    words = WORD.findall(compile_program(program(["o", "q"], ["w"]), "m", "loops", "c").files["m.c"])
    tried = 0
    for module, output in pairs(set(words)):
        try:
            files = compile_program(program([output, "o", "q"]), module, "loops", "c").files
        except ValueError:
            continue  # const, as a module: a file's name, see below
        declared = re.findall(r"^(?:void|int) (\w+)\(", files[f"{module}.h"], re.MULTILINE)
        elsewhere = files[f"{module}.c"].split("static void AT_LEVEL(set_inputs)")[0]
        inside = set(WORD.findall(elsewhere))
        assert not inside & {*declared, *(name.upper() for name in declared)}
        tried += 1
        if tried == 60:
            break
    assert tried == 60


texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12)
identifiers = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
known = st.sampled_from([*ISSUE, *C_KEYWORDS, *ODD])
anything = st.one_of(texts, identifiers, known, known.map(str.upper), known.map(str.swapcase))


@settings(max_examples=100, deadline=None)
@given(st.lists(anything, min_size=1, max_size=30, unique=True), st.sets(identifiers))
def test_unique_names_are_unique_and_unused(names, used):
    for in_capitals in (False, True):
        found = unique_names((f"m_{name}" for name in names), used, in_capitals)
        forms = [form for name in found for form in ({name, name.upper()} if in_capitals else {name})]
        assert len(set(forms)) == len(forms)
        assert not used & set(forms)
    offsets = tensor_names(names)
    assert len(set(offsets)) == len(names)
    assert all(re.fullmatch("P_[A-Z0-9_]+", name, re.ASCII) for name in offsets)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30))
def test_a_comment_ends_where_it_should(text):
    shown = comment(text)
    assert shown.isascii()
    assert shown.isprintable() or not shown
    for other in ("*/", "/*", "??", "\\", "\n"):
        assert other not in shown


@pytest.mark.slow
@needs_compiler
@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.lists(anything, min_size=5, max_size=12, unique=True), identifiers)
def test_any_names_in_plain_c(tmp_path_factory, names, module):
    try:
        checked_name(module, "c")
    except ValueError:
        module = "m"
    for found in in_c(program(names, names), tmp_path_factory.mktemp("any"), module, COMPILERS[:1]):
        assert found == reference(names, names)


@pytest.mark.parametrize("target", ["extension", "c", "python"])
def test_names_that_files_cannot_have(target, tmp_path):
    declared = program(["o"])
    for name in sorted(DEVICES | {"CON", "Aux"}):
        with pytest.raises(ValueError, match=f"'{name}' is a device on Windows"):
            build(declared, tmp_path, name, target=target)
    for name in sorted(HEADERS - DEVICES - set(keyword.kwlist)) if target == "c" else ():
        with pytest.raises(ValueError, match=f"must not be that of a C header, got '{name}'"):
            build(declared, tmp_path, name, target=target)
    for name in ("o", "O", "P") if target == "c" else ():
        with pytest.raises(ValueError, match=f"must not be O or P, .*, got '{name}'"):
            build(declared, tmp_path, name, target=target)
    for name in ("random", "math", "array", "struct", "re") if target == "python" else ():
        with pytest.raises(ValueError, match=f"of the standard library, got '{name}'"):
            build(declared, tmp_path, name, target=target)
    with pytest.raises(ValueError, match="at most 100 characters, got 101"):
        build(declared, tmp_path, "a" * 101, target=target)
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
@needs_compiler
def test_generated_files_of_two_models_in_one_folder(tmp_path):
    """A plain C model called `module` has a module.h, which is also the name of a header of the compiler's own."""
    for name in ("module", "ops", "rows", "level", "level_begin", "level_end", "model"):
        build(program(["o"]), tmp_path, name, target="c")
    path = build(program(["o"], is_trained=True), tmp_path, "beside", flags=[*WARNINGS, "-O0"])
    assert load_extension(path, "beside").outputs(INPUTS)


@pytest.mark.slow
def test_every_name_is_there_in_python():
    names = many_names()[:300]
    namespace: dict[str, object] = {"__name__": "every"}
    exec(compile_program(program(names, names, True), "every", "loops", "python").text, namespace)
    assert list(namespace["state_dict"]()) == names  # type: ignore[operator]

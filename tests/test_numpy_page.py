"""Models of docs/numpy.md that do not compile to what they compute, or that have grown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harness import compare, nightly_but, slow_but

from codegen import Program, compile_program

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "numpy.md").read_text(encoding="utf-8")
HEAD, *MODELS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
NAMES = ("perceptron", "convolution", "attention", "lstm")
GROUPS = {"perceptron": 17, "convolution": 18, "attention": 48, "lstm": 66}


def declared(source: str) -> Program:
    namespace: dict[str, object] = {}
    exec(HEAD + source, namespace)
    program = namespace["program"]
    assert isinstance(program, Program)
    return program


def test_there_are_four_of_under_25_lines():
    assert len(MODELS) == len(NAMES)
    assert all(len([line for line in source.splitlines() if line.strip()]) < 25 for source in MODELS)


@pytest.mark.parametrize("source", nightly_but(MODELS[:1], MODELS), ids=NAMES)
def test_a_compiled_model_has_the_interpreted_bits(source, tmp_path):
    compare(declared(source), tmp_path, steps=3, flags=["-O0"])


@pytest.mark.parametrize("name", slow_but(NAMES[:1], NAMES))
def test_the_loops_are_found(name):
    """One group more is an operation that no longer shares the loop of its neighbours."""
    source = MODELS[NAMES.index(name)]
    assert len(compile_program(declared(source)).plain.kernels) == GROUPS[name]


@pytest.mark.slow
def test_a_causal_mask_costs_half_as_much_c_again():
    def lines(tokens, mask):
        source = re.sub(r"\b5\b", str(tokens), MODELS[NAMES.index("attention")])
        masked = f"scores = {mask}\n".replace("5", str(tokens)) + "e = np.exp("
        return compile_program(declared(source.replace("e = np.exp(", masked))).files["nn_kernels.h"].count("\n")

    (mask,) = re.findall(r"`scores = (.*?)`", PAGE)
    assert 1.3 < lines(6, mask) / lines(6, "scores") < 1.7
    assert lines(12, mask) < 1.2 * lines(6, mask)


def test_the_first_layer_is_the_group_that_the_page_shows():
    (group,) = re.findall(r"`(relu\(sum_k.*?)`", PAGE)
    assert group in compile_program(declared(MODELS[0])).explanation()

"""Weights under other names and in other layouts: taken for others, or refused without a word about what would do."""

from __future__ import annotations

import numpy as np
import pytest

from micrograd.matching import MatchError, Matching, matched, parsed_map

EXPECTED = {"layers.0.weight": (3, 4), "layers.0.bias": (3,), "layers.1.weight": (2, 3), "layers.1.bias": (2,)}
OURS = ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]
OFFERS = Matching({}, offers=True)
PYTORCH = ["0.weight", "0.bias", "3.weight", "3.bias"]


def tensors(names: list[str] = OURS, turned: bool = False) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    found = [rng.standard_normal(shape) for shape in EXPECTED.values()]
    return {name: tensor.T if turned else tensor for name, tensor in zip(names, found, strict=True)}


def same(found: dict[str, np.ndarray]) -> bool:
    return list(found) == OURS and all((found[name] == tensor).all() for name, tensor in tensors().items())


def refusal(given: dict[str, np.ndarray], how: Matching = Matching({}), expected: object = None) -> str:  # noqa: B008
    with pytest.raises(MatchError) as caught:
        matched(given, expected or EXPECTED, how, "w")
    return str(caught.value)


def test_names_in_any_order_are_taken_as_they_are():
    assert same(matched(dict(reversed(tensors().items())), EXPECTED))


def test_names_by_map():
    names = parsed_map(f"{old}={new}" for old, new in zip(PYTORCH, OURS, strict=True))
    assert same(matched(tensors(PYTORCH), EXPECTED, Matching(names)))
    assert same(matched(tensors() | {"steps": np.zeros(9)}, EXPECTED, Matching({"steps": ""})))
    a, b = "layers.0.bias", "layers.1.bias"
    swapped = matched({"a": np.zeros(2), "b": np.ones(2)}, {"a": (2,), "b": (2,)}, Matching({"a": "b", "b": "a"}))
    assert swapped["a"].tolist() == [1, 1]
    assert refusal(tensors(), Matching({"x": a})).startswith(
        "w: no tensor 'x' to map, got 'layers.0.bias', 'layers.0.w"
    )
    assert refusal(tensors(), Matching({a: "x"})).startswith(
        "w: 'layers.0.bias' is mapped to 'x', but the model has 'l"
    )
    assert refusal(tensors(), Matching({a: b})) == "w: two tensors for 'layers.1.bias', one of them mapped"


@pytest.mark.parametrize("text", ["a", "=a", "", "="])
def test_a_map_that_is_none(text):
    with pytest.raises(MatchError, match="--map must be OLD=NEW"):
        parsed_map([text])


def test_a_map_that_names_something_twice():
    for texts in (["a=b", "a=c"], ["a=c", "b=c"]):
        with pytest.raises(MatchError, match=r"--map names '[ac]' twice"):
            parsed_map(texts)
    assert parsed_map(["a=b=c", "d="]) == {"a=b": "c", "d": ""}


def test_names_that_shapes_leave_one_way_for_are_offered():
    offer = "--map 0.weight=layers.0.weight --map 0.bias=layers.0.bias --map 3.weight=layers.1.weight"
    said = refusal(tensors(PYTORCH))
    assert said == (
        f"w: no tensor 'layers.0.weight', but shapes leave one way: {offer} --map 3.bias=layers.1.bias "
        "(--match does it)"
    )
    assert same(matched(tensors(PYTORCH), EXPECTED, Matching({}, offers=True)))
    options = [word for word in said.split() if "=" in word]
    assert same(matched(tensors(PYTORCH), EXPECTED, Matching(parsed_map(options))))


def test_tensors_of_one_shape_are_told_apart_by_numbers_alone():
    expected = {f"layers.{i}.weight": (4, 4) for i in range(12)}
    given = {f"blocks.{i}.w": np.full((4, 4), i) for i in range(12)}
    found = matched(dict(sorted(given.items())), expected, Matching({}, offers=True))  # 1, 10, 11, 2, ...
    assert [found[name][0, 0] for name in expected] == list(range(12))
    given = {"encoder": np.zeros((4, 4)), "decoder": np.ones((4, 4))}
    said = refusal(given, Matching({}, offers=True), {"layers.0": (4, 4), "layers.1": (4, 4)})
    assert said == (
        "w: no tensor 'layers.0' of the shape (4, 4), got 'decoder', 'encoder'; "
        "--map OLD=NEW says which of 'encoder' (4, 4), 'decoder' (4, 4) it is"
    )


def test_two_orientations_of_one_size_are_no_one_way():
    """An autoencoder in another layout: the shapes fit, crossed."""
    given = {"a": np.zeros((3, 5)), "b": np.zeros((5, 3))}
    assert "no tensor 'down'" in refusal(given, Matching({}, offers=True), {"down": (3, 5), "up": (5, 3)})


def test_transposed_weights_are_named_and_turned_on_demand():
    said = refusal(tensors(turned=True))
    assert said == (
        "w: 'layers.0.weight' has the shape (4, 3), expected (3, 4): it is transposed, inputs x outputs against "
        "outputs x inputs. --transpose layers.0.weight --transpose layers.1.weight turns it (or --match)"
    )
    for how in (
        Matching({}, ["layers.0.weight", "layers.1.weight"]),
        Matching({}, ["*"]),
        Matching({}, offers=True),
        Matching({}, ["layers.0.weight"], offers=True),
    ):
        found = matched(tensors(turned=True), EXPECTED, how)
        assert same(found)
        assert all(tensor.flags.c_contiguous for tensor in found.values())
    assert same(matched(tensors(PYTORCH, turned=True), EXPECTED, Matching({}, offers=True)))
    assert "layers.1.weight' has the shape (3, 2), expected (2, 3)" in refusal(
        tensors(turned=True), Matching({}, ["layers.0.weight"])
    )


def test_what_is_transposed_though_it_fits_is_refused():
    assert "'layers.0.weight' has the shape (3, 4), which transposed is not (3, 4)" in refusal(
        tensors(), Matching({}, ["layers.*"])
    )
    assert "--transpose 'x' is none of the tensors" in refusal(tensors(), Matching({}, ["x"]))


def test_a_square_among_transposed_weights_has_to_be_named():
    expected = {"a": (3, 4), "b": (3, 3)}
    given = {"a": np.zeros((4, 3)), "b": np.arange(9.0).reshape(3, 3)}
    said = refusal(given, Matching({}, offers=True), expected)
    assert said.endswith("and whether 'b' is too, its shape does not say: --transpose a names those that are")
    assert (matched(given, expected, Matching({}, ["a", "b"]))["b"] == given["b"].T).all()
    assert (matched(given, expected, Matching({}, ["a"]))["b"] == given["b"]).all()


def test_kernels_of_convolutions():
    """Keras has height x width x in x out."""
    kernel = np.arange(2.0 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    found = matched({"k": kernel}, {"k": (5, 4, 2, 3)}, Matching({}, offers=True))["k"]
    assert found[4, 3, 1, 2] == kernel[1, 2, 3, 4]
    assert "another order of axes" in refusal({"k": kernel}, expected={"k": (5, 4, 2, 3)})
    assert refusal({"k": kernel}, expected={"k": (5, 3, 2, 4)}) == (
        "w: 'k' has the shape (2, 3, 4, 5), expected (5, 3, 2, 4)"
    )


def test_other_shapes_name_tensor_found_and_expected():
    given = tensors() | {"layers.1.bias": np.zeros(5)}
    assert refusal(given) == "w: 'layers.1.bias' has the shape (5,), expected (2,)"
    assert refusal(given, Matching({}, offers=True)) == refusal(given)
    assert refusal({}, expected={"a": (1,)}) == "w: no tensor 'a' of the shape (1,), got none"


def test_two_tensors_may_be_dropped():
    names = parsed_map(["steps=", "epoch="])
    given = {"a": np.ones(2), "steps": np.zeros(9), "epoch": np.zeros(1)}
    assert list(matched(given, {"a": (2,)}, Matching(names))) == ["a"]


def test_tensors_that_are_longer_than_wide_are_offered_too():
    """As of a layer with more outputs than inputs."""
    given = {"fc.weight": np.arange(12.0).reshape(4, 3)}
    assert (matched(given, {"w": (4, 3)}, OFFERS)["w"] == given["fc.weight"]).all()
    assert (matched(given, {"w": (3, 4)}, OFFERS)["w"] == given["fc.weight"].T).all()


def test_names_that_differ_in_more_than_numbers_are_not_told_apart():
    given = {"encoder.1": np.zeros((4, 4)), "decoder.2": np.ones((4, 4))}
    said = refusal(given, OFFERS, {"layers.0": (4, 4), "layers.1": (4, 4)})
    assert "--map OLD=NEW says which of 'encoder.1' (4, 4), 'decoder.2' (4, 4) it is" in said


def test_what_is_more_than_the_model_has_is_refused():
    given = {"a": np.zeros(2), "b": np.zeros(2)}
    for how in (Matching({}), OFFERS):
        assert refusal(given, how, {"a": (2,)}) == "w: unexpected tensor 'b', expected 'a'"


def test_shapes_of_equal_lengths_that_no_layout_turns_are_told_apart():
    """Convolutions from 3 planes to 8 and back."""
    given = {"a": np.zeros((8, 3, 3, 3)), "b": np.ones((3, 8, 3, 3))}
    found = matched(given, {"up": (3, 8, 3, 3), "down": (8, 3, 3, 3)}, OFFERS)
    assert (found["up"] == 1).all()
    assert (found["down"] == 0).all()


def test_kernels_of_other_dimensions():
    """Keras has length x in x out; and a model may be declared in its layout, for a file of PyTorch's."""
    line, plane = np.arange(24.0).reshape(2, 3, 4), np.arange(120.0).reshape(5, 4, 2, 3)
    assert matched({"k": line}, {"k": (4, 3, 2)}, OFFERS)["k"][3, 2, 1] == line[1, 2, 3]
    assert matched({"k": plane}, {"k": (2, 3, 4, 5)}, OFFERS)["k"][1, 2, 3, 4] == plane[4, 3, 1, 2]


def test_transposed_ones_of_different_orientations_are_no_one_way():
    given = {"0.w": np.zeros((3, 5)), "1.w": np.ones((3, 5))}
    assert "no tensor 'layers.0'" in refusal(given, OFFERS, {"layers.0": (3, 5), "layers.1": (5, 3)})

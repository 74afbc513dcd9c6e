"""Images moved by some pixels, at random: more training data from the same images.

history = training.fit(nn, images, labels, augment=shift.by(1))
"""

import random
from collections.abc import Callable

SIDE = 28  # pixels


def by(reach: int, side: int = SIDE) -> Callable[[bytes, int], bytes]:
    """Moves each image by up to `reach` pixels along both axes. Raises ValueError where it could leave its frame."""
    if not 0 < reach < side:
        raise ValueError(f"images of {side} x {side} pixels move by 1..{side - 1} pixels, got {reach}")
    return lambda images, seed: moved(images, reach, seed, side)


def moved(images: bytes, reach: int, seed: int, side: int = SIDE) -> bytes:
    """The images one after the other, `side` x `side` bytes each. What leaves the frame is lost, what enters is 0.

    All moves are equally likely, and `seed` decides which, the same ones on every platform. A move is a slice; then
    what went around from one edge to the other is masked, all rows at once, as one long integer.
    """
    images = memoryview(images).cast("B").tobytes()
    size = side * side
    if len(images) % size:
        raise ValueError(f"images must hold a multiple of {size} bytes, got {len(images)}")
    steps = range(-reach, reach + 1)
    masks = {right: int.from_bytes(_row(right, side) * side, "little") for right in steps}
    moves = [(down * side + right, right) for down in steps for right in steps]
    chosen = random.Random(f"moves {seed}").choices(moves, k=len(images) // size)
    paper, found = bytes(size), []
    for first, (distance, right) in zip(range(0, len(images), size), chosen, strict=True):
        if distance >= 0:
            image = paper[:distance] + images[first : first + size - distance]
        else:
            image = images[first - distance : first + size] + paper[:-distance]
        if right:
            image = (int.from_bytes(image, "little") & masks[right]).to_bytes(size, "little")
        found.append(image)
    return b"".join(found)


def _row(right: int, side: int) -> bytes:
    """255 for the pixels that come from the same row, 0 for those from the row beside it."""
    return bytes(255 if 0 <= column - right < side else 0 for column in range(side))

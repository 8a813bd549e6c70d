"""Generated pictures and captions: coloured shapes on a plain ground, and sentences that say more or less of them.

A caption is true of the picture it was made for and often says less than is to be seen, so it is true of other pictures too;
that is what makes the two directions of image-text retrieval differ. `true_of` tells from the sentence alone.
Everything is a function of the seed and the picture's number.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from dataclasses import astuple, dataclass
from functools import lru_cache
from itertools import count, pairwise, permutations

import numpy as np

COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 180, 70),
    "blue": (50, 90, 230),
    "yellow": (240, 220, 50),
    "pink": (240, 110, 200),
    "white": (245, 245, 245),
}
KINDS = ("circle", "square", "triangle", "cross")
SIZES = {"small": 0.27, "large": 0.46}
"""Half of a shape's width, as a share of a cell."""
CELLS = 3
"""A picture has CELLS × CELLS places, one shape in each at most."""
MOST = 3
"""Shapes in a picture."""
MOST_SAID = 2
"""Shapes that a caption names."""
ANY = "shape"
"""What a shape is called whose kind is not said."""

_FRAMES = ("{}", "{}", "a picture of {}", "there is {}", "{} on grey")
_RELATIONS = ("above", "below", "left of", "right of")
WORDS = tuple(
    dict.fromkeys(" ".join((*_FRAMES, *_RELATIONS, *COLOURS, *KINDS, *SIZES, ANY, "and")).replace("{}", "").split())
)
"""Every word that a caption can have."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of a picture; row and column count cells from the top left."""

    kind: str
    colour: str
    size: str
    row: int
    column: int


Scene = tuple[Shape, ...]


def make_scene(seed: int, number: int) -> Scene:
    """One to `MOST` shapes; places, kinds, colours and sizes are drawn evenly."""
    rng = _rng(seed, number, 0)
    places = rng.permutation(CELLS * CELLS)[: rng.integers(1, MOST + 1)]
    return tuple(
        Shape(_pick(rng, KINDS), _pick(rng, COLOURS), _pick(rng, SIZES), *divmod(int(place), CELLS)) for place in places
    )


def part_of(scene: Scene) -> str:
    """Which part a scene belongs to, whatever the seed: a tenth of all scenes is "test", another "dev", the rest "train"."""
    text = repr(sorted(map(astuple, scene)))
    return {0: "test", 1: "dev"}.get(zlib.crc32(text.encode()) % 10, "train")


def scenes_of(part: str, seed: int, n: int) -> Iterator[tuple[int, Scene]]:
    """The first n different scenes of a part with their numbers, so that no part has a scene of another."""
    seen: set[frozenset[Shape]] = set()
    for number in count():
        if len(seen) == n:
            return
        scene = make_scene(seed, number)
        if part_of(scene) == part and frozenset(scene) not in seen:
            seen.add(frozenset(scene))
            yield number, scene


def draw(scene: Scene, seed: int, number: int, *, size: int, noise: float) -> np.ndarray:
    """The picture of a scene.

    Args:
        scene: What is on it.
        seed: Of the ground's grey, of places within cells and of noise.
        number: The picture's.
        size: Pixels a side.
        noise: Standard deviation of Gaussian noise, in steps of 256.

    Returns:
        [size, size, 3] uint8, RGB.
    """
    rng = _rng(seed, number, 1)
    picture = np.full((size, size, 3), rng.integers(20, 110), dtype=np.float32)
    cell = size / CELLS
    y, x = np.mgrid[:size, :size] + 0.5
    for shape in scene:
        half = SIZES[shape.size] * cell
        free = cell / 2 - half
        dy = y - ((shape.row + 0.5) * cell + rng.uniform(-free, free))
        dx = x - ((shape.column + 0.5) * cell + rng.uniform(-free, free))
        picture[_inside(shape.kind, dy, dx, half)] = COLOURS[shape.colour]
    picture += rng.normal(0.0, noise, picture.shape) if noise else 0.0
    return picture.clip(0, 255).astype(np.uint8)


def describe(scene: Scene, seed: int, number: int, n: int) -> list[str]:
    """Sentences that are true of a scene, n of them, each different where the draws allow it.

    Each names some of the shapes, and of each some of size, colour and kind, and perhaps how two of them lie.
    """
    rng = _rng(seed, number, 2)
    said: dict[str, None] = {}
    for _ in range(4 * n):
        said.setdefault(_sentence(scene, rng))
        if len(said) == n:
            break
    return list(said)


def true_of(caption: str, scene: Scene) -> bool:
    """Whether a caption holds of a scene: each shape it names is another one there, lying as it says."""
    named, relations = _parse(caption)
    for chosen in permutations(scene, len(named)):
        if all(words <= {one.kind, one.colour, one.size} for words, one in zip(named, chosen, strict=True)) and all(
            relation == "and" or _lies(relation, *chosen[place : place + 2]) for place, relation in enumerate(relations)
        ):
            return True
    return False


def _sentence(scene: Scene, rng: np.random.Generator) -> str:
    most = min(len(scene), MOST_SAID)
    chosen = [scene[place] for place in rng.permutation(len(scene))[: rng.integers(1, most + 1)]]
    words = [_noun(chosen[0], rng)]
    for before, after in pairwise(chosen):
        holding = [relation for relation in _RELATIONS if _lies(relation, before, after)]
        words += [_pick(rng, holding) if rng.random() < 0.5 else "and", _noun(after, rng)]
    return _pick(rng, _FRAMES).format(" ".join(words))


def _noun(shape: Shape, rng: np.random.Generator) -> str:
    size, colour, kind = (rng.random(3) < (0.5, 0.7, 0.8)).tolist()
    if not (size or colour):
        kind = True  # "a shape" alone says nothing
    return " ".join(["a", *[shape.size] * size, *[shape.colour] * colour, shape.kind if kind else ANY])


@lru_cache(maxsize=100_000)
def _parse(caption: str) -> tuple[tuple[frozenset[str], ...], tuple[str, ...]]:
    """What a caption says of each shape that it names, and the word between each two."""
    named: list[frozenset[str]] = []
    relations: list[str] = []
    details: set[str] = set()
    for word in caption.split():
        if word in COLOURS or word in SIZES:
            details.add(word)
        elif word in KINDS or word == ANY:
            named.append(frozenset(details | ({word} - {ANY})))
            details.clear()
        elif named and word in ("above", "below", "left", "right", "and"):
            relations.append(word)
    return tuple(named), tuple(relations)


def _lies(relation: str, one: Shape, other: Shape) -> bool:
    return {
        "above": one.row < other.row,
        "below": one.row > other.row,
        "left": one.column < other.column,
        "right": one.column > other.column,
    }[relation.split()[0]]


def _inside(kind: str, dy: np.ndarray, dx: np.ndarray, half: float) -> np.ndarray:
    if kind == "circle":
        return dy**2 + dx**2 <= half**2
    box = (abs(dy) <= half) & (abs(dx) <= half)
    if kind == "triangle":
        return box & (abs(dx) <= (dy + half) / 2)
    return box & ((abs(dy) <= half / 3) | (abs(dx) <= half / 3)) if kind == "cross" else box


def _rng(seed: int, number: int, what: int) -> np.random.Generator:
    return np.random.default_rng([seed, number, what])


def _pick(rng: np.random.Generator, names: Collection[str]) -> str:
    return list(names)[rng.integers(len(names))]

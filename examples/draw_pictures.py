"""Draw a set of pictures with five captions each, to try `ccal` with.

    python examples/draw_pictures.py pictures --count 400

writes pictures/photos/*.jpg and their captions in both usual shapes: captions.csv has a row a
caption (file, caption), captions.jsonl a row a picture with a list (file, captions). The same seed
draws the same pictures. Needs Pillow.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter

Colour = tuple[int, int, int]
WIDTH, HEIGHT, SCALE = 320, 240, 2  # drawn at twice the size, which smooths the edges
HORIZON = 150

COLOURS: dict[str, tuple[Colour, tuple[str, ...]]] = {
    "red": ((206, 49, 48), ("red", "bright red", "scarlet")),
    "blue": ((49, 96, 196), ("blue", "deep blue")),
    "yellow": ((240, 198, 50), ("yellow", "golden")),
    "green": ((50, 140, 75), ("green", "dark green")),
    "white": ((244, 244, 240), ("white",)),
    "purple": ((128, 70, 160), ("purple", "violet")),
    "orange": ((234, 126, 38), ("orange",)),
    "black": ((44, 44, 52), ("black",)),
}
# What is drawn: its names, verbs, and the grounds on which it stands.
THINGS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "bird": (("bird", "songbird"), ("sits", "rests"), ("meadow", "snow", "beach")),
    "boat": (("boat", "sailing boat", "yacht"), ("sails", "floats"), ("sea", "lake")),
    "house": (("house", "cottage"), ("stands",), ("meadow", "snow", "beach")),
    "tree": (("tree",), ("grows", "stands"), ("meadow", "snow", "hills")),
    "balloon": (("balloon", "hot-air balloon"), ("flies", "hovers"), ("hills", "sea", "desert")),
    "car": (("car", "motor car"), ("drives", "is parked"), ("desert", "snow", "hills")),
    "flower": (("flower", "tulip"), ("blooms", "grows"), ("meadow", "hills", "beach")),
}
GROUNDS: dict[str, tuple[Colour, tuple[str, ...]]] = {
    "meadow": ((116, 176, 84), ("on a meadow", "in the grass", "in a green field")),
    "snow": ((232, 238, 244), ("in the snow", "in a winter landscape")),
    "beach": ((232, 208, 152), ("on the beach", "on the sand by the water")),
    "sea": ((48, 116, 168), ("on the sea", "on the waves")),
    "lake": ((84, 158, 178), ("on a lake", "on a lake between mountains")),
    "hills": ((140, 168, 80), ("in the hills", "among rolling hills")),
    "desert": ((214, 164, 96), ("in the desert", "among dunes of sand")),
}
OVER = {"sea": "over the sea", "hills": "over the hills", "desert": "over the desert"}
TIMES: dict[str, tuple[Colour, Colour, tuple[str, ...]]] = {
    "day": ((112, 178, 232), (206, 230, 244), ("under a blue sky", "on a sunny day", "by day")),
    "sunset": ((88, 72, 132), (250, 158, 88), ("at sunset", "in the evening light")),
    "night": ((16, 22, 54), (52, 66, 116), ("at night", "under the moon and the stars")),
    "cloudy": ((148, 160, 172), (206, 212, 216), ("under grey clouds", "on a cloudy day")),
}
PLACES = {"left": 0.22, "middle": 0.5, "right": 0.78}
WHERE = {
    "left": ("on the left", "at the left of the picture"),
    "middle": ("in the middle", "in the centre of the picture"),
    "right": ("on the right", "at the right of the picture"),
}
NUMBERS = {1: "one", 2: "two", 3: "three"}


@dataclass(frozen=True)
class Scene:
    """What a picture shows."""

    thing: str
    colour: str
    number: int
    ground: str
    time: str
    place: str


def all_scenes() -> list[Scene]:
    """Every scene that can be drawn; three things in a row are always in the middle."""
    return [
        Scene(thing, colour, number, ground, time, place)
        for thing, (_, _, grounds) in THINGS.items()
        for colour, number, ground, time, place in product(COLOURS, NUMBERS, grounds, TIMES, PLACES)
        if number < 3 or place == "middle"
    ]


def captions(scene: Scene, rng: random.Random) -> list[str]:
    """Five different sentences; each leaves something out."""
    found: list[str] = []
    while len(found) < 5:
        text = _caption(scene, len(found), rng)
        if text not in found:
            found.append(text)
    return found


def _caption(scene: Scene, shape: int, rng: random.Random) -> str:
    names, verbs, _ = THINGS[scene.thing]
    name, verb = rng.choice(names), rng.choice(verbs)
    colour = rng.choice(COLOURS[scene.colour][1])
    ground = rng.choice(GROUNDS[scene.ground][1])
    if scene.thing == "balloon":
        ground = OVER[scene.ground]
    time, where = rng.choice(TIMES[scene.time][2]), rng.choice(WHERE[scene.place])
    if scene.number == 1:
        what, bare, plural = (
            f"{_article(colour)} {colour} {name}",
            f"{_article(name)} {name}",
            False,
        )
    else:
        number = NUMBERS[scene.number]
        what, bare, plural = f"{number} {colour} {name}s", f"{number} {name}s", True
        where = "side by side" if scene.number == 3 else where
    acts = {"is parked": "are parked"}.get(verb, verb.removesuffix("s")) if plural else verb
    acts = {"flie": "fly"}.get(acts, acts)
    shapes = (
        f"{what} {acts} {ground} {time}",
        f"{what} {where}, {time}",
        f"{bare} {ground}, {where}",
        f"{time} {what} {acts} {ground}",
        f"a picture of {what} {ground}",
    )
    text = shapes[shape]
    return f"{text[0].upper()}{text[1:]}."


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def draw(scene: Scene, rng: random.Random) -> Image.Image:
    """The picture of a scene; small things differ from picture to picture."""
    picture = _background(scene, rng)
    pen = ImageDraw.Draw(picture)
    colour = COLOURS[scene.colour][0]
    if scene.time == "night":
        colour = _mixed(colour, (20, 24, 60), 0.25)
    paint = PAINTERS[scene.thing]
    size = {1: 1.25, 2: 0.95, 3: 0.8}[scene.number] * rng.uniform(0.9, 1.1)
    middle = PLACES[scene.place] * WIDTH
    for number in range(scene.number):
        step = 74 if scene.number == 2 else 92
        x = middle + (number - (scene.number - 1) / 2) * step + rng.uniform(-5, 5)
        x = min(max(x, 40), WIDTH - 40) if scene.number < 3 else x
        y = HORIZON + 42 + rng.uniform(-6, 10)
        if scene.thing == "balloon":
            y = HORIZON - 18 + rng.uniform(-14, 10)
        if scene.thing not in ("balloon", "boat"):
            shadow = _mixed(GROUNDS[scene.ground][0], (30, 40, 60), 0.35)
            if scene.time == "night":
                shadow = _mixed(shadow, (16, 20, 48), 0.6)
            _oval(pen, x, y + 1, 30 * size, 5 * size, shadow)
        paint(pen, x, y, size, colour)
    small = picture.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
    return small.filter(ImageFilter.GaussianBlur(0.3))


def _background(scene: Scene, rng: random.Random) -> Image.Image:
    top, bottom, _ = TIMES[scene.time]
    picture = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE))
    pen = ImageDraw.Draw(picture)
    for line in range(HORIZON):
        _box(pen, 0, line, WIDTH, line + 1, _mixed(top, bottom, line / HORIZON))
    shade = {"night": 0.62, "sunset": 0.3, "cloudy": 0.15}.get(scene.time, 0.0)
    dark = (120, 60, 70) if scene.time == "sunset" else (16, 20, 48)
    across = rng.uniform(0.1, 0.9) * WIDTH
    if scene.time == "night":
        for _ in range(60):
            _oval(pen, rng.uniform(0, WIDTH), rng.uniform(0, 110), 0.8, 0.8, (240, 240, 220))
        _oval(pen, across, 36, 15, 15, (246, 240, 206))
        _oval(pen, across + 7, 32, 13, 13, _mixed(top, bottom, 0.2))
    elif scene.time == "sunset":
        _oval(pen, across, HORIZON - 8, 26, 26, (255, 214, 120))
    elif scene.time == "day":
        _oval(pen, across, 34, 17, 17, (255, 232, 120))
    for _ in range({"cloudy": 6, "day": 2}.get(scene.time, 0)):
        x, y = rng.uniform(0, WIDTH), rng.uniform(15, 70)
        cloud = (176, 184, 192) if scene.time == "cloudy" else (250, 252, 252)
        for dx, dy, radius in ((-16, 3, 12), (0, -3, 17), (17, 3, 12)):
            _oval(pen, x + dx, y + dy, radius, radius * 0.75, cloud)
    if scene.ground in ("lake", "hills"):
        for number in range(4):
            x, height = (number + rng.uniform(0, 0.7)) * 90, rng.uniform(26, 60)
            far = _mixed((126, 142, 160) if scene.ground == "lake" else (120, 150, 96), dark, shade)
            if scene.ground == "lake":
                peak = [(x - 75, HORIZON), (x, HORIZON - height), (x + 75, HORIZON)]
                _shape(pen, peak, far)
            else:
                _oval(pen, x, HORIZON + 12, 80, height, far)
    ground = _mixed(GROUNDS[scene.ground][0], dark, shade)
    _box(pen, 0, HORIZON, WIDTH, HEIGHT, ground)
    if scene.ground == "beach":
        _box(pen, 0, HORIZON, WIDTH, HORIZON + 14, _mixed((64, 140, 186), dark, shade))
    for _ in range(70):
        x, y = rng.uniform(0, WIDTH), rng.uniform(HORIZON + 16, HEIGHT)
        tone = _mixed(ground, (255, 255, 255) if rng.random() < 0.5 else (40, 60, 40), 0.16)
        if scene.ground in ("sea", "lake"):
            _box(pen, x, y, x + rng.uniform(8, 24), y + 1.2, _mixed(ground, (255, 255, 255), 0.25))
        elif scene.ground in ("meadow", "hills"):
            _shape(pen, [(x, y), (x + 1.5, y - 6), (x + 3, y)], tone)
        else:
            _oval(pen, x, y, rng.uniform(3, 12), 1.2, tone)
    return picture


def _bird(pen: ImageDraw.ImageDraw, x: float, y: float, s: float, c: Colour) -> None:
    leg, beak = (150, 100, 50), (240, 160, 40)
    for dx in (-5, 5):
        _box(pen, x + dx * s, y - 14 * s, x + (dx + 1.8) * s, y, leg)
    _shape(pen, [(x - 20 * s, y - 26 * s), (x - 46 * s, y - 34 * s), (x - 40 * s, y - 20 * s)], c)
    _oval(pen, x, y - 26 * s, 25 * s, 16 * s, c)
    _oval(pen, x + 19 * s, y - 43 * s, 12 * s, 12 * s, c)
    _shape(
        pen, [(x + 29 * s, y - 47 * s), (x + 42 * s, y - 42 * s), (x + 29 * s, y - 38 * s)], beak
    )
    _oval(pen, x - 5 * s, y - 27 * s, 15 * s, 8 * s, _mixed(c, (20, 20, 30), 0.3))
    _oval(pen, x + 6 * s, y - 20 * s, 12 * s, 8 * s, _mixed(c, (255, 255, 255), 0.35))
    _oval(pen, x + 22 * s, y - 45 * s, 3 * s, 3 * s, (255, 255, 255))
    _oval(pen, x + 22.6 * s, y - 45 * s, 1.6 * s, 1.6 * s, (20, 20, 20))


def _boat(pen: ImageDraw.ImageDraw, x: float, y: float, s: float, c: Colour) -> None:
    hull = [(x - 38 * s, y - 14 * s), (x + 40 * s, y - 14 * s), (x + 26 * s, y), (x - 28 * s, y)]
    _box(pen, x - 1.5 * s, y - 82 * s, x + 1.5 * s, y - 12 * s, (110, 78, 50))
    _shape(pen, [(x + 4 * s, y - 80 * s), (x + 36 * s, y - 20 * s), (x + 4 * s, y - 20 * s)], c)
    light = _mixed(c, (255, 255, 255), 0.3)
    _shape(pen, [(x - 4 * s, y - 70 * s), (x - 28 * s, y - 20 * s), (x - 4 * s, y - 20 * s)], light)
    _shape(pen, hull, (126, 84, 52))
    _box(pen, x - 37 * s, y - 14 * s, x + 39 * s, y - 11 * s, (236, 224, 200))
    _box(pen, x - 34 * s, y, x + 34 * s, y + 1.6 * s, (226, 238, 246))


def _house(pen: ImageDraw.ImageDraw, x: float, y: float, s: float, c: Colour) -> None:
    _box(pen, x + 14 * s, y - 76 * s, x + 22 * s, y - 52 * s, (120, 80, 70))
    _box(pen, x - 32 * s, y - 42 * s, x + 32 * s, y, c)
    roof = _mixed(c, (50, 30, 30), 0.55)
    _shape(pen, [(x - 40 * s, y - 42 * s), (x, y - 76 * s), (x + 40 * s, y - 42 * s)], roof)
    _box(pen, x - 7 * s, y - 24 * s, x + 7 * s, y, (104, 70, 46))
    for dx in (-24, 12):
        _box(pen, x + dx * s, y - 34 * s, x + (dx + 12) * s, y - 20 * s, (250, 250, 250))
        _box(pen, x + (dx + 2) * s, y - 32 * s, x + (dx + 10) * s, y - 22 * s, (255, 226, 130))


def _tree(pen: ImageDraw.ImageDraw, x: float, y: float, s: float, c: Colour) -> None:
    _box(pen, x - 5 * s, y - 38 * s, x + 5 * s, y, (112, 78, 48))
    for dx, dy, radius, mix in ((-18, 46, 20, 0.12), (18, 46, 20, 0.0), (0, 66, 24, -0.14)):
        tone = _mixed(c, (20, 30, 20) if mix > 0 else (255, 255, 255), abs(mix))
        _oval(pen, x + dx * s, y - dy * s, radius * s, radius * s, tone)


def _balloon(pen: ImageDraw.ImageDraw, x: float, y: float, s: float, c: Colour) -> None:
    for dx in (-8, 8):
        _line(pen, x + 2.4 * dx * s, y - 36 * s, x + dx * s, y, (90, 70, 50))
    neck = [(x - 27 * s, y - 44 * s), (x + 27 * s, y - 44 * s), (x + 9 * s, y - 14 * s)]
    _shape(pen, [*neck, (x - 9 * s, y - 14 * s)], c)
    _oval(pen, x, y - 58 * s, 31 * s, 32 * s, c)
    _oval(pen, x, y - 58 * s, 16 * s, 32 * s, _mixed(c, (255, 255, 255), 0.4))
    _oval(pen, x, y - 58 * s, 6 * s, 32 * s, c)
    _box(pen, x - 9 * s, y, x + 9 * s, y + 12 * s, (140, 96, 56))


def _car(pen: ImageDraw.ImageDraw, x: float, y: float, s: float, c: Colour) -> None:
    cabin = [(x - 22 * s, y - 24 * s), (x - 13 * s, y - 42 * s), (x + 13 * s, y - 42 * s)]
    _shape(pen, [*cabin, (x + 24 * s, y - 24 * s)], _mixed(c, (255, 255, 255), 0.12))
    for left, right in ((-16, -1), (2, 17)):
        glass = [(x + left * s, y - 25 * s), (x + (left + 4) * s, y - 38 * s)]
        glass += [(x + (right - 3) * s, y - 38 * s), (x + right * s, y - 25 * s)]
        _shape(pen, glass, (206, 232, 244))
    pen.rounded_rectangle(_scaled(x - 40 * s, y - 26 * s, x + 40 * s, y - 7 * s), 8 * s * SCALE, c)
    _oval(pen, x + 37 * s, y - 18 * s, 3.4 * s, 3.4 * s, (255, 240, 170))
    for dx in (-22, 22):
        _oval(pen, x + dx * s, y - 7 * s, 9.5 * s, 9.5 * s, (36, 36, 40))
        _oval(pen, x + dx * s, y - 7 * s, 4.5 * s, 4.5 * s, (190, 190, 196))


def _flower(pen: ImageDraw.ImageDraw, x: float, y: float, s: float, c: Colour) -> None:
    green = (66, 130, 60)
    _box(pen, x - 2 * s, y - 44 * s, x + 2 * s, y, green)
    _shape(pen, [(x, y - 4 * s), (x - 20 * s, y - 34 * s), (x - 4 * s, y - 20 * s)], green)
    _shape(pen, [(x, y - 4 * s), (x + 20 * s, y - 30 * s), (x + 4 * s, y - 18 * s)], green)
    cup = [
        (x - 17 * s, y - 82 * s),
        (x - 8 * s, y - 68 * s),
        (x, y - 86 * s),
        (x + 8 * s, y - 68 * s),
    ]
    _shape(
        pen, [*cup, (x + 17 * s, y - 82 * s), (x + 18 * s, y - 58 * s), (x - 18 * s, y - 58 * s)], c
    )
    _oval(pen, x, y - 58 * s, 18 * s, 16 * s, c)
    _oval(pen, x, y - 60 * s, 7 * s, 15 * s, _mixed(c, (255, 255, 255), 0.25))


Painter = Callable[[ImageDraw.ImageDraw, float, float, float, Colour], None]
PAINTERS: dict[str, Painter] = {
    "bird": _bird,
    "boat": _boat,
    "house": _house,
    "tree": _tree,
    "balloon": _balloon,
    "car": _car,
    "flower": _flower,
}


def _scaled(*values: float) -> tuple[float, ...]:
    return tuple(value * SCALE for value in values)


def _oval(pen: ImageDraw.ImageDraw, x: float, y: float, rx: float, ry: float, c: Colour) -> None:
    pen.ellipse(_scaled(x - rx, y - ry, x + rx, y + ry), fill=c)


def _box(pen: ImageDraw.ImageDraw, x: float, y: float, x2: float, y2: float, c: Colour) -> None:
    pen.rectangle(_scaled(x, y, x2, y2), fill=c)


def _line(pen: ImageDraw.ImageDraw, x: float, y: float, x2: float, y2: float, c: Colour) -> None:
    pen.line(_scaled(x, y, x2, y2), fill=c, width=SCALE)


def _shape(pen: ImageDraw.ImageDraw, points: list[tuple[float, float]], c: Colour) -> None:
    pen.polygon([(x * SCALE, y * SCALE) for x, y in points], fill=c)


def _mixed(one: Colour, other: Colour, share: float) -> Colour:
    r, g, b = (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return r, g, b


def write(folder: Path, count: int, seed: int) -> None:
    """Draw `count` pictures into a folder, with their captions in both shapes."""
    rng = random.Random(seed)
    scenes = rng.sample(all_scenes(), count)
    (folder / "photos").mkdir(parents=True, exist_ok=True)
    rows = []
    for number, scene in enumerate(scenes, start=1):
        file = f"photos/{scene.thing}-{number:03d}.jpg"
        draw(scene, rng).save(folder / file, quality=88)
        rows.append((file, captions(scene, rng)))
    with (folder / "captions.csv").open("w", newline="", encoding="utf-8") as table:
        writer = csv.writer(table)
        writer.writerow(["file", "caption"])
        writer.writerows([file, text] for file, texts in rows for text in texts)
    with (folder / "captions.jsonl").open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps({"file": f, "captions": texts}) + "\n" for f, texts in rows)


def main() -> None:
    """Read the arguments, and draw."""
    parser = argparse.ArgumentParser(description="Draw pictures with five captions each.")
    parser.add_argument("folder", type=Path, help="where to put them")
    parser.add_argument("--count", type=int, default=400, help="how many pictures (400)")
    parser.add_argument("--seed", type=int, default=0, help="draws other ones (0)")
    given = parser.parse_args()
    if not 1 <= given.count <= len(all_scenes()):
        parser.error(f"--count must lie between 1 and {len(all_scenes()):,}")
    write(given.folder, given.count, given.seed)
    print(f"Drew {given.count} pictures: {given.folder}/photos, captions.csv and captions.jsonl")


if __name__ == "__main__":
    main()

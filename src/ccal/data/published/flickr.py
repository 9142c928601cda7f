"""Flickr8k and Flickr30k as published: a token file of captions, and lists of image names."""

import re
from collections.abc import Mapping
from pathlib import Path

from ccal.data.published.captions import Captions, Image, Problems, build_table, check_options
from ccal.data.published.plain_files import FilePath, read_lines, read_lists
from ccal.data.tables import Table

_ID = re.compile(r"(?P<name>[^\t]+)#(?P<number>\d+)")


def read_flickr(
    tokens: FilePath,
    *,
    images: FilePath | None,
    splits: Mapping[str, FilePath] | None = None,
    captions: Captions = "separate",
    strict: bool = True,
) -> Table:
    """Read a token file: `name.jpg#number`, a tab and a caption in each line.

    `tokens` is `Flickr8k.token.txt` or `results_20130124.token`, `images` the folder of the `.jpg`
    files or None. `splits` gives the files that list the images of "train", "valid" and "test",
    one a line, with or without `.jpg`; images in none of them are left out. Without it `split` is
    None, and `ccal.data.split_pairs` keeps an image's captions together.

    Numbers to check yours with:

    - Flickr8k: 8,092 names with five captions each, of which one ends in `.jpg.1` and has no file,
      so that reading files without `splits` takes `strict=False`. `Flickr_8k.trainImages.txt`,
      `.devImages.txt` and `.testImages.txt` name 6,000, 1,000 and 1,000.
    - Flickr30k: 31,783 images, 158,915 captions. The paper splits 28,000 / 1,000 / 1,000 and does
      not say which; it concatenates the five captions (protocol 3 of Yan and Mikolajczyk 2015), and
      its TF-IDF of lemmas that occur five times or more has 5,793 dimensions.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     tokens = Path(folder, "Flickr8k.token.txt")
    ...     _ = tokens.write_text("7.jpg#0\\tA dog .\\n7.jpg#1\\tA brown dog .\\n")
    ...     pairs = read_flickr(tokens, images=None).pairs
    >>> pairs.column("image")[:], pairs.column("text")[:], pairs.group
    (['7.jpg', '7.jpg'], ['A dog .', 'A brown dog .'], array([0, 0]))
    """
    folder = check_options(images, captions)
    bad = Problems(path=Path(tokens))
    found = _images(tokens, bad)
    if splits is not None:
        for name, listed in read_lists(splits).items():
            # The lists of Flickr30k Entities leave the suffix out.
            image = found.get(name) or found.get(f"{name}.jpg")
            if image is None:
                bad.at(listed.place, f"{name} has no captions in {Path(tokens).name}")
            else:
                image.split = listed.split
    return build_table(
        list(found.values()),
        bad,
        folder=folder,
        captions=captions,
        has_split=splits is not None,
        strict=strict,
    )


def _images(tokens: FilePath, bad: Problems) -> dict[str, Image]:
    """Images by name, in the order of their first line."""
    images: dict[str, Image] = {}
    lines: dict[str, int] = {}
    for line, text in read_lines(tokens):
        place = f"line {line}"
        # Only the first tab separates, since some captions contain tabs; an empty caption has none.
        key, _, caption = text.partition("\t")
        match = _ID.fullmatch(key.rstrip())
        if match is None:
            bad.at(place, f"expected name.jpg#number, a tab and a caption, got {text[:60]!r}")
            continue
        image = images.setdefault(match["name"], Image(match["name"], place))
        first = lines.setdefault(match[0], line)
        if first != line:
            bad.at(place, f"{match[0]} was given in line {first} already")
        else:
            image.describe(caption, place, bad)
    return images

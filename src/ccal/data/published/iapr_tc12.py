"""IAPR TC-12 as published: one annotation file an image, and no split."""

import re
from pathlib import Path

from ccal.data.published.captions import Image, Problems, build_table, check_options
from ccal.data.published.plain_files import FilePath, existing_folder, visible
from ccal.data.tables import Table
from ccal.errors import InputError


def read_iapr_tc12(
    annotations: FilePath, *, images: FilePath | None, strict: bool = False
) -> Table:
    """Read the descriptions in `annotations_complete_eng/NN/N.eng`.

    `annotations` is that folder, `images` the one with the image files `NN/N.jpg`, or None. An
    image has one description, which is its text; title, notes, place and date are not read. No
    split is published, so `split` is None; `ccal.data.split_pairs` draws one.

    Of the 20,000 images that are described, 4 are missing, so that 19,996 can be used. That is why
    `strict` is off here: `Table.bad` says which were left out, and how many.

    The paper draws 1,000 images for validation and 2,000 for the test, and does not say which; that
    leaves 16,996 for training. Its TF-IDF of lemmas that occur three times or more has 2,048
    dimensions. The authors' code divides image features by their greatest value.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for number in (25, 112):
    ...         path = Path(folder, "00", f"{number}.eng")
    ...         path.parent.mkdir(exist_ok=True)
    ...         _ = path.write_text("<DOC>\\n<DESCRIPTION>a white house;</DESCRIPTION>\\n"
    ...                             f"<IMAGE>images/00/{number}.jpg</IMAGE>\\n</DOC>\\n")
    ...     table = read_iapr_tc12(folder, images=None)
    >>> table.pairs[0], len(table.pairs)
    (('00/25.jpg', 'a white house;'), 2)
    """
    root = check_options(images, "concatenate")
    folder = existing_folder(annotations)
    # Names are numbers without zeros in front: 00/25.eng comes before 00/112.eng.
    paths = visible(folder, "*/*.eng")
    paths.sort(key=lambda path: (path.parent.name, len(path.stem), path.stem))
    if not paths:
        raise InputError(
            f"{folder}: no files */*.eng; give the folder annotations_complete_eng itself."
        )
    bad = Problems(path=folder)
    found = [_image(path, bad) for path in paths]
    # Each image has one text, so no groups are needed.
    return build_table(
        found, bad, folder=root, captions="concatenate", has_split=False, strict=strict
    )


def _image(path: Path, bad: Problems) -> Image:
    """The image of one annotation file, without a name if it has none."""
    place = f"{path.parent.name}/{path.name}"
    text = _decode(path.read_bytes())
    name = _field(text, "IMAGE")
    if not name:
        bad.at(place, "no <IMAGE>")
        return Image("", place)
    image = Image(name.removeprefix("images/"), place)
    image.describe(_field(text, "DESCRIPTION"), place, bad, "<DESCRIPTION>")
    return image


def _field(text: str, tag: str) -> str | None:
    """The text between a tag and the next one.

    An XML parser would refuse the files that have a bare & or lack a closing tag.
    """
    match = re.search(rf"<{tag}>(.*?)(?=</?[A-Z]+>|\Z)", text, flags=re.DOTALL)
    return None if match is None else match[1].strip()


def _decode(raw: bytes) -> str:
    """Text of files that are Latin-1 as published, with Windows' quotes, or were made UTF-8."""
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return raw.decode("latin-1")

"""Layouts of published data sets: which files they have, where they come from, what is missing.

`PUBLISHED` describes each layout as data; `describe_layout` puts it into words, and `check_layout`
finds its files in a folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from ccal.bounds import Options, check
from ccal.columns import align
from ccal.data.published.plain_files import FilePath, existing_folder, visible
from ccal.data.source import LAYOUTS, Layout
from ccal.errors import InputError

LISTS = ("train", "valid", "test")
"""The entries of a layout that list the images or classes of each part."""


@dataclass(frozen=True)
class Entry:
    """A file of a data set, or a folder if its name ends with "/".

    `names` are its published name and others that are accepted. A folder must hold a file of one of
    the patterns `holds`; earlier patterns go before later ones, and then earlier names.
    """

    names: tuple[str, ...]
    what: str
    needed: bool = True
    holds: tuple[str, ...] = ("*",)

    def __str__(self) -> str:
        return " or ".join(self.names)


Entries: TypeAlias = Mapping[str, Entry]


@dataclass(frozen=True)
class Published:
    """A data set: its title, who publishes it, its entries by role, and numbers to check.

    The first entry has the texts; "images", and for COCO "images_val", are folders of image files.
    `held_out` is how many images validate and test if they are drawn at random.
    """

    title: str
    where: str
    entries: Entries
    numbers: str
    held_out: tuple[int, int] | None = None


_FLICKR8K_IMAGES = Entry(("Flicker8k_Dataset/", "Flickr8k_Dataset/"), "images", holds=("*.jpg",))
_FLICKR30K_IMAGES = Entry(("flickr30k-images/", "flickr30k_images/"), "images", holds=("*.jpg",))
_COCO_IMAGES = {
    "images": Entry(("train2014/", "images/train2014/"), "training images", holds=("*.jpg",)),
    "images_val": Entry(("val2014/", "images/val2014/"), "validation images", holds=("*.jpg",)),
}
_KARPATHY_IMAGES: dict[str, Entries] = {
    "dataset_flickr8k": {"images": _FLICKR8K_IMAGES},
    "dataset_flickr30k": {"images": _FLICKR30K_IMAGES},
    "dataset_coco": _COCO_IMAGES,
}

PUBLISHED: dict[Layout, Published] = {
    "flickr8k": Published(
        "Flickr8k (Hodosh et al. 2013)",
        "University of Illinois, Department of Computer Science (request form); archives "
        "Flickr8k_Dataset.zip and Flickr8k_text.zip",
        {
            "captions": Entry(("Flickr8k.token.txt",), "captions: NAME.jpg#NUMBER, tab, caption"),
            "train": Entry(("Flickr_8k.trainImages.txt",), "names of training images"),
            "valid": Entry(("Flickr_8k.devImages.txt",), "names of validation images"),
            "test": Entry(("Flickr_8k.testImages.txt",), "names of test images"),
            "images": _FLICKR8K_IMAGES,
        },
        "6,000 / 1,000 / 1,000 images to train, validate and test, with five captions each",
    ),
    "flickr30k": Published(
        "Flickr30k (Young et al. 2014)",
        "University of Illinois, Department of Computer Science (request form); lists of parts: "
        "Flickr30k Entities, github.com/BryanPlummer/flickr30k_entities",
        {
            "captions": Entry(
                ("results_20130124.token",), "captions: NAME.jpg#NUMBER, tab, caption"
            ),
            "train": Entry(("train.txt",), "names of training images", needed=False),
            "valid": Entry(("val.txt",), "names of validation images", needed=False),
            "test": Entry(("test.txt",), "names of test images", needed=False),
            "images": _FLICKR30K_IMAGES,
        },
        "31,783 images with five captions each; without lists, 1,000 validate and 1,000 test",
        held_out=(1000, 1000),
    ),
    "karpathy": Published(
        "Karpathy's splits of Flickr8k, Flickr30k and COCO (Karpathy and Fei-Fei 2015)",
        "Andrej Karpathy, Deep Visual-Semantic Alignments (Stanford), caption_datasets.zip; the "
        "images come with each data set",
        {
            "captions": Entry(
                tuple(f"{name}.json" for name in _KARPATHY_IMAGES), "captions and splits"
            ),
            "images": Entry(
                (*_FLICKR8K_IMAGES.names[:1], *_FLICKR30K_IMAGES.names[:1], "train2014/"),
                "images of the set (COCO also has val2014/)",
                holds=("*.jpg",),
            ),
        },
        "Flickr8k 6,000 / 1,000 / 1,000 images, Flickr30k 29,000 / 1,014 / 1,000, COCO 113,287 / "
        "5,000 / 5,000",
    ),
    "coco": Published(
        "COCO captions, 2014 (Chen et al. 2015)",
        "cocodataset.org: 2014 train images, 2014 val images, 2014 train/val annotations",
        {
            "captions": Entry(
                ("annotations/captions_train2014.json", "captions_train2014.json"),
                "captions of training images",
            ),
            "captions_val": Entry(
                ("annotations/captions_val2014.json", "captions_val2014.json"),
                "captions of validation images",
            ),
            **_COCO_IMAGES,
        },
        "82,783 training images; of the 40,504 validation images 5,000, drawn at random, are the "
        "test, since the captions of the test images are not published",
        held_out=(5000, 5000),
    ),
    "iapr-tc12": Published(
        "IAPR TC-12 (Grubinger et al. 2006)",
        "ImageCLEF, IAPR TC-12 Benchmark (iaprtc12.tgz)",
        {
            "captions": Entry(
                ("annotations_complete_eng/",), "descriptions NN/NUMBER.eng", holds=("*/*.eng",)
            ),
            "images": Entry(("images/",), "images NN/NUMBER.jpg", holds=("*/*.jpg",)),
        },
        "19,996 images with one description each; 1,000 validate and 2,000 test",
        held_out=(1000, 2000),
    ),
    "reed": Published(
        "CUB or Flowers with captions (Reed et al. 2016)",
        "captions: Reed et al. 2016, github.com/reedscot/cvpr2016; images: CUB_200_2011 (Caltech), "
        "102 Category Flower Dataset (Oxford, Visual Geometry Group)",
        {
            "captions": Entry(("text_c10/",), "captions CLASS/IMAGE.txt", holds=("*/*.txt",)),
            "train": Entry(("trainclasses.txt",), "names of training classes", needed=False),
            "valid": Entry(("valclasses.txt",), "names of validation classes", needed=False),
            "trainval": Entry(("trainvalclasses.txt",), "names of both together", needed=False),
            "test": Entry(("testclasses.txt",), "names of test classes", needed=False),
            "images": Entry(
                ("images/", "jpg/"),
                "images CLASS/IMAGE.jpg (CUB), IMAGE.jpg (Flowers), or features CLASS.t7",
                holds=("*/*.jpg", "*.jpg", "*.t7"),
            ),
        },
        "CUB 11,788 images of 200 classes (100 / 50 / 50), Flowers 8,189 of 102 (62 / 20 / 20; the "
        "paper trains on 82); ten captions each",
    ),
}


def describe_layout(name: Layout) -> str:
    """What a data set is, the files that are expected, and where it is published.

    >>> print(describe_layout("iapr-tc12"))
    IAPR TC-12 (Grubinger et al. 2006), layout 'iapr-tc12':
      annotations_complete_eng/  descriptions NN/NUMBER.eng
      images/                    images NN/NUMBER.jpg
    19,996 images with one description each; 1,000 validate and 2,000 test.
    Published: ImageCLEF, IAPR TC-12 Benchmark (iaprtc12.tgz).
    """
    check("layout", name, Options(*LAYOUTS))
    layout = PUBLISHED[name]
    lines = [
        [str(entry), entry.what + ("" if entry.needed else " (optional)")]
        for entry in layout.entries.values()
    ]
    return "\n".join(
        [
            f"{layout.title}, layout {name!r}:",
            *align(lines, left=(0, 1), indent=2),
            f"{layout.numbers}.",
            f"Published: {layout.where}.",
        ]
    )


def check_layout(
    name: Layout,
    folder: FilePath,
    *,
    files: FilePath | None = None,
    images: bool = True,
    listed: bool = True,
) -> dict[str, Path]:
    """Find the entries of a layout by role; if one is missing, say which are there and which not.

    An entry may lie in the folder or one level deeper, as some archives have it. `files` is the
    folder of the image files if they are elsewhere; without `images` none are looked for. Lists of
    the parts may be missing if the split is not `listed`. For "karpathy", `folder` may be the JSON
    file itself.

    >>> check_layout("iapr-tc12", "/nowhere")
    Traceback (most recent call last):
    ...
    ccal.errors.InputError: /nowhere: no such folder; expected IAPR TC-12 (Grubinger et al. 2006).
      missing  annotations_complete_eng/  descriptions NN/NUMBER.eng
      missing  images/                    images NN/NUMBER.jpg
    ...
    """
    check("layout", name, Options(*LAYOUTS))
    layout, root = PUBLISHED[name], Path(folder)
    entries = dict(layout.entries)
    if name == "karpathy":
        root, entries = _karpathy(root, entries)
    elif f"{root.absolute().name}/" in entries["captions"].names:
        root = root.absolute().parent
    for key in LISTS if not listed else ():
        if key in entries:
            entries[key] = replace(entries[key], needed=False)
    if files is not None or not images:
        entries = {key: entry for key, entry in entries.items() if not key.startswith("images")}
    found = {key: _find(root, entry) for key, entry in entries.items()}
    there = {key: path for key, path in found.items() if path is not None}
    if any(entry.needed and key not in there for key, entry in entries.items()):
        raise InputError(_missing(layout, root, entries, there))
    if files is not None:
        there["images"] = existing_folder(files)
    return there


def _karpathy(given: Path, entries: dict[str, Entry]) -> tuple[Path, dict[str, Entry]]:
    """The folder and the entries of the one JSON file that is given or that a folder has."""
    captions = entries["captions"]
    if given.is_file():
        root, names = given.parent, [given.name]
    else:
        root = given
        names = [name for name in captions.names if _find(root, replace(captions, names=(name,)))]
    if len(names) > 1:
        raise InputError(
            f"{root} has {' and '.join(names)}; give one of them in place of the folder."
        )
    if names:
        entries["captions"] = replace(captions, names=(names[0],))
        entries |= _KARPATHY_IMAGES.get(Path(names[0]).stem, {})
    return root, entries


def _find(root: Path, entry: Entry) -> Path | None:
    """The entry in the folder, or in one of its folders; refuse to choose between two of these."""
    if not root.is_dir():
        return None
    deeper = [path for path in visible(root, "*") if path.is_dir()]
    for pattern in entry.holds:
        for name in entry.names:
            if _is_there(root / name, name, pattern):
                return root / name
            found = [path / name for path in deeper if _is_there(path / name, name, pattern)]
            if len(found) > 1:
                raise InputError(
                    f"{root} has {' and '.join(map(str, (p.relative_to(root) for p in found)))}; "
                    "give the folder of one data set."
                )
            if found:
                return found[0]
    return None


def _is_there(path: Path, name: str, pattern: str) -> bool:
    if not name.endswith("/"):
        return path.is_file()
    return path.is_dir() and any(True for _ in path.glob(pattern))


def _missing(layout: Published, root: Path, entries: Entries, there: Mapping[str, Path]) -> str:
    """The error: what was expected, found or missing line by line, and what to do."""
    lines = []
    for key, entry in entries.items():
        state = "missing" if entry.needed else "not there"
        if any((root / name).is_dir() for name in entry.names if name.endswith("/")):
            state = "empty"
        shown = str(entry)
        if key in there:
            state = "found"
            shown = str(there[key].relative_to(root)) + "/" * there[key].is_dir()
        lines.append([state, shown, entry.what + ("" if entry.needed else " (optional)")])
    head = "some files are missing" if root.is_dir() else "no such folder"
    text = [f"{root}: {head}; expected {layout.title}.", *align(lines, left=(0, 1, 2), indent=2)]
    text.append("These may also lie one folder deeper.")
    if any(key.startswith("images") and key not in there for key in entries):
        text.append(
            "If the images lie elsewhere, say where the image files are (--files FOLDER), or give "
            "their features (--x image=features.npy; of `ccal reproduce` --features features.npy)."
        )
    text.append(f"Published: {layout.where}.")
    return "\n".join(text)

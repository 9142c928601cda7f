"""Published data sets as their authors give them out: image names, captions, classes and splits.

flickr      Flickr8k and Flickr30k: token files, and lists of the images of each part
karpathy    `dataset_flickr8k.json`, `dataset_flickr30k.json`, `dataset_coco.json`
coco        COCO captions: `captions_train2014.json`, `captions_val2014.json`
iapr_tc12   IAPR TC-12: one `.eng` file an image
reed        text_c10 folders for CUB and Flowers (zero-shot): one file an image, lists of classes
torch7      tensors in `.t7` files, such as the image features of Reed et al.
layouts     the files of each data set, and which of them a folder has
folders     `read_layout`: one function for all of these folders
captions    what all readers do alike: images, captions, features, and what is wrong with them
plain_files lists of names, JSON, folders

Every reader gives a `Table`, whose pairs have the modalities "image" (a path) and "text". `rows` is
the number of each pair's image in the order of the data set, from 0. `captions="separate"`
keeps one pair a caption, of one group an image (VSE protocol); `captions="concatenate"` makes one
text of an image's captions (protocol 3, which the paper follows). `images` is the folder of the
image files, all of which must exist; with None the names stay as the data set gives them.
"""

from ccal.data.published.captions import Problems, image_names, match_features
from ccal.data.published.coco import read_coco
from ccal.data.published.flickr import read_flickr
from ccal.data.published.folders import read_layout
from ccal.data.published.iapr_tc12 import read_iapr_tc12
from ccal.data.published.karpathy import read_karpathy
from ccal.data.published.layouts import check_layout, describe_layout
from ccal.data.published.reed import read_reed, read_reed_features
from ccal.data.published.torch7 import read_t7

__all__ = [
    "Problems",
    "check_layout",
    "describe_layout",
    "image_names",
    "match_features",
    "read_coco",
    "read_flickr",
    "read_iapr_tc12",
    "read_karpathy",
    "read_layout",
    "read_reed",
    "read_reed_features",
    "read_t7",
]

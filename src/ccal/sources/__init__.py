"""Where pairs come from, as plain data: files, columns and split, read again whenever needed.

source       `Source`: what a person said of their data, and `Source.read`
view         one modality: a column or an array file, with its name
layouts      published data sets whose folder stands for a table
reading      `Data`: the pairs and their split
fingerprint  hashes by which changed data is noticed
"""

from ccal.sources.reading import Data
from ccal.sources.source import Source
from ccal.sources.view import View

__all__ = ["Data", "Source", "View"]

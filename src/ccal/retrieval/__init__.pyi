from ccal.retrieval.embedding import fingerprint as fingerprint
from ccal.retrieval.index import Index as Index
from ccal.retrieval.items import DamagedIndexError as DamagedIndexError
from ccal.retrieval.items import Hit as Hit
from ccal.retrieval.items import IndexInUseError as IndexInUseError
from ccal.retrieval.items import Item as Item
from ccal.retrieval.items import OtherModelError as OtherModelError
from ccal.retrieval.items import Stats as Stats

"""A Milvus server, and the collection of one index there."""

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import numpy as np

from ccal.errors import CcalError, InputError
from ccal.optional import require
from ccal.retrieval.backends.base import Vectors
from ccal.retrieval.exact import slack
from ccal.retrieval.items import Binding, Item

T = TypeVar("T")
FACTS = ("id", "modality", "metadata", "file")
LIMIT = 16_384
"""Milvus returns at most this many rows to one request."""
EXACT = 65_536
"""As many cells as an index can have; one without cells does not look at the number."""
RECALL = 0.99
"""Share of the ten nearest that an approximate search must find."""
TIMEOUT = 60.0
STRONG = {"consistency_level": "Strong"}
"""For reads that a change depends on, whatever level searches have."""

_PROPERTY, _EARLIER = "ccal.index", "ccal.state"
_REQUEST_BYTES = 8 << 20
# No such collection, not loaded, a segment is missing, no index: as while cells are built.
_UNAVAILABLE = {100, 101, 503, 700}
# A search lost rows that somebody replaced before their fields were read.
_OVERTAKEN = "incomplete query result"


class UnavailableError(CcalError):
    """The collection is not there, or cannot answer at this moment; ask again."""


@dataclass(frozen=True)
class About:
    """What the server knows of an index, kept as a property of its collection.

    `numbered` is the highest number reserved for an item. `cells` are those of the index for
    approximate search, 0 without one; a search looks into `probes` of them.
    """

    collection: str
    binding: str
    numbered: int = 0
    cells: int = 0
    probes: int = 0

    @property
    def bound(self) -> Binding:
        """The binding."""
        return Binding.from_json(self.binding)


class Server:
    """Requests for one index; any number of threads may make some."""

    def __init__(self, location: str) -> None:
        parsed = parse_location(location)
        self.name, self.location, self._shards = parsed["name"], parsed["shown"], parsed["shards"]
        self.level = {"consistency_level": parsed["consistency"]}
        self._pymilvus = require("pymilvus", extra="milvus", purpose="An index in Milvus")
        # It prints every error with a traceback; ours are raised.
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
        connection = {key: parsed[key] for key in ("uri", "token", "db_name")}
        with self._named_errors():
            self._client = self._pymilvus.MilvusClient(**connection, timeout=TIMEOUT)

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """A request, by the name of the client's method."""
        with self._named_errors():
            return getattr(self._client, method)(*arguments, **options)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def about(self, *, replace: bool = False) -> About | None:
        """The index that the alias points to; None if there is none.

        One of an earlier version is refused, unless it is to be replaced.
        """
        try:
            found = self.call("describe_collection", self.name)
        except UnavailableError:
            return None
        name, properties = found["collection_name"], found["properties"]
        if _EARLIER in properties and replace:
            return About(name, "")
        if _EARLIER in properties:
            raise InputError(
                f"{self.location} was written by an earlier version of ccal, whose rows have "
                "another form; build it again from its items, with `ccal index MODEL INPUT "
                "--rebuild` (in Python, Index.build with replace=True)."
            )
        if _PROPERTY not in properties:
            problem = f"there is a collection {self.name} of something else"
            raise InputError(f"{self.location} is no index: {problem}.")
        return About(name, **json.loads(properties[_PROPERTY]))

    def properties(self) -> dict[str, str]:
        """All that is kept with the collection."""
        found: dict[str, str] = self.call("describe_collection", self.name)["properties"]
        return found

    def set_properties(self, about: About, properties: Mapping[str, str]) -> None:
        """Keep texts with the collection."""
        self.call("alter_collection_properties", about.collection, dict(properties))

    def reserve(self, about: About, count: int) -> tuple[About, range]:
        """Numbers for new items, reserved first: after a failure none is given twice."""
        numbers = range(about.numbered + 1, about.numbered + 1 + count)
        about = replace(about, numbered=about.numbered + count)
        self._keep(about)
        return about, numbers

    def make_collection(self, about: About) -> None:
        """An empty collection, searched exactly."""
        kinds = self._pymilvus.DataType
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", kinds.VARCHAR, max_length=32, is_primary=True)
        schema.add_field("number", kinds.INT64)
        for column in ("id", "modality", "file"):
            schema.add_field(column, kinds.VARCHAR, max_length=65_535)
        schema.add_field("metadata", kinds.JSON)
        schema.add_field("vector", kinds.FLOAT_VECTOR, dim=about.bound.dim)
        name = about.collection
        self.call("create_collection", name, schema=schema, num_shards=self._shards)
        self.call("create_index", name, self._index("FLAT"), sync=False)
        self.call("load_collection", name)
        self._keep(about)

    def make_cells(self, about: About) -> None:
        """Index a collection that has become large; searches wait meanwhile."""
        largest = 0 if about.cells else max(self.counts(about).values(), default=0)
        if largest < about.bound.approximate_from:
            return
        # Milvus makes cells for each of its segments, which hold a million vectors or so.
        cells = int(max(16, min(4 * min(largest, 1_000_000) ** 0.5, largest // 40)))
        name = about.collection
        self.call("flush", name)
        self.call("release_collection", name)
        self.call("drop_index", name, "vector")
        self.call("create_index", name, self._index("IVF_FLAT", nlist=cells))
        self.call("load_collection", name)
        about = replace(about, cells=cells, probes=cells)
        self._keep(about)
        self._keep(replace(about, probes=self._needed_probes(about)))

    def write(
        self, about: About, items: Sequence[Item], vectors: Vectors, numbers: Sequence[int]
    ) -> None:
        """Write items, in place of those that have the same ids."""
        rows = list(zip(items, vectors, numbers, strict=True))
        per_request = max(1, min(4096, _REQUEST_BYTES // (4 * about.bound.dim + 1024)))
        for some in chunks(rows, per_request):
            data = [
                {
                    "key": key_of(item.id),
                    "number": number,
                    "id": item.id,
                    "modality": item.modality,
                    "file": item.file or "",  # Milvus 2.3 has no null
                    "metadata": dict(item.metadata),
                    "vector": vector,
                }
                for item, vector, number in some
            ]
            self.call("upsert", about.collection, data)

    def find(
        self, about: About, ids: Sequence[str], fields: Sequence[str], **options: Any
    ) -> dict[str, dict[str, Any]]:
        """Rows by their ids, of those ids that exist."""
        found: dict[str, dict[str, Any]] = {}
        for some in chunks(ids, 4096):
            keys = json.dumps([key_of(id) for id in some])
            rows = self._query(about, f"key in {keys}", ["id", *fields], limit=LIMIT, **options)
            found.update((str(row["id"]), row) for row in rows)
        return found

    def scan(
        self, about: About, modalities: Sequence[str], fields: Sequence[str]
    ) -> list[dict[str, Any]]:
        """All rows of some modalities, in the order of their numbers."""
        rows: list[dict[str, Any]] = []
        for start in range(0, about.numbered, LIMIT):
            numbers = f"number > {start} and number <= {start + LIMIT}"
            condition = f"{numbers} and {within(modalities)}"
            found = self._query(about, condition, ["number", *fields], limit=LIMIT)
            rows += sorted(found, key=lambda row: int(row["number"]))
        return rows

    def nearest(
        self,
        about: About,
        queries: Vectors,
        k: int,
        probes: int,
        fields: Sequence[str],
        **more: Any,
    ) -> list[list[dict[str, Any]]]:
        """The k rows nearest to each query, the best first, with their cosines as "near"."""
        asked = {"data": list(queries), "limit": k, "output_fields": list(fields), **self.level}
        asked |= {"search_params": {"params": {"nprobe": probes}}, **more}
        found = self.call("search", about.collection, **asked)
        return [[{**hit["entity"], "near": hit["distance"]} for hit in hits] for hits in found]

    def nearest_vectors(
        self, about: About, queries: Vectors, k: int, probes: int, condition: str
    ) -> list[list[dict[str, Any]]]:
        """The k rows nearest to each query, with FACTS, "near" and "vector".

        For the vectors in the answer of a search that waits for the log, Milvus waits a second
        time. So they are asked for without waiting, and the whole again if they do not give the
        cosines that the search has found: then somebody has changed the rows meanwhile.
        """
        asked: dict[str, Any] = {"filter": condition}
        if self.level != STRONG:
            return self.nearest(about, queries, k, probes, [*FACTS, "vector"], **asked)
        found = self.nearest(about, queries, k, probes, FACTS, **asked)
        ids = list({row["id"] for rows in found for row in rows})
        stored = self.find(about, ids, ["vector"], consistency_level="Eventually")
        vectors = {id: np.array(row["vector"], np.float32) for id, row in stored.items()}
        if all(map(partial(_fit, vectors), queries, found)):
            return [[{**row, "vector": vectors[row["id"]]} for row in rows] for rows in found]
        return self.nearest(about, queries, k, probes, [*FACTS, "vector"], **asked)

    def counts(self, about: About) -> dict[str, int]:
        """The number of items of each modality that has some."""
        counts = {}
        for name in about.bound.modalities:
            (row,) = self._query(about, within([name]), ["count(*)"])
            counts[name] = int(row["count(*)"])
        return {name: count for name, count in counts.items() if count}

    def _keep(self, about: About) -> None:
        values = {key: value for key, value in asdict(about).items() if key != "collection"}
        self.set_properties(about, {_PROPERTY: json.dumps(values)})

    def _index(self, kind: str, **parameters: Any) -> Any:
        made = self._client.prepare_index_params()
        made.add_index("vector", index_type=kind, metric_type="IP", params=parameters)
        return made

    def _query(
        self, about: About, condition: str, fields: Sequence[str], **options: Any
    ) -> list[dict[str, Any]]:
        asked = {"filter": condition, "output_fields": list(fields), **self.level, **options}
        return list(self.call("query", about.collection, **asked))

    def _needed_probes(self, about: About) -> int:
        """Cells to look into for the wanted recall in each modality.

        Queries are halfway between two of its items, and items of the other modality.
        """
        samples = {}
        for name in self.counts(about):
            rows = self._query(about, within([name]), ["vector"], limit=400, **STRONG)
            samples[name] = vectors_of(rows, about.bound)
        probes, rng = 1, np.random.default_rng(0)
        for name, own in samples.items():
            ends = rng.integers(len(own), size=(2, 200))
            others = (sample[:200] for other, sample in samples.items() if other != name)
            for queries in (own[ends[0]] + own[ends[1]], *others):
                probes = self._probes_for(about, queries, name, probes)
        return probes

    def _probes_for(self, about: About, queries: Vectors, modality: str, least: int) -> int:
        """The cells that these queries need to find items of a modality."""

        def nearest(probes: int) -> list[set[str]]:
            asked: dict[str, Any] = {"filter": within([modality]), **STRONG}
            found = self.nearest(about, queries, 10, probes, ["key"], **asked)
            return [{row["key"] for row in rows} for rows in found]

        probes, true = least, nearest(about.cells)
        while probes < about.cells:
            pairs = zip(nearest(probes), true, strict=True)
            if np.mean([len(a & b) / max(1, len(b)) for a, b in pairs]) >= RECALL:
                break
            probes = min(2 * probes, about.cells)
        return probes

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Errors of Milvus, with the location."""
        try:
            yield
        except self._pymilvus.MilvusException as error:
            text = " ".join(str(error.message).split())
            again = error.code in _UNAVAILABLE or _OVERTAKEN in text
            kind = UnavailableError if again else CcalError
            raise kind(f"{self.location}: {text}.") from error


def parse_location(location: str) -> dict[str, Any]:
    """A location in its parts; `shown` is without the password.

    >>> parse_location("milvus://me:secret@here:19530/birds")["shown"]
    'milvus://me@here:19530/birds'
    """
    parts = urlsplit(location)
    user, at, host = parts.netloc.rpartition("@")
    shown = urlunsplit(parts._replace(netloc=user.partition(":")[0] + at + host))
    name = parts.path.strip("/")
    if not host or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name):
        raise InputError(
            f"{shown} is no place for an index; expected milvus://host:19530/NAME, and in NAME "
            "letters, digits and _."
        )
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    options = {"database": "default", "shards": "1", "consistency": "Strong", **given}
    levels = ("Strong", "Session", "Bounded", "Eventually")
    if (
        len(options) > 3
        or not re.fullmatch(r"[1-9]\d?", options["shards"])
        or options["consistency"] not in levels
    ):
        raise InputError(
            f"{shown}: expected options such as database=NAME, shards=2 (1 to 99) and "
            f"consistency=Bounded (or {', '.join(levels)}), got {urlencode(given)}."
        )
    scheme = "https" if parts.scheme == "https" else "http"
    return {
        "uri": urlunsplit((scheme, host, "", "", "")),
        "token": unquote(user),
        "db_name": options["database"],
        "name": name,
        "shown": shown,
        "shards": int(options["shards"]),
        "consistency": options["consistency"],
    }


def within(modalities: Sequence[str]) -> str:
    """The condition for some modalities."""
    return f"modality in {json.dumps(list(modalities))}"


def item_of(row: Mapping[str, Any]) -> Item:
    """The item of a row with the columns FACTS."""
    return Item(row["id"], row["modality"], row["metadata"], row["file"] or None)


def vectors_of(rows: Sequence[Mapping[str, Any]], binding: Binding) -> Vectors:
    """The vectors (n, dim) of rows."""
    return np.array([row["vector"] for row in rows], np.float32).reshape(-1, binding.dim)


def _fit(vectors: Mapping[str, Vectors], query: Vectors, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there are vectors of all rows, which give the cosines that a search has found."""
    if not all(row["id"] in vectors for row in rows):
        return False
    stored = np.array([vectors[row["id"]] for row in rows]).reshape(len(rows), len(query))
    errors = stored @ query - [row["near"] for row in rows]
    return bool((np.abs(errors) <= 2 * slack(len(query))).all())


def key_of(id: str) -> str:
    """The primary key of an id: a hash, which is short and needs no quotes."""
    return hashlib.blake2b(id.encode(), digest_size=16).hexdigest()


def chunks(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Slices of at most `size` values."""
    for start in range(0, len(values), size):
        yield values[start : start + size]

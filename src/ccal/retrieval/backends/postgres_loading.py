"""PostgresLoads: a PostgresBackend that many processes may fill, part by part."""

import json
from collections.abc import Sequence

from ccal.retrieval.backends.base import Vectors
from ccal.retrieval.backends.postgres import PostgresBackend
from ccal.retrieval.items import Binding, Item


class PostgresLoads(PostgresBackend):
    """Copies each part into a temporary table, and from there in place of items of the same ids.

    What is noted of a load lies beside the binding, in NAME_about.
    """

    many_writers = True

    def upsert(self, items: Sequence[Item], vectors: Vectors, first: int) -> None:
        """One transaction; needs no writer's lock, which whoever began the load has."""
        name, columns = self._table, "id, modality, metadata, file, vector"
        new = ", ".join(f"{column} = excluded.{column}" for column in columns.split(", ")[1:])
        with self._connection() as connection, self._named_errors(), connection.transaction():
            self._bind(Binding.from_json(self._about("binding")))
            self._query(f"CREATE TEMP TABLE part (LIKE {name}) ON COMMIT DROP")
            self._query("ALTER TABLE part ALTER row DROP NOT NULL, ADD place serial")
            self._copy("part", items, vectors)
            # In an order, as loads that share ids could wait for each other in a circle.
            self._query(
                f"INSERT INTO {name} (row, {columns}) SELECT place + {first - 1}, {columns} "
                f"FROM part ORDER BY id ON CONFLICT (id) DO UPDATE SET {new}"
            )

    def reserve(self, count: int) -> int:
        with self._as_writer(), self._reading():
            first = self.next_number()
            self._query(f"SELECT setval('{self._table}_row_seq', %s)", [first + count - 1])
            return first

    def finish_load(self) -> None:
        with self._as_writer():
            with self._reading():
                sql = f"SELECT modality, count(*) FROM {self._table} GROUP BY modality"
                self._set("counts", json.dumps(dict(self._query(sql))))
            self._make_indexes()

    def recall(self, key: str) -> str | None:
        sql = f"SELECT value FROM {self._table}_about WHERE key = %s"
        with self._reading():
            found = self._query(sql, [key])
        return str(found[0][0]) if found else None

    def note(self, key: str, text: str) -> None:
        with self._as_writer(), self._reading():
            self._set(key, text)

    def _set(self, key: str, text: str) -> None:
        sql = f"INSERT INTO {self._table}_about VALUES (%s, %s) "
        sql += "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        self._query(sql, [key, text])

"""Any sequence of operations leaves an index equal to a dictionary, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ccal import InputError
from ccal.retrieval import Index
from ccal.retrieval.backends.folder import compaction
from tests.retrieval.conftest import DIM, Place, backend, make_model, milvus, place, rows, server  # noqa: F401

NAMES = st.lists(st.integers(0, 30).map("item {}".format), min_size=1, max_size=6, unique=True)
MODALITIES = st.sampled_from(["image", "text"])


def vector_of(seed: int) -> Any:
    vector = np.random.default_rng(seed).normal(size=DIM)
    return vector / np.linalg.norm(vector)


def machine(place: Callable[[], str]) -> type[RuleBasedStateMachine]:  # noqa: F811
    class Machine(RuleBasedStateMachine):
        """The index and a dictionary: modality, n and vector by id."""

        @initialize()
        def build(self) -> None:
            self.location, self.expected, self.seed = place(), dict[str, Any](), 0
            self.index = Index.build(self.location, make_model(), rows(0), modality="image")

        def _new(self) -> int:
            self.seed += 1
            return self.seed

        @rule(ids=NAMES, modality=MODALITIES)
        def add(self, ids: list[str], modality: str) -> None:
            made = {id: (modality, self._new()) for id in ids}
            vectors = [vector_of(n) for _, n in made.values()]
            facts = [{"n": n} for _, n in made.values()]
            if self.expected.keys() & made.keys():
                with pytest.raises(InputError):
                    self.index.add_vectors(modality, vectors, ids=ids, metadata=facts)
                return
            self.index.add_vectors(modality, vectors, ids=ids, metadata=facts)
            self.expected |= {id: (modality, n, vector_of(n)) for id, (_, n) in made.items()}

        @rule(count=st.integers(2, 4), modality=MODALITIES)
        def add_from_threads(self, count: int, modality: str) -> None:
            numbers = [self._new() for _ in range(count)]

            def work(n: int) -> list[str]:
                return self.index.add_vectors(modality, [vector_of(n)], metadata=[{"n": n}])

            with ThreadPoolExecutor(count) as threads:
                ids = list(threads.map(work, numbers))
            for (id,), n in zip(ids, numbers, strict=True):
                assert id not in self.expected
                self.expected[id] = (modality, n, vector_of(n))

        @precondition(lambda self: self.expected)
        @rule(data=st.data())
        def remove(self, data: st.DataObject) -> None:
            chosen = st.lists(st.sampled_from(sorted(self.expected)), max_size=5, unique=True)
            ids = data.draw(chosen)
            self.index.remove(ids)
            for id in ids:
                del self.expected[id]

        @precondition(lambda self: self.expected)
        @rule(data=st.data())
        def describe(self, data: st.DataObject) -> None:
            id = data.draw(st.sampled_from(sorted(self.expected)))
            n = self._new()
            self.index.update([id], metadata=[{"n": n}])
            modality, _, vector = self.expected[id]
            self.expected[id] = (modality, n, vector)

        @precondition(lambda self: self.expected)
        @rule(data=st.data())
        def move(self, data: st.DataObject) -> None:
            id = data.draw(st.sampled_from(sorted(self.expected)))
            modality, n, _ = self.expected[id]
            features = rows(1, seed=self._new())
            self.index.update([id], features)
            vector = make_model().encode(modality, features).numpy()[0]
            self.expected[id] = (modality, n, vector / np.linalg.norm(vector))

        @rule()
        def restart(self) -> None:
            self.index.close()
            self.index = Index.open(self.location, make_model())

        @rule()
        def check(self) -> None:
            self.index.check()

        @invariant()
        def is_equal(self) -> None:
            assert set(self.index.ids()) == set(self.expected)
            ids = sorted(self.expected)
            for item in self.index.get(ids):
                assert (item.modality, item.metadata["n"]) == self.expected[item.id][:2]
            query = vector_of(0)
            for name in ("image", "text"):
                own = [id for id in ids if self.expected[id][0] == name]
                assert self.index.count(name) == len(own)
                if own:
                    found = self.index.search_vectors(
                        query, k=len(own) + 1, within=name, exact=True
                    )
                    assert sorted(hit.id for hit in found) == own
                    cosines = {id: float(self.expected[id][2] @ query) for id in own}
                    for hit in found:
                        assert hit.metadata["n"] == self.expected[hit.id][1]
                        assert abs(hit.score - cosines[hit.id]) < 1e-5
                    last = max(own, key=lambda id: self.expected[id][1])
                    where = {"n": self.expected[last][1]}
                    (hit,) = self.index.search_vectors(query, k=3, within=name, where=where)
                    assert hit.id == last

        def teardown(self) -> None:
            if hasattr(self, "index"):
                self.index.close()

    return Machine


def run(place: Place, monkeypatch: pytest.MonkeyPatch, examples: int, steps: int) -> None:  # noqa: F811
    monkeypatch.setattr(compaction, "TAIL", 10)
    run_state_machine_as_test(
        machine(place),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("backend", ["folder"])
def test_an_index_equals_a_dictionary(
    place: Place,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(place, monkeypatch, examples=5, steps=12)


@pytest.mark.faults
def test_an_index_equals_a_dictionary_for_long(
    backend: str,  # noqa: F811
    place: Place,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    examples = {"folder": 30, "postgres": 8, "milvus": 2}[backend]
    run(place, monkeypatch, examples=examples, steps=25)

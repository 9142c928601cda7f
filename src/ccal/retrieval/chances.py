"""`Chances`: how likely hits are right, by what the model of an index knows about its scores."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from ccal.evaluation.calibration import HEAD, Calibration
from ccal.model import DualEncoder
from ccal.retrieval.answers import Hits, Judge
from ccal.retrieval.backends.base import Backend, Vectors
from ccal.retrieval.filters import Conditions
from ccal.retrieval.items import Hit

_SECONDS = 1.0


class Chances:
    """The calibrations of the model of an index, and the number of items to apply them to.

    The number may be a second old, since some servers take a while to count.
    """

    def __init__(self, backend: Backend, model: DualEncoder | None) -> None:
        self._backend = backend
        self._calibrations = {} if model is None else model.calibrations
        self._counted: tuple[float, Mapping[str, int]] = (0.0, {})

    def calibration(self, modality: str | None, scope: Sequence[str]) -> Calibration | None:
        """That of queries of a modality among the items of a scope.

        None within one modality, for vectors cut to leading dimensions, for models of earlier
        versions and for an index that was opened without its model.
        """
        if modality is None:
            return None
        self._backend.binding.check_modality(modality)
        if modality in scope or self._backend.binding.dims is not None:
            return None
        return self._calibrations.get(modality)

    def candidates(self, scope: Sequence[str]) -> int:
        """The number of items of a scope."""
        now = time.monotonic()
        if now > self._counted[0]:
            self._counted = (now + _SECONDS, self._backend.counts())
        return sum(self._counted[1].get(name, 0) for name in scope)

    def search(
        self,
        queries: Vectors,
        scope: Sequence[str],
        k: int,
        where: Conditions,
        exact: bool,
        modality: str | None,
    ) -> Sequence[Sequence[Hit]]:
        """The k nearest of each query of a modality, as the backend finds them, with chances."""
        calibration = self.calibration(modality, scope)
        if calibration is None:
            return self._backend.search(queries, scope, k, where, exact)
        answers = self._backend.search(queries, scope, max(k, HEAD), where, exact)
        judge = partial(calibration.judged, candidates=self.candidates(scope))
        return [_judged(hits, judge, k) for hits in answers]


def _judged(hits: Sequence[Hit], judge: Judge, k: int) -> Sequence[Hit]:
    """The first k hits of a query, with chances by the scores of all of them."""
    if isinstance(hits, Hits):
        return hits.judged(judge, k)
    marks = judge([hit.score for hit in hits])
    return [replace(hit, chance=c, match=m) for hit, (c, m) in zip(hits[:k], marks, strict=False)]

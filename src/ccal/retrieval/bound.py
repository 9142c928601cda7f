"""The half of a home that knows which model it belongs to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from ccal.retrieval.errors import OtherModelError
from ccal.retrieval.items import Binding

__all__ = ["Bound"]


class Bound(ABC):
    """Keeps the binding that was read first, and refuses one of another space from then on."""

    location: str
    _binding: Binding | None = None

    @property
    def binding(self) -> Binding:
        """The model the index belongs to."""
        assert self._binding is not None  # set when a home is opened or made
        return self._binding

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    @contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        """For opening and building: what fails leaves nothing open."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _bind(self, binding: Binding) -> None:
        if self._binding is not None and not binding.is_space_of(self._binding):
            raise OtherModelError(
                f"{self.location} was built anew, by another model or with other dimensions, "
                "since it was opened; open it again."
            )
        self._binding = binding

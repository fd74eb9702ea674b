"""Domain errors in requests and responses between nodes: their stable ids and messages."""

from typing import Final

import msgspec

from duramen.base.errors import DuramenError, RequestInvalid

__all__ = ["Refused"]

_known: Final[dict[str, type[DuramenError]]] = {}


class Refused(msgspec.Struct, frozen=True, array_like=True):
    """An error, by its stable id, with its message."""

    id: str
    message: str

    @classmethod
    def of(cls, error: DuramenError) -> "Refused":
        """The error in the form for another node."""
        return cls(error.id, str(error))

    @classmethod
    def of_any(cls, error: DuramenError | None) -> "Refused | None":
        """The same for an optional error."""
        return None if error is None else cls.of(error)

    def error(self) -> DuramenError:
        """The error with that id; RequestInvalid where this version does not know the id."""
        kind = _kind(self.id)
        if kind is None or kind.__init__ is not DuramenError.__init__:
            return RequestInvalid(f"{self.id}: {self.message}")
        return kind(self.message)


def _kind(error_id: str) -> type[DuramenError] | None:
    if error_id not in _known:  # a module with the class may have been imported since
        _known.update({kind.id: kind for kind in reversed(_kinds(DuramenError))})
    return _known.get(error_id)


def _kinds(base: type[DuramenError]) -> list[type[DuramenError]]:
    return [base, *(found for derived in base.__subclasses__() for found in _kinds(derived))]

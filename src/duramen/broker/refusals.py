"""Errors as they travel between nodes: by their stable ids, with their messages."""

import msgspec

from duramen.base.errors import DuramenError, RequestInvalid

__all__ = ["Refused"]


class Refused(msgspec.Struct, frozen=True, array_like=True):
    """An error, by its stable id, with its message."""

    id: str
    message: str

    @classmethod
    def of(cls, error: DuramenError) -> "Refused":
        """The error as another node is told of it."""
        return cls(error.id, str(error))

    def error(self) -> DuramenError:
        """The error with that id; one that this version does not know is told as it came."""
        kind = next((kind for kind in _kinds(DuramenError) if kind.id == self.id), None)
        if kind is None or kind.__init__ is not DuramenError.__init__:
            return RequestInvalid(f"{self.id}: {self.message}")
        return kind(self.message)


def _kinds(base: type[DuramenError]) -> list[type[DuramenError]]:
    return [base, *(found for derived in base.__subclasses__() for found in _kinds(derived))]

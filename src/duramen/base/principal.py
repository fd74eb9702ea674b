"""The principal that sends a request."""

from typing import Final, NamedTuple

__all__ = ["ANONYMOUS", "Principal"]


class Principal(NamedTuple):
    """Kafka's KafkaPrincipal: a type, and a name within it."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""A client that has not authenticated."""

"""The measured systems: where to write, with the name and mode shown in tables. Data only."""

from typing import Final, Literal, NamedTuple

__all__ = ["SYNCED", "Contender", "Door"]

Door = Literal["kafka", "nats"]

SYNCED: Final = frozenset({"duramen sync", "kafka flush.messages=1", "jetstream sync always"})
"""Names of those whose acknowledgement means that a message is on disk."""


class Contender(NamedTuple):
    """A topic of Kafka's protocol, or a subject of NATS; `address` is HOST:PORT of that door.

    `system` is duramen, kafka or jetstream; `mode` says what an acknowledgement means there; `stream` is the name
    of the stream behind a subject, and `records` the address of the door through which subscribers read.
    """

    system: str
    mode: str
    door: Door
    address: str
    topic: str
    stream: str
    records: str

    @property
    def name(self) -> str:
        """As tables show it."""
        return f"{self.system} {self.mode}"

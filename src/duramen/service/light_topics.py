"""Topics that are not streams: each has one partition, whose batches are built from other data on request. Pure.

Operations not defined here are refused on them: a handler that does not know light topics gets an error instead.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Protocol
from uuid import UUID

from duramen.base.errors import DuramenError
from duramen.broker.fetch import FetchSource
from duramen.broker.partition import Partition
from duramen.coordinators.group.topics import LASTING
from duramen.service.light_places import LightPlace

__all__ = ["Appended", "LastingId", "LightTopic", "LightTopics", "OffsetDone"]

Appended = Callable[[int, DuramenError | None], None]
"""Called with the offset of a batch's first record, or with why it is not taken."""

OffsetDone = Callable[[int, int, DuramenError | OSError | None], None]
"""Called with an offset and a timestamp, each -1 where there is none, or with why they are not known."""


class LastingId(UUID):
    """The lasting id of a topic of the inventory. As a key it stands for the topic under the name that it has now."""

    @classmethod
    def of_stored(cls, stored: str) -> "LastingId | None":
        """The id that offsets are stored under; None where they are stored under a name."""
        if not stored.startswith(LASTING):
            return None
        try:
            return cls(stored[1:])
        except ValueError:
            return None


class LightTopic(ABC):
    """A topic that is not a stream, as clients see it."""

    def __init__(self, name: str, id_: UUID, partition: Partition) -> None:
        """`partition` is the stream partition that stores it; its leader serves the topic."""
        self.name = name
        self.id = id_
        self.partition = partition

    @property
    def stored_as(self) -> str:
        """What offsets of it are stored under."""
        return self.name

    @property
    def shared_as(self) -> UUID:
        """The id that the state of share groups is stored under."""
        return self.id

    @abstractmethod
    def shown(self) -> None:
        """A client gets its name, its id and its leader."""

    @property
    @abstractmethod
    def append_time(self) -> bool:
        """Whether records get the time at which they come."""

    def produced(self, size: int) -> int:
        """Count bytes that were sent to it; how many ms their client is to wait, because a quota is exceeded."""
        del size
        return 0

    def produce_wait_ms(self) -> int:
        """How many ms who sends to it is to wait before more is taken, because a quota is exceeded."""
        return 0

    def given(self, size: int) -> int:
        """Count bytes that go to a client; how many ms it is to wait, because a quota is exceeded."""
        del size
        return 0

    @abstractmethod
    def append(self, batch: memoryview, done: Appended, *, all_replicas: bool) -> None:
        """Store a producer's batch. `done` may be called at once."""

    @abstractmethod
    def source(self, leader_epoch: int) -> FetchSource:
        """The source of one fetch, for a client that knows that leader epoch; -1: the client gave none."""

    @abstractmethod
    def find_offset(self, timestamp: int, done: OffsetDone) -> None:
        """As that of a partition."""


class LightTopics(Protocol):
    """Those that there are."""

    def find(self, key: str | UUID) -> LightTopic | None:
        """The topic of that name or id, where no stream has it."""

    def find_many(self, keys: Collection[str | UUID]) -> Mapping[str | UUID, LightTopic]:
        """Those of these names and ids that there are, where no stream has them: looked up together."""

    def problem(self, key: str | UUID) -> DuramenError | None:
        """Why it is unknown at present whether there is a topic of that name or id that was not found."""

    def places(self, names: Collection[str]) -> Mapping[str, LightPlace]:
        """Places of some of these names, where no stream has them: of many names, without an object for each."""

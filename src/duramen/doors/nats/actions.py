"""Actions of NATS clients on this door, with their required operations, as data."""

from collections.abc import Mapping, Sequence
from typing import Final

from duramen.doors.queues.operations import OPERATIONS
from duramen.service.admission import AdmissionRules, Need, Refuses, cluster
from duramen.service.authorize import Access, Operation, ResourceType

__all__ = ["ACTIONS", "INVENTORY_CHANGES", "PUBLISH", "QUEUE_ACTIONS"]

_WAIT_MS: Final = 5_000  # as long as JetStream's clients wait for an acknowledgement by default


def _streams(names: Sequence[str]) -> Sequence[str]:
    return names


PUBLISH: Final[AdmissionRules[Sequence[str]]] = AdmissionRules(
    Need(Access(Operation.WRITE, ResourceType.TOPIC), _streams, Refuses.TOPIC), within_ms=lambda _: _WAIT_MS
)
"""A message to a subject: a record for each bound stream, whose names these are."""

QUEUE_ACTIONS: Final[Mapping[str, AdmissionRules[Sequence[str]]]] = {
    name: AdmissionRules(Need(Access(one.needs, ResourceType.TOPIC), _streams, Refuses.TOPIC))
    for name, one in OPERATIONS.items()
}
"""An operation on queues, by its name; the request names the space."""

INVENTORY_CHANGES: Final[AdmissionRules[Sequence[str]]] = AdmissionRules(cluster(Operation.DESCRIBE))
"""A request for changes of the inventory."""

ACTIONS: Final[Mapping[str, AdmissionRules[Sequence[str]]]] = {
    "publish": PUBLISH, "inventory changes": INVENTORY_CHANGES,
    **{f"queue {name}": rules for name, rules in QUEUE_ACTIONS.items()},
}  # fmt: skip
"""All there are."""

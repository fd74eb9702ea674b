"""What clients of NATS do here, each with what it needs, as data."""

from collections.abc import Mapping, Sequence
from typing import Final

from duramen.service.admission import AdmissionRules, Need, Refuses
from duramen.service.authorize import Access, Operation, ResourceType

__all__ = ["ACTIONS", "PUBLISH"]

_WAIT_MS: Final = 5_000  # as long as JetStream's clients wait for an acknowledgement by default


def _streams(names: Sequence[str]) -> Sequence[str]:
    return names


PUBLISH: Final[AdmissionRules[Sequence[str]]] = AdmissionRules(
    Need(Access(Operation.WRITE, ResourceType.TOPIC), _streams, Refuses.TOPIC), within_ms=lambda _: _WAIT_MS
)
"""A message to a subject, which is written to the streams bound to it: these are what it names."""

ACTIONS: Final[Mapping[str, AdmissionRules[Sequence[str]]]] = {"publish": PUBLISH}
"""All there are."""

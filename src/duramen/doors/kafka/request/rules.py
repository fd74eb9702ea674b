"""Admission rules of a Kafka request, as data beside its handler: see `handlers`."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from duramen.doors.kafka.request.context import Context, Handler
from duramen.doors.kafka.request.exchange import Exchange
from duramen.service.admission import AdmissionRules, Need, Refuses
from duramen.service.authorize import Access, Operation, ResourceType
from duramen.service.resolve import TopicKey

__all__ = ["ApiHandler", "ApiNeeds", "Names", "group", "groups_named", "topics_named", "transactional_id"]


class ApiNeeds(NamedTuple):
    """A request that was decoded, as the rules see it."""

    context: Context
    exchange: Exchange

    @property
    def request(self) -> Any:
        """The decoded request."""
        return self.exchange.request


Names = Callable[[ApiNeeds], Iterable[TopicKey]]


def _decode(context: Context, exchange: Exchange) -> None:
    del context
    exchange.message()


class ApiHandler(NamedTuple):
    """The admission rules and the handler of an API; `decode` sets the exchange's `request`."""

    handler: Handler
    rules: AdmissionRules[ApiNeeds]
    decode: Handler = _decode


def topics_named(
    operation: Operation, names: Names, refuses: Refuses = Refuses.TOPIC, *instead: Access
) -> Need[ApiNeeds]:
    """An access to each of the topics."""
    return Need(Access(operation, ResourceType.TOPIC), names, refuses, instead)


def group(operation: Operation, field: str = "group_id") -> Need[ApiNeeds]:
    """An access to the one group that a request is about."""
    access = Access(operation, ResourceType.GROUP)
    return Need(access, lambda asked: (asked.request[field],), Refuses.REQUEST)


def groups_named(operation: Operation, names: Names, *instead: Access) -> Need[ApiNeeds]:
    """An access to each of the groups."""
    return Need(Access(operation, ResourceType.GROUP), names, Refuses.ENTRY, instead)


def transactional_id(operation: Operation, names: Names, refuses: Refuses = Refuses.REQUEST) -> Need[ApiNeeds]:
    """An access to each of the transactional ids."""
    return Need(Access(operation, ResourceType.TRANSACTIONAL_ID), names, refuses)

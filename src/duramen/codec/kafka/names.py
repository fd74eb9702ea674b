"""Kafka's names of APIs and errors, as users write them."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from duramen.base.errors import RequestInvalid
from duramen.base.settings import nearest
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey

__all__ = ["api_name", "find_api", "find_code", "no_api"]

_BETWEEN_BROKERS: Final[Mapping[int, str]] = MappingProxyType(
    {
        4: "LeaderAndIsr",
        5: "StopReplica",
        6: "UpdateMetadata",
        7: "ControlledShutdown",
        27: "WriteTxnMarkers",
        52: "Vote",
        53: "BeginQuorumEpoch",
        54: "EndQuorumEpoch",
        56: "AlterPartition",
        58: "Envelope",
        59: "FetchSnapshot",
        62: "BrokerRegistration",
        63: "BrokerHeartbeat",
        67: "AllocateProducerIds",
        70: "ControllerRegistration",
        73: "AssignReplicasToDirs",
        82: "UpdateRaftVoter",
    }
)


def api_name(key: ApiKey) -> str:
    """The name that Kafka's documentation has: ListOffsets."""
    return "".join(word.capitalize() for word in key.name.split("_"))


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


_APIS: Final[Mapping[str, ApiKey]] = {_plain(key.name): key for key in ApiKey}


def _unknown(what: str, name: object, names: Iterable[str]) -> RequestInvalid:
    known = {_plain(one): one for one in names}
    near = nearest(_plain(str(name)), known)
    for plain, one in known.items():
        near = near.replace(f" {plain}?", f" {one}?")
    return RequestInvalid(f"Kafka has no {what} {name!r} here{near}")


def no_api(number: int) -> str:
    """Why there is no API with that number."""
    name = _BETWEEN_BROKERS.get(number)
    if name is None:
        return f"there is no API with the number {number}"
    return f"{name} is for brokers among themselves: nodes speak to each other through --cluster-listen, never here"


def find_api(name: str) -> ApiKey:
    """The API of that name, such as Produce or ListOffsets. Raises RequestInvalid naming the nearest."""
    found = _APIS.get(_plain(name))
    if found is None:
        raise _unknown("API", name, map(api_name, ApiKey))
    return found


def find_code(code: str | int) -> ErrorCode:
    """The error of that name or number, such as NOT_LEADER_OR_FOLLOWER or 6. Raises RequestInvalid."""
    try:
        found = ErrorCode[code.upper()] if isinstance(code, str) else ErrorCode(code)
    except (KeyError, ValueError):
        raise _unknown("error", code, ErrorCode.__members__) from None
    if found is ErrorCode.NONE:
        raise RequestInvalid("NONE is no error: faults.clear() lets requests be done again")
    return found

"""Faults for a test, which a broker injects into the requests of its Kafka clients."""

from collections.abc import Callable, Mapping
from typing import Any

from duramen.base.errors import RequestInvalid

__all__ = ["BrokerFaults"]


class BrokerFaults:
    """`broker.faults`. APIs have Kafka's names (Produce, Fetch, JoinGroup …), errors Kafka's names or numbers.

    Faults affect every Kafka client except the broker's own `create_stream` and `records`, from the next request on.
    They last until `clear`, a crash or a restart.

    >>> broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    >>> broker.faults.delay("Fetch", 20)
    >>> broker.faults.clear()
    """

    def __init__(self, ask: Callable[[Mapping[str, object]], dict[str, Any]]) -> None:
        """`ask` sends a command to the broker."""
        self._ask = ask
        self.any_set = False
        """Whether there may be faults now."""

    def drop_connections(self) -> int:
        """Break all open Kafka connections, also in the middle of a request; returns their number.

        Clients reconnect.

        >>> broker.faults.drop_connections()
        0
        """
        dropped: int = self._ask({"do": "drop"})["dropped"]
        return dropped

    def delay(self, api: str, ms: int) -> None:
        """Delay every response of the API by `ms` milliseconds; 0 ends that. The request itself is executed at once.

        Raises RequestInvalid for an unknown API.

        >>> broker.faults.delay("Produce", 100)
        >>> broker.faults.delay("Produce", 0)
        """
        if type(ms) is not int or ms < 0:
            raise RequestInvalid(f"ms={ms!r} does not fit: it must be a whole number, 0 or more")
        from duramen.codec.kafka.names import find_api

        key = find_api(api)
        self.any_set = True
        self._ask({"do": "delay", "api": int(key), "ms": ms})

    def error(self, api: str, code: str | int, times: int | None = 1) -> None:
        """Answer the next `times` requests of the API with an error, without executing them; None: until `clear`.

        Another call for the same API replaces this one. Raises RequestInvalid for an unknown API or error.

        >>> broker.faults.error("OffsetCommit", "REBALANCE_IN_PROGRESS")
        >>> broker.faults.error("Prodce", "NOT_LEADER_OR_FOLLOWER")
        Traceback (most recent call last):
        duramen.base.errors.RequestInvalid: Kafka has no API 'Prodce' here; did you mean Produce?
        """
        if times is not None and (type(times) is not int or times < 1):
            raise RequestInvalid(f"times={times!r} does not fit: it must be a whole number from 1, or None")
        from duramen.codec.kafka.names import find_api, find_code

        key, number = find_api(api), find_code(code)
        self.any_set = True
        self._ask({"do": "error", "api": int(key), "code": int(number), "times": times})

    def clear(self) -> None:
        """Remove all faults.

        >>> broker.faults.clear()
        """
        self._ask({"do": "clear"})
        self.any_set = False

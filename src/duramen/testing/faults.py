"""Faults for a test, which a broker injects into the requests of its Kafka clients."""

from collections.abc import Callable, Mapping
from typing import Any

from duramen.base.errors import RequestInvalid

__all__ = ["BrokerFaults"]


class BrokerFaults:
    """`broker.faults`. APIs have Kafka's names (Produce, Fetch, JoinGroup …), and so have errors, or their numbers.

    Faults reach every Kafka client but the broker's own `create_stream` and `records`, from the next request on. They
    stay until `clear`, a crash or a restart.

    >>> broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    >>> broker.faults.delay("Fetch", 20)
    >>> broker.faults.clear()
    """

    def __init__(self, ask: Callable[[Mapping[str, object]], dict[str, Any]]) -> None:
        """`ask` lets the broker do something."""
        self._ask = ask
        self.any_set = False
        """Whether there may be faults now."""

    def drop_connections(self) -> int:
        """Break all Kafka connections that are open, in the middle of whatever they do; returns how many there were.

        Clients connect again.

        >>> broker.faults.drop_connections()
        0
        """
        dropped: int = self._ask({"do": "drop"})["dropped"]
        return dropped

    def delay(self, api: str, ms: int) -> None:
        """Let every answer of the API come `ms` milliseconds late; 0 ends that. The request itself is done at once.

        Raises RequestInvalid for an API that there is not.

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
        """Answer the next `times` requests of the API with an error, and do nothing of them; None: until `clear`.

        Another call for the same API replaces this one. Raises RequestInvalid for an API or error that there is not.

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
        """No faults from here on.

        >>> broker.faults.clear()
        """
        self._ask({"do": "clear"})
        self.any_set = False

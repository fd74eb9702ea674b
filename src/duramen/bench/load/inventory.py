"""Names of topics, and the processes that load them into an inventory."""

import multiprocessing
import random
import time
from collections.abc import Callable, Iterable
from multiprocessing.process import BaseProcess
from typing import Any, Final

from duramen.base.errors import ServerUnreachable
from duramen.bench.load.worker import end_at_once
from duramen.client.api.client import connect

__all__ = ["IN_NAMESPACE", "TENANT", "load_topics", "some_names", "topic_names"]

TENANT: Final = "bench"
IN_NAMESPACE: Final = 10_000
"""Topics of each namespace."""

_CLIENTS: Final = 4
_TELL_S: Final = 5.0
_READY_S: Final = 120.0


def topic_names(namespace: int) -> list[str]:
    """The names of a namespace's topics, with 48 random bits each."""
    return _names(namespace, range(IN_NAMESPACE))


def some_names(namespace: int, count: int, chance: random.Random) -> list[str]:
    """So many of them."""
    return _names(namespace, chance.sample(range(IN_NAMESPACE), count))


def _names(namespace: int, places: Iterable[int]) -> list[str]:
    digits = random.Random(namespace).randbytes(6 * IN_NAMESPACE).hex()
    return [f"device-{digits[12 * place : 12 * place + 12]}.telemetry" for place in places]


def _load(http: str, namespaces: range, loaded: Any, begin: Any) -> None:
    end_at_once()
    with connect(http) as client:
        client.node()
        begin.wait()
        for number in namespaces:
            created = client.inventory.create_topics(f"{TENANT}/n{number}", topic_names(number))
            if created.created != IN_NAMESPACE:
                raise AssertionError(f"{created.created} topics of namespace {number} were made")
            with loaded.get_lock():
                loaded.value += IN_NAMESPACE


def load_topics(http: str, namespaces: int, tell: Callable[[int, float], None], *, first: int = 0) -> float:
    """Make the topics of the namespaces from `first` on, from processes of their own: how long it took, in seconds.

    `tell` gets how many were made from time to time, and after how many seconds.
    """
    context = multiprocessing.get_context("spawn")
    loaded, begin = context.Value("q", 0), context.Barrier(_CLIENTS + 1)
    clients: list[BaseProcess] = [
        context.Process(
            target=_load, args=(http, range(first + client, namespaces, _CLIENTS), loaded, begin), daemon=True
        )
        for client in range(_CLIENTS)
    ]
    for one in clients:
        one.start()
    begin.wait(_READY_S)
    began_s = time.perf_counter()
    for one in clients:
        while one.is_alive():
            one.join(_TELL_S)
            if loaded.value < (namespaces - first) * IN_NAMESPACE:
                tell(loaded.value, time.perf_counter() - began_s)
        if one.exitcode:
            raise ServerUnreachable("a process that loads topics has failed")
    return time.perf_counter() - began_s

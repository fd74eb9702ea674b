"""Requests about a group: executed by its coordinator, on this node or another, and answered here."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from duramen.base.errors import DuramenError, NodeBusy, StorageFailed
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.doors.http.completions import begin
from duramen.doors.http.serving.routes import Call
from duramen.groups.records import partition_for
from duramen.rpc.server import Done, Handler
from duramen.service.broker import Broker
from duramen.service.forwarded_requests import Manage, Managed
from duramen.service.forwarding.partition_requests import Managing

__all__ = ["Work", "coordinated", "serving"]

Work = Callable[[Broker, str, bytes], Awaitable[msgspec.Struct | None]]
"""Execute an operation on the coordinator for a group and a request; returns the response as JSON."""

_MOST_SERVED: Final = 25  # requests of other nodes at a time


async def coordinated(call: Call, work: Work, wanted: Manage) -> bytes:
    """The coordinator's response: JSON, or nothing.

    Raises the coordinator's error, or NotLeader if the partition with the group's offsets has no leader.
    """
    broker = call.broker
    stream = broker.streams.find(OFFSETS_STREAM)
    if stream is None or not stream.partitions:
        return (await _done(broker, work, wanted)).content
    partition = stream.partition(partition_for(wanted.group_id, len(stream.partitions)))
    request = Managing(partition, wanted, partial(_begin, broker, work, wanted))
    future: asyncio.Future[Managed | DuramenError | OSError] = asyncio.get_running_loop().create_future()
    cancel = call.forwarding.manage(request, lambda found: None if future.done() else future.set_result(found))
    try:
        outcome = await future
    finally:
        cancel()
    if isinstance(outcome, Managed):
        return outcome.content
    raise outcome if isinstance(outcome, DuramenError) else StorageFailed(f"it failed: {outcome}")


def serving(broker: Broker, works: Mapping[str, Work]) -> Handler[Manage, Managed]:
    """Serves group requests of other nodes; `works` maps the names of requests to their functions."""
    tasks: set[Callable[[], None]] = set()

    def manage(wanted: Manage, done: Done[Managed]) -> None:
        if len(tasks) >= _MOST_SERVED:
            raise NodeBusy(f"{_MOST_SERVED} requests of other nodes about groups are in progress: retry")

        def told(outcome: Managed | DuramenError | OSError) -> None:
            tasks.discard(cancel)
            done(StorageFailed(f"it failed: {outcome}") if isinstance(outcome, OSError) else outcome)

        cancel = _begin(broker, works[wanted.what], wanted, told)
        tasks.add(cancel)

    return manage


def _begin(
    broker: Broker, work: Work, wanted: Manage, done: Callable[[Managed | DuramenError | OSError], None]
) -> Callable[[], None]:
    """Execute a request as a task; returns a function that cancels it."""
    cancel = begin(_done(broker, work, wanted), done)
    # Changes are executed whether or not the client still waits.
    return cancel if wanted.what == "show" else lambda: None


async def _done(broker: Broker, work: Work, wanted: Manage) -> Managed:
    answer = await work(broker, wanted.group_id, wanted.body)
    return Managed(b"" if answer is None else msgspec.json.encode(answer))

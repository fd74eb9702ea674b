"""Queues of single rows beside PostgreSQL and Redis: each row is on disk when its connection is answered.

Each system gets the same rows, one system after another. Of Duramen's clients one has all tasks on few connections, as
programs use it, and others have a connection for each task, as the peers' have.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from duramen.bench.load.queues import VALUE_BYTES, Connect, SingleRows, put_of_peer, put_single
from duramen.bench.load.worker import LoadWorker
from duramen.bench.peers.postgres import PostgreSQL
from duramen.bench.peers.redis import Redis
from duramen.bench.report.targets import TargetOutcome, at_least, not_measured, told
from duramen.bench.system import family_cpu_s, family_mib, written_bytes
from duramen.client.api.client import connect
from duramen.node.process import NodeProcess

__all__ = ["QueuePeer", "measure_peers", "peer_steps"]

QueuePeer = Literal["postgres", "redis"]

_SPACE: Final = "many"
_TASKS: Final = 64
_SETTLE_S: Final = 7.0  # what waits in memory is copied into segments after five
_KIB: Final = 1024
_OURS: Final = "duramen"
_OWN: Final = "duramen, a client a task"
_CONNECTS: Final[Mapping[QueuePeer, Connect]] = {"postgres": PostgreSQL.connect, "redis": Redis.connect}


class _Peer(Protocol):
    @property
    def process_id(self) -> int: ...

    @property
    def place(self) -> tuple[str, int]: ...

    def settle(self) -> None: ...


class _Figures(NamedTuple):
    """Rows a second, µs of a processor a row, memory for each queue, and bytes written for each byte of values."""

    rows: int
    queues: int
    rate_hz: float
    server_us: float
    client_us: float
    memory_kib: float
    written: float | None


def peer_steps(peers: Sequence[QueuePeer]) -> int:
    """How many jobs there are."""
    return 2 + len(peers)


def measure_peers(
    directory: Path, worker: LoadWorker, *, peers: Sequence[QueuePeer], queues: int, rows: int, until_s: float
) -> list[TargetOutcome]:
    """So many rows into so many queues of each system; of the time that is left each gets the same."""
    each_s = (until_s - time.time()) / peer_steps(peers) - _SETTLE_S
    found = dict[str, _Figures]()

    def measure(name: str, process_id: int, put: Callable[..., SingleRows], settle: Callable[[], object]) -> None:
        memory_mib, written, spent_s = family_mib(process_id), written_bytes(directory), family_cpu_s(process_id)
        work, made = worker.run(
            f"{rows:,} single rows, {name}", put, queues=queues, rows=rows, tasks=_TASKS, until_s=time.time() + each_s
        )
        spent_s = family_cpu_s(process_id) - spent_s
        settle()
        # PostgreSQL's buffers belong to nobody once a session ends; its checkpoint comes to them again.
        memory_mib = family_mib(process_id) - memory_mib
        after = written_bytes(directory)
        payload = work.rows * VALUE_BYTES
        found[name] = _Figures(
            work.rows, made, work.rate_hz, 1e6 * spent_s / work.rows, 1e6 * work.cpu_s / work.rows,
            memory_mib * _KIB / made, None if written is None or after is None else (after - written) / payload,
        )  # fmt: skip

    for name, own in ((_OURS, False), (_OWN, True)):
        with NodeProcess(directory / name.partition(",")[0] / str(own)) as node:
            with connect(node.http) as client:
                client.spaces.create(_SPACE, shards=4)
            put = partial(put_single, server=node.http, space=_SPACE, own=own)
            measure(name, node.pid, put, lambda: time.sleep(_SETTLE_S))
    for name in peers:
        with _server(name, directory / name) as peer:
            measure(name, peer.process_id, partial(put_of_peer, connect=_CONNECTS[name], place=peer.place), peer.settle)
    return _outcomes(found, queues, rows)


def _server(name: QueuePeer, directory: Path) -> "AbstractContextManager[_Peer]":
    return PostgreSQL(directory) if name == "postgres" else Redis(directory)


def _outcomes(found: dict[str, _Figures], queues: int, rows: int) -> list[TargetOutcome]:
    what = f"durable single rows of {VALUE_BYTES} B to {queues:,} queues from {_TASKS} tasks"
    ours = found[_OURS]
    if "postgres" in found:
        absolute = ", ".join(f"{name} {one.rate_hz:,.0f}/s" for name, one in found.items())
        outcomes = [at_least(what, ours.rate_hz / found["postgres"].rate_hz, 1.0, "postgres", absolute)]
    else:
        outcomes = [not_measured(what, "at least 1 x postgres", f"no --peer postgres; ours {ours.rate_hz:,.0f}/s")]
    for name, one in found.items():
        written = "" if one.written is None else f", {one.written:.1f} B written for each of values"
        cut = "" if one.rows == rows else f", out of time after {one.rows:,} of {rows:,} rows"
        figures = (
            f"{one.rate_hz:,.0f}/s, {one.server_us:.0f} µs of the server's processor and {one.client_us:.0f} of the"
            f" client's a row, {one.memory_kib:.2f} KiB of memory for each of {one.queues:,} queues{written}{cut}"
        )
        outcomes.append(told(f"the same, {name}", figures))
    return outcomes

"""A node's HTTP interface to keyed streams: snapshots, their pages, and leases on them."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NodeBusy,
    NodeStarting,
    NotCoordinator,
    ServerUnreachable,
    SnapshotNotReached,
)
from duramen.client.cluster import RetryPatience, parse_servers
from duramen.client.http import DEFAULT_SERVER, HttpNode, path_of, vector_text
from duramen.codec.shown_batches import BATCHES_TYPE, ShownPage, decode_page
from duramen.spark.options import Options

__all__ = [
    "KnownSnapshot",
    "RenewedLease",
    "SnapshotNode",
    "SnapshotPlace",
    "beside",
    "request_with_retries",
    "server_of",
]

_PAGE_BYTES: Final = 8 * 1024 * 1024
_FOR_THE_MOMENT: Final[tuple[type[DuramenError], ...]] = (
    NodeBusy, NodeStarting, ServerUnreachable, CoordinatorLoading, NotCoordinator,
)  # fmt: skip

_T = TypeVar("_T")


class SnapshotPlace(NamedTuple):
    """The snapshots of a partition: of all offsets from `oldest` to `at`, the newest, and changes since `horizon`.

    `epoch` is the leader epoch of the record before `at`. The log ends at `high_watermark`.
    """

    at: int
    oldest: int
    horizon: int
    epoch: int
    high_watermark: int


class KnownSnapshot(NamedTuple):
    """A reader's present snapshot of a stream, by partition, with the leader epochs of the records before it."""

    at: Mapping[int, int] = {}
    epochs: Mapping[int, int] = {}


class RenewedLease(NamedTuple):
    """A lease, and the period of each renewal."""

    lease: str
    lasts_ms: int


class SnapshotNode:
    """A node, with retries until `timeout_s` if it cannot respond at present. It can be pickled."""

    def __init__(self, server: str, timeout_s: float) -> None:
        """`server` is HOST:PORT. Raises SettingInvalid."""
        self._server = server
        self._timeout_s = timeout_s
        HttpNode(server)

    def newest(self, known: Mapping[str, KnownSnapshot]) -> Mapping[str, Mapping[int, SnapshotPlace]]:
        """The newest snapshot of these streams, by partition, once it has all earlier commits.

        A transaction is in all of them or in none. Raises SnapshotCut and SnapshotNotReached if the log of one does not
        have the known snapshot, StreamNotFound, StreamNotKeyed, ServerUnreachable.
        """
        found = {stream: self._newest_of(stream, *one) for stream, one in known.items()}
        if len(found) < 2:
            return found
        path = f"/v1/snapshot?{urlencode({'streams': ','.join(found)})}"
        answer = self._patiently(lambda node: node.get(path), SnapshotNotReached)
        return {one["stream"]: _places(one) for one in answer["streams"]}

    def _newest_of(
        self, stream: str, known: Mapping[int, int], epochs: Mapping[int, int]
    ) -> Mapping[int, SnapshotPlace]:
        path = path_of("streams", stream) + "/snapshot"
        if known:
            path += f"?{urlencode({'newer_than': vector_text(known, epochs)})}"
        patience = RetryPatience(self._timeout_s)
        while True:
            try:
                return _places(self._patiently(lambda node: node.get(path)))
            except SnapshotNotReached as error:
                # Either the view is loading, which passes, or the log ends before the snapshot.
                if self._ends_before(stream, known):
                    raise
                patience.pause(error)

    def _ends_before(self, stream: str, known: Mapping[int, int]) -> bool:
        parts = self._patiently(lambda node: node.get(path_of("streams", stream)))["partitions"]
        return any(part["end_offset"] < known.get(part["partition"], 0) for part in parts)

    def page(self, stream: str, partition: int, asked: Mapping[str, int]) -> ShownPage:
        """A page of the range `asked`: `at`, `since`, `offset`, `end`. Raises SnapshotTooOld, SnapshotStartOver …"""
        query = urlencode({"partition": partition, **asked, "max_bytes": _PAGE_BYTES})
        path = f"{path_of('streams', stream)}/snapshot/records?{query}"
        ask = partial(HttpNode.content, path=path, accept=BATCHES_TYPE)
        return decode_page(self._patiently(ask, SnapshotNotReached))

    def open_lease(self, stream: str, at: Mapping[int, int], epochs: Mapping[int, int]) -> RenewedLease:
        """Hold a snapshot open. Raises SnapshotTooOld, SnapshotCut, SnapshotNotReached …"""
        document = {"at": vector_text(at, epochs)}
        answer = self._patiently(lambda node: node.post(_leases(stream), document), SnapshotNotReached)
        return RenewedLease(answer["lease"], answer["lease_ms"])

    def renew_lease(self, stream: str, lease: str, *, patiently: bool = True) -> RenewedLease:
        """Extend a lease. Raises SnapshotLeaseExpired, SnapshotLeaseNotFound …"""
        node = SnapshotNode(self._server, self._timeout_s if patiently else 0)
        answer = node._patiently(lambda http: http.ask("POST", _leases(stream, lease)))
        return RenewedLease(lease, answer["lease_ms"])

    def close_lease(self, stream: str, lease: str) -> None:
        """Close a lease. Raises SnapshotLeaseExpired …"""
        HttpNode(self._server).delete(_leases(stream, lease))

    def _patiently(self, ask: Callable[[HttpNode], _T], *more: type[DuramenError]) -> _T:
        return request_with_retries(self._server, self._timeout_s, ask, *more)


def request_with_retries(
    server: str, timeout_s: float, ask: Callable[[HttpNode], _T], *more: type[DuramenError]
) -> _T:  # fmt: skip
    """Send a request to a node, with retries until the timeout.

    It is retried if the node cannot respond at present, or fails with one of `more`.
    """
    patience, node = RetryPatience(timeout_s), HttpNode(server)
    while True:
        try:
            return ask(node)
        except DuramenError as error:
            if not isinstance(error, (*_FOR_THE_MOMENT, *more)):
                raise
            patience.pause(error)


def _places(answer: Mapping[str, list[Mapping[str, int]]]) -> dict[int, SnapshotPlace]:
    return {part["partition"]: SnapshotPlace(*(part[name] for name in SnapshotPlace._fields))
            for part in answer["partitions"]}  # fmt: skip


def _leases(stream: str, lease: str = "") -> str:
    path = path_of("streams", stream) + "/snapshot/leases"
    return f"{path}/{quote(lease, safe='')}" if lease else path


def server_of(options: Options) -> str:
    """The HTTP address of a node: the option, the driver's environment, or the host of the first Kafka address."""
    said = options.text("server") if options.given("server") else os.environ.get("DURAMEN_SERVER", "")
    servers = options.text("kafka.bootstrap.servers")
    return said or (beside(servers) if servers else DEFAULT_SERVER)


def beside(servers: str) -> str:
    """The HTTP address on the host of the first of these Kafka addresses, with the usual port."""
    host, _ = parse_servers(servers)[0]
    port = DEFAULT_SERVER.rpartition(":")[2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

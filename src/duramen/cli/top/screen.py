"""The text of `duramen top`: one page in the size of the terminal. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from duramen.base.units import format_bytes, format_ms
from duramen.cli.cluster.node_health import HEALTH_HEADER, HEALTH_RIGHT, health_row
from duramen.cli.tables import table

__all__ = ["render"]

_STREAM_HEADER: Final = ("STREAM", "REC/S IN", "BYTES/S IN", "REC/S OUT", "BYTES/S OUT", "SIZE")
_GROUP_HEADER: Final = ("GROUP", "STREAM", "LAG RECORDS", "LAG TIME")
_VIEW_HEADER: Final = ("VIEW", "PARTITION", "KEYS", "SUPERSEDED", "OLDEST", "NEWEST", "LAG", "MEMORY", "BYTES/KEY")
_RATES: Final = ("records_in_per_s", "bytes_in_per_s", "records_out_per_s", "bytes_out_per_s")
_MOST_NODES: Final = 9
_MOST_VIEWS: Final = 6
_HEADINGS: Final = 4
"""Two blank lines and two headers."""


def render(document: Mapping[str, Any], address: str, width: int | None, height: int | None) -> str:
    """The result of `samples.between` as text. A `width` or `height` of None has no bound."""
    summary = _summary(document, address)
    nodes = [health_row(one) for one in document.get("nodes", ())]
    if nodes:
        summary += ["", *_limited(HEALTH_HEADER, nodes, _MOST_NODES, HEALTH_RIGHT, width)]
    views = sorted(document.get("views", ()), key=lambda one: one["lag_records"] or 0, reverse=True)
    if views:
        rows = [_view_row(one) for one in views]
        summary += ["", *_limited(_VIEW_HEADER, rows, _MOST_VIEWS, range(1, len(_VIEW_HEADER)), width)]
    streams, groups = list(document["streams"]), list(document["groups"])
    streams.sort(key=lambda one: sum(one[rate] or 0 for rate in _RATES), reverse=True)
    groups.sort(key=lambda one: one["lag_records"] or 0, reverse=True)
    room = None if height is None else max(2, height - len(summary) - _HEADINGS)
    stream_room, group_room = _shared(room, len(streams), len(groups))
    lines = [line if width is None else line[:width] for line in summary]
    lines += ["", *_limited(_STREAM_HEADER, [_stream_row(one) for one in streams], stream_room, range(1, 6), width)]
    if groups:
        lines += ["", *_limited(_GROUP_HEADER, [_group_row(one) for one in groups], group_room, (2, 3), width)]
    return "\n".join(lines[:height])


def _summary(document: Mapping[str, Any], address: str) -> list[str]:
    nats = {None: "", True: ", NATS connected", False: ", no NATS"}[document["nats_connected"]]
    memory = ", ".join(
        f"{_size(document[name])} {what}"
        for name, what in (
            ("pending_bytes", "to be copied"),
            ("kafka_request_bytes", "of requests"),
            ("nats_inflight_bytes", "of NATS"),
        )
    )
    lines = [
        f"node     {address}, over {document['interval_s']:g} s",
        f"records  {_rate(document['records_in_per_s'])} in, {_rate(document['records_out_per_s'])} out a second",
        f"bytes    {_size(document['bytes_in_per_s'])} in, {_size(document['bytes_out_per_s'])} out a second",
        f"syncs    {_durations(document['syncs'])}",
        f"clients  {_rate(document['kafka_connections'])} Kafka connections{nats}",
        f"requests {_durations(document['kafka_requests'])}",
        f"memory   {memory}; write-ahead log {_size(document['wal_bytes'])}",
    ]
    if document["storage_failed"]:
        lines.append("STORAGE  a sync has failed: nothing is written until the node is restarted")
    elif document["storage_full"]:
        lines.append("STORAGE  the disk is full: nothing is written until there is space")
    return lines


def _durations(durations: Mapping[str, float | None]) -> str:
    mean_ms, p99_ms = durations["mean_ms"], durations["p99_ms"]
    took = "" if mean_ms is None else f", {format_ms(mean_ms)} on average"
    worst = "" if p99_ms is None else f", 99% within {format_ms(p99_ms)}"
    return f"{_rate(durations['per_s'])} a second{took}{worst}"


def _shared(room: int | None, streams: int, groups: int) -> tuple[int | None, int | None]:
    """Lines for each of the two; each gets the lines that the other does not need."""
    if room is None:
        return None, None
    half = room // 2
    if streams <= half:
        return streams, room - streams
    return max(half, room - groups), min(groups, room - half)


def _limited(
    header: Sequence[str], rows: list[tuple[str, ...]], room: int | None, right: Sequence[int], width: int | None
) -> list[str]:
    hidden = 0
    if room is not None and len(rows) > room:
        hidden = len(rows) - max(0, room - 1)
        rows = rows[: max(0, room - 1)]
    lines = table(header, rows, right, width).splitlines()
    return [*lines, f"… and {hidden} more"] if hidden else lines


def _stream_row(stream: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        stream["name"],
        _rate(stream["records_in_per_s"]),
        _size(stream["bytes_in_per_s"]),
        _rate(stream["records_out_per_s"]),
        _size(stream["bytes_out_per_s"]),
        _size(stream["log_bytes"]),
    )


def _view_row(view: Mapping[str, Any]) -> tuple[str, ...]:
    counts = ("keys", "superseded_records", "oldest_snapshot", "position", "lag_records")
    return (
        view["stream"],
        str(view["partition"]),
        *(_rate(view[name]) for name in counts),
        _size(view["memory_bytes"]),
        _rate(view["bytes_per_key"]),
    )


def _group_row(group: Mapping[str, Any]) -> tuple[str, ...]:
    seconds = group["lag_seconds"]
    return (
        group["id"],
        group["stream"],
        _rate(group["lag_records"]),
        "-" if seconds is None else format_ms(1000 * seconds),
    )


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _size(value: float | None) -> str:
    return "-" if value is None else format_bytes(round(value))

"""The output of `duramen stream describe`."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from duramen.base.errors import CoordinatorLoading, GroupNotFound, LeaderUnavailable, NotCoordinator, OutcomeUnknown
from duramen.base.units import format_bytes, format_ms, moment
from duramen.cli.output import print_table
from duramen.cli.progress import Bar
from duramen.cli.server import NodeAddress
from duramen.cli.tables import plain
from duramen.client.http import path_of

__all__ = ["groups_reading", "lag_text", "missing_groups", "print_stream"]

_Group = Mapping[str, Any]

_UNHEARD: Final = (CoordinatorLoading, LeaderUnavailable, NotCoordinator, OutcomeUnknown)
"""The coordinator of a group does not respond, or is unknown."""


def groups_reading(server: NodeAddress, stream: str) -> tuple[list[dict[str, Any]], str]:
    """The groups that have committed offsets of a stream: id, state, and these offsets with their lag.

    And why some may be missing; empty where they are all there.
    """
    pages = list(server.pages("/v1/groups"))
    ids = [str(group["id"]) for page in pages for group in page["groups"]]
    found, unheard = [], []
    with Bar("asking for groups", len(ids)) as bar:
        for group_id in ids:
            bar.advance(1)
            try:
                group = server.get(path_of("groups", group_id))
            except GroupNotFound:
                continue
            except _UNHEARD:
                unheard.append(plain(group_id))
                continue
            offsets = [offset for offset in group["offsets"] if offset["stream"] == stream]
            if offsets:
                found.append({"id": group_id, "state": group["state"], "offsets": offsets})
    silent = f"of groups whose coordinator did not respond: {', '.join(unheard)}" if unheard else ""
    return found, "; ".join(filter(None, (missing_groups(pages), silent)))


def missing_groups(pages: Sequence[Mapping[str, Any]]) -> str:
    """Why groups may be missing in a list; empty where they are all there."""

    def named(field: str) -> str:
        return ", ".join(str(one) for one in sorted({one for page in pages for one in page.get(field, ())}))

    nodes, partitions = named("silent_nodes"), named("leaderless_partitions")
    reasons = [
        f"of nodes that did not respond: {nodes}" if nodes else "",
        f"of partitions of __consumer_offsets without a leader: {partitions}" if partitions else "",
    ]
    return "; ".join(filter(None, reasons))


def lag_text(offsets: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """The lag of these offsets in records, together, and in time, the longest; `-` where it is not known."""
    records = [offset["lag_records"] for offset in offsets if offset["lag_records"] is not None]
    seconds = [offset["lag_seconds"] for offset in offsets if offset["lag_seconds"] is not None]
    return (
        str(sum(records)) if records or not offsets else "-",
        format_ms(1000 * max(seconds)) if seconds else "-",
    )


def print_stream(stream: Mapping[str, Any], *, in_cluster: bool) -> None:
    """Everything about a stream, for people; of one `in_cluster` where its partitions are, too."""
    parts = stream["partitions"]
    records = sum(part["high_watermark"] - part["start_offset"] for part in parts)
    click.echo(f"Stream      {stream['name']}")
    click.echo(f"Id          {stream['id']}")
    click.echo(f"Created     {_time(stream['created_at_ms'])}")
    click.echo(f"Durability  {stream['durability']}: {stream['durability_means']}")
    click.echo(f"Records     {records}, {format_bytes(sum(part['bytes'] for part in parts))}")
    if stream["subjects"]:
        click.echo(f"Subjects    {plain(' '.join(stream['subjects']))}")
    for key, value in sorted(stream["config"].items()):
        click.echo(f"Config      {key}={value}")
    _print_partitions(parts, in_cluster=in_cluster)
    _print_views(parts)
    _print_damaged(parts)
    _print_late(parts)
    _print_floors(parts)
    if stream["nats_gaps"] is not None:
        _print_gaps(stream["nats_gaps"])
    _print_groups(stream["groups"], stream["groups_missing"])


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def _print_partitions(parts: Sequence[Mapping[str, Any]], *, in_cluster: bool) -> None:
    fields = ("partition", "leader_epoch", "start_offset", "high_watermark", "end_offset", "segments")
    header = ["PARTITION", "EPOCH", "START", "HIGH WATERMARK", "END", "SEGMENTS", "SIZE"]
    rows = [[*(str(part[field]) for field in fields), format_bytes(part["bytes"])] for part in parts]
    right = range(len(header))
    if in_cluster:
        header += "LEADER", "REPLICAS", "IN SYNC"
        rows = [[*row, *_placed(part)] for row, part in zip(rows, parts, strict=True)]
    click.echo()
    print_table(header, rows, right=right)


def _placed(part: Mapping[str, Any]) -> tuple[str, str, str]:
    """The leader of a partition, its replicas, and those in sync."""
    leader = "-" if part["leader"] is None else str(part["leader"])
    replicas, in_sync = (",".join(map(str, part[field])) for field in ("replicas", "in_sync"))
    return leader, replicas, in_sync


def _print_views(parts: Sequence[Mapping[str, Any]]) -> None:
    views = [(part["partition"], part["view"]) for part in parts if part.get("view")]
    if not views:
        return
    click.echo()
    rows = [
        (
            *(str(one) for one in (at, view["oldest"], view["position"], view["lag"], view["horizon"], view["keys"])),
            str(view["superseded"]),
            format_bytes(view["memory_bytes"]),
            f"{view['bytes_per_key']:.0f}",
        )
        for at, view in views
    ]
    header = ("VIEW OF", "OLDEST", "NEWEST", "LAG", "CHANGES SINCE", "KEYS", "SUPERSEDED", "MEMORY", "BYTES/KEY")
    print_table(header, rows, right=range(len(header)))
    for at, view in views:
        if view["problem"]:
            click.echo(f"The view of partition {at} has stopped: {view['problem']}")


def _print_damaged(parts: Sequence[Mapping[str, Any]]) -> None:
    damaged = [(part["partition"], lost) for part in parts for lost in part["damaged"]]
    if not damaged:
        return
    click.echo()
    click.echo("Damaged, and not served:")
    for partition, lost in damaged:
        last = "on" if lost["last_offset"] is None else f"to {lost['last_offset']}"
        where = f", {lost['file']} bytes {lost['first_byte']} to {lost['end_byte']}" if lost["file"] else ""
        click.echo(f"  partition {partition} offsets {lost['first_offset']} {last}{where}: {lost['cause']}")


def _print_late(parts: Sequence[Mapping[str, Any]]) -> None:
    late = [(part["partition"], part["late"]) for part in parts if part.get("late")]
    if not late:
        return
    click.echo()
    click.echo("Deleted by retention soon after they were written, since the leader's node started:")
    for partition, gone in late:
        newest = moment(gone["newest_ms"])
        click.echo(f"  partition {partition}, {gone['records']} records up to the time {newest}: {gone['reason']}")


def _print_floors(parts: Sequence[Mapping[str, Any]]) -> None:
    floors = [(part["partition"], floor) for part in parts for floor in part.get("floors", ())]
    if not floors:
        return
    click.echo()
    click.echo("Floors, the offsets from which on records are still needed:")
    for partition, floor in floors:
        until = f", up to {floor['multiple']} times its limits" if floor["multiple"] else ""
        held = " and ".join(floor["holds"])
        click.echo(f"  partition {partition}, offset {floor['offset']}: {floor['name']}, holds back {held}{until}")


def _print_gaps(gaps: Mapping[str, Any]) -> None:
    count, seconds = gaps["count"], gaps["total_ms"] / 1000
    click.echo()
    if not gaps["recent"]:
        click.echo("No gaps: Duramen has been subscribed to its subjects since it was created.")
        return
    click.echo(f"Gaps, without a subscription to its subjects: {count}, {seconds:.3f} s in all")
    rows = [
        (_time(gap["start_ms"]), _time(gap["end_ms"]) if gap["end_ms"] is not None else "goes on", gap["cause"])
        for gap in gaps["recent"]
    ]
    print_table(("START", "END", "CAUSE"), rows)


def _print_groups(groups: Sequence[_Group], missing: str) -> None:
    click.echo()
    if groups:
        rows = [(group["id"], group["state"], *lag_text(group["offsets"])) for group in groups]
        print_table(("GROUP", "STATE", "LAG RECORDS", "LAG TIME"), rows, right=(2, 3))
    elif not missing:
        click.echo("No group has committed offsets in it.")
    if missing:
        click.echo(f"Groups may be missing: {missing}.")

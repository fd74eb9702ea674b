"""`duramen queue put`, `get`, `lease` and others: the entries of queues through a node's HTTP door."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import click

from duramen.base.errors import DuramenError, RequestInvalid, StateDamaged
from duramen.base.units import parse_ms
from duramen.cli.confirmation import confirm, yes_option
from duramen.cli.names import StreamName
from duramen.cli.output import JSON, format_option, print_json, print_json_line, print_table
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.tables import plain
from duramen.client.http import path_of, problem_of
from duramen.codec.jsonbytes import json_of
from duramen.codec.queue_entries import LONGEST_DELAY_MS, LONGEST_LEASE_MS

__all__ = ["COMMANDS"]

_F = TypeVar("_F", bound=Callable[..., object])

_AT_ONCE: Final = 1000
_LONGEST_WAIT_MS: Final = 20_000


class _Milliseconds(click.ParamType[int]):
    name = "time"

    def __init__(self, least_ms: int, most_ms: int) -> None:
        self._least_ms = least_ms
        self._most_ms = most_ms

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            found = parse_ms(str(value))
        except ValueError as error:
            self.fail(f"{error}; write 500ms, 30s or 5m", param, ctx)
        if not self._least_ms <= found <= self._most_ms:
            self.fail(
                f"{value} is not in the range from {self._least_ms}ms to {self._most_ms // 3_600_000}h", param, ctx
            )
        return found


_TIME: Final = _Milliseconds(0, LONGEST_DELAY_MS)
_LEASE_TIME: Final = _Milliseconds(1, LONGEST_LEASE_MS)

_space = click.argument("space", type=StreamName())
_queue = click.argument("queue")
_queues = click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
_position = click.argument("position")
_version = click.option(
    "--version", type=click.IntRange(0), metavar="NUMBER", help="Only if the entry has this version."
)
_limit = click.option(
    "--limit", type=click.IntRange(1, 10_000), metavar="NUMBER", default=1, show_default=True,
    help="The most entries, over all queues together.",
)  # fmt: skip
_wait = click.option(
    "--wait", "wait_ms", type=_TIME, metavar="TIME", default=0, help="How long to wait if there is no entry."
)
_request_id = click.option(
    "--request-id", metavar="ID", default="", help="Within ten minutes a repeat with the same ID has no further effect."
)


def _options(*options: Callable[[Any], Any]) -> Callable[[_F], _F]:
    """Options in the order in which the help shows them."""

    def decorate(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _path(space: str, what: str) -> str:
    return path_of("spaces", space) + what


def _text(value: object) -> str:
    if isinstance(value, dict):
        return f"base64:{value.get('base64', '')}"
    return "" if value is None else str(value)


def _print_entries(entries: Iterable[Mapping[str, Any]], format_: str) -> None:
    for entry in entries:
        if format_ == JSON:
            print_json_line(entry)
        else:
            click.echo(f"{entry['position']}  {_text(entry['value'])}")


def _lines() -> list[bytes]:
    if sys.stdin.isatty():
        raise click.UsageError("give values, or write them to standard input, one per line")
    return sys.stdin.buffer.read().splitlines()


def _asked(request_id: str) -> dict[str, str]:
    return {"request": request_id} if request_id else {}


# -- putting in and reading -------------------------------------------------------------------------


@click.command("put")
@_options(
    _space, _queue, click.argument("values", metavar="[VALUE]...", nargs=-1),
    click.option("--key", help="The key of the entries."),
    click.option("--delay", "delay_ms", type=_TIME, metavar="TIME", default=0, help="The delay until the entries "
    "become visible."),
    click.option("--ttl", "ttl_ms", type=_TIME, metavar="TIME", default=0, help="The time until the entries expire."),
    _request_id, format_option, server_option,
)  # fmt: skip
def _put(
    space: str, queue: str, values: Sequence[str], key: str | None, delay_ms: int, ttl_ms: int, request_id: str,
    format_: str, server: NodeAddress,
) -> None:  # fmt: skip
    """Put entries into QUEUE, each VALUE or each line of standard input one; prints their positions."""
    more: dict[str, object] = {"queue": queue, "delay_ms": delay_ms, "ttl_ms": ttl_ms}
    if key is not None:
        more["key"] = key
    contents = [value.encode(errors="surrogateescape") for value in values] or _lines()
    entries = [{"value": json_of(content), **more} for content in contents]
    if request_id and len(entries) > _AT_ONCE:
        raise click.UsageError(f"with --request-id at most {_AT_ONCE} entries can be added at a time")
    for first in range(0, len(entries), _AT_ONCE):
        some = {"entries": entries[first : first + _AT_ONCE], **_asked(request_id)}
        for position in server.post(_path(space, "/entries"), some)["positions"]:
            print_json_line({"position": position}) if format_ == JSON else click.echo(position)


@click.command("peek")
@_options(
    _space, _queue,
    click.option("--from", "start", metavar="POSITION", default="start", show_default=True,
                 help="Where to begin: a position, start or end."),
    click.option("--limit", type=click.IntRange(1), metavar="NUMBER", default=10, show_default=True,
                 help="The most entries."),
    click.option("--delayed", is_flag=True, help="Include delayed entries that are not visible yet."),
    format_option, server_option,
)  # fmt: skip
def _peek(
    space: str, queue: str, start: str, limit: int, delayed: bool, format_: str, server: NodeAddress,
) -> None:  # fmt: skip
    """Print the entries of QUEUE from a position on, and leave them where they are."""
    while limit > 0:
        asked = {"queue": queue, "from": start, "limit": min(limit, _AT_ONCE), "delayed": str(delayed).lower()}
        page = server.get(f"{_path(space, '/entries')}?{urlencode(asked)}")
        if not page["entries"]:
            return
        _print_entries(page["entries"], format_)
        limit -= len(page["entries"])
        start = page["next"]


@click.command("tail")
@_options(
    _space, _queues,
    click.option("--from", "start", metavar="POSITION", default="end", show_default=True,
                 help="Where to begin: start, end, or a position of a single queue."),
    format_option, server_option,
)  # fmt: skip
def _tail(space: str, queues: Sequence[str], start: str, format_: str, server: NodeAddress) -> None:
    """Print entries of the queues as they arrive, until interrupted."""
    reads = dict.fromkeys(dict.fromkeys(queues), start)
    while True:
        body = {
            "queues": [{"queue": queue, "from": at} for queue, at in reads.items()], "wait_ms": _LONGEST_WAIT_MS,
            "limit": _AT_ONCE,
        }  # fmt: skip
        for found in server.post(_path(space, "/retrieve"), body)["queues"]:
            if found.get("problem"):
                raise problem_of(found["problem"])
            reads[found["queue"]] = found["next"]
            for entry in found["entries"]:
                if format_ == JSON:
                    print_json_line({"queue": found["queue"], **entry})
                else:
                    name = f"{found['queue']}  " if len(reads) > 1 else ""
                    click.echo(f"{name}{entry['position']}  {_text(entry['value'])}")


# -- changing ---------------------------------------------------------------------------------------


@click.command("edit")
@_options(_space, _queue, _position, click.argument("value"), _version, _request_id, format_option, server_option)
def _edit(
    space: str, queue: str, position: str, value: str, version: int | None, request_id: str, format_: str,
    server: NodeAddress,
) -> None:  # fmt: skip
    """Give the entry at POSITION another value; prints its version."""
    entry = {"position": position, "value": value, "version": version}
    answer = server.post(_path(space, "/edit"), {"queue": queue, "entries": [entry], **_asked(request_id)})
    version = answer["versions"][0]
    if format_ == JSON:
        print_json({"position": position, "version": version})
    else:
        click.echo(f"{position} has version {version}.")


@click.command("delete")
@_options(
    _space, _queue, click.argument("positions", metavar="POSITION...", nargs=-1, required=True), _version,
    _request_id, server_option,
)  # fmt: skip
def _delete(
    space: str, queue: str, positions: Sequence[str], version: int | None, request_id: str, server: NodeAddress
) -> None:
    """Delete entries of QUEUE, all of them or none."""
    entries = [{"position": position, "version": version} for position in positions]
    server.post(_path(space, "/delete"), {"queue": queue, "entries": entries, **_asked(request_id)})


@click.command("replace")
@_options(
    _space, _queue, _position, click.argument("values", metavar="[VALUE]...", nargs=-1),
    click.option("--by", default="", help="The author of the replacement, shown to readers."),
    click.option("--reason", default="", help="The reason of the replacement, shown to readers."),
    _request_id, yes_option, format_option, server_option,
)  # fmt: skip
def _replace(
    space: str, queue: str, position: str, values: Sequence[str], by: str, reason: str, request_id: str, yes: bool,
    format_: str, server: NodeAddress,
) -> None:  # fmt: skip
    """Take back everything in QUEUE from POSITION on, and put the values in its place, in one step.

    Without values it asks for confirmation.
    """
    if not values:
        confirm(
            f"Delete everything in {plain(queue)} from {plain(position)} on, and put nothing in its place?", yes=yes
        )
    body = {
        "queue": queue, "from": position, "entries": [{"value": value} for value in values], "by": by,
        "reason": reason, **_asked(request_id),
    }  # fmt: skip
    for at in server.post(_path(space, "/replace"), body)["positions"]:
        print_json_line({"position": at}) if format_ == JSON else click.echo(at)


@click.command("purge")
@_options(_space, _queue, yes_option, server_option)
def _purge(space: str, queue: str, yes: bool, server: NodeAddress) -> None:
    """Delete every entry of QUEUE."""
    confirm(f"Delete every entry of {plain(queue)}?", yes=yes)
    server.post(_path(space, "/purge"), {"queue": queue})


@click.command("drop")
@_options(_space, _queue, yes_option, server_option)
def _drop(space: str, queue: str, yes: bool, server: NodeAddress) -> None:
    """Remove QUEUE with all its entries."""
    confirm(f"Remove {plain(queue)} with all its entries?", yes=yes)
    server.post(_path(space, "/drop"), {"queue": queue})


# -- leases -----------------------------------------------------------------------------------------


def _leased(
    space: str, queues: Sequence[str], limit: int, lease_ms: int, wait_ms: int, server: NodeAddress,
    *, fifo: bool = False,
) -> list[dict[str, Any]]:  # fmt: skip
    while True:
        wait = min(wait_ms, _LONGEST_WAIT_MS)
        body = {"queues": list(queues), "limit": limit, "lease_ms": lease_ms, "wait_ms": wait, "fifo": fifo}
        entries: list[dict[str, Any]] = server.post(_path(space, "/lease"), body)["entries"]
        wait_ms -= wait
        if entries or wait_ms <= 0:
            return entries


def _settle(space: str, what: str, entries: Sequence[Mapping[str, Any]], server: NodeAddress, **more: object) -> None:
    places = [{name: entry[name] for name in ("queue", "position", "lease")} for entry in entries]
    for refused in server.post(_path(space, f"/{what}"), {"entries": places, **more})["refused"]:
        raise _refusal(refused)


def _refusal(refused: Mapping[str, Any]) -> DuramenError:
    try:
        return problem_of(refused["problem"])
    except (KeyError, TypeError):
        return RequestInvalid(f"the entry was refused: {refused}")


@click.command("get")
@_options(_space, _queues, _limit, _wait, format_option, server_option)
def _get(space: str, queues: Sequence[str], limit: int, wait_ms: int, format_: str, server: NodeAddress) -> None:
    """Take the next entries out of the queues: print them, then acknowledge them. Ends with 1 where there is none."""
    entries = _leased(space, queues, limit, 30_000, wait_ms, server)
    _print_entries(entries, format_)
    sys.stdout.flush()
    if not entries:
        raise click.exceptions.Exit(1)
    _settle(space, "ack", entries, server)


@click.command("lease")
@_options(
    _space, _queues, _limit,
    click.option("--for", "lease_ms", type=_LEASE_TIME, metavar="TIME", default="30s", show_default=True,
                 help="How long the entries are reserved."),
    _wait, click.option("--fifo", is_flag=True, help="One lease per queue at a time, in the order of the queue."),
    format_option, server_option,
)  # fmt: skip
def _lease(
    space: str, queues: Sequence[str], limit: int, lease_ms: int, wait_ms: int, fifo: bool, format_: str,
    server: NodeAddress,
) -> None:  # fmt: skip
    """Lease entries of the queues: they are delivered again unless they are acknowledged in time."""
    entries = _leased(space, queues, limit, lease_ms, wait_ms, server, fifo=fifo)
    if format_ == JSON:
        _print_entries(entries, format_)
    elif entries:
        rows = [
            (one["queue"], one["position"], one["lease"], str(one["deliveries"]), _text(one["value"]))
            for one in entries
        ]
        print_table(("QUEUE", "POSITION", "LEASE", "DELIVERIES", "VALUE"), rows, right=(3,))
    if not entries:
        raise click.exceptions.Exit(1)


_leased_entry = (_space, _queue, _position, click.argument("lease"))


@click.command("ack")
@_options(*_leased_entry, _request_id, server_option)
def _ack(space: str, queue: str, position: str, lease: str, request_id: str, server: NodeAddress) -> None:
    """Acknowledge the entry at POSITION, which LEASE is on: it was processed, and is gone."""
    _settle(space, "ack", [{"queue": queue, "position": position, "lease": lease}], server, **_asked(request_id))


@click.command("nack")
@_options(
    *_leased_entry,
    click.option("--delay", "delay_ms", type=_TIME, metavar="TIME", default=0, help="The delay until it can be leased "
    "again."),
    _request_id, server_option,
)  # fmt: skip
def _nack(
    space: str, queue: str, position: str, lease: str, delay_ms: int, request_id: str, server: NodeAddress
) -> None:  # fmt: skip
    """Give back the entry at POSITION, which LEASE is on: it was not processed."""
    entries = [{"queue": queue, "position": position, "lease": lease}]
    _settle(space, "nack", entries, server, delay_ms=delay_ms, **_asked(request_id))


# -- queues -----------------------------------------------------------------------------------------


@click.command("list")
@_options(
    _space, click.option("--prefix", default="", help="Only queues with this name prefix."), format_option,
    server_option,
)  # fmt: skip
def _list(space: str, prefix: str, format_: str, server: NodeAddress) -> None:
    """List the queues of SPACE, in no order. Exits with 1 and names the shards if some are lost."""
    show = partial(print_json_line) if format_ == JSON else click.echo
    after: str | None = ""
    missing: list[Mapping[str, Any]] = []
    while after is not None:
        page = server.get(f"{_path(space, '/queues')}?{urlencode({'prefix': prefix, 'after': after})}")
        for name in page["queues"]:
            show({"queue": name} if format_ == JSON else plain(name))
        missing += page.get("missing_shards", ())
        after = page["next"]
    _warn_of_missing(space, missing)


@click.command("stats")
@_options(
    _space, click.argument("queue", required=False), format_option, server_option,
)  # fmt: skip
def _stats(space: str, queue: str | None, format_: str, server: NodeAddress) -> None:
    """Count the entries of QUEUE; without it, show those of all queues of SPACE, and the limits of a shard.

    Exits with 1 and names the shards if some of SPACE are lost.
    """
    if queue is None:
        usage = server.get(_path(space, "/usage"))
        _print_usage(space, usage, format_)
        _warn_of_missing(space, usage.get("missing_shards", ()))
        return
    found = server.get(f"{_path(space, '/stats')}?{urlencode({'queue': queue})}")
    if format_ == JSON:
        print_json(found)
        return
    click.echo(
        f"Queue {plain(queue)}: {_entries(found['entries'])} ({found['bytes']} bytes), {found['leased']} leased,"
        f" {found['delayed']} delayed"
    )
    if found["first"] is not None:
        click.echo(f"  from {found['first']} to {found['last']}")


def _warn_of_missing(space: str, missing: Sequence[Mapping[str, Any]]) -> None:
    """End with 1 if shards are lost, whose queues are not in the output."""
    for one in missing:
        click.echo(f"The queues of shard {one['shard']} of {space} are missing: {one['reason']}.", err=True)
    if missing:
        click.echo(StateDamaged.remedy, err=True)
        raise click.exceptions.Exit(1)


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _print_usage(space: str, usage: Mapping[str, Any], format_: str) -> None:
    if format_ == JSON:
        print_json(usage)
        return
    total = "? entries: a shard has not counted its own yet"
    if usage["entries"] is not None:
        total = f"{_entries(usage['entries'])} ({usage['bytes']} bytes)"
    click.echo(f"Queue space {space}: {total}")
    limits = [f"{usage[f'max_{what}']} {what}" for what in ("entries", "bytes") if usage[f"max_{what}"] is not None]
    if limits:
        click.echo(f"  limits of a shard: {', '.join(limits)}")
    rows = [
        (str(shard), *("?" if one[name] is None else str(one[name]) for name in ("entries", "bytes")))
        for shard, one in enumerate(usage["shards"])
    ]
    print_table(("SHARD", "ENTRIES", "BYTES"), rows, right=(0, 1, 2))


COMMANDS: Final = (
    _put, _get, _peek, _edit, _delete, _replace, _lease, _ack, _nack, _list, _stats, _tail, _purge, _drop,
)  # fmt: skip

"""`duramen snapshot`: snapshots of keyed streams, each key once."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

import click

from duramen.base.units import format_bytes, moment
from duramen.cli.names import StreamName
from duramen.cli.output import JSON, format_option, print_json, print_json_line, print_table
from duramen.cli.server import NodeAddress, server_option
from duramen.client.api.leases import HeldLease
from duramen.client.http import path_of, vector_text

__all__ = ["command"]

_PAGE_RECORDS = 10_000


class _Vector(click.ParamType[dict[int, int]]):
    """PARTITION:OFFSET with commas between them."""

    name = "vector"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[int, int]:
        try:
            pairs = [entry.split(":") for entry in value.split(",")]
            found = {int(partition): int(offset) for partition, offset in pairs}
        except ValueError:
            found = {}
        if not found or min(*found, *found.values()) < 0:
            self.fail(f"{value!r} is not PARTITION:OFFSET, comma-separated", param, ctx)
        return found


@click.group("snapshot")
def command() -> None:
    """Read keyed streams as snapshots: each key once, at its newest record."""


_LEASES: Final = "/snapshot/leases"
_OF_ONE: Final = "applies to one stream: name one stream, or omit it"


def _lease_path(name: str, lease: str) -> str:
    return f"{path_of('streams', name)}{_LEASES}/{quote(lease, safe='')}"


def _opened(server: NodeAddress, name: str) -> list[dict[str, Any]]:
    partitions: list[dict[str, Any]] = server.get(path_of("streams", name) + "/snapshot")["partitions"]
    return partitions


def _opened_together(server: NodeAddress, names: Sequence[str]) -> dict[str, dict[int, int]]:
    """Of each stream the newest snapshot, so that each transaction is in all of them or in none."""
    streams = server.get(f"/v1/snapshot?{urlencode({'streams': ','.join(dict.fromkeys(names))})}")["streams"]
    return {one["stream"]: {part["partition"]: part["at"] for part in one["partitions"]} for one in streams}


@command.command("open")
@click.argument("names", metavar="STREAM...", nargs=-1, required=True, type=StreamName())
@click.option("--at", type=_Vector(), metavar="VECTOR", help="The snapshot  [default: the newest]")
@format_option
@server_option
def _open(names: tuple[str, ...], at: dict[int, int] | None, format_: str, server: NodeAddress) -> None:
    """Hold a snapshot of STREAM open with a lease. Prints the lease and the snapshot.

    Snapshots of several streams have each transaction in all of them or in none. Each stream has its lease.
    """
    if len(names) == 1:
        lease = server.post(path_of("streams", names[0]) + _LEASES, {"at": vector_text(at or {})})
        if format_ == JSON:
            print_json(_document(lease))
        else:
            click.echo(f"{lease['lease']} {_vector_of(lease)}")
        return
    if at is not None:
        raise click.UsageError(f"--at {_OF_ONE}")
    leases = [
        server.post(path_of("streams", name) + _LEASES, {"at": vector_text(vector)})
        for name, vector in _opened_together(server, names).items()
    ]
    if format_ == JSON:
        print_json([_document(lease) for lease in leases])
        return
    for lease in leases:
        click.echo(f"{lease['lease']} {lease['stream']} {_vector_of(lease)}")


def _vector_of(lease: Mapping[str, Any]) -> str:
    return vector_text({part["partition"]: part["at"] for part in lease["partitions"]})


def _document(lease: Mapping[str, Any]) -> dict[str, Any]:
    """A lease as HTTP has it, with the vector that `--at` takes."""
    return {"at": _vector_of(lease), **lease}


def _show_leases(leases: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        (
            lease["lease"],
            moment(lease["opened_ms"]),
            moment(lease["expires_ms"]),
            format_bytes(lease["held_bytes"]),
            _vector_of(lease),
        )
        for lease in leases
    ]
    print_table(("LEASE", "OPENED", "ENDS", "HELD BACK", "SNAPSHOT"), rows, right=(3,))


@command.command("list")
@click.argument("name", metavar="STREAM", type=StreamName())
@format_option
@server_option
def _list(name: str, format_: str, server: NodeAddress) -> None:
    """List the leases on snapshots of STREAM, with the approximate bytes that each of them alone holds back."""
    leases = list(server.listed(path_of("streams", name) + _LEASES, "leases"))
    if format_ == JSON:
        print_json([_document(lease) for lease in leases])
    elif leases:
        _show_leases(leases)
    else:
        click.echo(f"No lease holds a snapshot of {name} open; `duramen snapshot open {name}` creates one.", err=True)


@command.command("renew")
@click.argument("name", metavar="STREAM", type=StreamName())
@click.argument("lease")
@format_option
@server_option
def _renew(name: str, lease: str, format_: str, server: NodeAddress) -> None:
    """Hold the snapshot of LEASE open for `snapshot.lease.ms` from now on."""
    renewed = server.ask("POST", _lease_path(name, lease))
    if format_ == JSON:
        print_json(_document(renewed))
    else:
        click.echo(f"{renewed['lease']} ends at {moment(renewed['expires_ms'])}.")


@command.command("close")
@click.argument("name", metavar="STREAM", type=StreamName())
@click.argument("lease")
@format_option
@server_option
def _close(name: str, lease: str, format_: str, server: NodeAddress) -> None:
    """End LEASE, so that compaction may drop records of its snapshot of STREAM."""
    server.delete(_lease_path(name, lease))
    if format_ == JSON:
        print_json({"lease": lease, "stream": name, "closed": True})
    else:
        click.echo(f"{lease} is closed.")


@command.command("describe")
@click.argument("name", metavar="STREAM", type=StreamName())
@click.option("--lease", metavar="LEASE", help="Show the snapshot that this lease holds open instead.")
@format_option
@server_option
def _describe(name: str, lease: str | None, format_: str, server: NodeAddress) -> None:
    """Show the newest snapshot of STREAM, which ones can still be read, and the cost of its view."""
    if lease is not None:
        held = server.get(_lease_path(name, lease))
        if format_ == JSON:
            print_json(_document(held))
        else:
            _show_leases([held])
        return
    partitions = _opened(server, name)
    views = {part["partition"]: part["view"] or {} for part in server.get(path_of("streams", name))["partitions"]}
    for part in partitions:
        part["view"] = views.get(part["partition"], {})
    vector = vector_text({part["partition"]: part["at"] for part in partitions})
    if format_ == JSON:
        print_json({"stream": name, "at": vector, "partitions": partitions})
        return
    click.echo(f"The newest snapshot of {name} is {vector}.")
    click.echo()
    rows = [
        (
            *(str(part[field]) for field in ("partition", "oldest", "at", "horizon", "high_watermark")),
            str(part["view"].get("keys", "-")),
            format_bytes(part["view"].get("memory_bytes", 0)),
            format_bytes(part["view"].get("file_bytes", 0)),
            f"{part.get('age_ms', 0) / 1000:.1f} s",
            part["view"].get("problem", ""),
        )
        for part in partitions
    ]
    positions = ("PARTITION", "OLDEST", "NEWEST", "CHANGES SINCE", "HIGH WATERMARK")
    header = (*positions, "KEYS", "MEMORY", "FILES", "AGE", "PROBLEM")
    print_table(header, rows, right=range(9))


@command.command("read")
@click.argument("names", metavar="STREAM...", nargs=-1, required=True, type=StreamName())
@click.option(
    "--at", type=_Vector(), metavar="VECTOR", help="The snapshot, as `describe` shows it  [default: the newest]"
)
@click.option("--lease", metavar="LEASE", help="The snapshot of this lease, which is renewed during the read.")
@click.option("--since", type=_Vector(), metavar="VECTOR", help="Only what became visible since this snapshot.")
@server_option
def _read(
    names: tuple[str, ...],
    at: dict[int, int] | None,
    lease: str | None,
    since: dict[int, int] | None,
    server: NodeAddress,
) -> None:
    """Print the records of a snapshot of STREAM, one JSON object a line; deleted keys have the value null.

    Of several streams each transaction is in all of the snapshots or in none.
    """
    if len(names) > 1:
        given = next((option for option, value in (("at", at), ("lease", lease), ("since", since)) if value), None)
        if given is not None:
            raise click.UsageError(f"--{given} {_OF_ONE}")
        for stream, vector in _opened_together(server, names).items():
            for partition, offset in vector.items():
                for record in _records(server, stream, partition, None, offset):
                    print_json_line(record)
        return
    name = names[0]
    if lease is not None and at is not None:
        raise click.UsageError("--lease names the snapshot: omit --at or --lease")
    held = None if lease is None else HeldLease(server.get(_lease_path(name, lease)), own=False)
    if held is not None:
        at = held.at
    elif at is None:
        at = {part["partition"]: part["at"] for part in _opened(server, name)}
    gone = sorted((since or {}).keys() - at.keys())
    if gone:
        raise click.UsageError(f"--since: the snapshot has no partition {gone[0]}: it belongs to another stream")
    for partition, offset in at.items():
        for record in _records(server, name, partition, (since or {}).get(partition), held or offset):
            print_json_line(record)


def _records(
    server: NodeAddress, name: str, partition: int, since: int | None, snapshot: HeldLease | int
) -> Iterator[dict[str, Any]]:
    asked: dict[str, Any] = {"partition": partition, "limit": _PAGE_RECORDS, "offset": 0}
    asked |= {"at": snapshot} if isinstance(snapshot, int) else {"lease": snapshot.lease}
    if since is not None:
        asked["since"] = since
    while asked["offset"] is not None:
        if isinstance(snapshot, HeldLease) and snapshot.due:
            server.ask("POST", _lease_path(name, snapshot.lease))
            snapshot.renewed()
        page = server.get(f"{path_of('streams', name)}/snapshot/records?{urlencode(asked)}")
        yield from page["records"]
        asked["offset"] = page["next"]

"""`duramen log verify`: the damage in a data directory or in one segment."""

from pathlib import Path
from typing import Final

import click

from duramen.base.errors import DirectoryUnusable, DuramenError
from duramen.base.units import format_bytes
from duramen.cli.output import JSON, format_option, print_json
from duramen.cli.progress import Bar
from duramen.storage.recovery.verification import DamageFinding, Verified, verify, verify_segment
from duramen.storage.segment.segment import parse_segment_name

__all__ = ["DAMAGED", "NotVerifiable", "command"]

DAMAGED: Final = 3
"""The exit code where something is damaged."""

_DEEP: Final = 3  # a segment is logs/<log id>/<segment> of its directory


class NotVerifiable(DuramenError):
    """The argument is neither a data directory nor a segment, or cannot be read."""

    id = "not-verifiable"
    safe = "Nothing was changed: files were only read."
    remedy = "Name a data directory, as --data-dir does, or a .log file of one."


@click.command("verify")
@click.argument("path", metavar="DATA_DIR|SEGMENT", type=click.Path(path_type=Path))
@format_option
def command(path: Path, format_: str) -> int:
    """Check every byte of DATA_DIR, or of SEGMENT, a .log file: checkpoints, write-ahead log, segments, indexes.

    Changes nothing; no node may use the directory. Prints each damaged range with its file, bytes, offsets and
    cause. Exits with 0 if there is no damage, and with 3 if there is.
    """
    try:
        with Bar("verifying", None) as bar:
            found = _verify_file(path, bar) if path.suffix == ".log" else _verify_directory(path, bar)
    except OSError as error:
        raise NotVerifiable(f"{path} cannot be read: {error.strerror or error}") from None
    if format_ == JSON:
        print_json(_document(path, found))
    else:
        _print(found)
    return DAMAGED if found.findings else 0


def _verify_directory(path: Path, bar: Bar, only: str = "") -> Verified:
    from duramen.node.offline import hold

    with hold(path, damaged=True) as held:
        found = verify(held.files, held.id, expect=bar.expect, advance=bar.advance, only=only)
        if held.id is None and not only:
            found.findings.insert(0, DamageFinding("duramen.json", "directory", held.problem))
        return found


def _verify_file(path: Path, bar: Bar) -> Verified:
    from duramen.node.offline import data_files

    place = path.absolute()
    if parse_segment_name(place.stem) is None:
        raise NotVerifiable(f"{path} is not a segment: its name would be an offset and end in .log")
    if not place.is_file():
        raise NotVerifiable(f"{path} does not exist")
    if len(place.parents) >= _DEEP:
        root = place.parents[_DEEP - 1]
        try:
            found = _verify_directory(root, bar, str(place.relative_to(root)))
        except DirectoryUnusable as error:
            if "is in use" in str(error):
                raise
        else:
            if found.segments:
                return found
    return verify_segment(data_files(place.parent), place.stem, expect=bar.expect, advance=bar.advance)


def _document(path: Path, found: Verified) -> dict[str, object]:
    return {
        "path": str(path),
        "sound": not found.findings,
        "logs": found.logs,
        "segments": found.segments,
        "checked_bytes": found.checked_bytes,
        "damaged": [
            {
                "file": finding.file,
                "cause": finding.cause,
                "first_byte": _known(finding.start),
                "end_byte": _known(finding.end),
                "first_offset": _known(finding.first_offset),
                "last_offset": _known(finding.last_offset),
                "message": finding.words,
            }
            for finding in found.findings
        ],
    }


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _print(found: Verified) -> None:
    for finding in found.findings:
        click.echo(str(finding))
    segments = f"{found.segments} {'segment' if found.segments == 1 else 'segments'}"
    damaged = len(found.findings)
    verdict = "no damage" if not damaged else "1 thing is damaged" if damaged == 1 else f"{damaged} things are damaged"
    click.echo(f"{segments}, {format_bytes(found.checked_bytes)}, checked: {verdict}.")
    if damaged:
        click.echo(
            "A node serves the records around damage; `duramen log salvage` writes the sound data to a new directory."
        )

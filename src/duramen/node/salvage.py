"""Salvage: a new data directory from the sound data of another, with the names that the metadata log still has."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import DirectoryUnusable, DuramenError, OffsetOutOfRange, StreamNotFound
from duramen.base.ids import METADATA_LOG_ID, StreamId, new_stream_id
from duramen.base.ports import FileSystem
from duramen.base.units import format_bytes
from duramen.codec.batch import BatchInput, Header, encode, header, records, stamp
from duramen.groups.records import decode_key
from duramen.host.clock import HostClock, HostRandomness
from duramen.host.files import HostFileSystem
from duramen.metadata.events import Event, StreamCreated, encode_event
from duramen.metadata.snapshot import standalone_events
from duramen.node.names import MetadataNames, read_names
from duramen.node.offline import HeldDirectory, hold
from duramen.service.recreation import recreate
from duramen.storage.directory import begin_directory, finish_directory
from duramen.storage.log.log import LogKey
from duramen.storage.salvage.left import LeftLog, batches_of, cut_left
from duramen.storage.salvage.reader import read_leftovers
from duramen.storage.salvage.writer import NewDirectory, NewLog, plan_of

__all__ = ["Partial", "Salvaged", "SalvagedEnd", "SalvagedLog", "salvage", "stored_bytes"]

_SPARE_BYTES: Final = 16 << 20  # indexes, checkpoints, and overhead of file systems
_EVENTS: Final = 1000  # per batch of the metadata log
_PRESENCE: Final = "nats/listened-until"


class SalvagedEnd(NamedTuple):
    """A log to be truncated to `end_offset`."""

    stream: str
    partition: int
    end_offset: int


class SalvagedLog(NamedTuple):
    """One log of the new directory. `lost` are ranges of offsets; those in `known` were known to the node before.

    `cut` is the truncated range.
    """

    log_id: int
    stream: str
    partition: int
    start_offset: int
    end_offset: int
    batches: int
    size_bytes: int
    lost: list[tuple[int, int]]
    known: list[tuple[int, int]]
    cut: tuple[int, int] | None


class Partial(NamedTuple):
    """A partition whose records a cluster node may lack. Not `held`: the node had no replica."""

    stream: str
    partition: int
    held: bool


class Salvaged(NamedTuple):
    """The result. Not `whole`: more may be lost than can be named. `renamed` are streams whose names are lost."""

    directory_id: UUID
    logs: list[SalvagedLog]
    findings: list[str]
    whole: bool
    renamed: list[str]
    partial: list[Partial]


def salvage(
    source: Path,
    target: Path,
    *,
    maker: str,
    cut: SalvagedEnd | None = None,
    expect: Callable[[int], None] | None = None,
    advance: Callable[[int], None] | None = None,
) -> Salvaged:
    """Write `target`, a new directory, from the remains of `source`; with `cut`, one log is truncated in it.

    `maker` is the command, for an unfinished directory. `advance` gets the number of bytes done, of the total that
    `expect` got. Raises DirectoryUnusable, StreamNotFound, OffsetOutOfRange or OSError.
    """
    with hold(source, damaged=True) as held:
        return _Salvage(held, target, maker, expect or _ignore, advance or _ignore).run(cut)


def _ignore(_: int) -> None:
    return None


class _Salvage:
    def __init__(
        self,
        held: HeldDirectory,
        target: Path,
        maker: str,
        expect: Callable[[int], None],
        advance: Callable[[int], None],
    ) -> None:
        self._held = held
        self._files = held.files
        self._target = target
        self._maker = maker
        self._expect = expect
        self._advance = advance
        self._randomness = HostRandomness()

    def run(self, cut: SalvagedEnd | None) -> Salvaged:
        self._check_target()
        self._expect(2 * stored_bytes(self._held.path))
        self._left = left = read_leftovers(self._files, self._held.id, advance=self._advance)
        if self._held.problem:
            left.findings.insert(0, self._held.problem)
        names = read_names(self._files, left)
        kept = self._kept(names)
        if cut is not None:
            _cut(self._files, kept, names, cut)
        self._check_room(kept)
        files = HostFileSystem(str(self._target))
        directory = begin_directory(files, self._randomness, str(self._target), self._maker)
        try:
            return self._write(files, directory.id, names, kept)
        finally:
            directory.lock.release()

    def _check_target(self) -> None:
        target, source = self._target.resolve(), self._held.path.resolve()
        if target == source or source in target.parents or target in source.parents:
            raise DirectoryUnusable(f"{self._target} and {self._held.path} lie in one another; name another directory")
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise DirectoryUnusable(f"{self._target} is there and not empty; name a new directory, or an empty one")

    def _check_room(self, kept: list[LeftLog]) -> None:
        needed = sum(log.size_bytes for log in kept) + _SPARE_BYTES
        place = self._target.absolute()
        while not place.is_dir():
            place = place.parent
        free = shutil.disk_usage(place).free
        if free < needed:
            raise DirectoryUnusable(
                f"{self._target} needs {format_bytes(needed)} and {format_bytes(free)} are free there; free some space,"
                " or name a directory on another disk"
            )

    def _kept(self, names: MetadataNames) -> list[LeftLog]:
        """The logs to keep, without the metadata log: not those of streams that are known to be deleted."""
        kept = []
        taken: set[LogKey] = set()
        for log in sorted(self._left.logs.values(), key=lambda log: (log.key is None, log.id)):
            if log.id == METADATA_LOG_ID:
                continue
            if log.key is None or log.key in taken:
                log.key = LogKey(new_stream_id(self._randomness.token(16)), 0)
                self._left.findings.append(
                    f"logs/{log.id}: nothing says whose log it is; it becomes a stream of its own"
                )
            stream_id = log.key.stream_id
            known = names.state.stream_by_id(stream_id) is not None
            if known or (stream_id not in names.deleted and any(log.history)):
                kept.append(log)
                taken.add(log.key)
        return kept

    def _write(self, files: FileSystem, directory_id: UUID, names: MetadataNames, kept: list[LeftLog]) -> Salvaged:
        directory = NewDirectory(files, directory_id, self._advance)
        written = [(log, directory.add(plan_of(log), batches_of(self._files, log))) for log in kept]
        partial = sorted(_partial(names, kept, self._held.id)) if names.clustered else []
        events = [] if names.whole and not names.clustered else self._missing_events(names, written)
        metadata = self._left.logs.get(METADATA_LOG_ID) or LeftLog(METADATA_LOG_ID, None, "sync")
        epoch = self._left.node_epoch
        if names.whole and not names.clustered:
            directory.add(plan_of(metadata), batches_of(self._files, metadata))
        else:
            # Nodes, their voters and replicas are left out: the new directory is that of a standalone node.
            added = [*standalone_events(names.state), *events] if names.clustered else events
            batches = list(_dense(() if names.clustered else names.batches, added, epoch))
            end_offset = batches[-1][0].next_offset
            directory.add(
                plan_of(metadata)._replace(start_offset=0, end_offset=end_offset, takeovers=(), bases=()), batches
            )
        for event in events:
            names.state.apply(event)
        self._copy_presence(files)
        directory.finish(epoch, max(self._left.next_log_id, METADATA_LOG_ID + 1))
        finish_directory(files)
        logs = [_salvaged(log, new, names.of(log.key)) for log, new in written]
        created = [event.name for event in events if isinstance(event, StreamCreated)]
        return Salvaged(
            directory_id, sorted(logs), self._left.findings, names.whole and self._left.whole, created, partial
        )

    def _missing_events(self, names: MetadataNames, written: list[tuple[LeftLog, NewLog]]) -> list[Event]:
        partitions: dict[StreamId, int] = {}
        for _, new in written:
            key = new.log.key
            partitions[key.stream_id] = max(partitions.get(key.stream_id, 0), key.partition + 1)
        if not names.whole:
            self._left.findings.append("the metadata log is not whole: what it said of streams may be lost in part")
        return recreate(
            names.state,
            partitions,
            {new.log.key.stream_id: new.log.durability for _, new in written},
            {new.log.key.stream_id for log, new in written if _holds_offsets(self._files, log)},
            offsets_partitions=int(BROKER["offsets.topic.num.partitions"].default_text),
            largest_producer_id=max((new.largest_producer_id for _, new in written), default=-1),
            now_ms=HostClock().wall_ms(),
        )

    def _copy_presence(self, files: FileSystem) -> None:
        """The end of the NATS door's last subscription: without it the gap since then would go unnoticed."""
        if self._files.exists(_PRESENCE):
            file = self._files.open(_PRESENCE)
            files.make_directory(_PRESENCE.rpartition("/")[0])
            files.open(_PRESENCE, create=True).write([file.read(0, file.size())], 0)


def stored_bytes(path: Path) -> int:
    """Bytes of all segments in a data directory."""
    return sum(file.stat().st_size for file in (path / "logs").rglob("*.log")) if (path / "logs").is_dir() else 0


def _salvaged(log: LeftLog, new: NewLog, name: str) -> SalvagedLog:
    known = [lost for lost in new.lost if any(first <= lost[0] and lost[1] <= last for first, last in log.known_damage)]
    end_offset, key = new.log.end_offset, new.log.key
    cut = (end_offset, log.cut_from - 1) if log.cut_from > end_offset else None
    return SalvagedLog(
        log.id, name, key.partition, new.log.start_offset, end_offset, new.batches, new.size_bytes, new.lost, known, cut
    )


def _dense(batches: Iterable[bytes], events: list[Event], epoch: int) -> Iterator[tuple[Header, memoryview]]:
    """The metadata log rewritten: the remaining batches one after another, then those of `events`."""
    offset, now_ms = 0, HostClock().wall_ms()
    ordered = [(bytearray(batch), header(batch).leader_epoch) for batch in batches]
    for at in range(0, len(events), _EVENTS):
        some = (BatchInput(now_ms, None, encode_event(event)) for event in events[at : at + _EVENTS])
        ordered.append((encode(some), epoch))
    for batch, batch_epoch in ordered:
        stamp(batch, offset, batch_epoch)
        found = header(batch)
        yield found, memoryview(batch)
        offset = found.next_offset


def _partial(names: MetadataNames, kept: list[LeftLog], directory_id: UUID | None) -> Iterator[Partial]:
    """Partitions of a cluster that other nodes held, or whose acknowledged records this directory may lack."""
    mine = {node_id for node_id, known in names.state.nodes.items() if known == str(directory_id)}
    here = {log.key for log in kept}
    for stream in names.state.streams.values():
        for number, partition in names.state.partitions.of_stream(stream.id).items():
            if not mine & {*partition.isr, *partition.elr}:
                yield Partial(stream.name, number, LogKey(stream.id, number) in here)


def _holds_offsets(files: FileSystem, log: LeftLog) -> bool:
    """Whether the log's first batch is one of consumer offsets: all of its records have keys of that kind."""
    for _, batch in batches_of(files, log):
        try:
            return all(record.key is not None and decode_key(record.key) is not None for record in records(batch))
        except DuramenError:
            return False
    return False


def _cut(files: FileSystem, kept: list[LeftLog], names: MetadataNames, cut: SalvagedEnd) -> None:
    found: Mapping[int, LeftLog] = {
        log.key.partition: log for log in kept if log.key is not None and names.of(log.key) == cut.stream
    }
    if names.state.streams.get(cut.stream) is None:
        raise StreamNotFound(f"there is no stream {cut.stream} in that directory; `duramen log stats` shows which are")
    log = found.get(cut.partition)
    if log is None:
        raise StreamNotFound(f"stream {cut.stream} has no records in a partition {cut.partition}")
    if not max(log.start_offset, 0) <= cut.end_offset <= log.end_offset:
        raise OffsetOutOfRange(
            f"partition {cut.partition} of {cut.stream} goes from {log.start_offset} to {log.end_offset}:"
            f" {cut.end_offset} must lie between"
        )
    log.cut_from = log.end_offset
    cut_left(files, log, cut.end_offset)

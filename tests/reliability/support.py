"""What the tests of reliability share: a busy history on a disk in memory, faults at a chosen call, and the promise."""

import os
import random
from collections.abc import Collection, Sequence
from typing import Final

from duramen.base.errors import LogDamaged
from duramen.codec.batch import records
from duramen.sim.machine.disk import Interference
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles, expected_values
from duramen.storage.log.log import Log, LogConfig

__all__ = [
    "LOGS",
    "SURVIVALS",
    "FailingCalls",
    "busy",
    "come_back",
    "keeps_the_promise",
    "one_by_one",
]

LOGS: Final = 3
SURVIVALS: Final = ("nothing unsynced", "some pages", "every write")
_CONFIG: Final = LogConfig(segment_bytes=12_000)


class FailingCalls:
    """Fails calls of the disk: those of `calls` on paths that begin with one of `prefixes`, from the `first` on.

    `times` of them, or all. `seen` counts how many there were; a failed sync gives up the file's unsynced pages.
    """

    def __init__(
        self, doubles: StoreOnDoubles, calls: Collection[str], prefixes: Sequence[str], code: int,
        *, first: int = 0, times: int | None = None,
    ) -> None:  # fmt: skip
        self._files = doubles.files
        self._calls = calls
        self._prefixes = tuple(prefixes)
        self._code = code
        self._range = range(first, first + times) if times is not None else None
        self._first = first
        self.seen = 0
        self.failed = 0
        self.failing = True
        interfere: Interference = self._interfere
        doubles.files.interfere = interfere

    def _interfere(self, call: str, path: str, size: int) -> int:
        if call not in self._calls or not path.startswith(self._prefixes):
            return size
        at, self.seen = self.seen, self.seen + 1
        if not self.failing or at < self._first or (self._range is not None and at not in self._range):
            return size
        self.failed += 1
        if call == "sync":
            self._files.drop(path)
        raise OSError(self._code, os.strerror(self._code), path)


def busy(
    doubles: StoreOnDoubles, appends: list[AppendOutcome], seed: int, *, batches: int = 45, config: LogConfig = _CONFIG
) -> None:
    """Appends to three logs in turn, some synced at once, some copied; rolls and a checkpoint in between."""
    chance = random.Random(seed)
    for number in range(batches):
        log = doubles.log(number % LOGS, config)
        appends.append(doubles.append(log, chance.randbytes(chance.randrange(2500))))
        if chance.random() < 0.4:
            doubles.settle()
        if chance.random() < 0.1:
            doubles.advance(1000)
        if number == batches // 2:
            doubles.settle()
            doubles.advance(61_000)
    doubles.settle()


def come_back(doubles: StoreOnDoubles, survives: str, seed: int) -> None:
    """End the store and start it again on what `survives`, one of SURVIVALS."""
    if survives == "every write":
        doubles.kill()
    else:
        doubles.crash(random.Random(seed) if survives == "some pages" else None)


def keeps_the_promise(doubles: StoreOnDoubles, appends: Sequence[AppendOutcome]) -> None:
    """Every acknowledged batch is at its offset, byte for byte; behind it at most what was never answered, whole."""
    for number in range(LOGS):
        log = doubles.log(number)
        mine = appends[number::LOGS]
        content = doubles.values(log)
        assert [record.offset for record in doubles.read(log)] == list(range(len(content))), "offsets are dense"
        acknowledged = expected_values([append for append in mine if append.acknowledged])
        assert content[: len(acknowledged)] == acknowledged
        asked = [append.values for append in mine if not append.acknowledged]
        for value in content[len(acknowledged) :]:
            assert (value,) in asked, "a record that nobody wrote"


def one_by_one(doubles: StoreOnDoubles, log: Log) -> tuple[dict[int, bytes], dict[int, str]]:
    """The value at each offset below the high watermark that can be read, and what is said of each that cannot."""
    good: dict[int, bytes] = {}
    bad: dict[int, str] = {}
    for offset in range(log.start_offset, log.high_watermark):
        try:
            slice_ = doubles.plan(log, offset, 1)
            assert slice_ is not None, "a clean end in the middle of the log"
            data = doubles.bytes_of(slice_)
        except LogDamaged as error:
            bad[offset] = str(error)
            continue
        found = {record.offset: record.value or b"" for record in records(data)}
        good[offset] = found[offset]
    return good, bad

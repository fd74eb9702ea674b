"""Bugs to be planted in what carries out the machine's effects, one at a time: the simulation has to find each."""

from collections.abc import Callable
from copy import copy
from typing import Any, Final, cast

from tests.sim.planted import Bug, Place

from duramen.base.errors import DuramenError
from duramen.base.ports import FileSystem
from duramen.controller.quorum.ballot_file import BallotFile, Promised
from duramen.controller.quorum.log import MetadataLog
from duramen.controller.quorum.proposals import ProposalDone, Proposals
from duramen.controller.quorum.runner import Runner
from duramen.controller.quorum.small_file import WholeFile
from duramen.raft.effects import Persist
from duramen.raft.epochs import EpochEnd
from duramen.raft.messages import EntryBatch

__all__ = ["BUGS"]

Original = Callable[..., Any]


def _answer_first(right: Original) -> Original:
    def _persist(self: Runner, effect: Persist) -> None:
        right(self, effect)
        self._agenda.resume()

    return _persist


def _count_written(right: Original) -> Original:
    def append(self: MetadataLog, batch: EntryBatch, done: Callable[[DuramenError | None], None]) -> None:
        right(self, batch, lambda _: None)
        self._store.soon(lambda: done(None))

    return append


def _write_unsynced(right: Original) -> Original:
    def write(self: WholeFile, content: bytes) -> None:
        right(_without(self, "sync"), content)

    return write


def _forget_name(right: Original) -> Original:
    def write(self: WholeFile, content: bytes) -> None:
        right(_without(self, "sync_directory"), content)

    return write


def _without(file: WholeFile, call: str) -> WholeFile:
    lacking = copy(file)
    lacking.files = cast("FileSystem", _Without(file.files, call))
    return lacking


class _Without:
    """Files, and those that they open, without one kind of call."""

    def __init__(self, right: Any, call: str) -> None:
        self._right = right
        self._call = call

    def open(self, path: str, *, create: bool = False) -> Any:
        return _Without(self._right.open(path, create=create), self._call)

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: None) if name == self._call else getattr(self._right, name)


def _answer_ordered(right: Original) -> Original:
    def add(self: Proposals, end: EpochEnd, done: ProposalDone) -> None:
        right(self, end, done)
        self.committed(end.offset)

    return add


def _damaged_is_none(right: Original) -> Original:
    def read(self: BallotFile) -> Promised | None:
        try:
            found: Promised | None = right(self)
        except DuramenError:
            return None
        return None if found is None else found._replace(ballot=found.ballot._replace(voted=None))

    return read


def _keep_what_was(right: Original) -> Original:
    del right

    def restart(self: MetadataLog, start: EpochEnd, done: Callable[[DuramenError | None], None]) -> None:
        self.begin(start, [])
        done(None)

    return restart


BUGS: Final = (
    Bug("answer-first", "", (Place(Runner, "_persist", _answer_first),), "answer a vote before the ballot is synced"),
    Bug("count-written", "", (Place(MetadataLog, "append", _count_written),), "count what is written as synced"),
    Bug("ballot-unsynced", "", (Place(WholeFile, "write", _write_unsynced),), "do not sync the ballot"),
    Bug("ballot-without-name", "", (Place(WholeFile, "write", _forget_name),), "do not sync the ballot's new name"),
    Bug("vote-forgotten", "", (Place(BallotFile, "read", _damaged_is_none),), "forget the vote at a start"),
    Bug("answer-ordered", "", (Place(Proposals, "add", _answer_ordered),), "answer a proposal before it is committed"),
    Bug("keep-what-was", "", (Place(MetadataLog, "restart", _keep_what_was),), "keep the log behind a new snapshot"),
)

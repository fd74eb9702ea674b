"""Changes a log's durability at a segment roll; prepares a truncated log for new records.

Appends to the log are held meanwhile. On a full disk they fail, unless one of them is patient: then the change is
retried until there is room.
"""

from collections.abc import Callable
from functools import partial

from duramen.base.errors import DuramenError
from duramen.storage.log.log import Log
from duramen.storage.maintenance.scheduler import Upkeep, trouble
from duramen.storage.wal.control_frames import Notes
from duramen.storage.wal.frames import FrameType
from duramen.storage.wal.records import LogChange, encode_change

__all__ = ["Switching"]


class Switching:
    """Changes durabilities of logs."""

    def __init__(
        self,
        upkeep: Upkeep,
        notes: Notes,
        release: Callable[[Log, DuramenError | None], None],
        patient: Callable[[Log], bool],
    ) -> None:
        """`release` is called when appends to a log may continue, or with an error.

        `patient` tells whether a waiting append is patient.
        """
        self._upkeep = upkeep
        self._notes = notes
        self._release = release
        self._patient = patient

    def switch(self, log: Log) -> None:
        """Change the log's durability at a roll, after everything before it is synced, if it has to change."""
        log.version += 1  # records that are no longer volatile belong into the next checkpoint
        for segment in log.segments:
            if segment.in_memory:
                segment.in_memory = False
                log.version += 1  # its checkpoint entry has changed
                self._upkeep.copier.add(log, segment.size - segment.copied)
        # Both generations of the checkpoint must have the records that only segments hold: the WAL never had them.
        request = self._upkeep.checkpointer.request
        switched = partial(self._switched, log)
        request(lambda failure: request(switched) if failure is None else switched(failure))

    def _switched(self, log: Log, failure: OSError | None) -> None:
        if log.deleted:
            return
        if failure is not None:
            what = "the durability cannot change now" if log.changes else "a truncated log cannot continue at present"
            if self._patient(log):
                self._upkeep.retry_step(what, failure, partial(self.switch, log), partial(self._release, log))
            else:
                self._release(log, trouble(what, failure))
            return
        was_cut, log.cut_again = log.cut_again, False
        if was_cut and not log.changes:
            self._release(log, None)
            return
        change = LogChange(log.start_offset, log.end_offset, log.wanted_durability)

        holds: list[Callable[[], None]] = []

        def durable(error: DuramenError | None) -> None:
            for let_go in holds:
                let_go()
            log.switching_to = None
            if error is None and not log.deleted:
                self._upkeep.copier.finish(log, log.active)
                log.set_durability(change.durability)
                log.synced_to(change.end_offset)  # the checkpoints synced it, even if it was in bulk
                log.notify()
            self._release(log, error)

        log.switching_to = change.durability  # frames of the log from now on come after this
        hold = self._upkeep.checkpointer.hold
        self._notes.write(
            FrameType.CHECKPOINT_ENTRY, log, encode_change(change), durable, staged=lambda: holds.append(hold())
        )

"""Executes a state machine's effects in order; stops while the first one waits for the disk. Pure."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

__all__ = ["Agenda"]

Effect = TypeVar("Effect")


class Agenda(Generic[Effect]):
    """The effects of one machine. Who does one that waits says `wait`, and `resume` once that is done.

    It counts what cuts the log: as long as a cut is asked for and not done, the same offsets may mean other batches.
    """

    def __init__(
        self,
        take: Callable[[], Iterable[Effect]],
        do: Callable[[Effect], None],
        cuts: tuple[type[Effect], ...],
    ) -> None:
        """`take` has what the machine wants since it was asked last, `do` does one; `cuts` are those that cut."""
        self._take = take
        self._do = do
        self._cuts = cuts
        self._queue: list[Effect] = []  # few; an empty deque takes 760 bytes of each partition
        self._going = False
        self._ended = False
        self._cuts_taken = 0
        self._waits = False
        self.cuts_done = 0

    @property
    def going(self) -> bool:
        """Whether effects are being done right now, by whoever called."""
        return self._going

    @property
    def waits(self) -> bool:
        """Whether the first of them waits for the disk."""
        return self._waits

    @property
    def idle(self) -> bool:
        """Whether nothing is to be done, and nothing waits."""
        return not self._queue and not self._waits

    @property
    def uncut(self) -> bool:
        """Whether no cut is asked for that is not done."""
        return self.cuts_done == self._cuts_taken

    def take(self) -> None:
        """Ask the machine what it wants, without doing any of it yet."""
        for effect in self._take():
            if isinstance(effect, self._cuts):
                self._cuts_taken += 1
            self._queue.append(effect)

    def go_on(self) -> None:
        """Do what is to be done, as far as nothing waits; what comes of that, too."""
        if self._going or self._ended:
            return
        self._going = True
        queue = self._queue
        try:
            self.take()
            while queue and not self._waits and not self._ended:
                self._do(queue.pop(0))
                self.take()
        finally:
            self._going = False

    def wait(self) -> None:
        """What is being done takes its time: nothing else is done before `resume`."""
        self._waits = True

    def resume(self) -> None:
        """What was waited for is done; the rest is for `go_on`."""
        self._waits = False

    def end(self) -> None:
        """Do nothing any more."""
        self._ended = True
        self._queue.clear()

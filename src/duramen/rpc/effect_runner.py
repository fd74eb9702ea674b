"""Executes a state machine's effects in order; stops while the first one waits for the disk. Pure."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

__all__ = ["EffectRunner"]

Effect = TypeVar("Effect")


class EffectRunner(Generic[Effect]):
    """The effects of one state machine. An effect that takes time calls `wait`, and `resume` when it is done.

    It counts effects that truncate the log: while one is pending, the same offsets may mean other batches.
    """

    def __init__(
        self,
        take: Callable[[], Iterable[Effect]],
        do: Callable[[Effect], None],
        cuts: tuple[type[Effect], ...],
    ) -> None:
        """`take` returns the machine's new effects, `do` executes one; `cuts` are the types that truncate the log."""
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
        """Whether effects are being executed right now, by any caller."""
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
        """Whether no truncation is pending."""
        return self.cuts_done == self._cuts_taken

    def take(self) -> None:
        """Collect new effects from the machine without executing them yet."""
        for effect in self._take():
            if isinstance(effect, self._cuts):
                self._cuts_taken += 1
            self._queue.append(effect)

    def go_on(self) -> None:
        """Execute effects until one waits, including effects that these cause."""
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
        """The current effect takes time: no other is executed before `resume`."""
        self._waits = True

    def resume(self) -> None:
        """The current effect is done; `go_on` executes the rest."""
        self._waits = False

    def end(self) -> None:
        """Do nothing any more."""
        self._ended = True
        self._queue.clear()

"""The model of one log: what it lets go by, and what it does not."""

import pytest

from duramen.sim.history import History, LogFacts
from duramen.sim.trace import BrokenPromise


def transactional() -> History:
    """Records up to 30, of which 17 began a transaction that is open."""
    history = History("stream", 0, 1)
    history.transactional = True
    history.visible(30, "sync")
    history.stable(17, 0)
    return history


def restarted(history: History, start_offset: int, stable_offset: int) -> None:
    history.started(2, "power loss", LogFacts(start_offset, 30, "sync"))
    history.stable(stable_offset, start_offset)


def test_a_last_stable_offset_at_a_start_goes_back_with_it() -> None:
    history = transactional()
    history.stable(22, 22)
    restarted(history, 0, 17)


def test_a_last_stable_offset_does_not_go_back_while_a_process_runs() -> None:
    history = transactional()
    history.stable(22, 22)
    with pytest.raises(BrokenPromise, match="was 22, and is 17"):
        history.stable(17, 0)


def test_what_was_decided_is_decided_for_good() -> None:
    history = transactional()
    history.stable(25, 22)
    with pytest.raises(BrokenPromise, match="was 25, and is 17"):
        restarted(history, 0, 17)


def test_a_last_stable_offset_is_not_before_the_start_that_is_durable() -> None:
    history = transactional()
    history.stable(22, 22)
    history.start_asked = history.start_bound = 22
    with pytest.raises(BrokenPromise, match="was 22, and is 17"):
        restarted(history, 22, 17)
    with pytest.raises(BrokenPromise, match="its start was 22"):
        restarted(history, 0, 17)

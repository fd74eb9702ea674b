"""Which replica of a partition has most, as the live ones say."""

from uuid import UUID

import pytest
from tests.broker.several import Several
from tests.controller.active.scripted import state_of

from duramen.codec.batch import BatchInput, check, encode
from duramen.controller.admin.replica_survey import ReplicaCompleteness, Survey
from duramen.metadata.decisions import Definition
from duramen.metadata.partitions import PartitionId
from duramen.sim.broker import CallbackResult

BLANK = ReplicaCompleteness(-1, 0, 0)


@pytest.mark.parametrize(("kept", "best", "lost"), [
    ({1: BLANK, 2: ReplicaCompleteness(3, 600, 590), 3: ReplicaCompleteness(3, 400, 400)}, 2, 0),
    ({1: ReplicaCompleteness(2, 900, 300), 2: ReplicaCompleteness(3, 600, 590)}, 2, 300),
    ({2: ReplicaCompleteness(3, 5, 9), 1: ReplicaCompleteness(3, 5, 5)}, 1, 4),
    ({1: BLANK}, 1, 0),
    ({}, None, 0),
])  # fmt: skip
def test_the_highest_epoch_then_the_highest_end_is_the_most_complete(
    kept: dict[int, ReplicaCompleteness], best: int | None, lost: int
) -> None:
    survey = Survey(PartitionId(UUID(int=1), 0), kept, ())
    assert (survey.best, survey.lost) == (best, lost)


def test_live_replicas_say_what_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    several = Several(3)
    registered = [node for node in state_of().registrations if not node.fenced]  # node 3 is about to stop
    monkeypatch.setattr(type(several.broker(1).membership), "nodes", registered)
    created: CallbackResult[None] = CallbackResult()
    several.broker(1).create_stream(Definition("a", 1), created)
    several.settle()
    several.advance(1000)
    place = several.place("a", 0)
    several.elect(place, 2)
    several.advance(1000)
    batch = encode([BatchInput(0, None, b"x"), BatchInput(0, None, b"y")])
    several.broker(2).streams.get("a").partition(0).store(batch, check(batch), lambda *_: None)
    several.advance(1000)
    for node in (1, 2, 3):
        found: CallbackResult[list[Survey]] = CallbackResult()
        several.broker(node).completeness.survey([place], found)
        several.advance(4000)
        (survey,) = found.value
        assert (sorted(survey.kept), survey.silent) == ([1, 2], [3])
        assert survey.kept[2] == ReplicaCompleteness(several.partitions[place].leader_epoch, 2, 2)
        assert (survey.best, survey.known_end, survey.lost) == (1, 2, 0)  # both have all: the lower id

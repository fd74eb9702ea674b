"""The completeness of each live replica of a partition without a leader: the basis of an unclean election."""

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import msgspec

from duramen.broker.membership import NodeMembership
from duramen.broker.replicas.recovery import lost_ranges, takeovers_of
from duramen.broker.streams import BrokerStreams
from duramen.controller.admin.replica_survey import ReplicaCompleteness, Survey
from duramen.metadata.partitions import PartitionId, without
from duramen.rpc.caller import Caller, Gathered
from duramen.rpc.methods import Method
from duramen.rpc.server import Done as Answered

__all__ = ["SURVEY_REPLICAS", "Completeness", "KeptReplicas", "SurveyReplicas", "SurveyTarget"]

_NO_EPOCH: Final = -1


class SurveyTarget(msgspec.Struct, frozen=True, array_like=True):
    """A partition."""

    stream_id: bytes
    partition: int


class SurveyReplicas(msgspec.Struct, frozen=True, array_like=True):
    """Ask a node for the state of its replicas of partitions."""

    wanted: list[SurveyTarget]


class KeptReplicas(msgspec.Struct, frozen=True, array_like=True):
    """The state of each replica; None if the node has none."""

    kept: list[ReplicaCompleteness | None]


SURVEY_REPLICAS: Final = Method("survey-replicas", SurveyReplicas, KeptReplicas, idempotent=True)

Done = Callable[[list[Survey]], None]


class Completeness:
    """Asks the replicas of partitions for their state."""

    def __init__(self, membership: Callable[[], NodeMembership], streams: BrokerStreams, caller: Caller) -> None:
        self._membership = membership
        self._streams = streams
        self._caller = caller
        caller.server.handle(SURVEY_REPLICAS, self._serve)

    def survey(self, places: Sequence[PartitionId], done: Done) -> None:
        """`done` gets the replicas' states of each partition, in order; it may be called within this call."""
        membership = self._membership()
        live = {node.id for node in membership.nodes if not node.draining} or {self._caller.node_id}  # standalone
        by_node: dict[int, list[int]] = {}
        surveys = []
        for at, place in enumerate(places):
            replicas = membership.partition(place).replicas
            surveys.append(Survey(place, {}, without(replicas, live)))
            for node_id in replicas:
                if node_id in live:
                    by_node.setdefault(node_id, []).append(at)

        def gathered(result: Gathered[KeptReplicas]) -> None:
            silent: list[list[int]] = [list(survey.silent) for survey in surveys]
            for node_id, ats in by_node.items():
                answer = result.answers.get(node_id)
                found = answer.kept if answer is not None and len(answer.kept) == len(ats) else [None] * len(ats)
                for at, kept in zip(ats, found, strict=True):
                    if kept is None:
                        silent[at].append(node_id)
                    else:
                        surveys[at].kept[node_id] = kept
            done([one._replace(silent=sorted(mute)) for one, mute in zip(surveys, silent, strict=True)])

        requests = {
            node_id: SurveyReplicas([SurveyTarget(places[at].stream_id.bytes, places[at].partition) for at in ats])
            for node_id, ats in by_node.items()
        }
        self._caller.gather(SURVEY_REPLICAS, requests, gathered)

    def _serve(self, request: SurveyReplicas, done: Answered[KeptReplicas]) -> None:
        """Report the replicas of this node."""
        done(KeptReplicas([self._look(target) for target in request.wanted]))

    def _look(self, target: SurveyTarget) -> ReplicaCompleteness | None:
        stream = self._streams.find_id(UUID(bytes=target.stream_id)) if len(target.stream_id) == 16 else None
        if stream is None or not 0 <= target.partition < len(stream.partitions):
            return None
        log = stream.partitions[target.partition].log
        takeovers = takeovers_of(log)
        epoch = takeovers[-1].epoch if takeovers else _NO_EPOCH
        damaged = sum(last - first + 1 for first, last in lost_ranges(log))
        return ReplicaCompleteness(epoch, log.end_offset, log.high_watermark, damaged)

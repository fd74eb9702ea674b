"""ElectLeaders (KIP-460), AlterPartitionReassignments and ListPartitionReassignments (KIP-455, KIP-860)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from duramen.base.errors import DuramenError, LeaderUnavailable, PartitionsInvalid, RequestInvalid
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.controller.admin.cluster import Elected
from duramen.controller.admin.overview import moving
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.gather import gather
from duramen.metadata.partitions import PartitionId

__all__ = [
    "handle_alter_partition_reassignments",
    "handle_elect_leaders",
    "handle_list_partition_reassignments",
    "within_ms",
]

_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_LONGEST_MS: Final = 60_000
_MOST_PARTITIONS: Final = 10_000  # of one request: each is decided by itself


def within_ms(asked_ms: int) -> int:
    """The time to wait for the controller, by the timeout in the request."""
    return max(1, min(asked_ms, _LONGEST_MS))


def _too_many(partitions: int) -> RequestInvalid | None:
    if partitions <= _MOST_PARTITIONS:
        return None
    return RequestInvalid(f"a request is about {_MOST_PARTITIONS} partitions at most, not {partitions}")


def _partition_code(error: DuramenError | None) -> ErrorCode:
    """The number for an error about a partition: one without replicas is not there."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if isinstance(error, PartitionsInvalid) else error_code(error)


def _text(error: DuramenError | None) -> str | None:
    return None if error is None else str(error)


# -- leaders ------------------------------------------------------------------------------------------


def handle_elect_leaders(context: Context, exchange: Exchange) -> None:
    """Elect leaders of partitions, or of all: then only partitions whose leader could change are reported."""
    request = exchange.message()
    kind, asked = request["election_type"], request["topic_partitions"]
    cluster_admin = context.broker.membership.cluster_admin
    unclean = kind == _UNCLEAN
    if asked is None:
        named = [(cluster_admin.name(place), place.partition) for place in cluster_admin.electable(unclean=unclean)]
    else:
        named = [(topic["topic"], index) for topic in asked for index in topic["partitions"]]
    refusal = None if asked is None else _too_many(len(named))
    if kind not in (_PREFERRED, _UNCLEAN):
        refusal = RequestInvalid(f"there is no election type {kind}: 0 elects preferred leaders, 1 any live replica")
    if refusal is not None:
        _answer_elections(exchange, [(*one, refusal) for one in named], refusal)
        return
    errors: dict[tuple[str, int], DuramenError | None] = {}
    places: dict[PartitionId, tuple[str, int]] = {}
    for name, index in named:
        try:
            places[cluster_admin.find(name, index)] = (name, index)
        except DuramenError as error:
            errors[name, index] = error

    def done(elected: Sequence[Elected]) -> None:
        for place, error in elected:
            errors[places[place]] = error
        _answer_elections(exchange, [(*one, errors[one]) for one in named], None, unclean=unclean)

    limit_ms = within_ms(request["timeout_ms"])
    if unclean:
        context.broker.completeness.survey(
            list(places), lambda surveys: cluster_admin.elect_unclean(surveys, done, within_ms=limit_ms)
        )
    else:
        cluster_admin.elect(places, done, within_ms=limit_ms)


def _answer_elections(
    exchange: Exchange,
    results: Sequence[tuple[str, int, DuramenError | None]],
    whole: DuramenError | None,
    *,
    unclean: bool = False,
) -> None:
    topics: dict[str, list[Message]] = {}
    for name, index, error in results:
        code = _partition_code(error)
        if unclean and isinstance(error, LeaderUnavailable):
            code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        entry = {"partition_id": index, "error_code": code, "error_message": _text(error)}
        topics.setdefault(name, []).append(entry)
    elections = [{"topic": name, "partition_result": entries} for name, entries in topics.items()]
    exchange.reply({"error_code": error_code(whole), "replica_election_results": elections})


# -- replicas -----------------------------------------------------------------------------------------


def handle_alter_partition_reassignments(context: Context, exchange: Exchange) -> None:
    """Give partitions other replicas, or take that back while it is under way."""
    request = exchange.message()
    resize, limit_ms = request["allow_replication_factor_change"], within_ms(request["timeout_ms"])
    wanted = [(topic["name"], partition) for topic in request["topics"] for partition in topic["partitions"]]

    refusal = _too_many(len(wanted))
    if refusal is not None:
        exchange.reply({"error_code": error_code(refusal), "error_message": str(refusal)})
        return

    def reply(entries: Sequence[Message]) -> None:
        topics: dict[str, list[Message]] = {topic["name"]: [] for topic in request["topics"]}
        for (name, _), entry in zip(wanted, entries, strict=True):
            topics[name].append(entry)
        responses = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
        exchange.reply({"allow_replication_factor_change": resize, "responses": responses})

    put = gather(len(wanted), reply)
    cluster_admin = context.broker.membership.cluster_admin
    for at, (name, partition) in enumerate(wanted):
        index = partition["partition_index"]
        done = partial(_reassigned, partial(put, at), index)
        try:
            place = cluster_admin.find(name, index)
        except DuramenError as error:
            done(error)
        else:
            cluster_admin.reassign(place, partition["replicas"], done, may_resize=resize, within_ms=limit_ms)


def _reassigned(put: Callable[[Message], None], index: int, error: DuramenError | None) -> None:
    put({"partition_index": index, "error_code": _partition_code(error), "error_message": _text(error)})


def handle_list_partition_reassignments(context: Context, exchange: Exchange) -> None:
    """The reassignments in progress, of the requested partitions or of all."""
    asked = exchange.message()["topics"]
    wanted = None if asked is None else {(topic["name"], at) for topic in asked for at in topic["partition_indexes"]}
    cluster_admin = context.broker.membership.cluster_admin
    topics: dict[str, list[Message]] = {}
    for place, partition in moving(cluster_admin.state):
        name = cluster_admin.name(place)
        if wanted is None or (name, place.partition) in wanted:
            entry = {
                "partition_index": place.partition,
                "replicas": partition.replicas,
                "adding_replicas": partition.adding,
                "removing_replicas": partition.removing,
            }
            topics.setdefault(name, []).append(entry)
    exchange.reply({"topics": [{"name": name, "partitions": entries} for name, entries in topics.items()]})

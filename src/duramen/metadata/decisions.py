"""Decisions about streams: from state and request to events, or to an error."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from duramen.base.catalogue.catalogue import STREAM
from duramen.base.catalogue.keyed import CLEANUP_POLICY, KEYED, LIVE_TOPIC, keyed_problem
from duramen.base.catalogue.queues import KIND, QUEUES, queues_problem
from duramen.base.catalogue.tables import table_problem
from duramen.base.errors import (
    ConfigInvalid,
    NameInvalid,
    PartitionsInvalid,
    QueueShardsFixed,
    RequestInvalid,
    StreamDiffers,
    StreamExists,
    StreamNotFound,
    SubjectInvalid,
)
from duramen.base.ids import StreamId
from duramen.base.settings import Value, check, config_text, nearest
from duramen.metadata.events import (
    GroupConfigured,
    NatsGapRecorded,
    NodeConfigured,
    PartitionsAdded,
    ProducerIdsAllocated,
    StreamConfigured,
    StreamCreated,
    StreamDeleted,
)
from duramen.metadata.features import MetadataFeature
from duramen.metadata.state import STREAM_SIZE, ControllerState, StreamState, flat
from duramen.metadata.topic_prefixes import check_prefixes

__all__ = [
    "LARGEST_PARTITIONS",
    "LONGEST_SUBJECT_BYTES",
    "PRODUCER_ID_BLOCK",
    "SECRET_BYTES",
    "Definition",
    "add_partitions",
    "allocate_producer_ids",
    "check_config",
    "check_name",
    "check_subject",
    "configure_group",
    "configure_node",
    "configure_stream",
    "create_stream",
    "delete_stream",
    "record_gap",
    "wide_subjects",
]

LARGEST_PARTITIONS: Final = 100_000
PRODUCER_ID_BLOCK: Final = 1000
SECRET_BYTES: Final = 16
"""The size of the secret of a queue space."""
LONGEST_SUBJECT_BYTES: Final = 1024
"""Well below the 4096 bytes per line of nats-server (`max_control_line`): it disconnects at a longer one."""

_OWN_PREFIX: Final = "__"  # as in Apache Kafka's internal topics

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Definition(NamedTuple):
    """The requested definition of a stream. `config` has text, as in Kafka's admin requests."""

    name: str
    partitions: int
    config: Mapping[str, str] = {}
    subjects: tuple[str, ...] = ()
    internal: bool = False

    @property
    def is_queue_space(self) -> bool:
        """Whether the stream is a queue space."""
        return self.config.get(KIND) == QUEUES


def check_name(name: str) -> None:
    """Raise NameInvalid unless Kafka would accept the name for a topic."""
    if not name:
        raise NameInvalid("a stream needs a name")
    if name in (".", ".."):
        raise NameInvalid(f"a stream cannot be called {name!r}")
    if not _NAME.fullmatch(name):
        raise NameInvalid(
            f"the name {name[:80]!r} does not fit: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'"
        )


def check_subject(subject: str) -> None:
    """Raise SubjectInvalid unless NATS would accept the subject for a subscription."""
    size = len(subject.encode(errors="replace"))
    if size > LONGEST_SUBJECT_BYTES:
        raise SubjectInvalid(
            f"the subject {subject[:80]!r}… has {size} bytes; a subject has {LONGEST_SUBJECT_BYTES} at most"
        )
    parts = subject.split(".")
    if not all(parts):
        raise SubjectInvalid(f"the subject {subject!r} has an empty token")
    if any(character.isspace() or not character.isprintable() for character in subject):
        raise SubjectInvalid(f"the subject {subject!r} has a blank or unprintable character")
    if any(part != ">" and ">" in part for part in parts) or ">" in parts[:-1]:
        raise SubjectInvalid(f"the subject {subject!r} has a '>' that is not its last token")
    if any(part != "*" and "*" in part for part in parts):
        raise SubjectInvalid(f"the subject {subject!r} has a '*' inside a token; it stands for a whole one")


def wide_subjects(subjects: Iterable[str]) -> list[str]:
    """The bindings whose first token is a wildcard: they would answer other services' requests."""
    return [subject for subject in subjects if subject.split(".")[0] in ("*", ">")]


def check_config(config: Mapping[str, str]) -> dict[str, Value]:
    """The values of a stream's config. Raises ConfigInvalid with the key, the value and the valid values."""
    values: dict[str, Value] = {}
    for name, text in config.items():
        if name not in STREAM:
            raise ConfigInvalid(f"{name} is not a config of streams{nearest(name, STREAM)}")
        values[name] = check(STREAM[name], text)
    return values


def _canonical(config: Mapping[str, str], *, internal: bool = False) -> dict[str, str]:
    """The config in its canonical form: `3600000`, whatever notation the user chose for an hour.

    Raises like `check_config`.
    """
    values = check_config(config)
    least, most = values.get("min.compaction.lag.ms", 0), values.get("max.compaction.lag.ms", float("inf"))
    if float(least) > float(most):
        raise ConfigInvalid(f"min.compaction.lag.ms is {least}: more than max.compaction.lag.ms, which is {most}")
    problem = keyed_problem(values) or queues_problem(values, internal=internal) or table_problem(values)
    if problem is not None:
        raise ConfigInvalid(problem)
    return {name: config_text(value) for name, value in values.items()}


def _compacted(config: Mapping[str, str]) -> Mapping[str, str]:
    """The config of a new stream: the default of a keyed one is compaction."""
    if check_config(config).get(KEYED) and CLEANUP_POLICY not in config:
        return {**config, CLEANUP_POLICY: "compact"}
    return config


def create_stream(
    state: ControllerState,
    definition: Definition,
    *,
    stream_id: StreamId,
    now_ms: int,
    secret: bytes = b"",
    idempotent: bool = False,
    largest_size: int | None = None,
) -> list[StreamCreated]:
    """Create a stream. With `idempotent`, an equal existing stream needs no events.

    `secret` is the key of the hash of the names of a queue space's queues. `largest_size` is the limit of `state.size`,
    except for internal streams. Raises NameInvalid, PartitionsInvalid, ConfigInvalid, SubjectInvalid, StreamExists or
    StreamDiffers.
    """
    check_name(definition.name)
    if definition.name.startswith(_OWN_PREFIX) and not definition.internal:
        raise NameInvalid(f"the name {definition.name} does not fit: {_OWN_PREFIX} begins the broker's own")
    if not 1 <= definition.partitions <= LARGEST_PARTITIONS:
        raise PartitionsInvalid(f"a stream has 1 to {LARGEST_PARTITIONS} partitions, not {definition.partitions}")
    definition = definition._replace(config=_compacted(definition.config))
    config = _canonical(definition.config, internal=definition.internal)
    _check_durability(state, config)
    if definition.subjects and config.get(KIND) == QUEUES:
        raise ConfigInvalid(f"kind=queues takes no NATS subjects: {definition.name} cannot be bound to any")
    for subject in definition.subjects:
        check_subject(subject)
    known = state.streams.get(definition.name)
    if known is not None:
        if not idempotent:
            raise StreamExists(f"a stream {definition.name} exists")
        differences = _differences(known, definition)
        if differences:
            raise StreamDiffers(f"stream {definition.name} exists and differs: {'; '.join(differences)}")
        return []
    shown = state.live_topic(definition.name)
    if shown is not None:
        raise StreamExists(f"the name {definition.name} is taken by the live topic of stream {shown}")
    _check_live_topic(state, definition.name, config)
    clash = state.clash(definition.name)
    if clash is not None:
        raise NameInvalid(f"the name {definition.name} is too like {clash}: in metrics, '.' and '_' are the same")
    check_prefixes(state, definition.name, config)
    if not definition.internal:
        _check_size(state, definition.partitions + STREAM_SIZE, largest_size)
    return [
        StreamCreated(
            definition.name,
            str(stream_id),
            definition.partitions,
            config,
            tuple(dict.fromkeys(definition.subjects)),
            definition.internal,
            now_ms,
            state.highest_producer_id if state.has_producers_of(definition.name, now_ms) else -1,
            _space_number(state, config) or msgspec.UNSET,
            (secret.hex() if _has_secret(state, config) else "") or msgspec.UNSET,
        )
    ]


def _check_durability(state: ControllerState, config: Mapping[str, str]) -> None:
    """Raise RequestInvalid if nodes of the cluster may not know queue spaces with the config's durability."""
    known = not state.cluster_id or state.feature_level >= MetadataFeature.TOPIC_DURABILITY
    if not known and config.get(KIND) == QUEUES and config.get("durability", "sync") != "sync":
        raise RequestInvalid(
            "topics with durability=os need all nodes of the cluster to be of this version, and the cluster to be"
            " upgraded (duramen cluster upgrade)"
        )


def _space_number(state: ControllerState, config: Mapping[str, str]) -> int:
    """The number of a new queue space. Raises PartitionsInvalid if there are too many."""
    if config.get(KIND) != QUEUES or (state.cluster_id and state.feature_level < MetadataFeature.SPACE_NUMBERS):
        return 0
    number = state.free_space_number
    if not number:
        raise PartitionsInvalid("there are as many queue spaces as there can be: delete one")
    return number


def _has_secret(state: ControllerState, config: Mapping[str, str]) -> bool:
    """Whether all nodes know secrets of queue spaces: the others would compute other hashes."""
    known = not state.cluster_id or state.feature_level >= MetadataFeature.SPACE_SECRETS
    return known and config.get(KIND) == QUEUES


def _check_live_topic(state: ControllerState, stream: str, config: Mapping[str, str]) -> None:
    """Raise ConfigInvalid if the name of the stream's live topic is invalid or taken."""
    name = config.get(LIVE_TOPIC)
    if not name:
        return
    problem, shown = "", state.live_topic(name)
    try:
        check_name(name)
    except NameInvalid as error:
        problem = str(error)
    if name.startswith(_OWN_PREFIX):
        problem = f"{_OWN_PREFIX} begins the broker's own names"
    elif name == stream or name in state.streams or state.clash(name) is not None or flat(name) == flat(stream):
        problem = "a stream has this name, or one that differs only in '.' and '_'"
    elif shown is not None and shown != stream:
        problem = f"it is that of the live topic of stream {shown}"
    if problem:
        raise ConfigInvalid(f"{LIVE_TOPIC} of {stream} cannot be {name}: {problem}")


def _check_size(state: ControllerState, more: int, largest_size: int | None) -> None:
    if largest_size is not None and state.size + more > largest_size:
        raise PartitionsInvalid(
            f"there is memory for {largest_size} partitions, each stream counted as {STREAM_SIZE} more;"
            f" {state.size} of them are taken and {more} were asked for: give memory.limit.bytes more"
        )


def _differences(known: StreamState, definition: Definition) -> list[str]:
    differences = []
    if known.partitions != definition.partitions:
        shards = known.config.get(KIND) == QUEUES
        fixed = ", whose number is fixed" if shards else ""
        there = _count(known.partitions, "shard" if shards else "partition")
        differences.append(f"it has {there}{fixed}, not {definition.partitions}")
    if set(known.subjects) != set(definition.subjects):
        differences.append(f"its subjects are {_listed(known.subjects)}, not {_listed(definition.subjects)}")
    mine, theirs = check_config(definition.config), check_config(known.config)
    differences += [
        f"its {name} is {known.config.get(name, 'the default')}, not {definition.config.get(name, 'the default')}"
        for name in sorted(mine.keys() | theirs.keys())
        if mine.get(name) != theirs.get(name)
    ]
    return differences


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _listed(subjects: Sequence[str]) -> str:
    return ", ".join(sorted(subjects)) or "none"


def _existing(state: ControllerState, name: str) -> StreamState:
    stream = state.streams.get(name)
    if stream is None:
        raise StreamNotFound(f"there is no stream {name}{nearest(name, state.streams)}")
    return stream


def _changeable(state: ControllerState, name: str) -> StreamState:
    stream = _existing(state, name)
    if stream.internal:
        raise RequestInvalid(f"{name} is the broker's own: it cannot be changed or deleted")
    return stream


def delete_stream(state: ControllerState, name: str, *, now_ms: int, producers_ms: int) -> list[StreamDeleted]:
    """Delete a stream; its producers may continue for `producers_ms` in a new stream of its name.

    Raises StreamNotFound, or RequestInvalid for an internal one.
    """
    return [StreamDeleted(str(_changeable(state, name).id), now_ms, now_ms + producers_ms)]


def add_partitions(
    state: ControllerState, name: str, partitions: int, *, largest_size: int | None = None
) -> list[PartitionsAdded]:
    """Increase a stream's number of partitions to `partitions`. Raises like `delete_stream`, or PartitionsInvalid."""
    stream = _changeable(state, name)
    if stream.config.get(KIND) == QUEUES:
        raise QueueShardsFixed(f"{name} is a queue space: the number of its shards stays {stream.partitions}")
    if partitions <= stream.partitions:
        raise PartitionsInvalid(
            f"stream {name} has {_count(stream.partitions, 'partition')}: {partitions} would not be more"
        )
    if partitions > LARGEST_PARTITIONS:
        raise PartitionsInvalid(f"a stream has 1 to {LARGEST_PARTITIONS} partitions, not {partitions}")
    _check_size(state, partitions - stream.partitions, largest_size)
    return [PartitionsAdded(str(stream.id), partitions)]


def configure_stream(
    state: ControllerState, name: str, changes: Mapping[str, str | None], *, whole: bool = False
) -> list[StreamConfigured]:
    """Change a stream's config; None resets a name to its default, `whole` all names not among the changes.

    Raises like `delete_stream`, or ConfigInvalid.
    """
    stream = _changeable(state, name)
    config = {} if whole else dict(stream.config)
    for key, value in changes.items():
        if value is None:
            check_config({key: str(STREAM[key].default)} if key in STREAM else {key: ""})
            config.pop(key, None)
        else:
            config[key] = value
    if config.get(KIND, "log") != stream.config.get(KIND, "log"):
        raise ConfigInvalid(f"the kind of {name} was set when it was made, and stays")
    config = _canonical(config)
    _check_live_topic(state, name, config)
    check_prefixes(state, name, config)
    return [] if config == stream.config else [StreamConfigured(str(stream.id), config)]


def configure_group(state: ControllerState, group: str, changes: Mapping[str, str | None]) -> list[GroupConfigured]:
    """Change the config of a group, with checked values; None resets a name to its default."""
    config = {**state.groups.get(group, {}), **changes}
    kept = {name: value for name, value in config.items() if value is not None}
    return [] if kept == state.groups.get(group, {}) else [GroupConfigured(group, kept)]


def configure_node(
    state: ControllerState, node_id: int | None, changes: Mapping[str, str | None], *, whole: bool
) -> list[NodeConfigured]:
    """Change settings of a node, or of all, with checked values; None resets a change, `whole` all others."""
    present = state.node_configs.get(node_id, {})
    config = {**({} if whole else present), **changes}
    kept = {name: value for name, value in config.items() if value is not None}
    return [] if kept == present else [NodeConfigured(node_id, kept)]


def allocate_producer_ids(state: ControllerState) -> list[ProducerIdsAllocated]:
    """The next block of producer ids: durable before one of them is used."""
    return [ProducerIdsAllocated(state.next_producer_id, PRODUCER_ID_BLOCK)]


def record_gap(
    state: ControllerState, node_id: int, start_ms: int, end_ms: int, cause: str, stream_id: str = ""
) -> list[NatsGapRecorded]:
    """Record a gap, of that stream or else of all, if it concerns an existing stream."""
    concerned = any(
        stream.subjects and stream.created_at_ms < end_ms and stream_id in ("", str(stream.id))
        for stream in state.streams.values()
    )
    gap = NatsGapRecorded(node_id, start_ms, end_ms, cause, stream_id)
    return [gap] if concerned and start_ms < end_ms else []

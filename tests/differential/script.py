"""A seeded sequence of raw requests: valid ones, ones at the border, and ones that no broker may take."""

import random
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tests.differential.peer import Peer, Symbol

from duramen.codec.batch import TRANSACTIONAL, NewRecord, encode
from duramen.codec.crc import crc32c
from duramen.codec.kafka.versions import APIS, ApiKey

__all__ = ["Script", "Step"]

_STEP_MS: Final = 100
_TOPICS: Final = ("alpha", "beta", "gamma", "delta")
_ODD_TOPICS: Final = ("", "a/b", "..", "x" * 250, "absent", "alpha")
_GROUPS: Final = ("g1", "g2")
_TRANSACTIONS: Final = ("t1", "t2")
_PROTOCOL: Final = b"\0\0\0\0\0\1\0\5alpha\xff\xff\xff\xff"
_CONFIGS: Final = (
    ("cleanup.policy", ("compact", "delete", "compact,delete", "shred", "")),
    ("retention.ms", ("1000000", "-1", "-2", "x")), ("max.message.bytes", ("1000", "2000000", "-1")),
    ("compression.type", ("gzip", "producer", "zstd", "brotli")), ("min.insync.replicas", ("1", "2", "0")),
    ("message.timestamp.type", ("CreateTime", "LogAppendTime", "Now")), ("segment.bytes", ("1048576", "1", "2000000")),
    ("delete.retention.ms", ("100", "-5")), ("min.cleanable.dirty.ratio", ("0.1", "2")), ("no.such.config", ("1",)),
    ("retention.bytes", ("-1", "100000")), ("flush.messages", ("1", "0")),
    ("unclean.leader.election.enable", ("true",)),
)  # fmt: skip
_ASKED: Final = [name for name, _ in _CONFIGS]


class Step(NamedTuple):
    """One request; `learn` takes from a broker's answer what later steps name."""

    api: ApiKey
    version: int
    message: Mapping[str, Any]
    learn: Callable[[Peer, dict[str, Any]], None] | None = None
    settle: bool = False


class Script:
    """Draws steps; remembers what it has asked for, so that most of what it draws makes sense."""

    def __init__(self, seed: int, began_ms: int) -> None:
        """Records have timestamps from `began_ms` on."""
        self._chance = random.Random(seed)
        self._began_ms = began_ms
        self._members: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._sequences: dict[tuple[str, str, int], int] = {}
        self._numbers = 0
        self._making: list[tuple[int, Callable[[], Step]]] = [
            (6, self._create_topics), (2, self._delete_topics), (3, self._create_partitions), (4, self._metadata),
            (20, self._produce), (8, self._idempotent), (14, self._fetch), (8, self._list_offsets), (4, self._epochs),
            (4, self._delete_records), (5, self._describe_configs), (5, self._alter_configs), (5, self._join),
            (4, self._sync), (4, self._heartbeat), (2, self._leave), (6, self._commit), (6, self._fetch_offsets),
            (3, self._describe_groups), (1, self._list_groups), (1, self._delete_groups), (2, self._find_coordinator),
            (5, self._init_producer), (4, self._add_partitions), (3, self._add_offsets), (4, self._end),
            (3, self._commit_in_transaction), (8, self._produce_in_transaction),
        ]  # fmt: skip

    def begin(self) -> list[Step]:
        """What every sequence begins with."""
        topics = [self._topic(name, 3 if name == "alpha" else 1) for name in _TOPICS[:3]]
        wish = {"topics": topics, "timeout_ms": 30_000, "validate_only": False}
        steps = [Step(ApiKey.CREATE_TOPICS, 7, wish, _learn_topics, settle=True)]
        for kind, keys in ((0, _GROUPS), (1, _TRANSACTIONS)):
            steps += [Step(ApiKey.FIND_COORDINATOR, 3, {"key": key, "key_type": kind}) for key in keys]
        steps += [self._init(transaction, 4) for transaction in ("", *_TRANSACTIONS)]
        return steps

    def next(self) -> Step:
        """The next step."""
        weights = [weight for weight, _ in self._making]
        ((_, make),) = self._chance.choices(self._making, weights)
        return make()

    # -- drawing ------------------------------------------------------------------------------------

    def _one(self, *values: Any) -> Any:
        return self._chance.choice(values)

    def _often(self) -> bool:
        return self._chance.random() < 0.85

    def _version(self, api: ApiKey, low: int = 0, high: int = 99) -> int:
        return self._chance.randint(max(low, APIS[api].low), min(high, APIS[api].high))

    def _name(self) -> str:
        return self._chance.choice(_TOPICS if self._often() else _ODD_TOPICS)

    def _partition(self) -> int:
        return int(self._one(0, 0, 0, 1, 2) if self._often() else self._one(-1, 7, 1 << 30))

    def _topic(self, name: str, partitions: int, configs: Any = (), factor: int = 1) -> dict[str, Any]:
        return {
            "name": name, "num_partitions": partitions, "replication_factor": factor, "assignments": [],
            "configs": list(configs),
        }  # fmt: skip

    def _config(self) -> dict[str, Any]:
        name, values = self._chance.choice(_CONFIGS)
        return {"name": name, "value": self._chance.choice(values)}

    # -- topics -------------------------------------------------------------------------------------

    def _create_topics(self) -> Step:
        partitions = self._one(1, 3) if self._often() else self._one(0, -1, -2)
        factor = 1 if self._often() else self._one(-1, 2, 0)
        configs = [self._config()] if self._chance.random() < 0.4 else []
        topics = [self._topic(self._name(), partitions, configs, factor)]
        if self._chance.random() < 0.1:
            topics.append(self._topic("alpha", 1))
        only = self._chance.random() < 0.2
        version = self._version(ApiKey.CREATE_TOPICS, 4 if partitions == -1 or factor == -1 else 0)
        wish = {"topics": topics, "timeout_ms": 30_000, "validate_only": only}
        return Step(ApiKey.CREATE_TOPICS, version, wish, _learn_topics, settle=True)

    def _delete_topics(self) -> Step:
        version = self._version(ApiKey.DELETE_TOPICS)
        name = self._name()
        if version < 6:
            return Step(ApiKey.DELETE_TOPICS, version, {"topic_names": [name], "timeout_ms": 30_000}, settle=True)
        topic: dict[str, Any] = {"name": name}
        if self._chance.random() < 0.5:
            topic = {"topic_id": Symbol("topic_id", name), "name": None}
        return Step(ApiKey.DELETE_TOPICS, version, {"topics": [topic], "timeout_ms": 30_000}, settle=True)

    def _create_partitions(self) -> Step:
        topic = {"name": self._name(), "count": self._one(1, 2, 3, 4, 0, -1), "assignments": None}
        wish = {"topics": [topic], "timeout_ms": 30_000, "validate_only": self._chance.random() < 0.3}
        return Step(ApiKey.CREATE_PARTITIONS, self._version(ApiKey.CREATE_PARTITIONS), wish, settle=True)

    def _metadata(self) -> Step:
        version = self._version(ApiKey.METADATA)
        topics: list[dict[str, Any]] = [{"name": self._name()} for _ in range(self._chance.randrange(1, 3))]
        if version >= 12 and self._chance.random() < 0.3:
            topics = [{"name": None, "topic_id": Symbol("topic_id", self._name())}]
        auto = version < 4
        return Step(
            ApiKey.METADATA, version, {"topics": topics, "allow_auto_topic_creation": auto}, settle=auto
        )  # fmt: skip

    # -- records ------------------------------------------------------------------------------------

    def _batch(
        self, count: int, *, producer: int = -1, epoch: int = -1, sequence: int = -1, transactional: bool = False
    ) -> bytearray:
        records = []
        for _ in range(count):
            self._numbers += 1
            key = self._one(None, b"", b"key-%d" % (self._numbers % 5))
            value = self._one(None, b"", b"value %d" % self._numbers)
            records.append(NewRecord(self._began_ms + _STEP_MS * self._numbers, key, value, ((b"h", b"1"),)))
        batch = bytearray(encode(records, codec=self._one(0, 0, 1, 2, 3, 4)))
        if producer >= 0:
            struct.pack_into(">qhi", batch, 43, producer, epoch, sequence)
        if transactional:
            batch[22] |= TRANSACTIONAL
        batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
        return batch

    def _damaged(self, batch: bytearray) -> bytes:
        match self._chance.randrange(5):
            case 0:
                batch[60] ^= 1  # the count
            case 1:
                return bytes(batch[:-1])
            case 2:
                return bytes(batch + batch)
            case 3:
                batch[16] = self._one(0, 1, 3)
            case _:
                batch[-1] ^= 0xFF
        if self._chance.random() < 0.5:
            batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
        return bytes(batch)

    def _produce(self) -> Step:
        batch = self._batch(self._chance.randrange(1, 6))
        records = bytes(batch) if self._often() else self._damaged(batch)
        return self._produce_step(self._name(), self._partition(), records, 1 if self._chance.random() < 0.3 else -1)

    def _produce_step(
        self, name: str, partition: int, records: Any, acks: int = -1, transaction: str | None = None, high: int = 99
    ) -> Step:
        topic = {"name": name, "partitions": [{"index": partition, "records": records}]}
        wish = {"transactional_id": transaction, "acks": acks, "timeout_ms": 30_000, "topics": [topic]}
        return Step(ApiKey.PRODUCE, self._version(ApiKey.PRODUCE, 3, high), wish)

    def _idempotent(self) -> Step:
        """The next sequence, one again, or one that is out of order."""
        name, partition = self._name(), self._partition()
        place = ("", name, partition)
        sequence = self._sequences.get(place, 0)
        count = self._chance.randrange(1, 4)
        if self._often():
            self._sequences[place] = sequence + count
        else:
            sequence += self._one(-1, -2, 1, 5) if sequence > 1 else 5
        epoch = 0 if self._often() else 1
        return self._produce_step(name, partition, Stamped(self._batch(count), "", epoch, sequence))

    def _fetch(self) -> Step:
        version = self._version(ApiKey.FETCH)
        name = self._name()
        topic: dict[str, Any] = {"topic": name, "topic_id": Symbol("topic_id", name)}
        offset = self._chance.randrange(20) if self._often() else self._one(-1, 1000, 0)
        topic["partitions"] = [
            {"partition": self._partition(), "fetch_offset": offset, "partition_max_bytes": self._one(1, 300, 1 << 20)}
        ]
        wish = {
            "replica_id": -1, "max_wait_ms": 1, "min_bytes": self._one(0, 1), "max_bytes": self._one(1, 1 << 24),
            "isolation_level": self._chance.randrange(2), "session_id": 0, "session_epoch": -1, "topics": [topic],
        }  # fmt: skip
        return Step(ApiKey.FETCH, version, wish)

    def _list_offsets(self) -> Step:
        version = self._version(ApiKey.LIST_OFFSETS)
        specials = [-1, -2]
        specials += [-3] if version >= 7 else []
        specials += [-4] if version >= 8 else []
        specials += [-5] if version >= 9 else []
        stamp = self._chance.choice(specials)
        if self._chance.random() < 0.5:
            stamp = self._began_ms + self._chance.randrange(200 * _STEP_MS)
        elif not self._often():
            stamp = self._one(-6, -3, -4, 1 << 60, 0)
        partition = {"partition_index": self._partition(), "timestamp": stamp}
        topics = [{"name": self._name(), "partitions": [partition]}]
        wish = {"replica_id": -1, "isolation_level": self._chance.randrange(2), "topics": topics}
        return Step(ApiKey.LIST_OFFSETS, version, wish)

    def _epochs(self) -> Step:
        partition = {"partition": self._partition(), "current_leader_epoch": -1, "leader_epoch": 1 << 30}
        wish = {"replica_id": -1, "topics": [{"topic": self._name(), "partitions": [partition]}]}
        return Step(ApiKey.OFFSET_FOR_LEADER_EPOCH, self._version(ApiKey.OFFSET_FOR_LEADER_EPOCH), wish)

    def _delete_records(self) -> Step:
        partition = {"partition_index": self._partition(), "offset": self._one(-1, 0, 1, 2, 5, 100, -2)}
        wish = {"topics": [{"name": self._name(), "partitions": [partition]}], "timeout_ms": 30_000}
        return Step(ApiKey.DELETE_RECORDS, self._version(ApiKey.DELETE_RECORDS), wish)

    # -- configs ------------------------------------------------------------------------------------

    def _describe_configs(self) -> Step:
        kind = 2 if self._often() else self._one(0, 99, 3)
        wish = {
            "resources": [{"resource_type": kind, "resource_name": self._name(), "configuration_keys": _ASKED}],
            "include_synonyms": self._chance.random() < 0.3, "include_documentation": False,
        }  # fmt: skip
        return Step(ApiKey.DESCRIBE_CONFIGS, self._version(ApiKey.DESCRIBE_CONFIGS), wish)

    def _alter_configs(self) -> Step:
        config = self._config() | {"config_operation": self._one(0, 0, 0, 1, 2, 3, 9)}
        if config["config_operation"] == 1:
            config["value"] = None
        wish = {
            "resources": [{"resource_type": 2, "resource_name": self._name(), "configs": [config]}],
            "validate_only": self._chance.random() < 0.3,
        }  # fmt: skip
        return Step(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, self._version(ApiKey.INCREMENTAL_ALTER_CONFIGS), wish, settle=True
        )

    # -- groups: one member each, so that no answer waits for another ------------------------------------

    def _member(self, group: str) -> Any:
        return Symbol("member_id", group) if self._often() else self._one("", "nobody")

    def _generation(self, group: str) -> int:
        return self._generations.get(group, 0) if self._often() else self._one(-1, 0, 99)

    def _join(self) -> Step:
        group = self._one(*_GROUPS) if self._often() else ""
        known = self._members.get(group)
        member: Any = Symbol("member_id", group) if known and self._often() else self._one("", "nobody")
        self._members[group] = group
        wish = {
            "group_id": group, "session_timeout_ms": 300_000 if self._often() else self._one(1, 1 << 30),
            "rebalance_timeout_ms": 1000, "member_id": member, "protocol_type": "consumer" if self._often() else "",
            "protocols": [{"name": "range", "metadata": _PROTOCOL}] if self._often() else [],
        }  # fmt: skip

        def learn(peer: Peer, answer: dict[str, Any]) -> None:
            if answer.get("member_id"):
                peer.learn(Symbol("member_id", group), answer["member_id"])
            if answer.get("error_code") == 0:
                self._generations[group] = answer["generation_id"]

        return Step(ApiKey.JOIN_GROUP, self._version(ApiKey.JOIN_GROUP, 1), wish, learn)

    def _sync(self) -> Step:
        group = self._one(*_GROUPS)
        member = self._member(group)
        wish = {
            "group_id": group, "generation_id": self._generation(group), "member_id": member,
            "protocol_type": self._one("consumer", None), "protocol_name": self._one("range", None),
            "assignments": [{"member_id": member, "assignment": b"mine"}],
        }  # fmt: skip
        return Step(ApiKey.SYNC_GROUP, self._version(ApiKey.SYNC_GROUP), wish)

    def _heartbeat(self) -> Step:
        group = self._one(*_GROUPS)
        wish = {"group_id": group, "generation_id": self._generation(group), "member_id": self._member(group)}
        return Step(ApiKey.HEARTBEAT, self._version(ApiKey.HEARTBEAT), wish)

    def _leave(self) -> Step:
        group = self._one(*_GROUPS)
        member = self._member(group)
        version = self._version(ApiKey.LEAVE_GROUP)
        wish = {"group_id": group, "member_id": member, "members": [{"member_id": member}]}
        return Step(ApiKey.LEAVE_GROUP, version, wish)

    def _offsets(self) -> list[dict[str, Any]]:
        partition = {
            "partition_index": self._partition(), "committed_offset": self._chance.randrange(100),
            "committed_metadata": "m" if self._often() else self._one(None, "x" * 5000),
        }  # fmt: skip
        return [{"name": self._name(), "partitions": [partition]}]

    def _commit(self) -> Step:
        group = self._one(*_GROUPS) if self._often() else self._one("", "g3")
        simple = self._chance.random() < 0.4
        wish = {
            "group_id": group, "generation_id_or_member_epoch": -1 if simple else self._generation(group),
            "member_id": "" if simple else self._member(group), "topics": self._offsets(),
        }  # fmt: skip
        return Step(ApiKey.OFFSET_COMMIT, self._version(ApiKey.OFFSET_COMMIT), wish)

    def _fetch_offsets(self) -> Step:
        version = self._version(ApiKey.OFFSET_FETCH)
        group = self._one(*_GROUPS) if self._often() else self._one("", "g3")
        topics = [{"name": self._name(), "partition_indexes": [0, self._partition()]}]
        if version >= 8:
            wish: dict[str, Any] = {"groups": [{"group_id": group, "topics": topics}]}
        else:
            wish = {"group_id": group, "topics": topics}
        return Step(ApiKey.OFFSET_FETCH, version, wish | {"require_stable": False})

    def _describe_groups(self) -> Step:
        group = self._one(*_GROUPS, "g3")
        return Step(ApiKey.DESCRIBE_GROUPS, self._version(ApiKey.DESCRIBE_GROUPS), {"groups": [group]})

    def _list_groups(self) -> Step:
        version = self._version(ApiKey.LIST_GROUPS)
        states = self._one([], ["Stable"], ["Empty", "Dead"], ["nonsense"])
        return Step(ApiKey.LIST_GROUPS, version, {"states_filter": states, "types_filter": []})

    def _delete_groups(self) -> Step:
        group = self._one(*_GROUPS, "g3")
        return Step(ApiKey.DELETE_GROUPS, self._version(ApiKey.DELETE_GROUPS), {"groups_names": [group]})

    def _find_coordinator(self) -> Step:
        version = self._version(ApiKey.FIND_COORDINATOR)
        kind = self._one(0, 0, 1, 9) if version else 0
        keys = {"coordinator_keys": [self._one("g1", "t1")]} if version >= 4 else {"key": self._one("g1", "t1")}
        return Step(ApiKey.FIND_COORDINATOR, version, keys | {"key_type": kind})

    # -- transactions -------------------------------------------------------------------------------

    def _init(self, transaction: str, version: int, timeout_ms: int = 60_000) -> Step:
        def learn(peer: Peer, answer: dict[str, Any]) -> None:
            if answer.get("error_code") == 0:
                peer.learn(Symbol("producer_id", transaction), answer["producer_id"])
                peer.learn(Symbol("epoch", transaction), answer["producer_epoch"])
                self._sequences = {place: at for place, at in self._sequences.items() if place[0] != transaction}

        wish = {"transactional_id": transaction or None, "transaction_timeout_ms": timeout_ms}
        return Step(ApiKey.INIT_PRODUCER_ID, version, wish, learn)

    def _init_producer(self) -> Step:
        timeout = 60_000 if self._often() else self._one(0, -1, 1 << 30)
        return self._init(self._one(*_TRANSACTIONS), self._version(ApiKey.INIT_PRODUCER_ID), timeout)

    def _producer(self) -> tuple[str, dict[str, Any]]:
        name = self._one(*_TRANSACTIONS)
        epoch: Any = Symbol("epoch", name) if self._often() else self._one(0, 1, 500)
        ident: Any = Symbol("producer_id", name) if self._often() else 424_242
        return name, {"transactional_id": name, "producer_id": ident, "producer_epoch": epoch}

    def _add_partitions(self) -> Step:
        _, who = self._producer()
        names = {f"v3_and_below_{key}": value for key, value in who.items()} if _prefixed() else who
        topics = [{"name": self._name(), "partitions": [self._partition()]}]
        key = "v3_and_below_topics" if _prefixed() else "topics"
        return Step(ApiKey.ADD_PARTITIONS_TO_TXN, self._version(ApiKey.ADD_PARTITIONS_TO_TXN), names | {key: topics})

    def _add_offsets(self) -> Step:
        _, who = self._producer()
        wish = who | {"group_id": self._one(*_GROUPS)}
        return Step(ApiKey.ADD_OFFSETS_TO_TXN, self._version(ApiKey.ADD_OFFSETS_TO_TXN), wish)

    def _end(self) -> Step:
        name, who = self._producer()

        def learn(peer: Peer, answer: dict[str, Any]) -> None:
            if answer.get("error_code") == 0 and answer.get("producer_epoch", -1) >= 0:
                peer.learn(Symbol("producer_id", name), answer["producer_id"])
                peer.learn(Symbol("epoch", name), answer["producer_epoch"])
            if answer.get("error_code") == 0:
                self._sequences = {place: at for place, at in self._sequences.items() if place[0] != name}

        wish = who | {"committed": self._chance.random() < 0.6}
        return Step(ApiKey.END_TXN, self._version(ApiKey.END_TXN), wish, learn)

    def _commit_in_transaction(self) -> Step:
        _, who = self._producer()
        wish = who | {
            "group_id": self._one(*_GROUPS), "generation_id": -1, "member_id": "", "topics": self._offsets(),
        }  # fmt: skip
        return Step(ApiKey.TXN_OFFSET_COMMIT, self._version(ApiKey.TXN_OFFSET_COMMIT), wish)

    def _produce_in_transaction(self) -> Step:
        transaction = self._one(*_TRANSACTIONS)
        name, partition = self._name(), self._partition()
        place = (transaction, name, partition)
        sequence = self._sequences.get(place, 0)
        count = self._chance.randrange(1, 3)
        self._sequences[place] = sequence + count
        batch = Stamped(self._batch(count, transactional=True), transaction, None, sequence)
        return self._produce_step(name, partition, batch, transaction=transaction)


def _prefixed() -> bool:
    from tests.hostile.tables import SCHEMAS

    return any(field.name.startswith("v3") for field in SCHEMAS[ApiKey.ADD_PARTITIONS_TO_TXN].fields)


class Stamped(NamedTuple):
    """A batch into which each broker's own producer id belongs, and its epoch where none is given."""

    batch: bytearray
    producer: str
    epoch: int | None
    sequence: int

    def bytes_for(self, peer: Peer) -> bytes:
        """The batch as this broker's producer sends it."""
        epoch = self.epoch
        if epoch is None:
            known = peer.known(Symbol("epoch", self.producer))
            epoch = known if isinstance(known, int) else 0
        batch = bytearray(self.batch)
        ident = peer.known(Symbol("producer_id", self.producer))
        struct.pack_into(">qhi", batch, 43, ident, epoch, self.sequence)
        batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
        return bytes(batch)


def _learn_topics(peer: Peer, answer: dict[str, Any]) -> None:
    for topic in answer.get("topics", ()):
        if topic["error_code"] == 0 and topic.get("topic_id") is not None and topic["topic_id"].int:
            peer.learn(Symbol("topic_id", topic["name"]), topic["topic_id"])

"""The cluster as this client knows it: bootstrap addresses, topics, partition leaders, connections."""

import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Self
from uuid import UUID

from duramen.base.errors import DuramenError, ServerUnreachable, SettingInvalid, StreamNotFound
from duramen.client.answers import failure
from duramen.client.connection import BrokerConnection
from duramen.client.interrupt import Interrupt
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey

__all__ = ["BrokerCluster", "RetryPatience", "TopicLeaders", "TopicPartition", "parse_servers"]

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0


class TopicPartition(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicLeaders(NamedTuple):
    """A topic: `leaders` has the node id of each partition's leader, -1 if there is none at present."""

    name: str
    id: UUID
    internal: bool
    leaders: Mapping[int, int]


class RetryPatience:
    """A retry budget with increasing pauses."""

    def __init__(self, timeout_s: float) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._pause_s = _FIRST_PAUSE_S

    @property
    def left_s(self) -> float:
        """The remaining time in seconds."""
        return self._deadline - time.monotonic()

    def pause(self, error: DuramenError | None = None) -> None:
        """Wait before the next attempt; raises `error` if no time is left for one."""
        left_s = self.left_s
        if error is not None and left_s <= self._pause_s:
            raise error
        time.sleep(max(0.0, min(self._pause_s, left_s)))
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def parse_servers(text: str) -> list[tuple[str, int]]:
    """Addresses in `HOST:PORT,HOST:PORT`, IPv6 hosts in brackets. Raises SettingInvalid."""
    servers = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = part.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise SettingInvalid(f"bootstrap.servers: {part!r} is not HOST:PORT such as 127.0.0.1:9092")
        servers.append((host, int(port)))
    if not servers:
        raise SettingInvalid("bootstrap.servers is empty; give HOST:PORT such as 127.0.0.1:9092")
    return servers


class BrokerCluster:
    """Connections to the brokers of one cluster, made when they are needed."""

    def __init__(
        self, servers: str, *, client_id: str = "duramen", timeout_s: float = 30.0, interrupt: Interrupt | None = None
    ) -> None:
        """`servers` are where to begin; `timeout_s` bounds connecting and each request. Raises SettingInvalid.

        `interrupt`, set by any thread, makes whatever is under way here end soon with ClientClosed.
        """
        self.timeout_s = timeout_s
        self._servers = parse_servers(servers)
        self._client_id = client_id
        self._interrupt = Interrupt() if interrupt is None else interrupt
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, TopicLeaders] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- connections --------------------------------------------------------------------------------

    def _connect(self, address: tuple[str, int], timeout_s: float) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None or connection.has_ended:
            if connection is not None:
                connection.close()
            connection = BrokerConnection(
                *address, client_id=self._client_id, timeout_s=min(timeout_s, self.timeout_s), interrupt=self._interrupt
            )
            self._connections[address] = connection
        return connection

    def anyone(self) -> BrokerConnection:
        """A connection to some broker; tries until the timeout. Raises ServerUnreachable naming those tried."""
        patience = RetryPatience(self.timeout_s)
        while True:
            self._interrupt.check()
            known = list(dict.fromkeys([*self._servers, *self._addresses.values()]))
            for connection in self._connections.values():
                if not connection.has_ended:
                    return connection
            failed = []
            for address in known:
                try:
                    return self._connect(address, max(0.1, patience.left_s / len(known)))
                except ServerUnreachable as error:
                    failed.append(str(error))
            patience.pause(ServerUnreachable(f"no broker answered within {self.timeout_s:g} s: {'; '.join(failed)}"))

    def ask(self, api: ApiKey, message: Mapping[str, object], *, wait_s: float = 0.0) -> Message:
        """Ask any broker, and another one where the first is lost over it. Raises ServerUnreachable."""
        connection = self.anyone()
        try:
            return connection.request(api, message, wait_s=wait_s)
        except ServerUnreachable:
            return self.anyone().request(api, message, wait_s=wait_s)

    def node(self, node_id: int) -> BrokerConnection:
        """A connection to a broker by its id. Raises ServerUnreachable."""
        address = self._addresses.get(node_id)
        if address is None:
            raise ServerUnreachable(f"the address of node {node_id} is not known")
        return self._connect(address, self.timeout_s)

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Set the address of a broker."""
        self._addresses[node_id] = (host, port)

    # -- topics -------------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicLeaders]:
        """The existing topics of `names`, or all topics, as the cluster has them now. Raises ServerUnreachable."""
        wanted = None if names is None else list(dict.fromkeys(names))
        asked = None if wanted is None else [{"name": name} for name in wanted]
        answer = self.ask(ApiKey.METADATA, {"topics": asked, "allow_auto_topic_creation": False})
        self._addresses = {broker["node_id"]: (broker["host"], broker["port"]) for broker in answer["brokers"]}
        found = {}
        for topic in answer["topics"]:
            name, code = topic["name"], topic["error_code"]
            if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                continue
            if code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                raise failure(code, f"stream {name}")
            leaders = {at["partition_index"]: at["leader_id"] for at in topic["partitions"]}
            found[name] = TopicLeaders(name, topic["topic_id"], topic["is_internal"], dict(sorted(leaders.items())))
        for name in self._topics if wanted is None else wanted:
            if name not in found:
                self._topics = {known: topic for known, topic in self._topics.items() if known != name}
        self._topics |= found
        return found

    def topic(self, name: str, *, fresh: bool = False) -> TopicLeaders:
        """One topic from the cache, or, if `fresh`, from a broker. Raises StreamNotFound or ServerUnreachable."""
        topic = None if fresh else self._topics.get(name)
        if topic is None:
            topic = self.topics([name]).get(name)
        if topic is None:
            tenant, namespace, rest = (*name.split(".", 2), "", "")[:3]
            known = f", and no topic {tenant}/{namespace}/{rest} of a tenant" if rest else ""
            raise StreamNotFound(f"there is no stream {name}{known}")
        return topic

    def leader(self, at: TopicPartition) -> int:
        """The node id of a partition's leader.

        Raises StreamNotFound, or ServerUnreachable if there is none at present.
        """
        topic = self.topic(at.topic)
        leader = topic.leaders.get(at.partition)
        if leader is None:
            raise StreamNotFound(f"stream {at.topic} has no partition {at.partition}")
        if leader < 0:
            raise ServerUnreachable(
                f"{at} has no leader at present: `duramen cluster status` says which nodes are away"
            )
        return leader

    def by_leader(self, wanted: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """`wanted` by the node ids of their leaders. Raises as `leader`."""
        nodes: dict[int, list[TopicPartition]] = {}
        for at in wanted:
            nodes.setdefault(self.leader(at), []).append(at)
        return nodes

    def forget(self, names: Iterable[str]) -> None:
        """Refresh the metadata of these topics on next use."""
        for name in names:
            self._topics.pop(name, None)

    def forget_all(self) -> None:
        """Refresh the metadata of every topic on next use."""
        self._topics.clear()

    def check_id(self, name: str, expected: UUID) -> None:
        """Raise StreamNotFound where the topic `name` is gone, or another one has its name now."""
        if self.topic(name, fresh=True).id != expected:
            raise StreamNotFound(f"stream {name} was deleted and created again: its id is no longer {expected}")

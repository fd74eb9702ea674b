"""A client of the inventory of a cluster with tenants of its own, which also writes records to their topics."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from duramen.base.errors import CoordinatorLoading, DuramenError, NotCoordinator, NotLeader, TopicBusy
from duramen.base.principal import ANONYMOUS
from duramen.codec.partitioner import partition_of
from duramen.coordinators.inventory.cluster.shards import RoutedShards
from duramen.coordinators.inventory.quotas import CreatedNames
from duramen.coordinators.inventory.shard import INVENTORY_QUEUES
from duramen.coordinators.inventory.topics import FoundTopic
from duramen.inventory.names import TopicPath
from duramen.inventory.positions import split_position
from duramen.metadata.partitions import PartitionId
from duramen.service.admission import AdmissionRules, Admitted
from duramen.service.broker import Broker
from duramen.sim.cluster.clients.calls import ClientCalls, Reply
from duramen.sim.cluster.clients.client import ClusterClient
from duramen.sim.cluster.clients.coordinators import AGAIN
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["ACCOUNT", "TenantClient"]

ACCOUNT: Final = "default"
_WAIT_MS: Final = 3_000
_PASSES: Final = (*AGAIN, TopicBusy)
_RULES: Final[AdmissionRules[list[Any]]] = AdmissionRules(names=lambda names: names)


class _Answer(NamedTuple):
    """What was answered, and the position that came with it."""

    position: str
    value: Any


def _trust(broker: Broker, position: str) -> None:
    """Let a node read no older state than a position, which is known to be one of this cluster."""
    shards = cast("RoutedShards", broker.inventory.shards)
    for shard, place in enumerate(split_position(position)[: shards.count]):
        shards.saw(shard, *place)


def _with_position(broker: Broker, reply: Reply, value: Any) -> None:
    reply(value if isinstance(value, DuramenError) else _Answer(broker.inventory.position, value))


class TenantClient(ClusterClient):
    """Has one tenant after the other, each with some namespaces, and asks any node about them."""

    def __init__(
        self, calls: ClientCalls, seed: str, think_us: int, name: str, namespaces: Mapping[str, Mapping[str, Any]]
    ) -> None:  # fmt: skip
        """`name` begins the names of the tenants; the namespaces have these policies; "" are those of the tenant."""
        super().__init__(calls, seed, think_us)
        self._name = name
        self._policies = namespaces
        self._namespaces = [namespace for namespace in namespaces if namespace]
        self._numbers = 0
        self._tenants = 0
        self._is_set_up = False
        self._position = ""

    @property
    def tenant(self) -> str:
        """The present tenant."""
        return f"{self._name}{self._tenants}"

    def step(self) -> None:
        """Do one thing, once there is a tenant."""
        if self._is_set_up:
            self.act()
        else:
            self._set_up()

    def act(self) -> None:
        """Do one thing with the tenant; `next` is called when that is over."""
        raise NotImplementedError

    def leave(self) -> None:
        """Another tenant is used from here on."""
        self._tenants += 1
        self._is_set_up = False

    def new_path(self) -> TopicPath:
        """A path in some namespace that nobody has used."""
        self._numbers += 1
        return TopicPath(self.tenant, self.chance.choice(self._namespaces), f"t{self._numbers}")

    def ask(self, what: str, ask: Callable[[Broker, Reply], None], then: Callable[[Any], None]) -> None:
        """Ask a node, which may not know yet that there is an inventory; `then` gets the answer, or an error."""

        def asked(broker: Broker, reply: Reply) -> None:
            if broker.inventory.is_made:
                _trust(broker, self._position)
                ask(broker, partial(_with_position, broker, reply))
            else:
                reply(NotCoordinator("the inventory is not known here yet"))

        def answered(value: Any) -> None:
            value = self._seen(value)
            self.calls.trace("%s of %s: %s", what, self.tenant, value)
            then(value)

        self.calls.ask(self.calls.any_node(), asked, answered)

    def _seen(self, value: Any) -> Any:
        """The answer without its position, behind which no later one may be."""
        if not isinstance(value, _Answer):
            return value
        self._position = value.position
        return value.value

    def check_passes(self, what: str, error: DuramenError) -> None:
        """Raise BrokenPromise for an error that no fault explains."""
        if not isinstance(error, _PASSES) and error.id not in ("storage-failed", "policy-not-effective"):
            raise BrokenPromise(f"{what} of {self.tenant} is refused with {type(error).__name__}: {error}")

    def _set_up(self) -> None:
        def tenant(broker: Broker, reply: Reply) -> None:
            def made(answer: CreatedNames | DuramenError) -> None:
                if isinstance(answer, DuramenError) or answer.problems:
                    reply(CoordinatorLoading("not yet"))
                else:
                    with_position = partial(_with_position, broker, reply)
                    broker.inventory.create_namespaces(ACCOUNT, self.tenant, self._namespaces, {}, with_position)

            broker.inventory.create_tenants(ACCOUNT, [self.tenant], {}, made)

        def created(value: Any) -> None:
            answer: CreatedNames | DuramenError = self._seen(value)
            if isinstance(answer, DuramenError) or answer.problems:
                self.next(20_000)
            else:
                self._set([*self._policies])

        self.calls.ask(self.calls.any_node(), tenant, created)

    def _set(self, left: list[str]) -> None:
        def done(error: DuramenError | None) -> None:
            if error is not None:
                self.next(20_000)
            elif left[1:]:
                self._set(left[1:])
            else:
                self._is_set_up = True
                self.next()

        if left:
            self.set_policies(left[0], self._policies[left[0]], done)
        else:
            done(None)

    def set_policies(
        self, namespace: str, policies: Mapping[str, Any], then: Callable[[DuramenError | None], None]
    ) -> None:  # fmt: skip
        """Set policies of a namespace, or of the tenant (""), and wait until they are effective on every node."""
        path = [self.tenant, namespace] if namespace else [self.tenant]

        def ask(broker: Broker, reply: Reply) -> None:
            def changed(answer: Any) -> None:
                if isinstance(answer, DuramenError):
                    reply(answer)
                else:
                    shard, place = answer
                    broker.inventory.policies.when_effective(shard, place, _WAIT_MS, reply)

            broker.inventory.policies.change(ACCOUNT, path, dict(policies), changed)

        def answered(answer: Any) -> None:
            if isinstance(answer, DuramenError):
                self.check_passes(f"policies {policies}", answer)
            then(answer if isinstance(answer, DuramenError) else None)

        if policies:
            self.ask(f"policies {dict(policies)} for {path}", ask, answered)
        else:
            then(None)

    # -- topics -------------------------------------------------------------------------------------

    def create(self, path: TopicPath, then: Callable[[FoundTopic | DuramenError], None]) -> None:
        """Create one topic; `then` gets it."""

        def ask(broker: Broker, reply: Reply) -> None:
            inventory = broker.inventory

            def found(answer: Any) -> None:
                if isinstance(answer, DuramenError):
                    reply(answer)
                else:
                    inventory.create_topics(answer, [path.topic], created)

            def created(answer: CreatedNames | DuramenError) -> None:
                if isinstance(answer, DuramenError):
                    reply(answer)
                elif answer.problems:
                    reply(answer.problems[0].error)
                else:
                    inventory.read(partial(inventory.find, ACCOUNT, path), reply)

            inventory.read(partial(inventory.namespace, ACCOUNT, path.tenant, path.namespace), found)

        self.ask(f"creation of {path}", ask, then)

    def move(self, path: TopicPath, to: TopicPath, then: Callable[[DuramenError | None], None]) -> None:
        """Move a topic; `then` gets None, or an error after which it may be anywhere."""

        def ask(broker: Broker, reply: Reply) -> None:
            broker.inventory.move_topic(ACCOUNT, path, to, reply, keep_alias=False)

        def answered(error: DuramenError | None) -> None:
            if error is not None:
                self.check_passes("a move", error)
            then(error)

        self.ask(f"move of {path} to {to}", ask, answered)

    def delete(self, path: TopicPath, then: Callable[[DuramenError | None], None]) -> None:
        """Delete a topic; `then` gets None, or an error after which it may be there."""

        def ask(broker: Broker, reply: Reply) -> None:
            broker.inventory.delete_topic(ACCOUNT, path, reply)

        def answered(error: DuramenError | None) -> None:
            if error is not None:
                self.check_passes("a deletion", error)
            then(error)

        self.ask(f"deletion of {path}", ask, answered)

    def place_of(self, id_: UUID) -> PartitionId:
        """The partition with the records of a topic."""
        stream = self.calls.witness.council.state.streams[INVENTORY_QUEUES]
        return PartitionId(stream.id, partition_of(id_.hex.encode(), stream.partitions))

    def produce(
        self, path: TopicPath, id_: UUID, batch: Callable[[Broker], bytearray], then: Callable[[Any], None]
    ) -> None:  # fmt: skip
        """Write to a topic by its name, at the leader of its records; `then` gets the offset, or an error."""
        place = self.place_of(id_)

        def at_leader(node_id: int, _: int) -> None:
            def ask(broker: Broker, reply: Reply) -> None:
                service = self.calls.nodes[node_id].service
                assert service is not None

                def admitted(found: Admitted | DuramenError) -> None:
                    light = None if isinstance(found, DuramenError) else found.light(path.kafka_name)
                    if light is None:
                        reply(NotLeader(f"{path} is not known here now"))
                    else:
                        light.append(memoryview(batch(broker)), stored, all_replicas=True)

                def stored(offset: int, error: DuramenError | None) -> None:
                    reply(offset if error is None else error)

                service.admit(ANONYMOUS, _RULES, [path.kafka_name], admitted)

            def answered(value: Any) -> None:
                self.calls.trace("record of %s: %s", path, value)
                if isinstance(value, DuramenError):
                    self.forget(place, value)
                then(value)

            self.calls.ask(node_id, ask, answered)

        self.leader(place, at_leader)

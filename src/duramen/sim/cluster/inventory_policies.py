"""Checks policies of the inventory: one reported as effective applies on every node from then on."""

from collections.abc import Callable
from typing import Any, Final

from duramen.base.catalogue.inventory import PRODUCER_RATE
from duramen.base.errors import DuramenError, NotCoordinator
from duramen.coordinators.inventory.quotas import CreatedNames
from duramen.inventory.names import TopicPath
from duramen.service.broker import Broker
from duramen.sim.cluster.clients.calls import ClientCalls, Reply
from duramen.sim.cluster.clients.client import ClusterClient
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["PolicyClient"]

_ACCOUNT: Final = "default"
_TENANT: Final = "policies"
_TOPIC: Final = TopicPath(_TENANT, "prod", "limited")
_POLICY: Final = "quota.topics"
_WAIT_MS: Final = 3_000


class PolicyClient(ClusterClient):
    """Sets a policy to higher and higher values, and asks any node which one counts."""

    def __init__(self, calls: ClientCalls, seed: str, think_us: int) -> None:
        super().__init__(calls, seed, think_us)
        self._is_set_up = False
        self._value = 0
        self._effective = 0
        self._unanswered = set[int]()
        self.told = self.read = 0

    def step(self) -> None:
        """Do one thing, of any node."""
        if not self._is_set_up:
            self._set_up()
        elif self.chance.random() < 0.4:
            self._set()
        elif self.chance.random() < 0.5:
            self._read(self._effective)
        else:
            self._read_limit(self._effective)

    def _ask(self, ask: Callable[[Broker, Reply], None], then: Callable[[Any], None]) -> None:
        def asked(broker: Broker, reply: Reply) -> None:
            if broker.inventory.is_made:
                ask(broker, reply)
            else:
                reply(NotCoordinator("the inventory is not known here yet"))

        self.calls.ask(self.calls.any_node(), asked, then)

    def _set_up(self) -> None:
        def ask(broker: Broker, reply: Reply) -> None:
            inventory = broker.inventory

            def tenant(answer: Any) -> None:
                if _failed(answer):
                    reply(answer)
                else:
                    inventory.create_namespaces(_ACCOUNT, _TENANT, [_TOPIC.namespace], {}, made)

            def made(answer: Any) -> None:
                if _failed(answer):
                    reply(answer)
                else:
                    inventory.read(lambda: inventory.namespace(_ACCOUNT, _TENANT, _TOPIC.namespace), found)

            def found(answer: Any) -> None:
                if isinstance(answer, DuramenError):
                    reply(answer)
                else:
                    inventory.create_topics(answer, [_TOPIC.topic], reply)

            inventory.create_tenants(_ACCOUNT, [_TENANT], {}, tenant)

        def answered(answer: CreatedNames | DuramenError) -> None:
            self._is_set_up = not _failed(answer)
            self.next(20_000)

        self.calls.ask(self.calls.any_node(), ask, answered)

    def _set(self) -> None:
        self._value += 1
        value = self._value

        def ask(broker: Broker, reply: Reply) -> None:
            policies = broker.inventory.policies

            def changed(answer: Any) -> None:
                if isinstance(answer, DuramenError):
                    reply(answer)
                else:
                    shard, place = answer
                    policies.when_effective(shard, place, _WAIT_MS, reply)

            policies.change(_ACCOUNT, [_TENANT], {_POLICY: value, PRODUCER_RATE: value}, changed)

        def answered(answer: list[int] | DuramenError) -> None:
            self.calls.trace("policy %d: %s", value, answer)
            if isinstance(answer, DuramenError):
                self._unanswered.add(value)  # it may count at any time
            else:
                self._effective = value
                self.told += 1
            self.next()

        self._ask(ask, answered)

    def _read(self, effective: int) -> None:
        def ask(broker: Broker, reply: Reply) -> None:
            inventory = broker.inventory
            inventory.read(lambda: inventory.policies.find(_ACCOUNT, [_TENANT]).own, reply)

        def answered(answer: dict[str, Any] | DuramenError) -> None:
            self.calls.trace("policies: %s", answer)
            if not isinstance(answer, DuramenError):
                self._check(answer.get(_POLICY, 0), effective)
            self.next()

        self._ask(ask, answered)

    def _read_limit(self, effective: int) -> None:
        """Ask which limit a node would apply to a producer, if it knows one."""

        def ask(broker: Broker, reply: Reply) -> None:
            inventory = broker.inventory

            def found(topic: Any) -> None:
                if isinstance(topic, DuramenError):
                    reply(topic)
                else:
                    reply([one.value for one in inventory.quotas.limits_of(PRODUCER_RATE, _ACCOUNT, topic)])

            inventory.read(lambda: inventory.find(_ACCOUNT, _TOPIC), found)

        def answered(answer: list[int] | DuramenError) -> None:
            self.calls.trace("limits: %s", answer)
            for value in () if isinstance(answer, DuramenError) else answer:
                self._check(value, effective)
            self.next()

        self._ask(ask, answered)

    def _check(self, found: int, effective: int) -> None:
        self.read += 1
        if found < effective and found not in self._unanswered:
            raise BrokenPromise(f"the policy is {found}, and {effective} was told to be effective on every node")


def _failed(answer: Any) -> bool:
    return isinstance(answer, DuramenError) or bool(answer.problems)

"""Policies as the doors use them: own and effective values, use of quotas, and changes that wait until effective."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.catalogue.inventory import ACCOUNT, AUTO_CREATION, DURABILITY, NAMESPACE, POLICIES, TENANT, TOPIC
from duramen.base.errors import (
    DuramenError,
    NamespaceNotFound,
    PolicyNotEffective,
    TenantNotFound,
    TopicNotFound,
)
from duramen.base.ports import Clock
from duramen.codec.exports import SYNC
from duramen.coordinators.inventory.quotas import InventoryQuotas, TopicOwner
from duramen.coordinators.inventory.retention import InventoryRetention, says_retention
from duramen.coordinators.inventory.shard import DIRECTORY_SHARD
from duramen.coordinators.inventory.shards import Done, InventoryShards
from duramen.inventory.directory import SetPolicies
from duramen.inventory.events import Policies
from duramen.inventory.ids import TopicKey, durability_of_sequence
from duramen.inventory.machine import SetTopicPolicies
from duramen.inventory.policies import (
    Effective,
    PolicyChange,
    PolicyScope,
    check_policies,
    effective,
    inherited,
    limits,
)

__all__ = ["InventoryPolicies", "PoliciesFound", "UsedQuota", "not_effective"]

_LOOK_MS: Final = 20


class UsedQuota(NamedTuple):
    """A quota that limits the request, the level at which it is set, and its usage."""

    policy: str
    level: str
    limit: int
    used: int


class PoliciesFound(NamedTuple):
    """The policies of an account, a tenant, a namespace or a topic: own and effective ones."""

    level: str
    own: Policies
    effective: Mapping[str, Effective]
    quotas: Sequence[UsedQuota]


class InventoryPolicies:
    """Policies of the inventory. The parts of a path name their scope; an account has the empty path."""

    def __init__(
        self, shards: InventoryShards, clock: Clock, quotas: InventoryQuotas, ensure: Callable[[str, Done], None],
        node_id: int,
    ) -> None:  # fmt: skip
        """`ensure` creates the inventory, with room for records of a durability."""
        self._shards = shards
        self._clock = clock
        self._quotas = quotas
        self._ensure = ensure
        self._node_id = node_id
        self.retention = InventoryRetention(shards)

    # -- queries ------------------------------------------------------------------------------------

    def find(self, account: str, path: Sequence[str]) -> PoliciesFound:
        """The policies of the entity at a path. Raises TenantNotFound, NamespaceNotFound, TopicNotFound …"""
        chain = self._chain(account, path)
        scope, own = chain[0]
        named = [(one.level, policies) for one, policies in chain]
        if scope.topic is not None:  # it was chosen at the creation
            named.insert(0, (TOPIC, {DURABILITY: durability_of_sequence(scope.topic.sequence)}))
        quotas = [
            UsedQuota(name, limit.scope.level, limit.value, self._quotas.used(name, limit.scope))
            for name, policy in POLICIES.items()
            if policy.quota
            for limit in limits(name, chain)
        ]
        return PoliciesFound(scope.level, own, effective(scope.level, named), quotas)

    def creates_topics(self, account: str, tenant: str, namespace: str) -> bool:
        """Whether a Metadata request creates topics of a namespace; False if there is no such namespace.

        Raises CoordinatorLoading.
        """
        directory = self._shards.directory()
        try:
            chain = directory.policies_of(directory.namespace(account, tenant, namespace).id)
        except (TenantNotFound, NamespaceNotFound):
            return False
        return bool(effective(NAMESPACE, [(scope.level, own) for scope, own in chain])[AUTO_CREATION].value)

    def durability_of_new(self, namespace: int) -> str:
        """The durability of topics that are created in a namespace now, as known on this node."""
        directory = self._shards.known_directory()
        chain = [] if directory is None else [own for _, own in directory.policies_of(namespace)]
        return str(inherited(DURABILITY, chain) or SYNC)

    def owner(self, account: str, path: Sequence[str]) -> TopicOwner:
        """The topic that a path resolves to, and its namespace. Raises TopicNotFound …"""
        namespace = self._shards.directory().namespace(account, path[0], path[1]).id
        rows = self._shards.rows()
        found = rows.find(namespace, path[2].encode(errors="replace"))
        if found is None:
            raise TopicNotFound(f"there is no topic {'/'.join(path)}")
        return TopicOwner(rows.place(found.key).namespace if found.alias else namespace, found.key)

    def _chain(self, account: str, path: Sequence[str]) -> list[tuple[PolicyScope, Policies]]:
        """The policies of an entity, and of all scopes that contain it."""
        directory = self._shards.directory()
        scopes = [PolicyScope(ACCOUNT, account)]
        if path:
            scopes.insert(0, PolicyScope(TENANT, id=directory.tenant(account, path[0]).id))
        if len(path) == 1 or not path:
            return [(scope, directory.policies.own(scope)) for scope in scopes]
        if len(path) == 2:
            return directory.policies_of(directory.namespace(account, *path).id)
        return self._quotas.chain(self.owner(account, path))

    # -- changes ------------------------------------------------------------------------------------

    def change(self, account: str, path: Sequence[str], changes: PolicyChange, done: Done) -> None:
        """Set policies; None removes one. `done` gets the shard and the position from which on they apply."""

        def found(answer: PolicyScope | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
            elif answer.topic is not None:
                self._submit(answer.topic.shard, SetTopicPolicies(answer.topic.sequence, changes), done, answer.topic)
            else:
                self._submit(DIRECTORY_SHARD, SetPolicies(answer, changes), done)

        def ensured(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._shards.read(partial(self._scope, account, path), found)

        try:
            checked = check_policies((ACCOUNT, TENANT, NAMESPACE, TOPIC)[len(path)], changes)
        except DuramenError as error:
            done(error)
            return
        durability = str(checked.get(DURABILITY) or SYNC)
        if path and durability == SYNC:
            ensured(None)
        else:
            self._ensure(durability, ensured)

    def _submit(
        self, shard: int, command: SetPolicies | SetTopicPolicies, done: Done, topic: TopicKey | None = None
    ) -> None:
        def answered(answer: Policies | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
            elif topic is not None and says_retention(command.changes):
                self.retention.tell(topic, answer, told)
            else:
                told(None)

        def told(error: DuramenError | None) -> None:
            done((shard, self._shards.place(shard)) if error is None else error)

        self._shards.submit(shard, command, answered)

    def _scope(self, account: str, path: Sequence[str]) -> PolicyScope:
        directory = self._shards.directory()
        if not path:
            return PolicyScope(ACCOUNT, account)
        if len(path) == 1:
            return PolicyScope(TENANT, id=directory.tenant(account, path[0]).id)
        if len(path) == 2:
            return PolicyScope(NAMESPACE, id=directory.namespace(account, *path).id)
        key: TopicKey = self.owner(account, path).key
        return PolicyScope(TOPIC, topic=key)

    def when_effective(self, shard: int, place: tuple[int, int], wait_ms: int, done: Done) -> None:
        """`done` gets the nodes that follow the shard, once each has confirmed the position.

        Or it gets PolicyNotEffective, which names the nodes that have not confirmed in time. A standalone node confirms
        by itself.
        """
        until_ms = self._clock.monotonic_ms() + wait_ms

        def look() -> None:
            if self._shards.place(shard) >= place:
                done([self._node_id])
            elif self._clock.monotonic_ms() >= until_ms:
                done(not_effective([self._node_id]))
            else:
                self._shards.later(_LOOK_MS, look)

        look()


def not_effective(nodes: Sequence[int]) -> PolicyNotEffective:
    """The error about nodes that have not confirmed a change."""
    named = f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {', '.join(map(str, nodes))}"
    return PolicyNotEffective(f"the change is stored, but not confirmed by {named}")

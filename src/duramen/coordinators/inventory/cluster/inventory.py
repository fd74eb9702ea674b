"""The inventory of a cluster, served at the doors of any node."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from duramen.base.countdown import Countdown
from duramen.base.errors import DuramenError, OutcomeUnknown
from duramen.base.ports import Clock
from duramen.coordinators.inventory.cluster.changes import FencedChanges
from duramen.coordinators.inventory.cluster.feed import ClusterFeed
from duramen.coordinators.inventory.cluster.policies import ClusterPolicies
from duramen.coordinators.inventory.cluster.requests import CHANGE_TOPICS, ChangeTopics, TopicChange, TopicsChanged
from duramen.coordinators.inventory.cluster.serving import serve_inventory
from duramen.coordinators.inventory.cluster.shards import RoutedShards
from duramen.coordinators.inventory.inventory import Inventory, InventoryKit
from duramen.coordinators.inventory.moves import TopicMove
from duramen.coordinators.inventory.shard import DIRECTORY_SHARD
from duramen.coordinators.inventory.shards import Done
from duramen.coordinators.inventory.topics import TopicPage
from duramen.inventory.directory import CreateTenant, DirectoryCommand, UpdateNamespace, UpdateTenant
from duramen.inventory.events import Labels
from duramen.inventory.names import NamedProblem, TopicPath, kafka_path
from duramen.inventory.search import PageToken, TopicQuery

__all__ = ["ClusterInventory", "TenantNames"]

_LOOKED_AFTER_MS: Final = 5_000
_FREE_AFTER_MS: Final = 60_000
"""The longest time that a name stays reserved before its tenant is created."""
_AT_ONCE: Final = 100
_BOUND_MS: Final = 2_000


class TenantNames(NamedTuple):
    """The tenant names that are reserved in the metadata, with their numbers; reserves and releases names."""

    reserved: Callable[[], Mapping[tuple[str, str], int]]
    reserve: Callable[[str, str, Done], None]
    release: Callable[[str, str, int, Done], None]


class ClusterInventory(Inventory):
    """The inventory of a cluster.

    The metadata reserves names of tenants; the directory's leader runs changes of topics.
    """

    def __init__(
        self, shards: RoutedShards, clock: Clock, ensure: Callable[[Done], None], names: TenantNames,
        nodes: Callable[[], Iterable[int]], kit: InventoryKit,
    ) -> None:  # fmt: skip
        """`nodes` are all registered nodes of the cluster."""
        super().__init__(shards, clock, ensure, kit=kit)
        policies = ClusterPolicies(
            shards, clock, self.quotas, kit.ensure_durability, kit.node_id, nodes, self._bind
        )  # fmt: skip
        self.policies = policies
        self._routed = shards
        self._names = names
        self._changes = FencedChanges(shards, clock)
        self.feed = ClusterFeed(shards, kit.store)
        self._unused: dict[tuple[str, str, int], int] = {}  # since when a reservation without a tenant is seen
        shards.when_made(self.start)
        serve_inventory(shards.caller.server, shards, self._run, policies.follow)

    # -- maintenance --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the periodic work of the directory's leader."""
        if self._shards.ready and not self._ticks:
            self._ticks = True
            self._shards.later(0, self._look_after)  # after all known metadata is applied

    def _look_after(self) -> None:
        self._shards.later(_LOOKED_AFTER_MS, self._look_after)
        self._routed.learn()
        self._bind(_done)
        self.resume()
        self.policies.retention.resume()
        if self._routed.directory_epoch is not None:
            self._compare_names()

    def resume(self) -> bool:
        """Resume interrupted changes, if this node leads the directory; returns whether it does."""
        if self._routed.directory_epoch is None:
            return False
        try:
            self._changes.resume()
            self._sweeps.resume()
        except DuramenError:
            return False  # this node lost leadership
        return True

    def _compare_names(self) -> None:
        """Reserve names of existing tenants of a node that joined the cluster; release names without a tenant."""
        tenants = {(one.account, one.name) for one in self._shards.directory().every_tenant()}
        reserved, now_ms = self._names.reserved(), self._clock.monotonic_ms()
        for account, name in sorted(tenants - reserved.keys())[:_AT_ONCE]:
            self._names.reserve(account, name, _nobody)
        unused = {(*key, number) for key, number in reserved.items() if key not in tenants}
        self._unused = {one: self._unused.get(one, now_ms) for one in sorted(unused)}
        due = [one for one, since_ms in self._unused.items() if now_ms - since_ms >= _FREE_AFTER_MS]
        for account, name, number in due[:_AT_ONCE]:
            self._names.release(account, name, number, _nobody)

    # -- tenants ------------------------------------------------------------------------------------

    def create_tenants(self, account: str, names: Sequence[str], labels: Labels, done: Done) -> None:
        """See `Inventory`: each tenant is created once its name is reserved."""
        now_ms = self._clock.wall_ms()

        def known(there: set[str] | DuramenError) -> None:
            if isinstance(there, DuramenError):
                done(there)
                return
            new = [CreateTenant(account, name, labels, now_ms) for name in names]
            reserving = _Reserving(len(new), partial(self._create, done=done))
            for command in new:
                if command.name in there:
                    reserving.one(command, None)
                else:
                    self._names.reserve(account, command.name, partial(reserving.one, command))

        def ensured(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                self.read(lambda: self._there(account, names), known)

        def reserved(error: object) -> None:
            # If the first name cannot be reserved, the inventory need not exist yet.
            if isinstance(error, DuramenError):
                done(error)
            else:
                self._ensure(ensured)

        if self._shards.ready or not names:
            self._ensure(ensured)
        else:
            self._names.reserve(account, names[0], reserved)

    def _there(self, account: str, names: Sequence[str]) -> set[str]:
        directory = self._shards.directory()
        return {name for name in names if directory.has_tenant(account, name)}

    def change(self, command: DirectoryCommand, done: Done) -> None:
        """See `Inventory`: a new tenant name is reserved first.

        If namespaces are bound to subjects, the response waits until all reachable nodes have applied the change.
        """

        def changed(answer: object) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
            else:
                self.read(self._any_bound, partial(followed, answer))

        def followed(answer: object, bound: bool | DuramenError) -> None:
            if bound is False and not (isinstance(command, UpdateNamespace) and command.subjects is not None):
                done(answer)
            else:
                place = self._routed.place(DIRECTORY_SHARD)
                self.policies.when_effective(DIRECTORY_SHARD, place, _BOUND_MS, lambda _: done(answer))

        def reserved(error: object) -> None:
            if isinstance(error, DuramenError):
                done(error)
            else:
                self._submit_change(command, changed)

        if isinstance(command, UpdateTenant) and command.name:
            self._names.reserve(command.account, command.name, reserved)
        else:
            reserved(None)

    def _any_bound(self) -> bool:
        return any(True for _ in self._shards.directory().bound())

    def _bind(self, done: Callable[[], None]) -> None:
        """Make the doors follow the present subject bindings of namespaces."""
        if self.when_bound is None:
            done()
        else:
            self.when_bound(done)

    def may_name(self, account: str, name: str) -> bool:
        """See `Inventory`; uses the reserved names."""
        path = kafka_path(name)
        return path is not None and (account, path.tenant) in self._names.reserved()

    # -- topics -------------------------------------------------------------------------------------

    def move_topic(self, account: str, path: TopicPath, to: TopicPath, done: Done, *, keep_alias: bool) -> None:
        """See `Inventory`."""
        self._change(account, [TopicChange("move", path, to, keep_alias)], _first_to(done))

    def move_topics(self, account: str, moves: Sequence[TopicMove], done: Done) -> None:
        """See `Inventory`."""

        def ended(problems: list[DuramenError | None] | DuramenError) -> None:
            if isinstance(problems, DuramenError):
                done([NamedProblem(move.path.topic, problems) for move in moves])
                return
            pairs = zip(moves, problems, strict=True)
            done([NamedProblem(move.path.topic, problem) for move, problem in pairs if problem is not None])

        self._change(account, [TopicChange("move", *move) for move in moves], ended)

    def delete_topic(self, account: str, path: TopicPath, done: Done) -> None:
        """See `Inventory`."""
        self._change(account, [TopicChange("delete", path)], _first_to(done))

    def alias(self, account: str, path: TopicPath, target: TopicPath, done: Done) -> None:
        """See `Inventory`."""
        self._change(account, [TopicChange("alias", path, target)], _first_to(done))

    def _change(self, account: str, changes: list[TopicChange], done: Done) -> None:
        request = ChangeTopics(account, changes)

        def told(outcome: Any) -> None:
            if isinstance(outcome, TopicsChanged):
                done([None if problem is None else problem.error() for problem in outcome.problems])
            else:
                done(outcome)

        self._routed.ask_leader(
            DIRECTORY_SHARD, CHANGE_TOPICS, request, partial(self._run, request), told, idempotent=False
        )

    def _run(self, request: ChangeTopics, done: Done) -> None:
        """Run changes of topics on the directory's leader; `done` gets the outcome of each."""
        problems: list[DuramenError | None] = [None] * len(request.changes)
        parts = Countdown(partial(done, problems), len(problems) + 1)

        def ended(at: int, error: DuramenError | None) -> None:
            problems[at] = error
            parts.count_down()

        for at, (kind, path, to, keep_alias) in enumerate(request.changes):
            if kind == "move":
                super().move_topic(request.account, path, to, partial(ended, at), keep_alias=keep_alias)
            elif kind == "delete":
                super().delete_topic(request.account, path, partial(ended, at))
            else:
                super().alias(request.account, path, to, partial(ended, at))
        parts.count_down()

    # -- pages --------------------------------------------------------------------------------------

    def search(
        self, account: str, tenant: str, namespace: str, query: TopicQuery, token: PageToken, limit: int
    ) -> TopicPage:
        """See `Inventory`; the token has the positions of the shards, so that later pages are not older."""
        page = super().search(account, tenant, namespace, query, token, limit)
        if page.token is None:
            return page
        return TopicPage(page.topics, page.token._replace(positions=tuple(self._routed.positions())))


class _Reserving:
    """The creation of tenants: names are reserved first, then tenants are created."""

    def __init__(self, left: int, create: Callable[..., None]) -> None:
        self._left = left
        self._create = create
        self._good = list[CreateTenant]()
        self._problems = list[NamedProblem]()
        if not left:
            self._end()

    def one(self, command: CreateTenant, answer: object) -> None:
        """The outcome of one reservation."""
        if isinstance(answer, DuramenError):
            self._problems.append(NamedProblem(command.name, answer))
        else:
            self._good.append(command)
        self._left -= 1
        if not self._left:
            self._end()

    def _end(self) -> None:
        self._create(self._good, problems=self._problems)


def _first_to(done: Done) -> Done:
    def told(outcome: list[DuramenError | None] | DuramenError) -> None:
        if isinstance(outcome, DuramenError):
            done(outcome)
        else:
            done(outcome[0] if outcome else OutcomeUnknown("nothing was answered"))

    return told


def _done() -> None:
    """A callback without a waiting caller."""


def _nobody(_: object) -> None:
    """A callback without a waiting caller."""

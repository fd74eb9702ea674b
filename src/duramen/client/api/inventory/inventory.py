"""The inventory of topics over HTTP, for the blocking client."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from duramen.client.api.http import Program
from duramen.client.api.inventory.changes import Subscription
from duramen.client.api.inventory.policies import Policies
from duramen.client.api.inventory.requests import (
    MOST_TOPICS,
    TENANTS,
    AccountInfo,
    CreatedNames,
    Filter,
    MovedTopics,
    Names,
    NamespaceInfo,
    TenantInfo,
    TopicInfo,
    TopicPage,
    create_names,
    delete_path,
    get_account,
    get_namespace,
    get_tenant,
    get_topic,
    get_topic_by_id,
    list_accounts,
    list_namespaces,
    list_tenants,
    lookup,
    make_alias,
    move_topic,
    move_topics,
    namespace_path,
    query,
    search,
    tenant_path,
    topic_path,
    update_namespace,
    update_tenant,
)

__all__ = ["Inventory"]

_T = TypeVar("_T")


class _Run(Protocol):
    def __call__(self, program: Program[_T]) -> _T: ...


class Inventory:
    """The inventory of topics: `client.inventory`. Topics are TENANT/NAMESPACE/TOPIC, namespaces TENANT/NAMESPACE.

    Each method uses tenants of the node's account, or of the given `account`.

    >>> inventory = client.inventory
    >>> inventory.create_tenants(["shop"]), inventory.create_namespaces("shop", ["prod", "dev"])
    (CreatedNames(created=1, ...), CreatedNames(created=2, ...))
    >>> inventory.create_topics("shop/prod", ["orders", "payments"])
    CreatedNames(created=2, existing=0, failed={}, position=...)
    >>> [topic.name for topic in inventory.search("shop/prod", glob="*s")]
    ['orders', 'payments']
    >>> inventory.move_topic("shop/prod/orders", "shop/dev/orders").path
    'shop/dev/orders'
    """

    def __init__(self, run: _Run) -> None:
        self._run = run
        self.policies = Policies(run)
        """Policies of the account, of tenants, namespaces and topics: describe, set."""

    def accounts(self, *, prefix: str = "", glob: str = "", pattern: str = "") -> list[AccountInfo]:
        """Accounts that have tenants or policies, by name.

        >>> client.inventory.accounts(prefix="there-is-none-like-this")
        []
        """
        return self._run(list_accounts(Filter(prefix, glob, pattern)))

    def account(self, account: str) -> AccountInfo:
        """An account with the numbers of its tenants, namespaces and topics. Raises AccountNotFound.

        >>> client.inventory.account("nobody")
        Traceback (most recent call last):
        duramen.base.errors.AccountNotFound: no tenant and no policy is in an account nobody
        """
        return self._run(get_account(account))

    def create_tenants(
        self, names: Iterable[str], *, labels: Mapping[str, str] | None = None, account: str = ""
    ) -> CreatedNames:
        """Create tenants; existing ones stay unchanged, and the result lists those that failed.

        >>> client.inventory.create_tenants(["t1", "t2"]).created
        2
        """
        return self._run(create_names(TENANTS + query(account), names, labels, None))

    def tenants(
        self, *, prefix: str = "", glob: str = "", pattern: str = "", label: str = "", account: str = ""
    ) -> list[TenantInfo]:
        """Tenants by name: all, or by prefix, glob or RE2 pattern, or with a label, KEY or KEY=VALUE.

        >>> client.inventory.tenants(prefix="there-is-none-like-this")
        []
        """
        return self._run(list_tenants(account, Filter(prefix, glob, pattern, label)))

    def tenant(self, tenant: str, *, account: str = "") -> TenantInfo:
        """A tenant. Raises TenantNotFound.

        >>> client.inventory.tenant("nobody")
        Traceback (most recent call last):
        duramen.base.errors.TenantNotFound: there is no tenant nobody
        """
        return self._run(get_tenant(account, tenant))

    def update_tenant(
        self, tenant: str, *, name: str | None = None, labels: Mapping[str, str] | None = None, account: str = ""
    ) -> TenantInfo:
        """Change the name or the labels of a tenant. Raises TenantNotFound, TenantExists, InventoryNameInvalid.

        >>> client.inventory.create_tenants(["t3"])
        CreatedNames(...)
        >>> client.inventory.update_tenant("t3", name="t4").name
        't4'
        """
        return self._run(update_tenant(account, tenant, name, labels))

    def delete_tenant(self, tenant: str, *, account: str = "") -> None:
        """Delete a tenant with all its namespaces and topics. Raises TenantNotFound.

        >>> client.inventory.create_tenants(["t5"])
        CreatedNames(...)
        >>> client.inventory.delete_tenant("t5")
        """
        self._run(delete_path(account, tenant_path(tenant)))

    def create_namespaces(
        self, tenant: str, names: Iterable[str], *, labels: Mapping[str, str] | None = None, account: str = ""
    ) -> CreatedNames:
        """Create namespaces of a tenant; existing ones stay unchanged, and the result lists those that failed.

        >>> client.inventory.create_tenants(["t6"])
        CreatedNames(...)
        >>> client.inventory.create_namespaces("t6", ["a", "b"]).created
        2
        """
        return self._run(create_names(f"{tenant_path(tenant)}/namespaces{query(account)}", names, labels, None))

    def namespaces(
        self, tenant: str = "", *, prefix: str = "", glob: str = "", pattern: str = "", label: str = "",
        account: str = "",
    ) -> list[NamespaceInfo]:  # fmt: skip
        """Namespaces of a tenant, or of all, by name: all, or by prefix, glob or RE2 pattern, or with a label.

        Raises TenantNotFound.

        >>> client.inventory.create_tenants(["t7"])
        CreatedNames(...)
        >>> client.inventory.namespaces("t7")
        []
        """
        return self._run(list_namespaces(account, tenant, Filter(prefix, glob, pattern, label)))

    def namespace(self, namespace: str, *, account: str = "") -> NamespaceInfo:
        """The namespace TENANT/NAMESPACE. Raises TenantNotFound, NamespaceNotFound.

        >>> client.inventory.namespace("nobody/nothing")
        Traceback (most recent call last):
        duramen.base.errors.TenantNotFound: there is no tenant nobody
        """
        return self._run(get_namespace(account, namespace))

    def update_namespace(
        self, namespace: str, *, to: str | None = None, labels: Mapping[str, str] | None = None,
        subjects: Iterable[str] | None = None, account: str = "",
    ) -> NamespaceInfo:  # fmt: skip
        """Move a namespace `to` TENANT/NAMESPACE with all its topics, or change its labels or NATS subjects.

        Raises NamespaceNotFound, NamespaceExists, TenantNotFound, InventoryNameInvalid, SubjectInvalid.

        >>> client.inventory.create_tenants(["t8", "t9"])
        CreatedNames(...)
        >>> client.inventory.create_namespaces("t8", ["a"])
        CreatedNames(...)
        >>> client.inventory.update_namespace("t8/a", to="t9/b").tenant
        't9'
        """
        return self._run(update_namespace(account, namespace, to, labels, subjects))

    def delete_namespace(self, namespace: str, *, account: str = "") -> None:
        """Delete a namespace with all its topics. Raises TenantNotFound, NamespaceNotFound.

        >>> client.inventory.create_tenants(["t10"])
        CreatedNames(...)
        >>> client.inventory.create_namespaces("t10", ["a"])
        CreatedNames(...)
        >>> client.inventory.delete_namespace("t10/a")
        """
        self._run(delete_path(account, namespace_path(namespace)))

    def create_topics(
        self, namespace: str, names: Names, *, progress: Callable[[int], object] | None = None,
        account: str = "",
    ) -> CreatedNames:  # fmt: skip
        """Create any number of topics of a namespace; existing ones stay, and the result lists those that failed.

        `names` may be Arrow data too: an array of pyarrow, or a table, record batches or a data frame with a column
        `name`. They are requested some thousands at a time; `progress` gets the number of each request.
        A repeat is safe. Raises TenantNotFound, NamespaceNotFound, ServerUnreachable, DependencyMissing …

        >>> client.inventory.create_tenants(["t11"])
        CreatedNames(...)
        >>> client.inventory.create_namespaces("t11", ["a"])
        CreatedNames(...)
        >>> client.inventory.create_topics("t11/a", (f"device-{number}" for number in range(50_000))).created
        50000
        """
        return self._run(create_names(f"{namespace_path(namespace)}/topics{query(account)}", names, None, progress))

    def topic(self, topic: str, *, account: str = "") -> TopicInfo:
        """The topic TENANT/NAMESPACE/TOPIC, by its name or an alias. Raises TopicNotFound, NamespaceNotFound …

        >>> client.inventory.topic("nobody/nothing/none")
        Traceback (most recent call last):
        duramen.base.errors.TenantNotFound: there is no tenant nobody
        """
        return self._run(get_topic(account, topic))

    def topic_by_id(self, topic_id: str) -> TopicInfo:
        """The topic with an id, under its present name. Raises TopicNotFound.

        >>> client.inventory.topic_by_id("00000000-0000-0000-0000-000000000000")
        Traceback (most recent call last):
        duramen.base.errors.TopicNotFound: there is no topic with the id 00000000-0000-0000-0000-000000000000
        """
        return self._run(get_topic_by_id(topic_id))

    def lookup(self, namespace: str, names: Iterable[str], *, account: str = "") -> list[TopicInfo | None]:
        """The topics of names of a namespace, in their order; None if there is no such name.

        >>> client.inventory.create_tenants(["t12"])
        CreatedNames(...)
        >>> client.inventory.create_namespaces("t12", ["a"])
        CreatedNames(...)
        >>> client.inventory.lookup("t12/a", ["nothing"])
        [None]
        """
        return self._run(lookup(account, namespace, names))

    def move_topic(self, topic: str, to: str, *, keep_alias: bool = False, account: str = "") -> TopicInfo:
        """Rename a topic or move it to another namespace; its id stays. `keep_alias` keeps the old name as an alias.

        Raises TopicNotFound, TopicExists, TopicIsAlias, TopicBusy, InventoryNameInvalid …

        >>> client.inventory.create_tenants(["t13"])
        CreatedNames(...)
        >>> client.inventory.create_namespaces("t13", ["a", "b"])
        CreatedNames(...)
        >>> client.inventory.create_topics("t13/a", ["old"])
        CreatedNames(...)
        >>> client.inventory.move_topic("t13/a/old", "t13/b/new", keep_alias=True).aliases
        [{'tenant': 't13', 'namespace': 'a', 'name': 'old'}]
        """
        return self._run(move_topic(account, topic, to, keep_alias=keep_alias))

    def move_topics(
        self, namespace: str, moves: Mapping[str, str], *, keep_alias: bool = False, account: str = ""
    ) -> MovedTopics:
        """Rename or move topics of a namespace, each on its own: `moves` maps names to TENANT/NAMESPACE/TOPIC.

        The result lists those that failed. Much faster than `move_topic` for each. Raises TenantNotFound,
        NamespaceNotFound.

        >>> client.inventory.create_tenants(["t16"])
        CreatedNames(...)
        >>> client.inventory.create_namespaces("t16", ["a"])
        CreatedNames(...)
        >>> client.inventory.create_topics("t16/a", ["one", "two"])
        CreatedNames(...)
        >>> client.inventory.move_topics("t16/a", {"one": "t16/a/1", "two": "t16/a/2"}).moved
        2
        """
        return self._run(move_topics(account, namespace, moves, keep_alias=keep_alias))

    def alias(self, alias: str, topic: str, *, account: str = "") -> TopicInfo:
        """Create `alias` as another name of a topic. Raises TopicNotFound, TopicExists, TopicAliasCycle …

        >>> client.inventory.create_tenants(["t14"])
        CreatedNames(...)
        >>> client.inventory.create_namespaces("t14", ["a"])
        CreatedNames(...)
        >>> client.inventory.create_topics("t14/a", ["topic"])
        CreatedNames(...)
        >>> client.inventory.alias("t14/a/other", "t14/a/topic").alias
        True
        """
        return self._run(make_alias(account, alias, topic))

    def delete_topic(self, topic: str, *, account: str = "") -> None:
        """Delete a topic that has no aliases, or an alias. Raises TopicNotFound, TopicHasAliases, TopicBusy.

        >>> client.inventory.create_tenants(["t15"])
        CreatedNames(...)
        >>> client.inventory.create_namespaces("t15", ["a"])
        CreatedNames(...)
        >>> client.inventory.create_topics("t15/a", ["topic"])
        CreatedNames(...)
        >>> client.inventory.delete_topic("t15/a/topic")
        """
        self._run(delete_path(account, topic_path(topic)))

    def subscribe(
        self, path: str = "", *, prefix: str = "", position: str = "", account: str = ""
    ) -> Subscription:  # fmt: skip
        """Follow the account, TENANT, TENANT/NAMESPACE or TENANT/NAMESPACE/TOPIC; or names of a namespace by a prefix.

        Yields the changes after `position`, the position of any response or change; without it, from the first request
        on. It continues after a restart of the node. Raises InventoryPositionLost if the log was truncated after the
        position, TenantNotFound, NamespaceNotFound, TopicNotFound, at the first read.

        >>> client.inventory.subscribe("nobody").poll()
        Traceback (most recent call last):
        duramen.base.errors.TenantNotFound: there is no tenant nobody
        """
        return Subscription(self._run, path, prefix, position, account)

    def search(
        self, scope: str = "", *, prefix: str = "", glob: str = "", pattern: str = "", label: str = "", kind: str = "",
        durability: str = "", policy: str = "", account: str = "",
    ) -> Iterator[TopicInfo]:  # fmt: skip
        """Topics and aliases of TENANT/NAMESPACE, of TENANT or of all, in the order of their names.

        By `prefix`, by `glob` (`*`, `?`, `[abc]`) or by an RE2 `pattern` for whole names. `label`, KEY or KEY=VALUE, is
        one of the namespace or its tenant; `durability` is `sync` or `os`; `policy` is one that is set on the topic
        itself. `kind` is `topic`, `alias` or `dangling-alias`, those whose topics were deleted with their namespaces.
        Raises GlobInvalid, PatternInvalid, TenantNotFound, NamespaceNotFound.

        >>> list(client.inventory.search(prefix="there-is-none-like-this"))
        []
        """
        after: str | None = ""
        wanted = Filter(prefix, glob, pattern, label, kind, durability, policy)
        while after is not None:
            page = self._run(search(account, scope, wanted, after, MOST_TOPICS))
            yield from page.topics
            after = page.next

    def search_page(
        self, scope: str = "", *, prefix: str = "", glob: str = "", pattern: str = "", label: str = "", kind: str = "",
        durability: str = "", policy: str = "", after: str = "", limit: int = MOST_TOPICS, account: str = "",
    ) -> TopicPage:  # fmt: skip
        """One page of a search; a page may have fewer than `limit` topics before the last one. More in `search`.

        >>> client.inventory.search_page(glob="there-is-none-like-this*").topics
        []
        """
        return self._run(
            search(account, scope, Filter(prefix, glob, pattern, label, kind, durability, policy), after, limit)
        )

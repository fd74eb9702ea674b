"""The inventory of topics over HTTP, for asyncio."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from duramen.client.api.http import Program
from duramen.client.api.inventory.changes import AsyncSubscription
from duramen.client.api.inventory.policies import AsyncPolicies
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

__all__ = ["AsyncInventory"]

_T = TypeVar("_T")


class _RunAsync(Protocol):
    def __call__(self, program: Program[_T]) -> Awaitable[_T]: ...


class AsyncInventory:
    """The inventory of topics: `client.inventory`. Topics are TENANT/NAMESPACE/TOPIC, namespaces TENANT/NAMESPACE.

    Each method uses tenants of the node's account, or of the given `account`.

    More in `duramen.client.api.inventory.inventory.Inventory`.

    >>> [topic async for topic in client.inventory.search(prefix="there-is-none-like-this")]
    []
    """

    def __init__(self, run: _RunAsync) -> None:
        self._run = run
        self.policies = AsyncPolicies(run)
        """Policies of the account, of tenants, namespaces and topics: describe, set."""

    async def accounts(self, *, prefix: str = "", glob: str = "", pattern: str = "") -> list[AccountInfo]:
        """Accounts that have tenants or policies, by name.

        >>> await client.inventory.accounts(prefix="there-is-none-like-this")
        []
        """
        return await self._run(list_accounts(Filter(prefix, glob, pattern)))

    async def account(self, account: str) -> AccountInfo:
        """An account with the numbers of its tenants, namespaces and topics. Raises AccountNotFound.

        >>> await client.inventory.account("nobody")
        Traceback (most recent call last):
        duramen.base.errors.AccountNotFound: no tenant and no policy is in an account nobody
        """
        return await self._run(get_account(account))

    async def create_tenants(
        self, names: Iterable[str], *, labels: Mapping[str, str] | None = None, account: str = ""
    ) -> CreatedNames:
        """Create tenants; existing ones stay unchanged, and the result lists those that failed.

        >>> (await client.inventory.create_tenants(["aio-t1", "aio-t2"])).created
        2
        """
        return await self._run(create_names(TENANTS + query(account), names, labels, None))

    async def tenants(
        self, *, prefix: str = "", glob: str = "", pattern: str = "", label: str = "", account: str = ""
    ) -> list[TenantInfo]:
        """Tenants by name: all, or by prefix, glob or RE2 pattern, or with a label, KEY or KEY=VALUE.

        >>> await client.inventory.tenants(prefix="there-is-none-like-this")
        []
        """
        return await self._run(list_tenants(account, Filter(prefix, glob, pattern, label)))

    async def tenant(self, tenant: str, *, account: str = "") -> TenantInfo:
        """A tenant. Raises TenantNotFound.

        >>> await client.inventory.tenant("nobody")
        Traceback (most recent call last):
        duramen.base.errors.TenantNotFound: there is no tenant nobody
        """
        return await self._run(get_tenant(account, tenant))

    async def update_tenant(
        self, tenant: str, *, name: str | None = None, labels: Mapping[str, str] | None = None, account: str = ""
    ) -> TenantInfo:
        """Change the name or the labels of a tenant. Raises TenantNotFound, TenantExists, InventoryNameInvalid.

        >>> await client.inventory.create_tenants(["aio-t3"])
        CreatedNames(...)
        >>> (await client.inventory.update_tenant("aio-t3", name="aio-t4")).name
        'aio-t4'
        """
        return await self._run(update_tenant(account, tenant, name, labels))

    async def delete_tenant(self, tenant: str, *, account: str = "") -> None:
        """Delete a tenant with all its namespaces and topics. Raises TenantNotFound.

        >>> await client.inventory.create_tenants(["aio-t5"])
        CreatedNames(...)
        >>> await client.inventory.delete_tenant("aio-t5")
        """
        await self._run(delete_path(account, tenant_path(tenant)))

    async def create_namespaces(
        self, tenant: str, names: Iterable[str], *, labels: Mapping[str, str] | None = None, account: str = ""
    ) -> CreatedNames:
        """Create namespaces of a tenant; existing ones stay unchanged, and the result lists those that failed.

        >>> await client.inventory.create_tenants(["aio-t6"])
        CreatedNames(...)
        >>> (await client.inventory.create_namespaces("aio-t6", ["a", "b"])).created
        2
        """
        return await self._run(create_names(f"{tenant_path(tenant)}/namespaces{query(account)}", names, labels, None))

    async def namespaces(
        self, tenant: str = "", *, prefix: str = "", glob: str = "", pattern: str = "", label: str = "",
        account: str = "",
    ) -> list[NamespaceInfo]:  # fmt: skip
        """Namespaces of a tenant, or of all, by name: all, or by prefix, glob or RE2 pattern, or with a label.

        Raises TenantNotFound.

        >>> await client.inventory.create_tenants(["aio-t7"])
        CreatedNames(...)
        >>> await client.inventory.namespaces("aio-t7")
        []
        """
        return await self._run(list_namespaces(account, tenant, Filter(prefix, glob, pattern, label)))

    async def namespace(self, namespace: str, *, account: str = "") -> NamespaceInfo:
        """The namespace TENANT/NAMESPACE. Raises TenantNotFound, NamespaceNotFound.

        >>> await client.inventory.namespace("nobody/nothing")
        Traceback (most recent call last):
        duramen.base.errors.TenantNotFound: there is no tenant nobody
        """
        return await self._run(get_namespace(account, namespace))

    async def update_namespace(
        self, namespace: str, *, to: str | None = None, labels: Mapping[str, str] | None = None,
        subjects: Iterable[str] | None = None, account: str = "",
    ) -> NamespaceInfo:  # fmt: skip
        """Move a namespace `to` TENANT/NAMESPACE with all its topics, or change its labels or NATS subjects.

        Raises NamespaceNotFound, NamespaceExists, TenantNotFound, InventoryNameInvalid, SubjectInvalid.

        >>> await client.inventory.create_tenants(["aio-t8", "aio-t9"])
        CreatedNames(...)
        >>> await client.inventory.create_namespaces("aio-t8", ["a"])
        CreatedNames(...)
        >>> (await client.inventory.update_namespace("aio-t8/a", to="aio-t9/b")).tenant
        'aio-t9'
        """
        return await self._run(update_namespace(account, namespace, to, labels, subjects))

    async def delete_namespace(self, namespace: str, *, account: str = "") -> None:
        """Delete a namespace with all its topics. Raises TenantNotFound, NamespaceNotFound.

        >>> await client.inventory.create_tenants(["aio-t10"])
        CreatedNames(...)
        >>> await client.inventory.create_namespaces("aio-t10", ["a"])
        CreatedNames(...)
        >>> await client.inventory.delete_namespace("aio-t10/a")
        """
        await self._run(delete_path(account, namespace_path(namespace)))

    async def create_topics(
        self, namespace: str, names: Names, *, progress: Callable[[int], object] | None = None,
        account: str = "",
    ) -> CreatedNames:  # fmt: skip
        """Create any number of topics of a namespace; existing ones stay, and the result lists those that failed.

        `names` may be Arrow data too: a table, record batches or an array of pyarrow, or a data frame; of several
        columns `name` counts. They are requested some thousands at a time; `progress` gets the number of each request.
        A repeat is safe. Raises TenantNotFound, NamespaceNotFound, ServerUnreachable, DependencyMissing …

        >>> await client.inventory.create_tenants(["aio-t11"])
        CreatedNames(...)
        >>> await client.inventory.create_namespaces("aio-t11", ["a"])
        CreatedNames(...)
        >>> (await client.inventory.create_topics("aio-t11/a", ["one", "two"])).created
        2
        """
        return await self._run(
            create_names(f"{namespace_path(namespace)}/topics{query(account)}", names, None, progress)
        )

    async def topic(self, topic: str, *, account: str = "") -> TopicInfo:
        """The topic TENANT/NAMESPACE/TOPIC, by its name or an alias. Raises TopicNotFound, NamespaceNotFound …

        >>> await client.inventory.topic("nobody/nothing/none")
        Traceback (most recent call last):
        duramen.base.errors.TenantNotFound: there is no tenant nobody
        """
        return await self._run(get_topic(account, topic))

    async def topic_by_id(self, topic_id: str) -> TopicInfo:
        """The topic with an id, under its present name. Raises TopicNotFound.

        >>> await client.inventory.topic_by_id("00000000-0000-0000-0000-000000000000")
        Traceback (most recent call last):
        duramen.base.errors.TopicNotFound: there is no topic with the id 00000000-0000-0000-0000-000000000000
        """
        return await self._run(get_topic_by_id(topic_id))

    async def lookup(self, namespace: str, names: Iterable[str], *, account: str = "") -> list[TopicInfo | None]:
        """The topics of names of a namespace, in their order; None if there is no such name.

        >>> await client.inventory.create_tenants(["aio-t12"])
        CreatedNames(...)
        >>> await client.inventory.create_namespaces("aio-t12", ["a"])
        CreatedNames(...)
        >>> await client.inventory.lookup("aio-t12/a", ["nothing"])
        [None]
        """
        return await self._run(lookup(account, namespace, names))

    async def move_topic(self, topic: str, to: str, *, keep_alias: bool = False, account: str = "") -> TopicInfo:
        """Rename a topic or move it to another namespace; its id stays. `keep_alias` keeps the old name as an alias.

        Raises TopicNotFound, TopicExists, TopicIsAlias, TopicBusy, InventoryNameInvalid …

        >>> await client.inventory.create_tenants(["aio-t13"])
        CreatedNames(...)
        >>> await client.inventory.create_namespaces("aio-t13", ["a", "b"])
        CreatedNames(...)
        >>> await client.inventory.create_topics("aio-t13/a", ["old"])
        CreatedNames(...)
        >>> (await client.inventory.move_topic("aio-t13/a/old", "aio-t13/b/new", keep_alias=True)).aliases
        [{'tenant': 'aio-t13', 'namespace': 'a', 'name': 'old'}]
        """
        return await self._run(move_topic(account, topic, to, keep_alias=keep_alias))

    async def move_topics(
        self, namespace: str, moves: Mapping[str, str], *, keep_alias: bool = False, account: str = ""
    ) -> MovedTopics:
        """Rename or move topics of a namespace, each on its own: `moves` maps names to TENANT/NAMESPACE/TOPIC.

        The result lists those that failed. Much faster than `move_topic` for each. Raises TenantNotFound,
        NamespaceNotFound.

        >>> await client.inventory.create_tenants(["aio-t16"])
        CreatedNames(...)
        >>> await client.inventory.create_namespaces("aio-t16", ["a"])
        CreatedNames(...)
        >>> await client.inventory.create_topics("aio-t16/a", ["one", "two"])
        CreatedNames(...)
        >>> (await client.inventory.move_topics("aio-t16/a", {"one": "aio-t16/a/1", "two": "aio-t16/a/2"})).moved
        2
        """
        return await self._run(move_topics(account, namespace, moves, keep_alias=keep_alias))

    async def alias(self, alias: str, topic: str, *, account: str = "") -> TopicInfo:
        """Create `alias` as another name of a topic. Raises TopicNotFound, TopicExists, TopicAliasCycle …

        >>> await client.inventory.create_tenants(["aio-t14"])
        CreatedNames(...)
        >>> await client.inventory.create_namespaces("aio-t14", ["a"])
        CreatedNames(...)
        >>> await client.inventory.create_topics("aio-t14/a", ["topic"])
        CreatedNames(...)
        >>> (await client.inventory.alias("aio-t14/a/other", "aio-t14/a/topic")).alias
        True
        """
        return await self._run(make_alias(account, alias, topic))

    async def delete_topic(self, topic: str, *, account: str = "") -> None:
        """Delete a topic that has no aliases, or an alias. Raises TopicNotFound, TopicHasAliases, TopicBusy.

        >>> await client.inventory.create_tenants(["aio-t15"])
        CreatedNames(...)
        >>> await client.inventory.create_namespaces("aio-t15", ["a"])
        CreatedNames(...)
        >>> await client.inventory.create_topics("aio-t15/a", ["topic"])
        CreatedNames(...)
        >>> await client.inventory.delete_topic("aio-t15/a/topic")
        """
        await self._run(delete_path(account, topic_path(topic)))

    def subscribe(
        self, path: str = "", *, prefix: str = "", position: str = "", account: str = ""
    ) -> AsyncSubscription:  # fmt: skip
        """Follow the account, TENANT, TENANT/NAMESPACE or TENANT/NAMESPACE/TOPIC; or names of a namespace by a prefix.

        Yields the changes after `position`, the position of any response or change; without it, from the first request
        on. It continues after a restart of the node. Raises InventoryPositionLost if the log was truncated after the
        position, TenantNotFound, NamespaceNotFound, TopicNotFound, at the first read.

        >>> await client.inventory.subscribe("nobody").poll()
        Traceback (most recent call last):
        duramen.base.errors.TenantNotFound: there is no tenant nobody
        """
        return AsyncSubscription(self._run, path, prefix, position, account)

    async def search(
        self, scope: str = "", *, prefix: str = "", glob: str = "", pattern: str = "", label: str = "", kind: str = "",
        durability: str = "", policy: str = "", account: str = "",
    ) -> AsyncIterator[TopicInfo]:  # fmt: skip
        """Topics and aliases of TENANT/NAMESPACE, of TENANT or of all, in the order of their names.

        By `prefix`, by `glob` (`*`, `?`, `[abc]`) or by an RE2 `pattern` for whole names. `label`, KEY or KEY=VALUE, is
        one of the namespace or its tenant; `durability` is `sync` or `os`; `policy` is one that is set on the topic
        itself. `kind` is `topic`, `alias` or `dangling-alias`, those whose topics were deleted with their namespaces.
        Raises GlobInvalid, PatternInvalid, TenantNotFound, NamespaceNotFound.

        >>> [topic async for topic in client.inventory.search(prefix="there-is-none-like-this")]
        []
        """
        after: str | None = ""
        wanted = Filter(prefix, glob, pattern, label, kind, durability, policy)
        while after is not None:
            page = await self._run(search(account, scope, wanted, after, MOST_TOPICS))
            for topic in page.topics:
                yield topic
            after = page.next

    async def search_page(
        self, scope: str = "", *, prefix: str = "", glob: str = "", pattern: str = "", label: str = "", kind: str = "",
        durability: str = "", policy: str = "", after: str = "", limit: int = MOST_TOPICS, account: str = "",
    ) -> TopicPage:  # fmt: skip
        """One page of a search; a page may have fewer than `limit` topics before the last one. More in `search`.

        >>> (await client.inventory.search_page(glob="there-is-none-like-this*")).topics
        []
        """
        return await self._run(
            search(account, scope, Filter(prefix, glob, pattern, label, kind, durability, policy), after, limit)
        )

"""Inventory requests over HTTP and their results, for both clients. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import quote, urlencode

import msgspec

from duramen.base.errors import DuramenError
from duramen.client.api.arguments import flag, refused, several, text, whole
from duramen.client.api.http import Program, Question
from duramen.client.api.inventory.name_columns import ArrowColumns, has_columns, names_in_columns
from duramen.client.api.values import value_of
from duramen.client.http import path_of, problem_of

__all__ = [
    "MOST_TOPICS", "TENANTS", "AccountInfo", "CreatedNames", "Filter", "MovedTopics", "Names", "NamespaceInfo",
    "TenantInfo", "TopicInfo", "TopicPage", "create_names", "delete_path", "get_account", "get_namespace",
    "get_tenant", "get_topic", "get_topic_by_id", "list_accounts", "list_namespaces", "list_tenants", "lookup",
    "make_alias", "move_topic", "move_topics", "namespace_path", "query", "search", "tenant_path", "topic_path",
    "update_namespace", "update_tenant",
]  # fmt: skip

Names: TypeAlias = Iterable[str] | ArrowColumns
"""Names, or Arrow data with the column `name`."""

_NAMES_AT_ONCE: Final = 20_000
_LOOKUPS_AT_ONCE: Final = 1000
MOST_TOPICS: Final = 1000
"""Those of one page."""

TENANTS: Final = "/v1/tenants"


class TenantInfo(msgspec.Struct, frozen=True):
    """A tenant and its number of namespaces; one that was requested on its own has its number of `topics` too.

    `position` is, as in all responses, the position of each shard's view.

    >>> client.inventory.create_tenants(["acme"], labels={"team": "blue"})
    CreatedNames(...)
    >>> client.inventory.tenant("acme").labels
    {'team': 'blue'}
    """

    account: str
    name: str
    created_at_ms: int
    labels: dict[str, str]
    position: str = ""
    namespaces: int = 0
    topics: int | None = None


class AccountInfo(msgspec.Struct, frozen=True):
    """An account and the numbers of its tenants and namespaces; one that was requested on its own has `topics` too.

    >>> client.inventory.create_tenants(["pyxis"], account="stars")
    CreatedNames(...)
    >>> client.inventory.account("stars").tenants
    1
    """

    name: str
    tenants: int
    namespaces: int
    position: str = ""
    topics: int | None = None


class NamespaceInfo(msgspec.Struct, frozen=True):
    """A namespace and its number of topics.

    >>> client.inventory.create_tenants(["umbra"])
    CreatedNames(...)
    >>> client.inventory.create_namespaces("umbra", ["prod"])
    CreatedNames(...)
    >>> client.inventory.namespace("umbra/prod").topics
    0
    """

    tenant: str
    name: str
    topics: int
    created_at_ms: int
    labels: dict[str, str]
    subjects: list[str] = []
    position: str = ""


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic by its name or an alias. `id` never changes; `alias` is true if the name is an alias.

    For a topic that was requested on its own, `aliases` are its first hundred aliases, `topic` is the topic's own
    name if the requested name is an alias, and `durability` is `sync` or `os`.

    >>> TopicInfo("acme", "prod", "device-1", "00000614-fc2b-6060-2832-c90000000000").path
    'acme/prod/device-1'
    """

    tenant: str
    namespace: str
    name: str
    id: str
    alias: bool = False
    topic: dict[str, str] | None = None
    aliases: list[dict[str, str]] = []
    position: str = ""
    durability: str = ""

    @property
    def path(self) -> str:
        """TENANT/NAMESPACE/TOPIC.

        >>> TopicInfo("acme", "prod", "a/b", "00000614-fc2b-6060-2832-c90000000000").path
        'acme/prod/a/b'
        """
        return f"{self.tenant}/{self.namespace}/{self.name}"


class CreatedNames(NamedTuple):
    """The result of a creation: the number of new names, of existing ones, and the failures with their reasons.

    >>> client.inventory.create_tenants(["once", "once", "not this one"]).failed.keys()
    dict_keys(['not this one'])
    """

    created: int
    existing: int
    failed: Mapping[str, DuramenError]
    position: str = ""


class MovedTopics(NamedTuple):
    """The result of moves: the number of moved topics, and the failures by their old names.

    >>> MovedTopics(0, {}).moved
    0
    """

    moved: int
    failed: Mapping[str, DuramenError]
    position: str = ""


class TopicPage(NamedTuple):
    """Topics in the order of their names, and `after` of the next page; None on the last.

    >>> TopicPage([], None).next is None
    True
    """

    topics: Sequence[TopicInfo]
    next: str | None
    position: str = ""


def _batched(names: Iterable[str], size: int) -> Iterator[list[str]]:
    left = iter(names)
    while some := list(islice(left, size)):
        yield some


def query(account: str, **more: object) -> str:
    """The query of a path, of what is given."""
    asked = {name: value for name, value in {"account": text("account", account), **more}.items() if value}
    return f"?{urlencode(asked)}" if asked else ""


def tenant_path(tenant: str) -> str:
    """The path of a tenant."""
    if not text("tenant", tenant):
        raise refused("tenant", tenant, "the name of a tenant")
    return path_of("tenants", tenant)


def namespace_path(namespace: str) -> str:
    """The path of the namespace TENANT/NAMESPACE."""
    tenant, slash, name = text("namespace", namespace).partition("/")
    if not (tenant and slash and name) or "/" in name:
        raise refused("namespace", namespace, "TENANT/NAMESPACE")
    return f"{tenant_path(tenant)}/namespaces/{quote(name, safe='')}"


def _parts(path: str) -> tuple[str, str, str]:
    parts = text("topic", path).split("/", 2)
    if len(parts) != 3:
        raise refused("topic", path, "TENANT/NAMESPACE/TOPIC")
    return parts[0], parts[1], parts[2]


def topic_path(path: str) -> str:
    """The path of the topic TENANT/NAMESPACE/TOPIC."""
    tenant, namespace, name = _parts(path)
    return f"{namespace_path(f'{tenant}/{namespace}')}/topics/{quote(name, safe='')}"


def _path_body(path: str) -> dict[str, str]:
    return dict(zip(("tenant", "namespace", "name"), _parts(path), strict=True))


def create_names(
    path: str, names: Names, labels: Mapping[str, str] | None, progress: Callable[[int], object] | None
) -> Program[CreatedNames]:
    """Create tenants, namespaces or topics, a batch at a time."""
    if progress is not None and not callable(progress):
        raise refused("progress", progress, "a function")
    created, existing, failed, position = 0, 0, dict[str, DuramenError](), ""
    listed = (
        names_in_columns(names, failed)
        if has_columns(names)
        else several("names", "name", cast("Iterable[str]", names))
    )
    more: dict[str, object] = {} if labels is None else {"labels": _labels(labels)}
    for some in _batched(listed, _NAMES_AT_ONCE):
        body = {"names": _checked(some), **more}
        answer = value_of((yield Question("POST", path, body)), dict[str, Any])
        created += value_of(answer.get("created"), int)
        existing += value_of(answer.get("existing"), int)
        position = value_of(answer.get("position"), str)
        failed |= {one["name"]: problem_of(one["problem"]) for one in answer.get("failed", [])}
        if progress is not None:
            progress(len(some))
    return CreatedNames(created, existing, failed, position)


def _checked(names: list[str]) -> list[str]:
    """Names that can be sent; those of a wrong length, for example, are refused by the node one by one."""
    try:
        "".join(names).encode()
    except (TypeError, UnicodeEncodeError):
        for name in names:
            text("name", name)
    return names


def _labels(labels: object) -> dict[str, str]:
    if not isinstance(labels, Mapping):
        raise refused("labels", labels, "a mapping of str to str")
    return {text("a name in labels", name): text(f"labels[{name!r}]", value) for name, value in labels.items()}


class Filter(NamedTuple):
    """Which names are found: by prefix, by glob or by an RE2 pattern for whole names, and by a label.

    The others are for topics only: see `Inventory.search`.
    """

    prefix: str = ""
    glob: str = ""
    pattern: str = ""
    label: str = ""
    kind: str = ""
    durability: str = ""
    policy: str = ""

    def asked(self) -> dict[str, str]:
        """The parameters of a query."""
        return {name: text(name, value) for name, value in self._asdict().items()}


def _listed(path: str, key: str, account: str, wanted: Filter) -> Program[list[dict[str, Any]]]:
    found, after = list[dict[str, Any]](), ""
    while True:
        asked = query(account, **wanted.asked(), after=after)
        page = value_of((yield Question("GET", path + asked)), dict[str, Any])
        found += value_of(page.get(key, []), list[dict[str, Any]])
        after = page.get("next") or ""
        if not after:
            return found


def list_accounts(wanted: Filter) -> Program[list[AccountInfo]]:
    """Accounts by name."""
    return value_of((yield from _listed("/v1/accounts", "accounts", "", wanted)), list[AccountInfo])


def get_account(account: str) -> Program[AccountInfo]:
    """An account."""
    return value_of((yield Question("GET", path_of("accounts", text("account", account)))), AccountInfo)


def list_tenants(account: str, wanted: Filter) -> Program[list[TenantInfo]]:
    """Tenants by name."""
    return value_of((yield from _listed(TENANTS, "tenants", account, wanted)), list[TenantInfo])


def list_namespaces(account: str, tenant: str, wanted: Filter) -> Program[list[NamespaceInfo]]:
    """Namespaces of a tenant, or of all, by name."""
    path = f"{tenant_path(tenant)}/namespaces" if tenant else "/v1/namespaces"
    return value_of((yield from _listed(path, "namespaces", account, wanted)), list[NamespaceInfo])


def get_tenant(account: str, tenant: str) -> Program[TenantInfo]:
    """A tenant."""
    return value_of((yield Question("GET", tenant_path(tenant) + query(account))), TenantInfo)


def get_namespace(account: str, namespace: str) -> Program[NamespaceInfo]:
    """A namespace."""
    return value_of((yield Question("GET", namespace_path(namespace) + query(account))), NamespaceInfo)


def update_tenant(account: str, tenant: str, name: str | None, labels: Mapping[str, str] | None) -> Program[TenantInfo]:
    """Change the name or the labels of a tenant."""
    body = {"name": None if name is None else text("name", name), "labels": None if labels is None else _labels(labels)}
    return value_of((yield Question("PATCH", tenant_path(tenant) + query(account), body)), TenantInfo)


def update_namespace(
    account: str, namespace: str, to: str | None, labels: Mapping[str, str] | None, subjects: Iterable[str] | None
) -> Program[NamespaceInfo]:
    """Change the names, labels or subjects of a namespace."""
    body: dict[str, object] = {"labels": None if labels is None else _labels(labels)}
    if subjects is not None:
        body["subjects"] = [text("a subject", subject) for subject in several("subjects", "subject", subjects)]
    if to is not None:
        namespace_path(to)
        body["tenant"], _, body["name"] = to.partition("/")
    return value_of((yield Question("PATCH", namespace_path(namespace) + query(account), body)), NamespaceInfo)


def delete_path(account: str, path: str) -> Program[None]:
    """Delete the entity at a path."""
    yield Question("DELETE", path + query(account))


def get_topic(account: str, path: str) -> Program[TopicInfo]:
    """A topic."""
    return value_of((yield Question("GET", topic_path(path) + query(account))), TopicInfo)


def get_topic_by_id(lasting_id: str) -> Program[TopicInfo]:
    """A topic by its id."""
    return value_of((yield Question("GET", path_of("topics", text("id", str(lasting_id))))), TopicInfo)


def lookup(account: str, namespace: str, names: Iterable[str]) -> Program[list[TopicInfo | None]]:
    """The topics of names."""
    found = list[TopicInfo | None]()
    for some in _batched(several("names", "name", names), _LOOKUPS_AT_ONCE):
        body = {"names": [text("name", name) for name in some]}
        answer = yield Question("POST", f"{namespace_path(namespace)}/lookup{query(account)}", body)
        found += value_of(value_of(answer, dict[str, Any]).get("topics"), list[TopicInfo | None])
    return found


def move_topic(account: str, path: str, to: str, *, keep_alias: bool) -> Program[TopicInfo]:
    """Change the path of a topic."""
    body = {**_path_body(to), "keep_alias": flag("keep_alias", keep_alias)}
    return value_of((yield Question("PATCH", topic_path(path) + query(account), body)), TopicInfo)


def move_topics(account: str, namespace: str, moves: Mapping[str, str], *, keep_alias: bool) -> Program[MovedTopics]:
    """Change the paths of topics, a batch at a time."""
    path = f"{namespace_path(namespace)}/moves{query(account)}"
    moved, failed, position = 0, dict[str, DuramenError](), ""
    flag("keep_alias", keep_alias)
    if not isinstance(moves, Mapping):
        raise refused("moves", moves, "a mapping of names to TENANT/NAMESPACE/TOPIC")
    for some in _batched(moves, _LOOKUPS_AT_ONCE):
        bodies = [
            {"name": text("name", name), "to": {**_path_body(moves[name]), "keep_alias": keep_alias}} for name in some
        ]
        answer = value_of((yield Question("POST", path, {"moves": bodies})), dict[str, Any])
        moved += value_of(answer.get("moved"), int)
        position = value_of(answer.get("position"), str)
        failed |= {one["name"]: problem_of(one["problem"]) for one in answer.get("failed", [])}
    return MovedTopics(moved, failed, position)


def make_alias(account: str, path: str, topic: str) -> Program[TopicInfo]:
    """Create an alias of a topic."""
    tenant, namespace, name = _parts(path)
    body = {"name": name, "topic": _path_body(topic)}
    question = Question("POST", f"{namespace_path(f'{tenant}/{namespace}')}/aliases{query(account)}", body)
    return value_of((yield question), TopicInfo)


def search(account: str, scope: str, wanted: Filter, after: str, limit: int) -> Program[TopicPage]:
    """A page of topics."""
    tenant, slash, namespace = text("scope", scope).partition("/")
    if "/" in namespace or (slash and not (tenant and namespace)):
        raise refused("scope", scope, "TENANT or TENANT/NAMESPACE")
    asked = query(
        account, tenant=tenant, namespace=namespace, **wanted.asked(),
        after=text("after", after), limit=whole("limit", limit, 1, MOST_TOPICS),
    )  # fmt: skip
    answer = value_of((yield Question("GET", f"/v1/topics{asked}")), dict[str, Any])
    return TopicPage(
        value_of(answer.get("topics"), list[TopicInfo]), answer.get("next"), value_of(answer.get("position"), str)
    )

"""Accounts of the inventory, and pages and counts of accounts, tenants and namespaces."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from duramen.base import errors
from duramen.coordinators.inventory.inventory import Inventory
from duramen.doors.completion import completion
from duramen.doors.http.completions import call_back
from duramen.doors.http.serving.routes import Call, HttpRoute, on_cluster
from duramen.doors.http.types.inventory import AccountInfo, AccountList, NamesQuery, PositionQuery
from duramen.inventory.events import Labels, NamespacePut
from duramen.inventory.search import PageToken, TopicQuery, check_query, page_token, read_token
from duramen.service.authorize import Operation

__all__ = ["ROUTES", "PartGroups", "account_of", "count_topics", "part_page", "see_position"]

T = TypeVar("T")

PartGroups = Iterable[tuple[str, Callable[[str], Iterator[T]]]]
"""Parts with a common tenant: its name, or nothing; and a function that yields the parts by name, from a name on."""

_SCANNED: Final = 10_000  # of one page
_COUNTED_AT_ONCE: Final = 100  # namespaces, before others get their turn: some milliseconds


class _AccountQuery(Protocol):
    account: str
    position: str


async def see_position(call: Call, position: str) -> None:
    """Let later reads of this node be no older than a position of an earlier response. Raises RequestInvalid."""
    await completion(partial(call.broker.inventory.see, position))


async def account_of(call: Call, query: _AccountQuery) -> str:
    """The account of a request, which sees the position that it names. Raises RequestInvalid."""
    await see_position(call, query.position)
    return query.account or call.broker.settings.text("inventory.account")


def part_page(
    groups: Callable[[str], PartGroups[T]], name: Callable[[T], str], labels: Callable[[T], Labels],
    query: NamesQuery, scope: str, label: str = "",
) -> tuple[list[T], str | None]:  # fmt: skip
    """A page of parts, and its token; `groups` are those from a tenant on.

    Raises PageTokenInvalid, PatternInvalid, GlobInvalid, RequestInvalid.
    """
    wanted = TopicQuery(query.prefix, query.glob, query.pattern, label)
    check_query(wanted)
    token = read_token(query.after, scope, wanted)
    behind, found, scanned = (token.tenant, token.namespace), list[T](), 0
    (first, end), matches = wanted.bounds(), wanted.matcher()
    for tenant, parts in groups(token.tenant):
        begins = max(first.decode(errors="replace"), token.namespace if tenant == token.tenant else "")
        for part in parts(begins):
            here = (tenant, name(part))
            if end is not None and here[1].encode() >= end:
                break
            if here <= behind:
                continue
            if len(found) == query.limit or scanned == _SCANNED:
                return found, page_token(scope, wanted, PageToken(*behind))
            behind, scanned = here, scanned + 1
            if (matches is None or matches(here[1])) and wanted.has_label(labels(part)):
                found.append(part)
    return found, None


async def count_topics(call: Call, namespaces: Sequence[NamespacePut]) -> int:
    """The number of topics in namespaces. Of more than a hundred namespaces it is not as of one moment."""
    inventory, total = call.broker.inventory, 0
    for at in range(0, len(namespaces), _COUNTED_AT_ONCE):
        some = namespaces[at : at + _COUNTED_AT_ONCE]

        def count(some: Sequence[NamespacePut] = some) -> int:
            return sum(map(inventory.count, some))

        counted: int = await call_back(partial(inventory.read, count))
        total += counted
    return total


def _info(inventory: Inventory, account: str) -> AccountInfo:
    tenants = [*inventory.tenants(account, "")]
    namespaces = sum(map(inventory.count_namespaces, tenants))
    return AccountInfo(account, len(tenants), namespaces, inventory.position)


async def _list(call: Call, query: NamesQuery) -> AccountList:
    inventory = call.broker.inventory
    await see_position(call, query.position)

    def read() -> AccountList:
        there = inventory.accounts()
        groups = [("", lambda first: iter([one for one in there if one >= first]))]
        page, following = part_page(lambda _: groups, str, lambda _: {}, query, "accounts")
        return AccountList([_info(inventory, one) for one in page], following, inventory.position)

    return await call_back(partial(inventory.read, read))


async def _show(call: Call, query: PositionQuery) -> AccountInfo:
    inventory, account = call.broker.inventory, call.path["account"]
    await see_position(call, query.position)

    def read() -> tuple[AccountInfo, list[NamespacePut]]:
        if account not in inventory.accounts():
            raise errors.AccountNotFound(f"no tenant and no policy is in an account {account[:80]}")
        namespaces = [one for tenant in inventory.tenants(account, "") for one in inventory.namespaces(tenant, "")]
        return _info(inventory, account), namespaces

    found: tuple[AccountInfo, list[NamespacePut]] = await call_back(partial(inventory.read, read))
    found[0].topics = await count_topics(call, found[1])
    return found[0]


_READING: Final = (errors.CoordinatorLoading, errors.NotCoordinator, errors.RequestInvalid)
_SHOWN: Final = on_cluster(Operation.DESCRIBE)

ROUTES = (
    HttpRoute(
        "GET", "/v1/accounts", _list, _SHOWN, "Accounts by name, page by page",
        (*_READING, errors.GlobInvalid, errors.PatternInvalid, errors.PageTokenInvalid),
    ),
    HttpRoute(
        "GET", "/v1/accounts/{account}", _show, _SHOWN,
        "One account and the numbers of its tenants, namespaces and topics",
        (*_READING, errors.AccountNotFound),
    ),
)  # fmt: skip

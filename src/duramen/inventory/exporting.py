"""Pages of all topics that a shard has created, as stored in its view, and the directory. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from duramen.base.ports import StateRows
from duramen.base.settings import config_text
from duramen.codec.exports import FIRST_SEQUENCES, TopicsPage
from duramen.inventory.directory import Directory
from duramen.inventory.events import NamespacePut, Policies, TenantPut
from duramen.inventory.policies import read_policies
from duramen.inventory.rows import (
    body_key,
    body_row,
    names_of_body,
    next_sequence,
    place_key,
    place_of,
    topic_policies_key,
)

__all__ = ["DirectoryExport", "directory_export", "next_sequences", "topics_page"]

_MOST_TOPICS: Final = 500_000


class DirectoryExport(NamedTuple):
    """All tenants and namespaces."""

    tenants: list[TenantPut]
    namespaces: list[NamespacePut]
    tenant_policies: list[dict[str, str]]
    """The effective policies of each tenant."""
    namespace_policies: list[dict[str, str]]
    """The effective policies of each namespace."""


def topics_page(
    rows: StateRows, first: int, end: int, max_bytes: int, *, names: bool = True, policies: bool = False
) -> TopicsPage:  # fmt: skip
    """Some of the topics that were created together up to a sequence with `first <= sequence < end`.

    Without `names` it has only those of moved topics, and without `policies` none of these.
    """
    page = TopicsPage([], [], [], [], [], [], [], None, [], [])
    size = topics = 0
    for key, value in rows.scan(body_key(first), body_key(end)):
        if size >= max_bytes or topics >= _MOST_TOPICS:
            page = page._replace(after=page.lasts[-1])
            break
        last, namespace, count, body = body_row(key, value)
        page.lasts.append(last)
        page.namespaces.append(namespace)
        page.counts.append(count)
        if names:
            packed = names_of_body(rows, namespace, count, body)
            page.bodies.append(packed)
            size += len(packed)
        size += len(key)
        topics += count
    if page.lasts:
        begin = page.lasts[0] - page.counts[0] + 1
        for key, value in rows.scan(place_key(begin), place_key(page.lasts[-1] + 1)):
            namespace, name = place_of(value)
            page.moved.append(int.from_bytes(key[1:], "big"))
            page.moved_namespaces.append(namespace)
            page.moved_names.append(name)
        first_key, end_key = topic_policies_key(begin), topic_policies_key(page.lasts[-1] + 1)
        for key, value in rows.scan(first_key, end_key) if policies else ():
            page.with_policies.append(int.from_bytes(key[1:], "big"))
            page.own_policies.append(_in_force([read_policies(value)]))
    return page


def _in_force(chain: Iterable[Policies]) -> dict[str, str]:
    """The nearest value of each policy, as text; `chain` has the policies by level, the nearest first."""
    found = dict[str, bool | int | str]()
    for own in chain:
        found = own | found
    return {name: config_text(value) for name, value in sorted(found.items())}


def next_sequences(rows: StateRows) -> dict[str, int]:
    """The end of the sequences of a shard's topics, by their durability."""
    return {durability: next_sequence(rows, durability) for durability in FIRST_SEQUENCES}


def directory_export(rows: StateRows) -> DirectoryExport:
    """The tenants and namespaces in the rows of shard 0."""
    found = Directory()
    found.load(rows)
    tenants, namespaces = found.every_tenant(), found.every_namespace()
    of_tenants = [found.policies.chain(0, one.id, one.account) for one in tenants]
    of_namespaces = [found.policies_of(one.id) for one in namespaces]
    return DirectoryExport(
        tenants, namespaces,
        [_in_force(own for _, own in chain) for chain in of_tenants],
        [_in_force(own for _, own in chain) for chain in of_namespaces],
    )  # fmt: skip

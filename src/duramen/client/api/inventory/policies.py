"""Policies of the inventory over HTTP, for both clients."""

from collections.abc import Awaitable, Mapping
from typing import Protocol, TypeVar

from duramen.client.api.http import Program
from duramen.client.api.inventory.policy_requests import PoliciesInfo, get_policies, set_policies

__all__ = ["AsyncPolicies", "Policies"]

_T = TypeVar("_T")


class _Run(Protocol):
    def __call__(self, program: Program[_T]) -> _T: ...


class _RunAsync(Protocol):
    def __call__(self, program: Program[_T]) -> Awaitable[_T]: ...


class Policies:
    """Policies: `client.inventory.policies`. A path is TENANT, TENANT/NAMESPACE or TENANT/NAMESPACE/TOPIC.

    An empty path is the account.

    >>> inventory = client.inventory
    >>> inventory.create_tenants(["p1"]), inventory.create_namespaces("p1", ["prod"])
    (CreatedNames(created=1, ...), CreatedNames(created=1, ...))
    >>> inventory.policies.set("p1", {"quota.topics": 1000}).own
    {'quota.topics': 1000}
    >>> inventory.policies.describe("p1/prod").effective["quota.topics"]
    PolicyInfo(value=1000, source='tenant')
    """

    def __init__(self, run: _Run) -> None:
        self._run = run

    def describe(self, path: str = "", *, account: str = "") -> PoliciesInfo:
        """Own and effective policies, the levels at which they are set, and the use of quotas.

        Raises TenantNotFound, NamespaceNotFound, TopicNotFound.

        >>> client.inventory.policies.describe("nobody")
        Traceback (most recent call last):
        duramen.base.errors.TenantNotFound: there is no tenant nobody
        """
        return self._run(get_policies(account, path))

    def set(
        self, path: str, policies: Mapping[str, bool | int | str | None], *, wait_effective: bool = False,
        account: str = "",
    ) -> PoliciesInfo:  # fmt: skip
        """Set policies; None removes one, so that the inherited value applies.

        With `wait_effective` it returns once every node that follows the inventory has confirmed the change. Raises
        PolicyInvalid, PolicyNotEffective, TenantNotFound, NamespaceNotFound, TopicNotFound.

        >>> client.inventory.policies.set("", {"quota.topics": -1})
        Traceback (most recent call last):
        duramen.base.errors.PolicyInvalid: quota.topics: -1 does not fit; it must be a whole number, at least 0
        """
        return self._run(set_policies(account, path, policies, wait_effective=wait_effective))


class AsyncPolicies:
    """Policies: `client.inventory.policies`. A path is TENANT, TENANT/NAMESPACE or TENANT/NAMESPACE/TOPIC.

    An empty path is the account. More in `duramen.client.api.inventory.policies.Policies`.

    >>> (await client.inventory.policies.describe()).level
    'account'
    """

    def __init__(self, run: _RunAsync) -> None:
        self._run = run

    async def describe(self, path: str = "", *, account: str = "") -> PoliciesInfo:
        """Own and effective policies, the levels at which they are set, and the use of quotas.

        Raises TenantNotFound, NamespaceNotFound, TopicNotFound.

        >>> await client.inventory.policies.describe("nobody")
        Traceback (most recent call last):
        duramen.base.errors.TenantNotFound: there is no tenant nobody
        """
        return await self._run(get_policies(account, path))

    async def set(
        self, path: str, policies: Mapping[str, bool | int | str | None], *, wait_effective: bool = False,
        account: str = "",
    ) -> PoliciesInfo:  # fmt: skip
        """Set policies; None removes one, so that the inherited value applies.

        With `wait_effective` it returns once every node that follows the inventory has confirmed the change. Raises
        PolicyInvalid, PolicyNotEffective, TenantNotFound, NamespaceNotFound, TopicNotFound.

        >>> await client.inventory.policies.set("", {"quota.topics": -1})
        Traceback (most recent call last):
        duramen.base.errors.PolicyInvalid: quota.topics: -1 does not fit; it must be a whole number, at least 0
        """
        return await self._run(set_policies(account, path, policies, wait_effective=wait_effective))

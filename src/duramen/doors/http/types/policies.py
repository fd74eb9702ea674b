"""Policies of the inventory, as JSON."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

__all__ = ["PoliciesInfo", "PoliciesRequest", "PolicyInfo", "PolicyQuery", "QuotaInfo", "SetPoliciesQuery"]

_LONGEST_WAIT_MS: Final = 60_000
_WAIT_MS: Final = 10_000

_Account = Annotated[str, Meta(min_length=1, description="The account; without it the node's `inventory.account`")]
_Level = Annotated[str, Meta(description="`account`, `tenant`, `namespace` or `topic`")]
_Position = Annotated[str, Meta(description="The `position` of an earlier response: this one is at least as new")]


class PolicyQuery(msgspec.Struct):
    """Whose policies are meant."""

    account: _Account = ""
    position: _Position = ""


class SetPoliciesQuery(msgspec.Struct):
    """The owner of the policies, and the position to wait for."""

    account: _Account = ""
    position: _Position = ""
    wait: (
        Annotated[
            Literal["effective"],
            Meta(
                description="`effective`: respond once every node that follows the inventory has confirmed the change"
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    wait_ms: Annotated[int, Meta(ge=0, le=_LONGEST_WAIT_MS, description="How long to wait for the nodes")] = _WAIT_MS


class PoliciesRequest(msgspec.Struct, forbid_unknown_fields=True):
    """New values of policies by name; null removes one, so that the inherited value applies."""

    policies: Annotated[dict[str, bool | int | str | None], Meta(min_length=1)]


class PolicyInfo(msgspec.Struct):
    """The effective value of a policy (null: no limit), and the level at which it is set."""

    value: bool | int | str | None
    source: Annotated[str, Meta(description="`account`, `tenant`, `namespace`, `topic` or `default`")]


class QuotaInfo(msgspec.Struct):
    """A quota that applies here; it limits everything in the entity on which it is set.

    `used` is in the unit of `limit`.
    """

    policy: str
    source: _Level
    limit: int
    used: int


class PoliciesInfo(msgspec.Struct):
    """Policies of an account, a tenant, a namespace or a topic.

    `own` are the policies set on it, `effective` all that apply, including inherited ones. All `quotas` apply, not only
    the nearest. `confirmed` are the nodes that apply the change, if the request waited for them.
    """

    level: _Level
    own: dict[str, bool | int | str]
    effective: dict[str, PolicyInfo]
    quotas: list[QuotaInfo]
    position: str
    confirmed: list[int] | msgspec.UnsetType = msgspec.UNSET

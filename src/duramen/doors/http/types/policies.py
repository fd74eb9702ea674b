"""Policies of the inventory, as JSON."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

__all__ = ["PoliciesInfo", "PoliciesWish", "PolicyInfo", "PolicyQuery", "QuotaInfo", "SetPoliciesQuery"]

_LONGEST_WAIT_MS: Final = 60_000
_WAIT_MS: Final = 10_000

_Account = Annotated[str, Meta(description="The account; without it the node's `inventory.account`")]
_Level = Annotated[str, Meta(description="`account`, `tenant`, `namespace` or `topic`")]


class PolicyQuery(msgspec.Struct):
    """Whose policies are meant."""

    account: _Account = ""


class SetPoliciesQuery(msgspec.Struct):
    """Whose policies are meant, and what is waited for."""

    account: _Account = ""
    wait: Annotated[
        Literal["", "effective"],
        Meta(description="`effective`: answer once every node that follows the metadata has confirmed the change"),
    ] = ""
    wait_ms: Annotated[int, Meta(ge=0, le=_LONGEST_WAIT_MS, description="How long nodes are waited for")] = _WAIT_MS


class PoliciesWish(msgspec.Struct, forbid_unknown_fields=True):
    """New values of policies by name; null removes one, so that what is inherited counts."""

    policies: Annotated[dict[str, bool | int | str | None], Meta(min_length=1)]


class PolicyInfo(msgspec.Struct):
    """The value of a policy that counts, null without a bound, and the level at which it is set."""

    value: bool | int | str | None
    source: Annotated[str, Meta(description="`account`, `tenant`, `namespace`, `topic` or `default`")]


class QuotaInfo(msgspec.Struct):
    """A quota that bounds this: all that is in what it is set on. `used` is in the unit of the limit."""

    policy: str
    source: _Level
    limit: int
    used: int


class PoliciesInfo(msgspec.Struct):
    """Policies of an account, a tenant, a namespace or a topic.

    `own` are those that are set on it, `effective` those that count, inherited ones too. All `quotas` count, not only
    the nearest. `confirmed` are the nodes on which a change counts, where that was waited for.
    """

    level: _Level
    own: dict[str, bool | int | str]
    effective: dict[str, PolicyInfo]
    quotas: list[QuotaInfo]
    position: str
    confirmed: list[int] | msgspec.UnsetType = msgspec.UNSET

"""Steps about classic groups: one member each, so that no answer waits for another."""

from typing import Any, Final

from tests.differential.committing import offsets
from tests.differential.drawing import Drawing, Making, Step
from tests.differential.peer import Peer, Symbol

from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey

__all__ = ["Groups"]

_REBALANCE_MS: Final = 1000
"""So long a new member waits for one that does not come again."""
_PROTOCOL: Final = b"\0\0\0\0\0\1\0\5alpha\xff\xff\xff\xff"


class Groups:
    """Draws them."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw

    def making(self) -> list[Making]:
        """The steps of this family."""
        return [
            (4, self._join), (5, self._enter), (4, self._sync), (4, self._heartbeat), (2, self._leave),
            (6, self._commit), (6, self._fetch_offsets), (3, self._describe_groups), (3, self._list_groups),
            (2, self._delete_groups), (2, self._find_coordinator),
        ]  # fmt: skip

    def _member(self, group: str) -> Any:
        return Symbol("member_id", group) if self._draw.often() else self._draw.one("", "nobody")

    def _generation(self, group: str) -> Any:
        return Symbol("generation", group) if self._draw.often() else self._draw.one(-1, 0, 99)

    def _join(self) -> Step:
        group = self._draw.group("")
        wish = {
            "group_id": group, "session_timeout_ms": 300_000 if self._draw.often() else self._draw.one(1, 1 << 30),
            "rebalance_timeout_ms": _REBALANCE_MS, "member_id": self._member(group),
            "protocol_type": "consumer" if self._draw.often() else "",
            "protocols": [{"name": "range", "metadata": _PROTOCOL}] if self._draw.often() else [],
        }  # fmt: skip
        version = self._draw.version(ApiKey.JOIN_GROUP, 1)
        simple = {"group_id": group, "topics": offsets(self._draw)}

        def finish(peer: Peer, answer: dict[str, Any]) -> dict[str, Any]:
            """Whoever has joined is soon given up unless it syncs: what it may do until then, and how it leaves."""
            _learn(peer, group, answer)
            if answer["error_code"]:
                return answer
            member, generation = answer["member_id"], answer["generation_id"]
            wishes = {
                ApiKey.DESCRIBE_GROUPS: {"groups": [group]},
                ApiKey.HEARTBEAT: {"group_id": group, "generation_id": generation, "member_id": member},
                ApiKey.OFFSET_COMMIT: {
                    **simple, "generation_id_or_member_epoch": generation, "member_id": member,
                },
                ApiKey.LEAVE_GROUP: {"group_id": group, "member_id": member},
            }  # fmt: skip
            return {**answer, "then": [peer.ask(api, 2, then) for api, then in wishes.items()]}

        return Step(ApiKey.JOIN_GROUP, version, wish, finish=finish)

    def _enter(self) -> Step:
        """Join, and all that follows until the group is stable: between two other steps a rebalance would end."""
        group = self._draw.one(*self._draw.groups)
        wish = {
            "group_id": group, "session_timeout_ms": 300_000, "rebalance_timeout_ms": _REBALANCE_MS,
            "member_id": Symbol("member_id", group) if self._draw.sometimes(0.5) else "", "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": _PROTOCOL}],
        }  # fmt: skip
        version = self._draw.version(ApiKey.JOIN_GROUP, 1)

        def finish(peer: Peer, answer: dict[str, Any]) -> dict[str, Any]:
            if answer["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID:
                answer = peer.ask(ApiKey.JOIN_GROUP, version, {**wish, "member_id": ""})
            if answer["error_code"] == ErrorCode.MEMBER_ID_REQUIRED:
                answer = peer.ask(ApiKey.JOIN_GROUP, version, {**wish, "member_id": answer["member_id"]})
            _learn(peer, group, answer)
            if answer["error_code"]:
                return answer
            member = answer["member_id"]
            brought = {
                "group_id": group, "generation_id": answer["generation_id"], "member_id": member,
                "assignments": [{"member_id": member, "assignment": b"mine"}],
            }  # fmt: skip
            return {**answer, "synced": peer.ask(ApiKey.SYNC_GROUP, 4, brought)}

        return Step(ApiKey.JOIN_GROUP, version, wish, finish=finish)

    def _sync(self) -> Step:
        group = self._draw.group()
        member = self._member(group)
        wish = {
            "group_id": group, "generation_id": self._generation(group), "member_id": member,
            "protocol_type": self._draw.one("consumer", None), "protocol_name": self._draw.one("range", None),
            "assignments": [{"member_id": member, "assignment": b"mine"}],
        }  # fmt: skip
        return Step(ApiKey.SYNC_GROUP, self._draw.version(ApiKey.SYNC_GROUP), wish)

    def _heartbeat(self) -> Step:
        group = self._draw.group()
        wish = {"group_id": group, "generation_id": self._generation(group), "member_id": self._member(group)}
        return Step(ApiKey.HEARTBEAT, self._draw.version(ApiKey.HEARTBEAT), wish)

    def _leave(self) -> Step:
        group = self._draw.group()
        member = self._member(group)
        version = self._draw.version(ApiKey.LEAVE_GROUP)
        wish = {"group_id": group, "member_id": member, "members": [{"member_id": member}]}
        return Step(ApiKey.LEAVE_GROUP, version, wish)

    def _commit(self) -> Step:
        group = self._draw.group("", "g3")
        simple = self._draw.sometimes(0.4)
        wish = {
            "group_id": group, "generation_id_or_member_epoch": -1 if simple else self._generation(group),
            "member_id": "" if simple else self._member(group), "topics": offsets(self._draw),
        }  # fmt: skip
        return Step(ApiKey.OFFSET_COMMIT, self._draw.version(ApiKey.OFFSET_COMMIT), wish)

    def _fetch_offsets(self) -> Step:
        version = self._draw.version(ApiKey.OFFSET_FETCH)
        group = self._draw.group("", "g3")
        topics = [{"name": self._draw.name(), "partition_indexes": [0, self._draw.partition()]}]
        if version >= 8:
            wish: dict[str, Any] = {"groups": [{"group_id": group, "topics": topics}]}
        else:
            wish = {"group_id": group, "topics": topics}
        return Step(ApiKey.OFFSET_FETCH, version, wish | {"require_stable": False})

    def _describe_groups(self) -> Step:
        group = self._draw.group("g3")
        return Step(ApiKey.DESCRIBE_GROUPS, self._draw.version(ApiKey.DESCRIBE_GROUPS), {"groups": [group]})

    def _list_groups(self) -> Step:
        version = self._draw.version(ApiKey.LIST_GROUPS)
        states = self._draw.one([], [], ["Stable"], ["Empty", "Dead"], ["nonsense"], ["empty"], ["Stable", "nonsense"])
        types = self._draw.one([], [], [], ["classic"], ["Consumer", "share"], ["nonsense"])
        return Step(ApiKey.LIST_GROUPS, version, {"states_filter": states, "types_filter": types})

    def _delete_groups(self) -> Step:
        groups = [self._draw.one(*self._draw.groups, "g3", "")]
        if self._draw.sometimes(0.3):
            groups.append(self._draw.one(*self._draw.groups, "g3"))
        return Step(ApiKey.DELETE_GROUPS, self._draw.version(ApiKey.DELETE_GROUPS), {"groups_names": groups})

    def _find_coordinator(self) -> Step:
        version = self._draw.version(ApiKey.FIND_COORDINATOR)
        kind = self._draw.one(0, 0, 1, 9) if version else 0
        keys = (
            {"coordinator_keys": [self._draw.one("g1", "t1")]} if version >= 4 else {"key": self._draw.one("g1", "t1")}
        )
        return Step(ApiKey.FIND_COORDINATOR, version, keys | {"key_type": kind})


def _learn(peer: Peer, group: str, answer: dict[str, Any]) -> None:
    if answer["error_code"] in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
        peer.learn(Symbol("member_id", group), answer["member_id"])
    if answer["error_code"] == ErrorCode.NONE:
        peer.learn(Symbol("generation", group), answer["generation_id"])

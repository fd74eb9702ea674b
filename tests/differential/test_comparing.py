"""What the comparison takes for deliberate: the difference that is meant, and none beside it."""

from typing import Any

import pytest
from tests.differential.comparing import differences

_SHARE: dict[str, Any] = {"group_id": "s1-4", "protocol_type": "share", "group_state": "Empty", "group_type": "share"}
_CLASSIC: dict[str, Any] = {
    "group_id": "g1", "protocol_type": "consumer", "group_state": "Stable", "group_type": "classic",
}  # fmt: skip


def _found(api: str, ours: Any, theirs: Any, asked: object = "") -> list[tuple[str, bool]]:
    return [(one.path, one.deliberate) for one in differences(api, str(asked), ours, theirs)]


@pytest.mark.parametrize(
    ("more", "deliberate"),
    [
        (_SHARE, True), (_SHARE | {"group_id": "f1-4"}, False), (_SHARE | {"group_state": "Stable"}, False),
        (_CLASSIC | {"protocol_type": ""}, True), (_CLASSIC, False),
    ],
)  # fmt: skip
def test_a_group_that_only_one_lists(more: dict[str, Any], deliberate: bool) -> None:
    both = [_CLASSIC | {"group_id": "g2"}]
    found = _found("ListGroups", {"groups": both}, {"groups": [more, *both]})
    assert found == [(f"groups[{more['group_id']}]", deliberate)]


@pytest.mark.parametrize(("more", "deliberate"), [(_SHARE, True), (_CLASSIC, False)])
def test_a_group_that_is_all_that_one_lists(more: dict[str, Any], deliberate: bool) -> None:
    found = [(f"groups[{more['group_id']}]", deliberate)]
    assert _found("ListGroups", {"groups": []}, {"groups": [more]}) == found
    assert _found("ListGroups", {"groups": [more]}, {"groups": []}) == [(found[0][0], False)]
    assert _found("ListGroups", {"groups": []}, {"groups": [1]}) == [("groups", False)]


def test_a_group_that_both_list_differs_by_itself() -> None:
    ours, theirs = {"groups": [_CLASSIC]}, {"groups": [_CLASSIC | {"group_state": "Empty"}, _SHARE]}
    assert _found("ListGroups", ours, theirs) == [("groups[g1].group_state", False), ("groups[s1-4]", True)]


@pytest.mark.parametrize(
    ("ours", "theirs", "deliberate"),
    [(3, 5, True), (0, 5, False), (5, 0, False), (-1, 5, False)],
)
def test_epochs_of_members_of_share_groups_count_otherwise(ours: int, theirs: int, deliberate: bool) -> None:
    found = _found("ShareGroupHeartbeat", {"member_epoch": ours}, {"member_epoch": theirs})
    assert found == [("member_epoch", deliberate)]


def test_an_assignment_of_a_share_group_is_compared() -> None:
    places = [{"topic_partitions": [{"topic_id": "t", "partitions": [index]}]} for index in (0, 1)]
    found = _found("ShareGroupHeartbeat", {"assignment": places[0]}, {"assignment": places[1]})
    assert found == [("assignment.topic_partitions[0].partitions[0]", False)]


def test_offsets_are_deleted_alike_where_the_group_is_there() -> None:
    asked = {"group_id": "g1", "topics": []}
    topics = [{"name": "alpha", "partitions": [{"partition_index": 0, "error_code": 0}]}]
    kept = {"error_code": 0, "topics": topics}
    assert _found("OffsetDelete", {"error_code": 69, "topics": []}, kept, asked) == [("", True)]
    assert _found("OffsetDelete", {"error_code": 0, "topics": []}, kept, asked) == [("topics[alpha]", False)]


def test_a_share_session_without_a_group() -> None:
    refused, taken = {"error_code": 42, "responses": []}, {"error_code": 0, "responses": []}
    for group, deliberate in (("", True), ("f1", False)):
        found = _found("ShareFetch", refused, taken, {"group_id": group, "member_id": "m"})
        assert found == [("" if deliberate else "error_code", deliberate)]

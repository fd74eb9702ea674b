"""Kafka's names of APIs and errors, as people write them; errors as another library numbers them."""

import pytest
from tests.untyped import untyped

from duramen.base.errors import RequestInvalid
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.names import api_name, find_api, find_code
from duramen.codec.kafka.versions import ApiKey


def test_numbers_are_those_that_another_library_has() -> None:
    base = untyped("kafka.errors").BrokerResponseError
    theirs = {one.errno: one.message for one in base.__subclasses__()}
    assert len(theirs) > 80
    other = {code: theirs[code] for code in ErrorCode if code > 0 and theirs.get(code, code.name) != code.name}
    assert other == {  # Kafka's own have changed, or this library has shorter ones
        ErrorCode.NOT_LEADER_OR_FOLLOWER: "NOT_LEADER_FOR_PARTITION",
        ErrorCode.MESSAGE_TOO_LARGE: "MESSAGE_SIZE_TOO_LARGE",
        ErrorCode.INVALID_TOPIC_EXCEPTION: "INVALID_TOPIC",
        ErrorCode.INVALID_REPLICA_ASSIGNMENT: "INVALID_REPLICATION_ASSIGNMENT",
    }


@pytest.mark.parametrize("api", ApiKey)
def test_every_api_has_kafkas_name(api: ApiKey) -> None:
    assert find_api(api_name(api)) is find_api(api.name) is find_api(api.name.lower()) is api


@pytest.mark.parametrize(
    ("name", "near"), [("Prodce", "Produce"), ("listoffset", "ListOffsets"), ("Sync_Grup", "SyncGroup")]
)
def test_another_name_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(RequestInvalid, match=rf"no API '{name}' here; did you mean {near}\?"):
        find_api(name)


def test_errors_by_name_and_number() -> None:
    assert find_code("NOT_LEADER_OR_FOLLOWER") is find_code("not_leader_or_follower") is find_code(6)
    with pytest.raises(RequestInvalid, match=r"no error 'NOT_LEADER' here; did you mean NOT_LEADER_OR_FOLLOWER\?"):
        find_code("NOT_LEADER")
    with pytest.raises(RequestInvalid, match=r"no error 6000 here$"):
        find_code(6000)
    with pytest.raises(RequestInvalid, match="NONE is no error"):
        find_code(0)

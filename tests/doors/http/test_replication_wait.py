"""Whether a node has a record, over HTTP."""

import threading

import pytest
from tests.doors.http.conftest import Ask


@pytest.fixture
def path(ask: Ask, stream_name: str) -> str:
    """Of a partition with one record."""
    ask("POST", "/v1/streams", {"name": stream_name})
    ask("POST", f"/v1/streams/{stream_name}/records", {"records": [{"value": "one"}]})
    return f"/v1/streams/{stream_name}/partitions/0/replicated"


def test_what_is_there(ask: Ask, path: str) -> None:
    status, found = ask("GET", f"{path}?offset=0")
    assert (status, found["replicated"], found["offset"]) == (200, True, 0)
    assert ask("GET", f"{path}?offset=0&epoch={found['epoch']}") == (200, found)
    status, problem = ask("GET", f"{path}?offset=0&epoch={found['epoch'] + 1}")
    assert (status, problem["type"]) == (409, "record-cut")
    assert ask("GET", f"{path}?offset=1")[1] == {**found, "offset": 1, "replicated": False, "epoch": None}


def test_what_is_deleted(ask: Ask, path: str, stream_name: str) -> None:
    ask("POST", f"/v1/streams/{stream_name}/records/delete", {})
    status, problem = ask("GET", f"{path}?offset=0&epoch=1")
    assert (status, problem["type"]) == (400, "offset-out-of-range")
    assert "begins at 1" in problem["detail"]


def test_what_comes_is_waited_for(ask: Ask, path: str, stream_name: str) -> None:
    wishes = {"records": [{"value": "two"}]}
    writing = threading.Thread(target=ask, args=("POST", f"/v1/streams/{stream_name}/records", wishes))
    writing.start()
    assert ask("GET", f"{path}?offset=1&max_wait_ms=30000")[1]["replicated"] is True
    writing.join()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "offset"),
        ("?offset=-1", "offset=-1 does not fit"),
        ("?offset=1&epoch=x", "epoch=x does not fit"),
        ("?offset=1&max_wait_ms=99999", "max_wait_ms=99999 does not fit"),
        ("?ofset=1", "there is no query parameter ofset"),
    ],
)
def test_wrong_queries(ask: Ask, path: str, query: str, said: str) -> None:
    status, problem = ask("GET", path + query)
    assert (status, said in problem["detail"]) == (400, True), problem


@pytest.mark.parametrize(("partition", "status"), [("1", 404), ("x", 400), ("-1", 400), ("9" * 30, 400)])
def test_wrong_partitions(ask: Ask, path: str, partition: str, status: int) -> None:
    assert ask("GET", f"{path.replace('/0/', f'/{partition}/')}?offset=0")[0] == status

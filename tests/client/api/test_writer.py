"""What a writer knows about each record after its connections were lost."""

from collections.abc import Callable
from typing import Any

import pytest

import duramen
from duramen import errors
from duramen.client.connection import BrokerConnection
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], bool]], None]:
    """Lose the connection after those produce requests, counted from 1, that a test names; they are stored."""

    def install(which: Callable[[int], bool]) -> None:
        send = BrokerConnection.send
        count = 0

        def unlucky(connection: BrokerConnection, api: ApiKey, *rest: Any, **named: Any) -> int:
            nonlocal count
            sent = send(connection, api, *rest, **named)
            if api is ApiKey.PRODUCE:
                count += 1
                if which(count):
                    connection.receive(sent)
                    connection.close()
            return sent

        monkeypatch.setattr(BrokerConnection, "send", unlucky)

    return install


def test_an_answer_that_was_lost_is_asked_for_again(
    node: NodeProcess, stream_name: str, lose: Callable[[Callable[[int], bool]], None]
) -> None:
    with duramen.connect(node.http) as client:
        client.streams.create(stream_name)
        lose(lambda count: count % 2 == 1)
        for number in range(10):
            assert client.produce(stream_name, [str(number)] * 3) == [(0, 3 * number + n) for n in range(3)]
        texts = [record.text for batch in client.consume(stream_name) for record in batch]
        assert texts == [str(number // 3) for number in range(30)]


@pytest.mark.long
def test_what_may_be_stored_is_said_so(
    node: NodeProcess, stream_name: str, lose: Callable[[Callable[[int], bool]], None]
) -> None:
    with duramen.connect(node.http, timeout_s=4) as client:
        client.streams.create(stream_name)
        client.produce(stream_name, ["a"])
        lose(lambda _: True)
        with pytest.raises(errors.RequestTimedOut, match=r"0 of 2 records are stored, 2 more may be: to repeat may"):
            client.produce(stream_name, ["b", "c"])
        texts = [record.text for batch in client.consume(stream_name) for record in batch]
        assert texts == ["a", "b", "c"]

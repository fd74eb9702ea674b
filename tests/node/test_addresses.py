"""Addresses: what is taken, what is refused and why."""

import socket
from ipaddress import IPv4Address

import pytest

from duramen.base.errors import SettingInvalid
from duramen.node.addresses import Address, AddressInUse, bind, check_advertised, check_loopback, parse_address

ANY = str(IPv4Address(0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("[::1]:9092", Address("::1", 9092)),
        ("a.b:65535", Address("a.b", 65535)),
    ],
)
def test_taken(text: str, expected: Address) -> None:
    assert parse_address("x", text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "localhost", ":9092", "h:", "h:x", "h:-1", "h:65536", "h:٣"])
def test_refused(text: str) -> None:
    with pytest.raises(SettingInvalid, match="it must be HOST:PORT"):
        parse_address("kafka.listen", text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback(host: str) -> None:
    check_loopback("kafka.listen", "--kafka-listen", Address(host, 1), insecure=False)


@pytest.mark.parametrize("host", [ANY, "::", "10.0.0.1", "example.org"])
def test_what_others_reach_needs_insecure(host: str) -> None:
    with pytest.raises(SettingInvalid, match=r"there is no authentication yet.*Say --insecure"):
        check_loopback("kafka.listen", "--kafka-listen", Address(host, 1), insecure=False)
    check_loopback("kafka.listen", "--kafka-listen", Address(host, 1), insecure=True)


def test_a_wildcard_needs_an_advertised_address() -> None:
    for host in (ANY, "::"):
        with pytest.raises(SettingInvalid, match="say which HOST:PORT clients are to connect to"):
            check_advertised(Address(host, 9092), "")
        check_advertised(Address(host, 9092), "broker.example:9092")
    with pytest.raises(SettingInvalid, match="clients need its port"):
        check_advertised(Address("127.0.0.1", 9092), "broker.example:0")
    check_advertised(Address("127.0.0.1", 9092), "")


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressInUse, match=rf"the Kafka door cannot listen on 127.0.0.1:{port}: .*--kafka-listen"):
            bind("Kafka", "--kafka-listen", Address("127.0.0.1", port))


def test_an_address_that_is_not_here() -> None:
    with pytest.raises(AddressInUse, match=r"cannot listen on 192.0.2.1:0"):
        bind("Kafka", "--kafka-listen", Address("192.0.2.1", 0))

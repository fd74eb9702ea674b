"""Addresses: what is taken, what is refused and why."""

import socket
from ipaddress import IPv4Address

import pytest
from tests.loopback import has_ipv6

from duramen.base.errors import SettingInvalid
from duramen.node.addresses import (
    Address,
    AddressInUse,
    bind,
    bind_all,
    check_advertised,
    check_loopback,
    listen_all,
    parse_address,
    parse_addresses,
    reachable,
)

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


def test_several() -> None:
    assert parse_addresses("x", "127.0.0.1:0, [::1]:9092,a:0,a:0") == (
        Address("127.0.0.1", 0),
        Address("::1", 9092),
        Address("a", 0),
        Address("a", 0),
    )
    for text in ("a:1,", ",a:1", "a:1,,b:2", "a:1 b:2"):
        with pytest.raises(SettingInvalid, match="it must be HOST:PORT"):
            parse_addresses("x", text)
    with pytest.raises(SettingInvalid, match="x: a:1 is there twice"):
        parse_addresses("x", "a:1,b:1,a:1")


def test_where_this_machine_reaches_it() -> None:
    assert str(reachable(Address(ANY, 1))) == "127.0.0.1:1"
    assert str(reachable(Address("::", 1))) == "[::1]:1"
    assert str(reachable(Address("a.b", 1))) == "a.b:1"


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_both_families_on_one_port() -> None:
    with bind("Kafka", "--kafka-listen", Address("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    listeners = bind_all("Kafka", "--kafka-listen", [Address(ANY, port), Address("::", port)])
    assert [listener.getsockname()[1] for listener in listeners] == [port, port]
    for listener in listeners:
        listener.close()


def test_all_or_none_is_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
        probe.close()
        with pytest.raises(AddressInUse):
            bind_all("Kafka", "--kafka-listen", [Address("127.0.0.1", free), Address(*taken.getsockname())])
        bind("Kafka", "--kafka-listen", Address("127.0.0.1", free)).close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        ":9092",
        "h:",
        "h:x",
        "h:-1",
        "h:65536",
        "h:٣",
        "::1:9092",
        "[h]:1",
        "[::1:9092",
        "a,b:1",
        "a/b:1",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(SettingInvalid, match="it must be HOST:PORT"):
        parse_address("kafka.listen", text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback(host: str) -> None:
    check_loopback("kafka.listen", "--kafka-listen", Address(host, 1), insecure=False)


@pytest.mark.parametrize("host", [ANY, "::", "10.0.0.1", "example.org"])
def test_what_others_reach_needs_insecure(host: str) -> None:
    with pytest.raises(SettingInvalid, match=r"there is no authentication yet.*Use --insecure"):
        check_loopback("kafka.listen", "--kafka-listen", Address(host, 1), insecure=False)
    check_loopback("kafka.listen", "--kafka-listen", Address(host, 1), insecure=True)


def test_a_wildcard_needs_an_advertised_address() -> None:
    for host in (ANY, "::"):
        with pytest.raises(SettingInvalid, match="name it with --kafka-advertise HOST:9092"):
            check_advertised([Address("127.0.0.1", 1), Address(host, 9092)], "")
        check_advertised([Address(host, 9092)], "broker.example:9092")
    with pytest.raises(SettingInvalid, match="clients need its port"):
        check_advertised([Address("127.0.0.1", 9092)], "broker.example:0")
    check_advertised([Address("127.0.0.1", 9092)], "")


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressInUse, match=rf"the Kafka door cannot listen on 127.0.0.1:{port}: .*--kafka-listen"):
            bind("Kafka", "--kafka-listen", Address("127.0.0.1", port))


def test_a_port_on_which_another_has_listened_since() -> None:
    # Linux lets two sockets be bound to one port until one of them listens.
    with bind("Kafka", "--kafka-listen", Address("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with bind("HTTP", "--http-listen", Address("127.0.0.1", port)) as second:
            listen_all("Kafka", "--kafka-listen", [first])
            with pytest.raises(
                AddressInUse, match=rf"the HTTP door cannot listen on 127.0.0.1:{port}: .*--http-listen"
            ):
                listen_all("HTTP", "--http-listen", [second])


def test_an_address_that_is_not_here() -> None:
    with pytest.raises(AddressInUse, match=r"cannot listen on 192.0.2.1:0"):
        bind("Kafka", "--kafka-listen", Address("192.0.2.1", 0))

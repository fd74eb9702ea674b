"""Where a node of a cluster listens and is reached, from settings alone."""

from collections.abc import Mapping
from ipaddress import IPv4Address

import pytest

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import SettingInvalid
from duramen.base.settings import Settings
from duramen.node.addresses import Address
from duramen.node.listeners import Listening, contradictions, listening

ANY = str(IPv4Address(0))

_MEMBER: Mapping[str, object] = {
    "node.id": 1, "cluster.seeds": "10.0.0.1:7400,10.0.0.2:7400", "cluster.secret.file": "secret", "nats.server": "off",
}  # fmt: skip


def _read(settings: Mapping[str, object]) -> Listening:
    return listening(Settings(BROKER, options=dict(_MEMBER) | dict(settings)))


def test_others_reach_a_node_where_it_listens() -> None:
    found = _read({"cluster.listen": "127.0.0.1:7400"})
    assert (found.cluster, found.cluster_reached) == (Address("127.0.0.1", 7400), Address("127.0.0.1", 7400))
    assert found.seeds == (Address("10.0.0.1", 7400), Address("10.0.0.2", 7400))


def test_or_where_it_says_that_they_do() -> None:
    found = _read({"cluster.listen": "0.0.0.0:7400", "cluster.advertise": "10.0.0.1:17400", "insecure": True})
    assert (found.cluster, found.cluster_reached) == (Address(ANY, 7400), Address("10.0.0.1", 17400))


def test_nats_servers_reach_each_other_where_they_listen() -> None:
    settings = {"cluster.listen": "127.0.0.1:7400", "nats.server": "embedded"}
    assert _read(settings).nats_reached is None
    found = _read({**settings, "nats.cluster.listen": "127.0.0.1:6222"})
    assert (found.nats_cluster, found.nats_reached) == (Address("127.0.0.1", 6222), Address("127.0.0.1", 6222))


def test_or_on_all_addresses_at_the_node_s_own_host() -> None:
    settings = {
        "cluster.listen": "0.0.0.0:7400", "cluster.advertise": "10.0.0.1:17400", "nats.server": "embedded",
        "nats.cluster.listen": "0.0.0.0:6222", "insecure": True,
    }  # fmt: skip
    found = _read(settings)
    assert (found.nats_cluster, found.nats_reached) == (Address(ANY, 6222), Address("10.0.0.1", 6222))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"cluster.listen": "0.0.0.0:7400", "insecure": True}, "cluster.listen: .* with --cluster-advertise HOST:PORT"),
        (
            {"cluster.listen": "127.0.0.1:0"},
            "cluster.listen: '127.0.0.1:0' does not fit; the other nodes need its port",
        ),
        (
            {"cluster.listen": "127.0.0.1:7400", "cluster.advertise": "0.0.0.0:7400"},
            "cluster.advertise: '0.0.0.0:7400' does not fit; the other nodes reach this one there",
        ),
        ({"cluster.listen": "127.0.0.1:7400", "cluster.advertise": "here"}, "cluster.advertise: 'here' does not fit"),
        ({"cluster.advertise": "10.0.0.1:7400"}, "cluster.advertise: a cluster node also needs cluster.listen"),
        (
            {"cluster.listen": "127.0.0.1:7400", "nats.cluster.listen": "127.0.0.1:6222"},
            "nats.cluster.listen: it configures the embedded nats-server",
        ),
        (
            {"cluster.listen": "127.0.0.1:7400", "nats.server": "embedded", "nats.cluster.listen": "127.0.0.1:0"},
            "nats.cluster.listen: '127.0.0.1:0' does not fit; the nats-servers of the other nodes need its port",
        ),
        (
            {"cluster.listen": "127.0.0.1:7400", "nats.server": "embedded", "nats.cluster.listen": "10.0.0.1:6222"},
            "nats.cluster.listen: 10.0.0.1:6222 is not loopback",
        ),
        ({"cluster.listen": "10.0.0.1:7400", "cluster.advertise": "10.0.0.1:7400"}, "is not loopback"),
    ],
)
def test_what_does_not_fit_is_named_once(settings: Mapping[str, object], said: str) -> None:
    with pytest.raises(SettingInvalid, match=said):
        _read(settings)
    given = Settings(BROKER, options=dict(_MEMBER) | dict(settings))
    assert len(list(contradictions(given))) == 1


SHARED = [
    ({"kafka.listen": "127.0.0.1:7000", "http.listen": "127.0.0.1:7000"}, "kafka.listen", "http.listen"),
    ({"kafka.listen": "0.0.0.0:7000", "http.listen": "127.0.0.1:7000"}, "kafka.listen", "http.listen"),
    ({"kafka.listen": "127.0.0.1:7000", "http.listen": "0.0.0.0:7000"}, "kafka.listen", "http.listen"),
    ({"kafka.listen": "[::]:7000", "http.listen": "127.0.0.1:7000"}, "kafka.listen", "http.listen"),
    ({"kafka.listen": "0.0.0.0:7000", "http.listen": "[::]:7000"}, "kafka.listen", "http.listen"),
    ({"kafka.listen": "[::]:7000", "http.listen": "[::1]:7000"}, "kafka.listen", "http.listen"),
    ({"kafka.listen": "[::1]:7000", "http.listen": "[0:0:0:0:0:0:0:1]:7000"}, "kafka.listen", "http.listen"),
    ({"kafka.listen": "[::ffff:127.0.0.1]:7000", "http.listen": "localhost:7000"}, "kafka.listen", "http.listen"),
    ({"kafka.listen": "0.0.0.0:7000", "http.listen": "node.example:7000"}, "kafka.listen", "http.listen"),
    ({"kafka.listen": "node.example:7000", "http.listen": "Node.example:7000"}, "kafka.listen", "http.listen"),
    ({"kafka.listen": "0.0.0.0:7000,127.0.0.1:7000"}, "kafka.listen", "kafka.listen"),
    ({"kafka.listen": "127.0.0.1:1,127.0.0.1:7000", "nats.listen": "0.0.0.0:7000"}, "kafka.listen", "nats.listen"),
    ({"kafka.listen": "[::1]:7000", "nats.listen": "0.0.0.0:7000"}, "kafka.listen", "nats.listen"),
    ({"http.listen": "127.0.0.1:7000", "nats.cluster.listen": "127.0.0.1:7000"}, "http.listen", "nats.cluster.listen"),
    ({"cluster.listen": "127.0.0.1:7000", "http.listen": "127.0.0.1:7000"}, "http.listen", "cluster.listen"),
    ({"nats.listen": "127.0.0.1:7000", "nats.cluster.listen": "127.0.0.1:7000"}, "nats.listen", "nats.cluster.listen"),
]
_DOORS: Mapping[str, object] = {
    **_MEMBER, "nats.server": "embedded", "insecure": True, "kafka.advertise": "node.example:7000",
    "cluster.listen": "10.0.0.1:7400",
}  # fmt: skip


@pytest.mark.parametrize(("settings", "one", "other"), SHARED)
def test_two_doors_cannot_share_an_address(settings: Mapping[str, object], one: str, other: str) -> None:
    given = Settings(BROKER, options=dict(_DOORS) | dict(settings))
    with pytest.raises(SettingInvalid, match=rf"^{other}: .*:7000 does not fit; {one} has .*:7000, and two doors"):
        listening(given)
    assert len(list(contradictions(given))) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0", "nats.listen": "127.0.0.1:0"},
        {"kafka.listen": "127.0.0.1:7000", "http.listen": "127.0.0.2:7000"},
        {"kafka.listen": "127.0.0.1:7000", "http.listen": "[::1]:7000"},
        {"kafka.listen": "0.0.0.0:7000", "http.listen": "[::1]:7000"},
        {"kafka.listen": "0.0.0.0:7000,[::]:7000"},
        {"kafka.listen": "127.0.0.1:7000", "http.listen": "127.0.0.1:7001,[::]:7000"},
        {"kafka.listen": "127.0.0.1:7000", "nats.listen": "127.0.0.1:7000", "nats.server": "off"},
    ],
)
def test_doors_that_do_not_meet(settings: Mapping[str, object]) -> None:
    listening(Settings(BROKER, options=dict(_DOORS) | dict(settings)))

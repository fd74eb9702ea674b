"""The listening addresses of a node, from its settings: parsed, and checked against each other. Pure."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from duramen.base.errors import SettingInvalid
from duramen.base.settings import Settings
from duramen.doors.nats.address import ServerAddress, parse_server
from duramen.node.addresses import (
    Address,
    check_advertised,
    check_loopback,
    is_wildcard,
    parse_address,
    parse_addresses,
)
from duramen.node.overlaps import ListenAddress, check_overlaps, listeners

__all__ = ["Listening", "contradictions", "data_dir", "listening"]


class Listening(NamedTuple):
    """The addresses of the doors; `nats` is the address for an embedded server, an external server, or None.

    `cluster` is None for a standalone node; `cluster_reached` is its advertised address for other nodes, and `seeds`
    are the addresses at which it looks for them. `nats_cluster` is the address of its nats-server for those of other
    nodes, None if they form no cluster, `nats_reached` the advertised one.
    """

    kafka: tuple[Address, ...]
    http: tuple[Address, ...]
    nats: Address | ServerAddress | None
    cluster: Address | None = None
    cluster_reached: Address | None = None
    seeds: tuple[Address, ...] = ()
    nats_cluster: Address | None = None
    nats_reached: Address | None = None

    def listeners(self) -> list[ListenAddress]:
        """All listeners of this node and its nats-server, each with its setting."""
        return [
            *_listeners("kafka.listen", self.kafka),
            *_listeners("http.listen", self.http),
            *_listeners("cluster.listen", self.cluster),
            *_listeners("nats.listen", self.nats),
            *_listeners("nats.cluster.listen", self.nats_cluster),
        ]


def _listeners(setting: str, found: tuple[Address, ...] | Address | ServerAddress | None) -> list[ListenAddress]:
    if isinstance(found, Address):
        # nats-server accepts connections of both families on a wildcard of either.
        return [ListenAddress(setting, found, True)] if setting.startswith("nats.") else listeners(setting, (found,))
    return [] if found is None or isinstance(found, ServerAddress) else listeners(setting, found)


def data_dir(settings: Settings) -> Path:
    """The absolute path of the node's directory. Raises SettingInvalid."""
    text = settings.text("data.dir")
    if not text.strip() or "\0" in text:
        raise SettingInvalid(f"data.dir: {text!r} does not fit; it must be the path of a directory")
    return Path(text).resolve()


def _addresses(settings: Settings, name: str) -> tuple[Address, ...]:
    addresses = parse_addresses(name, settings.text(name))
    if "insecure" not in settings.unfit:
        for address in addresses:
            option = settings.setting(name).option_name
            check_loopback(name, option, address, insecure=settings.flag("insecure"))
    return addresses


def _kafka(settings: Settings) -> tuple[Address, ...]:
    return _addresses(settings, "kafka.listen")


def _http(settings: Settings) -> tuple[Address, ...]:
    return _addresses(settings, "http.listen")


def _allowed_hosts(settings: Settings) -> None:
    if settings.text("http.allowed.hosts").strip():
        from duramen.doors.http.serving.hosts import (
            Hosts,  # it imports a web framework, which others need not wait for
        )

        Hosts(settings)


def _nats(settings: Settings) -> Address | ServerAddress | None:
    server = settings.text("nats.server")
    if server == "off":
        return None
    if server != "embedded":
        return parse_server(server)
    text = settings.text("nats.listen")
    if "," in text:
        raise SettingInvalid(
            f"nats.listen: {text!r} does not fit; nats-server listens on one address only: give one, or 0.0.0.0:4222 "
            "for all addresses of this machine"
        )
    return _addresses(settings, "nats.listen")[0]


def _advertised(settings: Settings) -> None:
    if "kafka.advertise" not in settings.unfit:
        addresses = parse_addresses("kafka.listen", settings.text("kafka.listen"))
        check_advertised(addresses, settings.text("kafka.advertise"))


def _cluster(settings: Settings) -> Address | None:
    """The cluster door of a cluster node; also checks the other settings that it requires."""
    text = settings.text("cluster.listen")
    if not text:
        for name in ("cluster.advertise", "cluster.seeds", "cluster.secret.file"):
            if settings.text(name):
                raise SettingInvalid(
                    f"{name}: a cluster node also needs cluster.listen, the HOST:PORT at which the others reach it"
                )
        return None
    address = parse_address("cluster.listen", text)
    if not address.port:
        raise SettingInvalid(f"cluster.listen: {text!r} does not fit; the other nodes need its port")
    _cluster_reached(settings)
    if "insecure" not in settings.unfit:
        check_loopback("cluster.listen", "--cluster-listen", address, insecure=settings.flag("insecure"))
    if settings.source("node.id") == "default":
        raise SettingInvalid("node.id: every node of a cluster needs a different number; set --node-id")
    if not settings.text("cluster.seeds"):
        raise SettingInvalid(
            "cluster.seeds: a cluster node needs the addresses of others; give --cluster-seeds HOST:PORT,HOST:PORT,…, "
            "the same to all nodes that form the cluster"
        )
    if not settings.text("cluster.secret.file"):
        raise SettingInvalid(
            "cluster.secret.file: the nodes of a cluster share a secret; `duramen cluster secret FILE` makes one,"
            " give --cluster-secret-file FILE to every node"
        )
    return address


def _cluster_reached(settings: Settings) -> Address | None:
    """The advertised address for other nodes."""
    name = "cluster.advertise" if settings.text("cluster.advertise") else "cluster.listen"
    text = settings.text(name)
    if not text:
        return None
    address = parse_address(name, text)
    if is_wildcard(address) or not address.port:
        other = (
            "; give an address that they can reach with --cluster-advertise HOST:PORT"
            if name == "cluster.listen"
            else ""
        )
        raise SettingInvalid(
            f"{name}: {text!r} does not fit; the other nodes reach this one there, so it must be one host and"
            f" port that they can connect to{other}"
        )
    return address


def _nats_cluster(settings: Settings) -> Address | None:
    """The address of the embedded nats-server for those of other nodes."""
    name = "nats.cluster.listen"
    text = settings.text(name)
    if not text:
        return None
    if not settings.text("cluster.listen"):
        raise SettingInvalid(f"{name}: a standalone node has only one nats-server; omit it, or give cluster.listen")
    if settings.text("nats.server") != "embedded":
        raise SettingInvalid(
            f"{name}: it configures the embedded nats-server, and nats.server names another; omit one of them"
        )
    address = parse_address(name, text)
    if not address.port:
        raise SettingInvalid(f"{name}: {text!r} does not fit; the nats-servers of the other nodes need its port")
    if "insecure" not in settings.unfit:
        check_loopback(name, "--nats-cluster-listen", address, insecure=settings.flag("insecure"))
    return address


def _nats_reached(settings: Settings) -> Address | None:
    """The advertised address for those of other nodes: for a wildcard, the node's advertised host."""
    address, cluster = _nats_cluster(settings), _cluster_reached(settings)
    if address is None or cluster is None or not is_wildcard(address):
        return address
    return Address(cluster.host, address.port)


def _seeds(settings: Settings) -> tuple[Address, ...]:
    return parse_addresses("cluster.seeds", settings.text("cluster.seeds")) if settings.text("cluster.seeds") else ()


def listening(settings: Settings) -> Listening:
    """The listeners of the doors. Raises SettingInvalid for addresses that are invalid or contradict each other."""
    cluster = _cluster(settings)
    reached = _cluster_reached(settings)
    doors = Listening(
        _kafka(settings), _http(settings), _nats(settings), cluster, reached, _seeds(settings),
        _nats_cluster(settings), _nats_reached(settings),
    )  # fmt: skip
    _allowed_hosts(settings)
    _advertised(settings)
    check_overlaps(doors.listeners())
    return doors


def _overlaps(settings: Settings) -> None:
    reads: Mapping[str, Callable[[Settings], tuple[Address, ...] | Address | ServerAddress | None]] = {
        "kafka.listen": _kafka, "http.listen": _http, "cluster.listen": _cluster, "nats.listen": _nats,
        "nats.cluster.listen": _nats_cluster,
    }  # fmt: skip
    found: list[ListenAddress] = []
    for name, read in reads.items():
        with contextlib.suppress(SettingInvalid):  # a separate check reports it
            found += _listeners(name, read(settings))
    check_overlaps(found)


def contradictions(settings: Settings) -> Iterator[SettingInvalid]:
    """Every reason in the settings alone why a node would not start."""
    checks: tuple[Callable[[Settings], object], ...] = (
        data_dir, _kafka, _http, _allowed_hosts, _nats, _advertised, _cluster, _seeds, _nats_cluster,
        _overlaps,
    )  # fmt: skip
    said: set[str] = set()
    for check in checks:
        try:
            check(settings)
        except SettingInvalid as error:
            if str(error) not in said:
                said.add(str(error))
                yield error

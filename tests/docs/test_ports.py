"""One set of ports: pages, examples, compose files and units name no other ones than the defaults."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from duramen.base.catalogue.catalogue import BROKER

ROOT: Final = Path(__file__).parents[2]
PLACES: Final = ("README.md", "docs", "examples", "src/duramen/cli", "src/duramen/base")
CLUSTER: Final = 7400
NATS_ROUTES: Final = 6222
ADDRESS: Final = re.compile(
    r"(?:127\.0\.0\.1|localhost|0\.0\.0\.0|10\.0\.0\.\d+|\[::1?\]|node\d|broker\d?|host):(\d{4,5})\b"
)
SETTING: Final = re.compile(
    r"(?:--|DURAMEN_)(KAFKA|HTTP|NATS|CLUSTER|NATS[-_]CLUSTER)[-_](?:LISTEN|SEEDS|ADVERTISE)[ =:]+(\S+)", re.IGNORECASE
)
_MORE_NODES: Final = {9093, 9094, 9645, 9646, 7401, 7402}  # the second and the third node of one machine
OTHERS: Final = {
    "README.md": _MORE_NODES,
    "examples/cluster/compose.yaml": _MORE_NODES,
    "docs/operations.md": {9645},  # a standalone node beside one of a cluster
    "docs/doors/spark.md": {9000},  # MinIO
    "docs/guides/tables.md": {9655},  # the metrics of `duramen table run`
}


def _default(name: str) -> int:
    return int(str(BROKER[name].default).rpartition(":")[2])


DOORS: Final = {
    "kafka": _default("kafka.listen"), "http": _default("http.listen"), "nats": _default("nats.listen"),
    "cluster": CLUSTER, "nats-cluster": NATS_ROUTES,
}  # fmt: skip


def _texts() -> Iterator[tuple[str, str]]:
    for place in PLACES:
        found = [ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*"))
        for path in found:
            if path.is_file() and path.suffix not in {".pyc", ".png", ".svg", ".gz"}:
                yield str(path.relative_to(ROOT)), path.read_text()


def test_addresses_have_the_default_ports() -> None:
    wrong = []
    for path, text in _texts():
        allowed = {*DOORS.values(), *next((ports for name, ports in OTHERS.items() if path.startswith(name)), ())}
        wrong += [f"{path}: {found[0]}" for found in ADDRESS.finditer(text) if int(found[1]) not in allowed]
    assert wrong == []


def test_settings_have_the_port_of_their_door() -> None:
    wrong = []
    for path, text in _texts():
        for found in SETTING.finditer(text):
            ports = {int(port) for port in re.findall(r":(\d+)", found[2])} - {0}
            door = found[1].lower().replace("_", "-")
            allowed = {DOORS[door], *next((ports for name, ports in OTHERS.items() if path.startswith(name)), ())}
            wrong += [f"{path}: {found[0]}"] if ports - allowed else []
    assert wrong == []

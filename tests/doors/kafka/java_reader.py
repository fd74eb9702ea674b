"""Java's consumer, which reads a partition from an offset to its end."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from duramen.bench.peers.kafka import fetch_jars
from duramen.node.process import NodeProcess

__all__ = ["read_with_java"]

_DRIVER: Final = Path(__file__).parent / "java" / "LiveDriver.java"


def read_with_java(node: NodeProcess, topic: str, offset: int, *config: str, reconnects: int = 0) -> list[list[str]]:
    """Lines of words: `record OFFSET KEY VALUE`, `reconnect POSITION -`, and at last `end POSITION END_OFFSET`."""
    java = shutil.which("java")
    assert java is not None, "these tests need Java 17"
    ran = subprocess.run(
        [
            java, "-Xmx128m", "-cp", f"{fetch_jars()}/*", str(_DRIVER), node.kafka, topic, str(offset),
            str(reconnects), "auto.offset.reset=earliest", *config,
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return [line.split(" ") for line in ran.stdout.splitlines()]

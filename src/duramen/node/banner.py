"""The lines that a node prints when it is ready: each door's address and a command to try. Pure."""

from collections.abc import Mapping
from pathlib import Path

from duramen import __version__
from duramen.node.addresses import parse_address, reachable

__all__ = ["banner"]


def banner(data_dir: Path, addresses: Mapping[str, str], advertise: str, problem: str) -> list[str]:
    """Lines for people. `addresses` are the doors', `problem` is the reason why not every door accepts requests."""
    state = f"runs, but {problem}" if problem else "is ready."
    width = max(len(address) for address in addresses.values())
    lines = [f"Duramen {__version__} {state}", f"  data   {data_dir}"]
    for door, address in addresses.items():
        from_here = str(reachable(parse_address(door, address)))
        lines.append(f"  {door:<6} {address:<{width}}   try: {_try(door, from_here, advertise)}")
    return lines


def _try(door: str, address: str, advertise: str) -> str:
    if door == "kafka":
        return f"kcat -b {advertise or address} -L"
    if door == "nats":
        return f"nats pub -s nats://{address} greetings hello"
    return f"curl http://{address}/readyz"

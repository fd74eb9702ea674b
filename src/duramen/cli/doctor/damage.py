"""Whether the node that runs on a data directory knows of damage."""

import contextlib
import http.client
import json
from pathlib import Path
from typing import Final

from duramen.cli.doctor.findings import DoctorFinding

__all__ = ["damage"]

_ADDRESSES: Final = Path("run", "addresses.json")
_ANSWER_S: Final = 1.0
_DAMAGED: Final = "ready; "


def damage(data_dir: Path) -> list[DoctorFinding]:
    """What the node of that directory says is damaged; nothing where none runs or none is."""
    try:
        address = json.loads((data_dir / _ADDRESSES).read_bytes())["http"]
        said = _readiness(address)
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return []
    if not said.startswith(_DAMAGED):
        return []
    advice = (
        "`duramen stream describe` and the node's log name them; put the files back from a backup, or stop the node and"
        " run duramen log salvage"
    )
    return [DoctorFinding("damage", "note", said.removeprefix(_DAMAGED), advice)]


def _readiness(address: str) -> str:
    with contextlib.closing(http.client.HTTPConnection(address, timeout=_ANSWER_S)) as connection:
        connection.request("GET", "/readyz")
        return connection.getresponse().read().decode(errors="replace").strip()

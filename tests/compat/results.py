"""Results of a run: a file of JSON for each client beside the tests, from which docs/compatibility.md is written.

They are written where COMPAT_RECORD is set (`tools/compat.py` sets it): a plain run changes nothing.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import pytest
from tests.compat.known import KNOWN
from tests.compat.staging import advertised

from duramen.node.process import NodeProcess

__all__ = ["DIRECTORY", "Results", "Status"]

DIRECTORY: Final = Path(__file__).parent / "results"
_RECORD: Final = "COMPAT_RECORD"

Status = Literal["passes", "fails", "lacks"]


class Results:
    """What a client passes, and what not and why."""

    def __init__(self, client: str, version: str, language: str) -> None:
        self.client = client
        self.version = version
        self.language = language
        self._rows: dict[str, dict[str, str]] = {}

    def note(self, behaviour: str, status: Status, why: str = "") -> None:
        """One line."""
        self._rows[behaviour] = {"status": status} | ({"why": why} if why else {})

    def show(self, behaviour: str, run: Callable[[], None], node: NodeProcess, needs: Sequence[int] = ()) -> None:
        """Show something of a client's own and note the result. Fails, or skips, as the result is."""
        if absent := [str(number) for number in needs if number not in advertised(node)]:
            why = f"Duramen has not the API {', '.join(absent)} yet"
            self.note(behaviour, "fails", why)
            pytest.skip(why)
        known = KNOWN.get((self.client, behaviour))
        try:
            run()
        except (AssertionError, subprocess.TimeoutExpired) as error:
            self.note(behaviour, "fails", known or (str(error).splitlines() or ["it does not hold"])[0])
            if known is None:
                raise
            pytest.xfail(known)
        self.note(behaviour, "passes")
        assert known is None, f"it passes: take {behaviour!r} out of known.py"

    def write(self) -> None:
        """Write the file, if results are recorded in this run; lines that did not run this time stay."""
        if not os.environ.get(_RECORD) or not self._rows:
            return
        path = DIRECTORY / (re.sub(r"[^a-z0-9.]+", "-", self.client.lower()).strip("-") + ".json")
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else {}
        found = {
            "client": self.client, "version": self.version, "language": self.language,
            "date": datetime.now(UTC).date().isoformat(), "rows": rows | self._rows,
        }  # fmt: skip
        DIRECTORY.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

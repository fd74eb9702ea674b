"""Executes a plan: a few moves at a time, until all are done."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from duramen.base.errors import LeaderUnavailable, NotController, OutcomeUnknown, ServerUnreachable
from duramen.cli.cluster.places import leaderless_text
from duramen.cli.progress import Bar
from duramen.cli.server import NodeAddress

__all__ = ["carry_out"]

_TOGETHER: Final = 500  # moves that one request names
_LOOK_S: Final = 0.2
_PATIENCE_S: Final = 30.0  # how long the controller, or the node asked, may not answer


def carry_out(server: NodeAddress, plan: Sequence[Mapping[str, Any]], at_once: int) -> dict[str, int]:
    """Execute a plan; returns how many moves were `done` and `void`, and how many leaders were `elected` in the end.

    Interrupted, it begins no more moves and lists those in progress. Raises LeaderUnavailable if all remaining
    partitions have had no leader for a while: then no node copies them.
    """
    end = {"done": 0, "void": 0, "elected": 0}
    moving = 0
    try:
        with Bar(f"moving {len(plan)} partitions", len(plan)) as bar:
            for first in range(0, len(plan), _TOGETHER):
                moves, ended, stuck_s = plan[first : first + _TOGETHER], 0, time.monotonic()
                while True:
                    step = _begin(server, moves, at_once)
                    moving = step["moving"]
                    bar.advance(step["done"] + step["void"] - ended)
                    ended = step["done"] + step["void"]
                    if not moving and not step["waiting"]:
                        break
                    if _goes_on(step):
                        stuck_s = time.monotonic()
                    elif time.monotonic() >= stuck_s + _PATIENCE_S:
                        raise LeaderUnavailable(leaderless_text(step["leaderless"]))
                    time.sleep(_LOOK_S)
                end["done"] += step["done"]
                end["void"] += step["void"]
    except KeyboardInterrupt:
        click.echo(
            f"Interrupted: no more moves are started; those in progress ({moving} at the last check) continue."
            " `duramen cluster rebalance --cancel` cancels them.",
            err=True,
        )
        raise
    elections = server.post("/v1/cluster/elections", {})["partitions"]
    end["elected"] = sum(one["error"] is None for one in elections)
    return end


def _goes_on(step: Mapping[str, Any]) -> bool:
    """Whether any move that is left has a leader to copy from."""
    leaderless = step.get("leaderless", {"count": 0})["count"]  # older nodes do not say
    return bool(leaderless < step["moving"] + step["waiting"])


def _begin(server: NodeAddress, moves: Sequence[Mapping[str, Any]], at_once: int) -> Mapping[str, Any]:
    """A step of the plan; without a response it is retried for a while, which is safe."""
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            step: Mapping[str, Any] = server.post(
                "/v1/cluster/rebalance/begin", {"moves": list(moves), "at_once": at_once}
            )
        except (NotController, OutcomeUnknown, ServerUnreachable):
            if time.monotonic() >= until_s:
                raise
            time.sleep(_LOOK_S)
        else:
            return step

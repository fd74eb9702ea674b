"""Many connections at once that send a node what `making` makes, and judge what comes back."""

import asyncio
import contextlib
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.hostile.making import Case, Known, Maker, every_version

from duramen.base.errors import RequestInvalid
from duramen.codec.kafka.header import response_body_start
from duramen.codec.kafka.messages import RESPONSES
from duramen.codec.kafka.versions import ApiKey

__all__ = ["attack", "case_of", "drain", "send_case"]

_CONNECTIONS: Final = 8
_ANSWER_S: Final = 60.0
_PATIENCE_S: Final = 0.03
_WAITING: Final = frozenset(
    key
    for key in ApiKey
    if key.name in {"PRODUCE", "FETCH", "JOIN_GROUP", "SYNC_GROUP", "SHARE_FETCH", "SHARE_ACKNOWLEDGE"}
)
"""What may wait for others or for time, or has no answer."""


def case_of(seed: int, known: Known) -> Case:
    """The case of a seed: seeds one after another go through all APIs and versions."""
    versions = every_version()
    return Maker(random.Random(seed), known).case(*versions[seed % len(versions)])


async def send_case(address: str, case: Case) -> str:
    """Send a case's frames, on a new connection where the node closed one; says what is wrong, or nothing."""
    host, _, port = address.rpartition(":")
    left = list(case.frames)
    while left:
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            while left:
                frame = left.pop(0)
                writer.write(frame)
                answer = await _answer(reader, patient=case.whole and case.api.key not in _WAITING)
                if answer is None:
                    break
                if answer and (problem := _problem(case, frame, answer)):
                    return problem
                if not answer:
                    return f"no answer to {frame.hex()}"
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    return ""


async def drain(address: str, frame: bytes) -> int:
    """Send a frame, say that there are no more, and read until the node closes; how many bytes came."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    got = 0
    try:
        writer.write(frame)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_ANSWER_S):
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                while got < size and (piece := await reader.read(1 << 20)):
                    got += len(piece)
    except asyncio.IncompleteReadError:
        pass
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return got


async def _answer(reader: asyncio.StreamReader, *, patient: bool) -> bytes | None:
    """A frame; None where the node closed the connection or may take its time; nothing where it should not have."""
    try:
        async with asyncio.timeout(_ANSWER_S if patient else _PATIENCE_S):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except TimeoutError:
        return b"" if patient else None


def _problem(case: Case, frame: bytes, answer: bytes) -> str:
    if answer[:4] != frame[8:12] and case.whole:
        return f"the answer to {frame.hex()} is another's: {answer.hex()}"
    if not case.whole or case.api.key in (ApiKey.PRODUCE, ApiKey.FETCH):
        return ""
    try:
        start = response_body_start(case.api.key, case.version, answer)
        RESPONSES[case.api.key].decode(case.version, answer, start)
    except (RequestInvalid, ValueError) as error:
        return f"the answer to {frame.hex()} cannot be read: {error}: {answer.hex()}"
    return ""


async def attack(address: str, known: Known, seeds: Iterator[int], log: Path, running: set[int]) -> None:
    """Send the cases of all seeds. Raises AssertionError with the seed where an answer or the log is wrong."""
    new = log.open(errors="replace")

    async def one() -> None:
        for seed in seeds:
            running.add(seed)
            case = case_of(seed, known)
            problem = await send_case(address, case)
            assert not problem, f"seed {seed}, {case.api.key.name} version {case.version}: {problem}"
            said = new.read()
            for word in ("Traceback", " ERROR "):
                assert word not in said, f"one of the seeds {sorted(running)}: {said[said.find(word) - 300 :][:4000]}"
            running.discard(seed)

    with new:
        async with asyncio.TaskGroup() as group:
            for _ in range(_CONNECTIONS):
                group.create_task(one())

"""Replies to publishers in one turn of the event loop, sent in one write. Shared by both captures."""

from collections.abc import Callable, Sequence

from duramen.base.errors import DuramenError
from duramen.codec.jetstream import encode_error
from duramen.codec.nats import encode_pub
from duramen.doors.nats.refusals import api_error

__all__ = ["Answers"]


class Answers:
    """Commands of the protocol that wait for the end of the turn; `send` is handed them joined."""

    __slots__ = ("_commands", "_send", "_soon")

    def __init__(self, soon: Callable[[Callable[[], None]], object], send: Callable[[bytes], None]) -> None:
        self._soon = soon
        self._send = send
        self._commands: list[bytes] = []

    def add(self, command: bytes) -> None:
        """Send a command at the end of the turn."""
        if not self._commands:
            self._soon(self.flush)
        self._commands.append(command)

    def refuse(self, stream: str, replies: Sequence[bytes | None], error: DuramenError) -> None:
        """Reply to publishers that requested a reply with an error, as JetStream does."""
        answer = encode_error(stream, api_error(error), str(error))
        for reply in replies:
            if reply is not None:
                self.add(encode_pub(reply, answer))

    def flush(self) -> None:
        """Send the pending messages."""
        commands, self._commands = self._commands, []
        self._send(b"".join(commands))

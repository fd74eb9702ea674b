"""The progress of a recovery: written by the recovering thread, read by status requests."""

from duramen.base.units import format_bytes

__all__ = ["RecoveryProgress"]


class RecoveryProgress:
    """Plain numbers. A reader in another thread may see them at slightly different times, which does no harm."""

    __slots__ = ("doing", "logs", "logs_done", "replay_bytes", "replayed_bytes")

    def __init__(self) -> None:
        self.doing = ""
        self.logs = 0
        self.logs_done = 0
        self.replay_bytes = 0
        self.replayed_bytes = 0

    def begin(self, doing: str, logs: int = 0) -> None:
        """Start the next step, which covers that many logs."""
        self.doing = doing
        self.logs_done = 0
        self.logs = logs

    def words(self) -> str:
        """One line for people; empty before the first step."""
        if not self.doing:
            return ""
        said = f"starting: {self.doing}"
        if self.logs:
            said += f", {self.logs_done} of {self.logs} logs done"
        if self.replay_bytes:
            replayed, whole = format_bytes(self.replayed_bytes), format_bytes(self.replay_bytes)
            said += f", {replayed} of {whole} of the write-ahead log replayed"
        return said

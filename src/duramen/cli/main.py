"""Entry point of the `duramen` command: installs signal handlers first, then runs `duramen.cli.commands`.

Imports nothing at the top that Python has not already loaded, so that handlers are in place almost immediately.
"""

import os
import sys

__all__ = ["main"]

_INTERRUPTED = 130


def main() -> None:
    """Run the command of `sys.argv` and exit with its code.

    While it is being imported nothing has begun, so a signal ends the process at once: `serve` is stopped as asked
    by SIGTERM or Ctrl-C (0), every other command is interrupted by Ctrl-C (130). An exception would not do: what is
    raised while modules are imported may be swallowed, or come out as a traceback.
    """
    serving = sys.argv[1:2] == ["serve"]
    code = 0 if serving else _INTERRUPTED
    try:
        import signal

        numbers = [signal.SIGINT, signal.SIGTERM] if serving else [signal.SIGINT]
        for number in numbers:
            if serving or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: os._exit(code))
        from duramen.cli.commands import run
    except KeyboardInterrupt:
        sys.exit(code)
    code = run()
    signal.signal(signal.SIGINT, lambda *_: os._exit(code))  # nothing is left to interrupt
    sys.exit(code)

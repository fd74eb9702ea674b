"""The command line: parse, call, print. Each command is imported when it runs, so that `--help` is fast."""

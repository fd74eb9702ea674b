"""The command line: parse, call, print. Each command is imported when it is run, so that `--help` is quick."""

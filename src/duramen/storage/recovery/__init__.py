"""From a data directory to logs, after a stop or a crash; and looking through it without a node."""

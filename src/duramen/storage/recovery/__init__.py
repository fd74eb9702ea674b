"""Recovery: from a data directory to logs after a stop or a crash; and verification of a directory without a node."""

"""What a test says when replication does not do what it promises."""


class Broken(AssertionError):
    """A promise of replication was broken."""


class Stuck(AssertionError):
    """Nothing was broken, but the partition does not go on where it should."""

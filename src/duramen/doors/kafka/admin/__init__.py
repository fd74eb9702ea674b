"""Topics, configs, quotas, metadata, quorum, reassignment."""

"""Background work on logs: copies, checkpoints, compaction, scrubbing, rewrites."""

"""Work on logs beside appends and reads: copies, checkpoints, compaction, scrubbing, rewrites."""

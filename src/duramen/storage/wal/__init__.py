"""The write-ahead log: frames, files, group commit."""

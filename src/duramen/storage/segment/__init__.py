"""A segment: batches, index, blocks with checksums, damage."""

"""A segment: batches, index, blocks and their checksums, damage."""

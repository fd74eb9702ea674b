"""Records that clients bring to, or want of, a node that does not lead their partition: it asks the leader."""

"""`make demo-cluster`: the flights through a cluster whose nodes are killed and paused, with a proof."""

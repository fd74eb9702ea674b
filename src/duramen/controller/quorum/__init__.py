"""The quorum's replica on the node's storage: ballot, log and snapshots on disk, and the runner of its effects."""

"""The quorum of the controller on a node's storage: what the pure machine says is done, on the log and beside it.

`opening` starts a replica from its disk, `runner` carries out what its machine says and is the port that is proposed
through. No threads, files or clock: only ports.
"""

"""The cluster side of a node: it forms or joins a cluster, and takes part in its quorum.

The node starts and stops `assembly`. `identity` is the file that names the directory's cluster, `peers` keeps the
connections, `quorum` runs the quorum's replica, `join` makes the node a member.
"""

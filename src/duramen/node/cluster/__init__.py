"""The cluster side of a node: it forms a cluster with others or comes to one, and takes part in its quorum.

`side` is what the node starts and stops. `belonging` is the file that says to which cluster a directory belongs,
`neighbours` keeps the connections, `agreeing` runs the quorum's replica, `joining` makes of the node a member.
"""

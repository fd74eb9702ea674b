"""The controller: the quorum's replica, the active controller, this node's membership, the cluster admin."""

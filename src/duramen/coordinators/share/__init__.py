"""Share groups: share partitions, their stored state, and the group's metadata."""

"""The cluster admin: what operators ask of any node."""

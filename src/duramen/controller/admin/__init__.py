"""The cluster admin: operators' requests to any node."""

"""How fast replicas that catch up are served, so that producers hardly feel it."""

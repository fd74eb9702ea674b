"""What nodes ask the active controller, and its responses."""

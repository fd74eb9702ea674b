"""What the doors call: one broker, whichever node does the work."""

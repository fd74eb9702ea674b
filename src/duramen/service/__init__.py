"""The interface of the doors: one broker, whichever node executes a request."""

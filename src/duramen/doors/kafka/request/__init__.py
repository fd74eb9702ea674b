"""One request: its context, its answer, error numbers, sessions."""

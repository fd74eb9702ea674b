"""One request: context, response, error numbers, sessions."""

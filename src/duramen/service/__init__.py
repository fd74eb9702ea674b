"""What all doors have in common: a request's names are resolved and its operations authorized before it is handled."""

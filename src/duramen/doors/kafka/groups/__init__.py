"""Groups: classic, consumer and share groups, and their offsets."""

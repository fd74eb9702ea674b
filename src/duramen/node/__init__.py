"""The composition root: settings in, a running node out."""

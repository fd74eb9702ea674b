"""Foundations of every layer: ids, units, errors, settings, ports. Imports nothing else of Duramen."""

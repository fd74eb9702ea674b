"""Salvage: collects the sound data of a damaged directory."""

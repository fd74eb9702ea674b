"""Requests between nodes: methods as data, bytes, errors, one retry rule, one scatter-gather; the effect runner."""

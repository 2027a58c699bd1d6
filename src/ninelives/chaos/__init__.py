"""Stopping the world at every point of a run, and judging what becomes of it."""

"""Symbolic values: sizes and numbers that a compiled call leaves open, and numbers that only the graph knows."""

"""Symbolic values: sizes and numbers of a call as backed symbols, and unbacked symbols of the graph."""

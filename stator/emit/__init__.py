"""Emission: the residual program that a compiled call runs, as readable Python source."""

"""Emission.   results and effects of a trace  ->  the residual program that a compiled call runs, as Python source"""

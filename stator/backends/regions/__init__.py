"""Compile what repeats once.

In: a captured graph, its fake inputs, and what compiles a graph.  Out: a function that calls compiled pieces one after
the other, each unique piece compiled once; or `Whole`, with the reason why the graph stays in one piece.
"""

from stator.backends.regions.compilation import compile_regions
from stator.backends.regions.flow import Whole
from stator.backends.regions.plan import ONE_PIECE, gradients_to_take_between, is_short_step

__all__ = ["ONE_PIECE", "Whole", "compile_regions", "gradients_to_take_between", "is_short_step"]

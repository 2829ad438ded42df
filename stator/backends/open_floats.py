"""Floats from outside are data to a compiler.   a graph with a boxed float  ->  compiled without a constant in it

The residual hands such a float over inside a tensor, and the graph takes it out with `item()`. AOTAutograd would rather
have the float made a constant, and asks torch's own tracer to start again; to it, that wish has been granted.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from torch.utils._sympy.symbol import SymT, symbol_is_type


@contextlib.contextmanager
def floats_as_data(shape_env: Any) -> Iterator[None]:
    """Around the compilation of a graph whose shape environment may hold symbols of floats."""
    known = () if shape_env is None else shape_env.backed_var_to_val
    names = {str(symbol) for symbol in known if symbol_is_type(symbol, SymT.FLOAT)}
    if not names:
        yield
        return
    wishes = importlib.import_module("torch._dynamo.symbolic_convert").TensorifyState.force_specializations
    added = names - wishes
    wishes |= added
    try:
        yield
    finally:
        wishes -= added

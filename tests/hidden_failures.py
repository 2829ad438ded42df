"""Failures that no result shows: Stator says so in a warning, and makes the call eagerly.

A test that does not expect the warning (`pytest.warns`) has failed, whatever it compared.
"""

from __future__ import annotations

_WORDS = ("stator: a compiled graph raised", "stator: capturing ")


def is_hidden_failure(message: object) -> bool:
    """Whether a warning says that a graph, or a capture, has failed."""
    return str(message).startswith(_WORDS)

"""Sources inside torch's shape machinery: Inductor pickles them into its caches."""

from __future__ import annotations

import pickle

from stator.shapes.environment import NamedSource
from stator.source import Local


def test_a_named_source_survives_pickling_by_its_name() -> None:
    source = NamedSource(Local("x", 0))
    again = pickle.loads(pickle.dumps(source))
    assert again._name_template == "x"
    assert again == pickle.loads(pickle.dumps(source))
    assert source == NamedSource(Local("x", 0)) != NamedSource(Local("y", 1))

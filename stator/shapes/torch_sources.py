"""Our sources as torch's shape machinery wants them.   Local("x")  ->  a torch._guards.Source named "x"

torch only names symbols after them; reading the values again is the business of our own guards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch._guards import Source as TorchSource

from stator.source import Source, unpinned


@dataclass(frozen=True)
class SavedName:
    """All that is left of a source in a cache that torch wrote to disk: how it was called."""

    name: str

    def text(self) -> str:
        return self.name


class NamedSource(TorchSource):
    """A source of ours behind torch's interface; compiled graphs, which may outlive what it names, keep it."""

    def __init__(self, source: Source | SavedName) -> None:
        self.source = unpinned(source) if isinstance(source, Source) else source
        self.identity = hash(source)  # of sources with one text, while their objects live

    def __reduce__(self) -> Any:
        return NamedSource, (SavedName(self.source.text()),)

    @property
    def _name_template(self) -> str:
        return self.source.text()

    def __hash__(self) -> int:
        return self.identity

    def __eq__(self, other: object) -> bool:
        return type(other) is NamedSource and self.identity == other.identity and self.source == other.source

"""Entries that travel in torch's bundle of caches.   save_cache_artifacts() -> bytes;  load_cache_artifacts(bytes)

In: all that this process has captured.  Out: one artifact of the type "stator" for each compile() call, beside those of
Inductor, AOTAutograd and Triton.  A process that loads the bundle finds the entries as it finds those of a store.

torch takes code from such a bundle, so whoever loads one trusts its origin: entries in it need no signature.
"""

from __future__ import annotations

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

from stator import events
from stator.artifacts import store
from stator.artifacts.container import pack, unpack
from stator.artifacts.refusal import Refused
from stator.artifacts.signing import user_key
from stator.artifacts.store_writes import captured

TYPE = "stator"


@CacheArtifactFactory.register
class StatorCacheArtifact(CacheArtifact):
    """The entries of one compile() call."""

    def populate_cache(self) -> None:
        try:
            container = unpack(self.content, None, trusted=True)
        except Refused as refusal:
            events.emit(events.ArtifactRefused(self.key, str(refusal)))
            return
        store.given[self.key] = container
        store.put(self.key, container)

    @staticmethod
    def type() -> str:
        return TYPE


def record_captures() -> None:
    """Add everything that was captured to torch's list of artifacts; entries without a portable form are left out."""
    for key, container in captured():
        CacheArtifactManager.record_artifact(TYPE, key, pack(container, user_key()))

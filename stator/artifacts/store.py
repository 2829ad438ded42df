"""The folder in which processes share artifacts.   put("key", container);  get("key") -> container

In: containers by key.  Out: the container of a key, in this process or another, or None.  No call raises for what it
finds on disk: a file or folder that cannot be trusted is an `ArtifactRefused` event, once, and counts as absent.

Each key has one file, named by the hash of the key and replaced in one step. Readers take no lock. Files that were
not used for longest go first where the folder is larger than `artifact_store_bytes`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from stator import events
from stator.artifacts import leases
from stator.artifacts.container import DEFAULT_LIMITS, START_BYTES, Container, Limits
from stator.artifacts.own_files import TEMPORARY, check_folder, make_folder, read_start
from stator.artifacts.refusal import Reason, Refused
from stator.artifacts.signing import is_trusted, read_signed, write_signed
from stator.settings.process_config import config

SUFFIX = ".stator"
ABANDONED_SECONDS = 3600.0  # age at which a temporary file belongs to no living writer
_FULL, _EMPTIED = 1.0, 0.9  # shares of the size limit at which removal begins and ends
_refused: set[tuple[str, Reason]] = set()
_reasons: dict[str, str] = {}  # by path
_lock = threading.Lock()
given: dict[str, Container] = {}  # by key: what another process has handed over (cache_artifacts.py)


class Mode(enum.Enum):
    OFF = "off"
    READ = "read"
    READ_WRITE = "read-write"


@dataclasses.dataclass(frozen=True)
class Store:
    """One folder of artifacts."""

    folder: Path
    mode: Mode = Mode.READ_WRITE
    largest: int = 4 << 30
    limits: Limits = DEFAULT_LIMITS

    def path(self, key: str) -> Path:
        return self.folder / (hashlib.sha256(key.encode()).hexdigest()[:48] + SUFFIX)

    def lease_path(self, key: str) -> Path | None:
        """The file of the lease for captures of a key, in a folder that exists; None where nothing can be written."""
        if self.mode is not Mode.READ_WRITE:
            return None
        try:
            make_folder(self.folder)
        except Refused as refusal:
            report(refusal, self.folder)
            return None
        return self.path(key).with_suffix(leases.SUFFIX)

    def get(self, key: str) -> Container | None:
        """The container of a key, None where there is none that may be used."""
        if self.mode is Mode.OFF or not os.path.lexists(path := self.path(key)):
            return None
        try:
            check_folder(self.folder, any_owner=is_trusted(path))
            found = read_signed(path, self.limits)
            if found is not None and found.label != key:
                raise Refused(Reason.WRONG_LABEL, str(path))
        except Refused as refusal:
            report(refusal, path)
            return None
        _reasons.pop(str(path), None)
        if found is not None and self.mode is Mode.READ_WRITE:
            with contextlib.suppress(OSError):
                os.utime(path)  # read last now
        return found

    def put(self, key: str, container: Container) -> bool:
        """Store a container in place of an earlier one of its key; False where that is not possible."""
        if self.mode is not Mode.READ_WRITE:
            return False
        path = self.path(key)
        try:
            make_folder(self.folder)
            limits = dataclasses.replace(self.limits, file_bytes=min(self.limits.file_bytes, self.largest))
            write_signed(path, dataclasses.replace(container, label=key), limits)
            self._make_room(path)
        except Refused as refusal:
            report(refusal, path)
            return False
        return True

    def remove(self, key: str) -> None:
        if self.mode is Mode.READ_WRITE:
            with contextlib.suppress(OSError):
                self.path(key).unlink()

    def files(self) -> Iterator[tuple[float, int, Path]]:
        """Time of last use, size and path of each file; temporary ones and leases too."""
        with contextlib.suppress(OSError), os.scandir(self.folder) as listing:
            for item in listing:
                with contextlib.suppress(OSError):  # removed meanwhile
                    found = item.stat(follow_symlinks=False)
                    known = item.name.endswith((SUFFIX, leases.SUFFIX)) or item.name.startswith(TEMPORARY)
                    if known and stat.S_ISREG(found.st_mode):
                        yield found.st_mtime, found.st_size, Path(item.path)

    def _make_room(self, kept: Path) -> None:
        """Remove abandoned temporary files and leases, and while the folder is too large the least recently used."""
        now, found = time.time(), []
        for used, size, path in self.files():
            if path.suffix == SUFFIX:
                found.append((used, size, path))
            elif now - used > ABANDONED_SECONDS:
                _unlink(path)
        total = sum(size for _, size, _ in found)
        if total <= self.largest * _FULL:
            return
        for _, size, path in sorted(found):
            if total <= self.largest * _EMPTIED:
                break
            if path != kept:
                _unlink(path)
                total -= size


def current() -> Store | None:
    """The store that settings and environment name, None where there is none."""
    named = config.artifact_dir or os.environ.get("STATOR_CACHE_DIR", "")
    if not named:
        return None
    text = config.artifact_mode or os.environ.get("STATOR_CACHE_MODE", "") or Mode.READ_WRITE.value
    if text not in (known := {each.value: each for each in Mode}):
        report(Refused(Reason.MODE, f"artifact_mode or STATOR_CACHE_MODE is {text!r}"), Path(named))
        return None
    if (mode := known[text]) is Mode.OFF:
        return None
    return Store(Path(named).expanduser().absolute(), mode, config.artifact_store_bytes)


def is_used() -> bool:
    """Whether a capture of another process may be found."""
    return bool(given) or current() is not None


def is_written() -> bool:
    """Whether a capture of this process is stored."""
    store = current()
    return store is not None and store.mode is Mode.READ_WRITE


def get(key: str) -> Container | None:
    """The container of a key, among those that were handed over or in the current store."""
    if key in given:
        return given[key]
    store = current()
    return None if store is None else store.get(key)


def stamp(key: str) -> bytes | None:
    """Bytes that change when the file of a key is replaced; None where there is none."""
    store = current()
    return b"given" if key in given else None if store is None else read_start(store.path(key), START_BYTES)


def put(key: str, container: Container) -> bool:
    """Whether the current store has taken the container."""
    store = current()
    return store is not None and store.put(key, container)


def why_refused(key: str) -> str | None:
    """Why the file of a key is not used; None where there is none, or one that may be used."""
    store = current()
    return None if store is None else _reasons.get(str(store.path(key)))


def report(refusal: Refused, path: Path) -> None:
    """Emit the event of a refusal, once for each path and reason."""
    with _lock:
        _reasons[str(path)] = f"{path}: {refusal}"
        if (fact := (str(path), refusal.reason)) in _refused:
            return
        _refused.add(fact)
    events.emit(events.ArtifactRefused(str(path), str(refusal)))


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)

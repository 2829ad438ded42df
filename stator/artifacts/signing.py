"""Key of the user, and folders that the user trusts.   user_key() -> 32 bytes;  is_trusted(path) -> bool

In: the settings `artifact_key_file` and `artifact_trusted_dirs`.  Out: a key that signs what this user writes. It is
made once, in a file that nobody else can read.  A file of a trusted folder is accepted without a signature by it.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from stator.artifacts.container import DEFAULT_LIMITS, KEY_BYTES, Container, Limits, pack, unpack
from stator.artifacts.own_files import check_folder, make_folder, read_file, write_file
from stator.artifacts.refusal import Reason, Refused
from stator.settings.process_config import config

KEY_NAME = "artifact_key"


def key_path() -> Path:
    """`artifact_key_file`, else `artifact_key` in the user's folder for settings."""
    if config.artifact_key_file:
        return Path(config.artifact_key_file).expanduser().absolute()
    base = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        return (Path(base) if os.path.isabs(base) else Path.home() / ".config") / "stator" / KEY_NAME
    except RuntimeError as error:  # no home folder
        raise Refused(Reason.UNREADABLE, "the user has no home folder; set stator.config.artifact_key_file") from error


def user_key() -> bytes:
    """The key of this user; made if there is none.  Of processes that make one at once, all get the same."""
    path = key_path()
    if (key := _read_key(path)) is None:
        make_folder(path.parent)
        try:
            write_file(path, secrets.token_bytes(KEY_BYTES), replace=False)
        except OSError as error:
            raise Refused(Reason.UNREADABLE, f"{path}: {error.strerror}") from error
        key = _read_key(path)
    if key is None:
        raise Refused(Reason.UNREADABLE, f"{path} was removed")
    return key


def _read_key(path: Path) -> bytes | None:
    if path.parent.exists():
        check_folder(path.parent)
    key = read_file(path, KEY_BYTES, secret=True)
    if key is not None and len(key) != KEY_BYTES:
        raise Refused(Reason.MALFORMED, f"the key {path} has {len(key)} bytes, not {KEY_BYTES}")
    return key


def is_trusted(path: Path) -> bool:
    """Whether a file is in or below a folder that the user has named, to which not everybody can write."""
    real = path.parent.resolve()
    for named in filter(None, config.artifact_trusted_dirs.split(os.pathsep)):
        trusted = Path(named).expanduser().resolve()
        if real == trusted or trusted in real.parents:
            check_folder(trusted, any_owner=True)
            check_folder(real, any_owner=True)
            return True
    return False


def read_signed(path: Path, limits: Limits = DEFAULT_LIMITS) -> Container | None:
    """The container in a file, None where there is none.  Refused: neither signed by this user nor trusted."""
    trusted = is_trusted(path)
    data = read_file(path, limits.file_bytes, any_owner=trusted)
    if data is None:
        return None
    try:
        key = _read_key(key_path())
    except Refused:
        if not trusted:
            raise
        key = None
    return unpack(data, key, limits, trusted=trusted)


def unsigned(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Container:
    """The container in bytes that this user has signed."""
    return unpack(data, _read_key(key_path()), limits)


def write_signed(path: Path, container: Container, limits: Limits = DEFAULT_LIMITS) -> int:
    """Write a container under the signature of this user; the number of bytes."""
    data = pack(container, user_key(), limits)
    try:
        write_file(path, data)
    except OSError as error:
        raise Refused(Reason.UNREADABLE, f"{path}: {error.strerror}") from error
    return len(data)

"""File format of artifacts: a JSON manifest and named byte strings, under one signature.

In: a `Container` and a key.  Out: bytes; and from bytes the equal container, or `Refused`.

    header     magic, version, number of blobs, sizes of all parts
    key id     which key signed
    digest     SHA-256 of header, key id, label, manifest and table
    signature  HMAC-SHA256 of the digest
    label      the name under which the file was stored
    manifest   JSON
    table      of each blob: size, SHA-256, name
    blobs      one after the other

Only the header is read before the signature is checked. No part is compressed, evaluated or unpickled.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from stator.artifacts.refusal import Reason, Refused

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"

MAGIC = b"\x93STATOR\n"
VERSION = 1
KEY_BYTES = 32
_HEADER = struct.Struct("<8sIIQQQI")  # magic, version, blobs; bytes of the file, manifest, table and label
_SIGNATURE = struct.Struct("16s32s32s")  # key id, digest, signature
_BLOB = struct.Struct("<QH32s")  # size, length of the name, SHA-256; then the name
START_BYTES = _HEADER.size + _SIGNATURE.size
# A relative path without `.`, `..` and empty parts: a name can do no harm where it becomes a file name.
_NAME = re.compile(r"(?!\.\.?(?:/|\Z))[\w.+=@-]{1,200}(?:/(?!\.\.?(?:/|\Z))[\w.+=@-]{1,200}){0,15}", re.ASCII)


@dataclass(frozen=True)
class Limits:
    """Largest accepted file and parts."""

    file_bytes: int = 512 << 20
    manifest_bytes: int = 64 << 20
    label_bytes: int = 4096
    blobs: int = 4096
    depth: int = 200  # of the JSON value
    values: int = 4_000_000  # in the JSON value


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Container:
    """One artifact: JSON values, and bytes by name.  `label` is the name of the file in a store."""

    manifest: dict[str, Json]
    blobs: dict[str, bytes] = field(default_factory=dict)
    label: str = ""


def pack(container: Container, key: bytes, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Bytes of a container, or Refused beyond a limit.  Values must be exactly JSON (TypeError, ValueError)."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
    _check_names(container.blobs)
    if problem := _json_problem(container.manifest, limits):
        raise Refused(Reason.TOO_LARGE, problem)
    label = container.label.encode()
    manifest = json.dumps(container.manifest, allow_nan=False, separators=(",", ":")).encode("ascii")
    rows = [(name.encode("ascii"), blob) for name, blob in container.blobs.items()]
    table = b"".join([_BLOB.pack(len(blob), len(name), hashlib.sha256(blob).digest()) + name for name, blob in rows])
    total = START_BYTES + len(label) + len(manifest) + len(table) + sum(map(len, container.blobs.values()))
    _check_sizes((len(rows), total, len(manifest), len(table), len(label)), limits)
    header = _HEADER.pack(MAGIC, VERSION, len(rows), total, len(manifest), len(table), len(label))
    signed = key_id(key)
    digest = hashlib.sha256(b"".join((header, signed, label, manifest, table))).digest()
    signature = _SIGNATURE.pack(signed, digest, _sign(key, digest))
    return b"".join((header, signature, label, manifest, table, *container.blobs.values()))


def unpack(data: bytes, key: bytes | None, limits: Limits = DEFAULT_LIMITS, *, trusted: bool = False) -> Container:
    """The container in `data`, or Refused.

    Without `trusted`, only a signature by `key` is accepted. With it, a file of another key must be intact; a file
    of this key must have a valid signature in any case.
    """
    view = memoryview(data)
    blobs, sizes = _read_header(view, limits)
    label, manifest, table, contents = _split(view[START_BYTES:], sizes)
    signed, digest, signature = _SIGNATURE.unpack(view[_HEADER.size:START_BYTES])
    found = hashlib.sha256(b"".join((view[:_HEADER.size], signed, label, manifest, table))).digest()
    if not hmac.compare_digest(found, digest):
        raise Refused(Reason.TAMPERED, "the digest differs")
    if key is not None and signed == key_id(key):
        if not hmac.compare_digest(_sign(key, digest), signature):
            raise Refused(Reason.TAMPERED, "the signature is not valid")
    elif not trusted:
        raise Refused(Reason.OTHER_KEY)
    try:
        name = str(label, "utf-8")
    except UnicodeDecodeError as error:
        raise Refused(Reason.MALFORMED, "the label is not UTF-8") from error
    return Container(_read_json(bytes(manifest), limits), _read_blobs(blobs, bytes(table), contents, limits), name)


def key_id(key: bytes) -> bytes:
    """Name of a key in a file; it does not disclose the key."""
    return hashlib.sha256(b"stator key\0" + key).digest()[:16]


def _sign(key: bytes, digest: bytes) -> bytes:
    return hmac.digest(key, b"stator artifact\0" + digest, "sha256")


# ---------------------------------------------------------------------- reading


def _read_header(view: memoryview, limits: Limits) -> tuple[int, tuple[int, int, int]]:
    """Number of blobs; sizes of label, manifest and table."""
    if bytes(view[:len(MAGIC)]) != MAGIC[:len(view)] or not view:
        raise Refused(Reason.FOREIGN)
    if len(view) < START_BYTES:
        raise Refused(Reason.TRUNCATED)
    _, version, blobs, total, manifest, table, label = _HEADER.unpack(view[:_HEADER.size])
    if version != VERSION:
        raise Refused(Reason.VERSION, f"version {version}, not {VERSION}")
    _check_sizes((blobs, total, manifest, table, label), limits)
    if total != len(view) or START_BYTES + label + manifest + table > total:
        raise Refused(Reason.TRUNCATED, f"{len(view):,} bytes, the header has {total:,}")
    return blobs, (label, manifest, table)


def _split(view: memoryview, sizes: tuple[int, ...]) -> list[memoryview]:
    """The parts of these sizes, and the rest."""
    parts, start = [], 0
    for size in sizes:
        parts.append(view[start:start + size])
        start += size
    return [*parts, view[start:]]


def _read_blobs(count: int, table: bytes, contents: memoryview, limits: Limits) -> dict[str, bytes]:
    blobs: dict[str, bytes] = {}
    at = start = 0
    for _ in range(count):
        if at + _BLOB.size > len(table):
            raise Refused(Reason.MALFORMED, "the table of blobs is short")
        size, length, digest = _BLOB.unpack_from(table, at)
        at += _BLOB.size + length
        name = table[at - length:at].decode("ascii", "replace")
        if len(name) != length or not _NAME.fullmatch(name) or name in blobs:
            raise Refused(Reason.MALFORMED, f"{name!r} is no name of a blob")
        blob = bytes(contents[start:start + size])
        start += size
        if len(blob) != size:
            raise Refused(Reason.MALFORMED, f"blob {name!r} is short")
        if not hmac.compare_digest(hashlib.sha256(blob).digest(), digest):
            raise Refused(Reason.TAMPERED, f"the digest of blob {name!r} differs")
        blobs[name] = blob
    if at != len(table) or start != len(contents):
        raise Refused(Reason.MALFORMED, "bytes that belong to no blob")
    return blobs


def _read_json(text: bytes, limits: Limits) -> dict[str, Json]:
    try:
        value = json.loads(text.decode("ascii"), object_pairs_hook=_unique, parse_float=_finite,
                           parse_constant=_finite)
    except Refused:
        raise
    except (ValueError, RecursionError) as error:
        raise Refused(Reason.MALFORMED, f"the manifest is not JSON: {error}") from error
    if type(value) is not dict:
        raise Refused(Reason.MALFORMED, "the manifest is no JSON object")
    if problem := _json_problem(value, limits):
        raise Refused(Reason.TOO_LARGE, problem)
    return value


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refused(Reason.MALFORMED, "a JSON object has one key twice")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise Refused(Reason.MALFORMED, f"{text[:40]} is no finite number")
    return number


# ---------------------------------------------------------------------- checks


def _json_problem(value: Mapping[str, Json], limits: Limits) -> str | None:
    """Depth or number of values beyond the limits, or None.  A type that JSON does not have raises TypeError."""
    level: list[object] = [value]
    count = 0
    for _ in range(limits.depth):
        count += len(level)
        if count > limits.values:
            return f"more than {limits.values:,} JSON values"
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return None
    return f"JSON values nested deeper than {limits.depth}"


def _inside(value: object) -> Iterable[object]:
    kind = type(value)
    if value is None or kind is str or kind is int or kind is bool or kind is float:
        return ()
    if kind is list:
        return value  # type: ignore[return-value]
    if kind is dict:
        assert isinstance(value, dict)
        for key in value:
            if type(key) is not str:
                raise TypeError(f"{key!r} is no key of a JSON object")
        return value.values()
    raise TypeError(f"{value!r} is no JSON value")


def _check_sizes(sizes: tuple[int, ...], limits: Limits) -> None:
    """Refuse sizes of a header that are beyond the limits."""
    largest_table = limits.blobs * (_BLOB.size + 16 * 201)
    allowed = (limits.blobs, limits.file_bytes, limits.manifest_bytes, largest_table, limits.label_bytes)
    for name, size, limit in zip(("blobs", "file", "manifest", "table", "label"), sizes, allowed, strict=True):
        if size > limit:
            raise Refused(Reason.TOO_LARGE, f"{name}: {size:,}, at most {limit:,}")


def _check_names(blobs: Mapping[str, bytes]) -> None:
    for name, blob in blobs.items():
        if type(blob) is not bytes:
            raise TypeError(f"blob {name!r} is {type(blob).__name__}, not bytes")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a blob; use a relative path of letters, digits and _.+=@-")

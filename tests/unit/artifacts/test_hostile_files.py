"""Hostile files are refused, and each check is needed: without it an attack or a mutation succeeds."""

from __future__ import annotations

import contextlib
import inspect
import os
import textwrap

import pytest

from stator.artifacts import container, own_files, store
from tests.unit.artifacts import hostile_files

FAULTS = [  # function, its text, the text without a check
    (container.unpack, "not hmac.compare_digest(found, digest)", "False"),
    (container.unpack, "not hmac.compare_digest(_sign(key, digest), signature)", "False"),
    (container.unpack, "elif not trusted:", "elif False:"),
    (container._sign, 'hmac.digest(key, b"stator artifact\\0" + digest, "sha256")', "bytes(32)"),
    (container._read_blobs, "not hmac.compare_digest(hashlib.sha256(blob).digest(), digest)", "False"),
    (container._read_blobs, "or not _NAME.fullmatch(name)", ""),
    (container._read_blobs, "or name in blobs", ""),
    (container._read_blobs, "at != len(table) or", ""),
    (container._read_blobs, "or start != len(contents)", ""),
    (container._read_header, "version != VERSION", "False"),
    (container._read_json, "except (ValueError, RecursionError)", "except ZeroDivisionError"),
    (container._read_json, "object_pairs_hook=_unique, ", ""),
    (container._read_json, "type(value) is not dict", "False"),
    (container._json_problem, "return f\"JSON values nested", "return None\n    f\"JSON"),
    (container._finite, "not math.isfinite(number := float(text))", "(number := float(text)) is None"),
    (store.Store.get, "found.label != key", "False"),
    (store.Store.get, "check_folder(self.folder, any_owner=is_trusted(path))", "pass"),
    (own_files.check_folder, "above.st_mode & _OTHERS_WRITE", "False"),
    (own_files._check_owner, "found.st_uid != os.geteuid()", "False"),
    (own_files._check_owner, "found.st_mode & _OTHERS_WRITE", "False"),
    (own_files.read_file, "_READ_FLAGS", "_READ_FLAGS & ~os.O_NOFOLLOW"),
    (own_files.read_file, "secret and", "False and"),
]


@contextlib.contextmanager
def fault(function, old, new):
    """The function with other text, for everybody who has imported it."""
    text = textwrap.dedent(inspect.getsource(function))
    assert old in text, f"{function.__name__} has no {old!r}"
    names: dict[str, object] = {}
    future = "from __future__ import annotations\n"
    exec(compile(future + text.replace(old, new), function.__code__.co_filename, "exec"), function.__globals__.copy(), names)
    before = function.__code__
    function.__code__ = names[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = before


def signed_texts_that_open() -> list[str]:
    """Malformed content under a valid signature that `unpack` takes."""
    key, found = b"k" * 32, []
    data = container.pack(hostile_files.SAMPLE, key)
    row = container._BLOB.pack(0, 1, container.hashlib.sha256(b"").digest())
    cases = {"nested": (b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", b"", b"", 0), "list": (b"[]", b"", b"", 0),
             "infinite": (b'{"a":1e999}', b"", b"", 0), "no JSON": (b"{", b"", b"", 0), "rest": (b"{}", b"", b"x", 0),
             "long table": (b"{}", b"x", b"", 0), "name": (b"{}", row + b"/", b"", 1),
             "name twice": (b"{}", (row + b"a") * 2, b"", 2), "key twice": (b'{"a":1,"a":1}', b"", b"", 0)}
    for name, (manifest, table, blobs, count) in cases.items():
        parts = hostile_files.Parts.of(data)
        parts.manifest, parts.table, parts.blobs, parts.header[2] = manifest, table, blobs, count
        try:
            container.unpack(parts.joined(key), key)
        except container.Refused:
            continue
        except Exception as error:
            name = f"{name}: {error!r}"
        found.append(name)
    changed = bytearray(data)
    changed[8] = 2  # the version
    with contextlib.suppress(container.Refused):
        container.unpack(hostile_files.Parts.of(bytes(changed)).joined(key), key)
        found.append("version")
    return found


def test_every_attack_and_mutation_is_refused(tmp_path):
    assert hostile_files.violations(tmp_path) == [] == signed_texts_that_open()
    assert list(hostile_files.format_violations(runs=1500, seed=0)) == []


@pytest.mark.parametrize("function, old, new", FAULTS, ids=lambda value: getattr(value, "__name__", None))
def test_a_missing_check_is_found(function, old, new, tmp_path):
    with fault(function, old, new):
        found = hostile_files.violations(tmp_path) or signed_texts_that_open() or \
            list(hostile_files.format_violations(runs=300, seed=1))
    assert found


def test_an_attack_that_a_reader_survives_leaves_its_entry_to_be_written_again(tmp_path):
    """Files that were destroyed are replaced by the next capture."""
    tmp_path.chmod(0o700)
    with store.config.patch(artifact_key_file=str(tmp_path / "key")):
        for name in ("flip_a_bit_of_code", "truncate", "put_a_pickle_there", "link_to_another_file", "put_a_pipe_there"):
            place = store.Store(tmp_path / name)
            assert place.put("one", hostile_files.SAMPLE) and place.put("two", hostile_files.OTHER)
            hostile_files.ATTACKS[name](place.path("one"), place.path("two"))
            assert place.get("one") is None and place.put("one", hostile_files.SAMPLE)
            assert place.get("one").blobs == hostile_files.SAMPLE.blobs and not os.path.islink(place.path("one"))

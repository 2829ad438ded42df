"""Attacks on a store, and a seeded mutator of its file format.

    python -m tests.unit.artifacts.hostile_files --runs 100000 --seed 7

In: a store with two good entries.  Out: the attacks after which `get` returned something else than before, or raised.
An attack that leaves the stored container as it was is no violation.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stator.artifacts import container as format_of
from stator.artifacts.container import Container, pack, unpack
from stator.artifacts.refusal import Refused
from stator.artifacts.signing import key_path, user_key
from stator.artifacts.store import Store
from stator.settings.process_config import config

OTHER_KEY = b"o" * 32
SAMPLE = Container({"guards": [1, 2.5, None, True, "text"], "residual": {"deep": [[]]}},
                   {"graph.py": b"print('good')" * 9, "kernels/a.so": bytes(range(256))})
OTHER = replace(SAMPLE, manifest={"guards": [], "other": True})


# ---------------------------------------------------------------------- bytes


@dataclass
class Parts:
    """A file taken apart, so that a forger can change one part and put it together again."""

    header: list[int | bytes]
    key_id: bytes
    digest: bytes
    signature: bytes
    label: bytes
    manifest: bytes
    table: bytes
    blobs: bytes

    @classmethod
    def of(cls, data: bytes) -> Parts:
        header = format_of._HEADER.unpack(data[:format_of._HEADER.size])
        at, rest = format_of.START_BYTES, []
        for size in (header[6], header[4], header[5]):
            rest.append(data[at:at + size])
            at += size
        signed = format_of._SIGNATURE.unpack(data[format_of._HEADER.size:format_of.START_BYTES])
        return cls(list(header), *signed, *rest, data[at:])

    def joined(self, key: bytes | None = None, *, sizes: bool = True, digest: bool = True) -> bytes:
        """The file.  `sizes`, `digest`: made to fit; with a key the signature is, too."""
        if sizes:
            self.header[4:] = len(self.manifest), len(self.table), len(self.label)
            self.header[3] = format_of.START_BYTES + sum(map(len, (self.label, self.manifest, self.table, self.blobs)))
        header = format_of._HEADER.pack(*self.header)
        if digest:
            content = b"".join((header, self.key_id, self.label, self.manifest, self.table))
            self.digest = hashlib.sha256(content).digest()
        if key is not None:
            self.signature = format_of.hmac.digest(key, b"stator artifact\0" + self.digest, "sha256")
        signed = format_of._SIGNATURE.pack(self.key_id, self.digest, self.signature)
        return b"".join((header, signed, self.label, self.manifest, self.table, self.blobs))


def with_blob(parts: Parts, old: bytes, new: bytes) -> Parts:
    """Replace bytes of a blob by as many others, and its digest in the table."""
    assert len(old) == len(new) and old in parts.blobs
    for blob in SAMPLE.blobs.values():
        changed = blob.replace(old, new)
        parts.table = parts.table.replace(hashlib.sha256(blob).digest(), hashlib.sha256(changed).digest())
    parts.blobs = parts.blobs.replace(old, new)
    return parts


def mutated(data: bytes, rng: random.Random, key: bytes) -> bytes:
    """One random change: raw, behind a forged digest, or signed with the right key."""
    if rng.random() < 0.4:
        return _changed_bytes(data, rng)
    parts = Parts.of(data)
    name = rng.choice(["header", "label", "manifest", "table", "blobs", "key_id", "signature"])
    if name == "header":
        at = rng.randrange(1, 7)
        top = 32 if at in (1, 2, 6) else 64
        parts.header[at] = rng.choice([0, 1, rng.getrandbits(8), (1 << top) - 1, 1 << (top - 1), rng.getrandbits(top)])
    elif name == "manifest":
        parts.manifest = rng.choice(_TEXTS)(rng) if rng.random() < 0.5 else _changed_bytes(parts.manifest, rng)
    elif name in ("key_id", "signature"):
        setattr(parts, name, rng.randbytes(16 if name == "key_id" else 32))
    else:
        setattr(parts, name, _changed_bytes(getattr(parts, name), rng))
    return parts.joined(key if rng.random() < 0.5 and name not in ("key_id", "signature") else None,
                        sizes=name != "header" and rng.random() < 0.9, digest=rng.random() < 0.9)


def _changed_bytes(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice([1, 1, 2, 8, 100]))
    return rng.choice([
        lambda: data[:at], lambda: data[at:], lambda: data[:at] + data[end:],
        lambda: data[:at] + rng.randbytes(end - at) + data[end:], lambda: data[:end] + data[at:],
        lambda: data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1:] if at < len(data) else b"",
        lambda: data + rng.randbytes(rng.randrange(1, 50)), lambda: rng.randbytes(rng.randrange(300))])()


_TEXTS: list[Callable[[random.Random], bytes]] = [
    lambda rng: b"[" * rng.choice([10, 199, 5000, 200_000]),
    lambda rng: b'{"a":' * (n := rng.choice([10, 300, 50_000])) + b"1" + b"}" * n,
    lambda rng: b'{"a":' + b"[" * (n := rng.choice([10, 300, 50_000])) + b"]" * n + b"}",
    lambda rng: b'{"a":[' + b"0," * 20_000 + b"0]}",
    lambda rng: b'{"a":1,"a":2}', lambda rng: b'{"a":NaN}', lambda rng: b'{"a":1e999}', lambda rng: b'{"\\ud800":1}',
    lambda rng: b'{"a":' + b"9" * rng.choice([5, 4000, 50_000]) + b"}", lambda rng: pickle.dumps(SAMPLE.manifest),
    lambda rng: json.dumps({"a": "\x00" * rng.randrange(200)}).encode(), lambda rng: rng.randbytes(rng.randrange(200)),
]


def format_violations(runs: int, seed: int) -> Iterator[str]:
    """Mutations that `unpack` neither refused nor read as a container that packs to the very same bytes."""
    key, rng = b"k" * 32, random.Random(seed)
    data = pack(replace(SAMPLE, label="one"), key)
    for run in range(runs):
        changed = mutated(data, rng, key)
        for opener, trusted in ((key, False), (OTHER_KEY, False), (None, True)):
            try:
                found = unpack(changed, opener, trusted=trusted)
            except Refused:
                continue
            except Exception as error:
                yield f"seed {seed}, run {run}: {error!r}"
                continue
            if opener is OTHER_KEY:
                yield f"seed {seed}, run {run}: opened without the key"
            elif opener == key and Parts.of(changed).joined(key) != changed:
                yield f"seed {seed}, run {run}: opened without a valid signature"
            elif unpack(pack(found, key), key) != found:
                yield f"seed {seed}, run {run}: the container is none that pack accepts"


# ---------------------------------------------------------------------- files


Attack = Callable[[Path, Path], object]  # on the file of the key that is read, and the file of another key
ATTACKS: dict[str, Attack] = {}


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


def _rewrite(path: Path, change: Callable[[Parts], object], key: bytes | None = None) -> None:
    parts = Parts.of(path.read_bytes())
    change(parts)
    path.write_bytes(parts.joined(key))


@attack
def flip_a_bit_of_code(path: Path, other: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b"good", b"evil", 1))


@attack
def forge_the_manifest(path: Path, other: Path) -> None:
    _rewrite(path, lambda parts: setattr(parts, "manifest", parts.manifest.replace(b"true", b"null")))


@attack
def forge_the_code(path: Path, other: Path) -> None:
    _rewrite(path, lambda parts: with_blob(parts, b"good", b"evil"))


@attack
def sign_with_another_key(path: Path, other: Path) -> None:
    path.write_bytes(pack(replace(OTHER, label="one"), OTHER_KEY))


@attack
def claim_the_right_key(path: Path, other: Path) -> None:
    parts = Parts.of(pack(replace(OTHER, label="one"), OTHER_KEY))
    parts.key_id = format_of.key_id(user_key())
    path.write_bytes(parts.joined(OTHER_KEY))


@attack
def truncate(path: Path, other: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@attack
def append(path: Path, other: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


@attack
def exchange_two_files(path: Path, other: Path) -> None:
    os.replace(other, path)


@attack
def link_to_another_file(path: Path, other: Path) -> None:
    """The target is a good file of this very key: only the link is wrong."""
    os.rename(path, target := path.with_name("target"))
    path.symlink_to(target)


@attack
def let_everybody_write_the_file(path: Path, other: Path) -> None:
    path.chmod(0o666)


@attack
def let_everybody_write_the_folder(path: Path, other: Path) -> None:
    path.parent.chmod(0o777)


@attack
def let_everybody_write_above_the_folder(path: Path, other: Path) -> None:
    path.parent.parent.chmod(0o777)


@attack
def replace_the_folder_by_a_link(path: Path, other: Path) -> None:
    folder = path.parent
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(folder.with_name("moved"))


@attack
def let_others_read_the_key(path: Path, other: Path) -> None:
    key_path().chmod(0o644)


@attack
def announce_a_huge_file(path: Path, other: Path) -> None:
    os.truncate(path, 1 << 40)  # sparse


@attack
def put_a_pipe_there(path: Path, other: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@attack
def put_a_folder_there(path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()


@attack
def put_a_pickle_there(path: Path, other: Path) -> None:
    path.write_bytes(pickle.dumps(SAMPLE.manifest))


@attack
def sign_deep_json(path: Path, other: Path) -> None:
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    _rewrite(path, lambda parts: setattr(parts, "manifest", deep), user_key())


@attack
def sign_one_key_twice(path: Path, other: Path) -> None:
    _rewrite(path, lambda parts: setattr(parts, "manifest", b'{"a":1,"a":2}'), user_key())


@attack
def belong_to_another_user(path: Path, other: Path) -> None:
    """`violations` reads as another user where this ran."""


def violations(folder: Path, names: list[str] | None = None) -> list[str]:
    """Attacks that a store does not withstand, each on a fresh store in `folder`."""
    found = []
    for number, (name, act) in enumerate(ATTACKS.items()):
        if names is not None and name not in names:
            continue
        base = folder / str(number)
        base.mkdir(mode=0o700)
        with config.patch(artifact_key_file=str(base / "settings" / "key")):
            store = Store(base / "store")
            assert store.put("one", SAMPLE) and store.put("two", OTHER)
            act(store.path("one"), store.path("two"))
            users = os.geteuid
            try:
                if name == "belong_to_another_user":
                    os.geteuid = lambda: users() + 1
                if store.get("one") is not None:
                    found.append(name)
            except Exception as error:
                found.append(f"{name}: {error!r}")
            finally:
                os.geteuid = users
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        problems = violations(Path(place)) + list(format_violations(options.runs, options.seed))
    print("\n".join(problems) or f"{len(ATTACKS)} attacks, {options.runs:,} mutations: all refused")
    sys.exit(bool(problems))

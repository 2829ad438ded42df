"""The file format of artifacts: what comes back, and each refusal with its reason."""

from __future__ import annotations

import json

import pytest

from stator.artifacts import container as format_of
from stator.artifacts.container import Container, Limits, pack, unpack
from stator.artifacts.refusal import Reason, Refused

KEY, OTHER = b"k" * 32, b"o" * 32
SAMPLE = Container({"guards": [1, -2.5, None, True, "é\ud800", {"deep": {}}], "": []},
                   {"graph.so": bytes(range(256)), "kernels/a.cubin": b""}, "entry-1")


def reason(data: bytes, key: bytes | None = KEY, limits: Limits = format_of.DEFAULT_LIMITS, *,
           trusted: bool = False) -> Reason:
    with pytest.raises(Refused) as refused:
        unpack(data, key, limits, trusted=trusted)
    assert refused.value.reason.cause in str(refused.value) and refused.value.reason.remedy in str(refused.value)
    return refused.value.reason


class Raw:
    """Bytes in place of the text of json.dumps."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def encode(self, _encoding: str) -> bytes:
        return self.data


def signed_text(manifest: bytes, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A file with a valid signature over any bytes in place of the manifest."""
    with monkeypatch.context() as patch:
        patch.setattr(format_of.json, "dumps", lambda *a, **k: Raw(manifest))
        patch.setattr(format_of, "_json_problem", lambda *a: None)
        return pack(Container({}), KEY)


def test_a_container_comes_back_equal_and_packs_to_the_same_bytes():
    data = pack(SAMPLE, KEY)
    assert unpack(data, KEY) == SAMPLE and list(unpack(data, KEY).blobs) == list(SAMPLE.blobs)
    assert pack(unpack(data, KEY), KEY) == data


def test_every_changed_byte_and_every_length_is_refused():
    data = pack(SAMPLE, KEY)
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]
        reason(changed), reason(changed, trusted=True), reason(data[:at]), reason(data[:at], trusted=True)
    assert reason(data + b"\0") is Reason.TRUNCATED


def test_only_the_key_that_signed_or_a_trusted_folder_opens_a_file():
    data = pack(SAMPLE, KEY)
    assert reason(data, OTHER) is Reason.OTHER_KEY
    assert reason(data, None) is Reason.OTHER_KEY
    assert unpack(data, OTHER, trusted=True) == SAMPLE == unpack(data, None, trusted=True)


def test_a_trusted_folder_does_not_excuse_a_bad_signature_of_the_own_key(monkeypatch):
    monkeypatch.setattr(format_of, "_sign", lambda key, digest: bytes(32))
    forged = pack(SAMPLE, KEY)
    monkeypatch.undo()
    assert reason(forged) is Reason.TAMPERED
    assert reason(forged, trusted=True) is Reason.TAMPERED


def test_what_is_no_artifact_is_named():
    assert reason(b"") is Reason.FOREIGN
    assert reason(b"\x80\x04\x95") is Reason.FOREIGN
    data = bytearray(pack(SAMPLE, KEY))
    data[8] += 1
    assert reason(bytes(data)) is Reason.VERSION


@pytest.mark.parametrize("text", [
    b"", b"[]", b"1", b"{", b'{"a":1,"a":2}', b'{"a":{"b":1,"b":1}}', b'{"a":NaN}', b'{"a":-Infinity}', b'{"a":1e999}',
    b'{"a":' + b"9" * 5000 + b"}", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"a":"\xff"}', b"{} {}",
    b'{"a":' + b"[" * 300 + b"]" * 300 + b"}"])
def test_signed_text_that_is_no_json_object_within_the_limits_is_refused(text, monkeypatch):
    assert reason(signed_text(text, monkeypatch)) in (Reason.MALFORMED, Reason.TOO_LARGE)


@pytest.mark.parametrize("limits", [Limits(file_bytes=400), Limits(manifest_bytes=10), Limits(label_bytes=3),
                                    Limits(blobs=1), Limits(depth=3), Limits(values=8)])
def test_each_limit_holds_in_both_directions(limits):
    assert reason(pack(SAMPLE, KEY), limits=limits) is Reason.TOO_LARGE
    with pytest.raises(Refused) as refused:
        pack(SAMPLE, KEY, limits)
    assert refused.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../b", "a/..", "..", ".", "./a", "a//b", "a/", "a\n", "é", "a b",
                                  "a\0b", "C:\\a", "x" * 300])
def test_blob_names_are_relative_paths(name, monkeypatch):
    with pytest.raises(ValueError):
        pack(Container({}, {name: b""}), KEY)
    monkeypatch.setattr(format_of, "_check_names", lambda *a: None)
    try:
        data = pack(Container({}, {name: b""}), KEY)
    except UnicodeEncodeError:
        return
    assert reason(data) is Reason.MALFORMED


@pytest.mark.parametrize("manifest", [{"a": (1,)}, {"a": {1: 2}}, {1: 2}, {"a": b""}, {"a": {1, 2}}, {"a": object()},
                                      {"a": type("Text", (str,), {})("x")}, {"a": Reason.FOREIGN}])
def test_values_that_json_would_change_silently_are_not_packed(manifest):
    with pytest.raises(TypeError):
        pack(Container(manifest), KEY)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_numbers_that_json_does_not_have_are_not_packed(number):
    with pytest.raises(ValueError):
        pack(Container({"a": number}), KEY)


def test_sizes_in_a_header_allocate_nothing():
    """A header of a few bytes that announces exabytes is refused by its limits."""
    size = format_of._HEADER
    for field in range(2, 7):
        values = list(size.unpack(pack(SAMPLE, KEY)[:size.size]))
        values[field] = (1 << (32 if field in (2, 6) else 64)) - 1
        assert reason(size.pack(*values) + bytes(200)) in (Reason.TOO_LARGE, Reason.TRUNCATED)


def test_the_manifest_is_text_that_any_json_reader_reads():
    data = pack(SAMPLE, KEY)
    start = format_of.START_BYTES + len(SAMPLE.label)
    text = data[start:start + len(json.dumps(SAMPLE.manifest, separators=(",", ":")))]
    assert json.loads(text) == SAMPLE.manifest

"""The store: modes, least recently used first, refusals as events, processes that are killed."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest
import torch

import stator
from stator import events
from stator.artifacts import store as room
from stator.artifacts import store_writes
from stator.artifacts.container import Container, Limits, pack
from stator.artifacts.store import Mode, Store
from stator.artifacts.store_lookup import Slot
from stator.report.text import render
from stator.settings.process_config import config
from tests.unit.artifacts.store_soak import soak

SAMPLE = Container({"a": [1]}, {"b": b"x" * 1000})


@pytest.fixture
def folder(tmp_path):
    tmp_path.chmod(0o700)
    with config.patch(artifact_key_file=str(tmp_path / "settings" / "key")):
        yield tmp_path / "store"


def refusals(log):
    return [event for event in log if isinstance(event, events.ArtifactRefused)]


def test_what_was_put_comes_back_under_its_key_alone(folder):
    store = Store(folder)
    assert store.get("one") is None and store.put("one", SAMPLE)
    assert store.get("one") == replace(SAMPLE, label="one") and store.get("two") is None
    assert store.put("one", replace(SAMPLE, manifest={})) and store.get("one").manifest == {}
    store.remove("one")
    assert store.get("one") is None and list(store.files()) == []


def test_modes(folder):
    Store(folder).put("one", SAMPLE)
    reader = Store(folder, Mode.READ)
    before = reader.path("one").stat()
    assert reader.get("one") is not None and not reader.put("two", SAMPLE)
    reader.remove("one")
    assert reader.path("one").stat().st_mtime_ns == before.st_mtime_ns
    off = Store(folder, Mode.OFF)
    assert off.get("one") is None and not off.put("two", SAMPLE)
    assert len(list(reader.files())) == 1


def test_reading_makes_neither_folder_nor_key(folder):
    assert Store(folder, Mode.READ).get("one") is None
    assert Store(folder).get("one") is None
    assert os.listdir(folder.parent) == []


def test_settings_and_environment_name_the_store(folder, monkeypatch):
    monkeypatch.delenv("STATOR_CACHE_DIR", raising=False)
    monkeypatch.delenv("STATOR_CACHE_MODE", raising=False)
    assert room.current() is None and room.get("one") is None and not room.put("one", SAMPLE)
    monkeypatch.setenv("STATOR_CACHE_DIR", str(folder))
    assert room.current() == Store(folder, Mode.READ_WRITE, 4 << 30)
    assert room.put("one", SAMPLE) and room.get("one") is not None
    monkeypatch.setenv("STATOR_CACHE_MODE", "read")
    assert room.current().mode is Mode.READ and not room.put("two", SAMPLE)
    with config.patch(artifact_mode="off"):
        assert room.current() is None
    with config.patch(artifact_dir=str(folder.parent), artifact_mode="read-write", artifact_store_bytes=5):
        assert room.current() == Store(folder.parent, Mode.READ_WRITE, 5)
    monkeypatch.setenv("STATOR_CACHE_MODE", "maybe")
    with events.record() as log:
        assert room.current() is None and room.current() is None
    assert len(refusals(log)) == 1 and "'maybe'" in log[0].why and "read-write" in log[0].why


def test_the_least_recently_used_go_first(folder):
    size = len(pack(replace(SAMPLE, label="0"), bytes(32)))
    store = Store(folder, largest=4 * size)
    for number in range(4):
        store.put(str(number), SAMPLE)
        os.utime(store.path(str(number)), (number, number))
    assert store.get("0") is not None  # used now
    store.put("4", SAMPLE)
    assert [store.get(str(number)) is not None for number in range(5)] == [True, False, False, True, True]


def test_an_entry_larger_than_the_store_is_not_taken(folder):
    store = Store(folder, largest=500)
    with events.record() as log:
        assert not store.put("one", SAMPLE)
    assert len(refusals(log)) == 1 and "beyond its limit" in log[0].why and list(store.files()) == []


def test_abandoned_temporary_files_go_and_others_stay(folder):
    store = Store(folder)
    store.put("one", SAMPLE)
    for name, age in ((".tmp-1-old", 7200), (".tmp-2-new", 10), ("notes.txt", 9000)):
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (time.time() - age,) * 2)
    store.put("two", SAMPLE)
    assert {".tmp-2-new", "notes.txt"} < set(os.listdir(folder)) and len(os.listdir(folder)) == 4


def test_a_refusal_is_one_event_with_cause_and_remedy(folder):
    store = Store(folder)
    store.put("one", SAMPLE)
    store.path("one").write_bytes(pack(replace(SAMPLE, label="one"), b"o" * 32))
    with events.record() as log:
        assert store.get("one") is None and store.get("one") is None
    [event] = refusals(log)
    assert event.path == str(store.path("one"))
    assert "another key" in event.why and "stator.config.artifact_trusted_dirs" in event.why
    assert event.path in render(event) and event.why in render(event)
    with config.patch(artifact_trusted_dirs=str(folder)):
        assert store.get("one") is not None


def test_a_store_in_a_bad_folder_is_refused_and_nothing_raises(folder):
    folder.mkdir()
    folder.chmod(0o777)
    with events.record() as log:
        assert not Store(folder).put("one", SAMPLE)
    assert "other users can write" in refusals(log)[0].why
    folder.chmod(0o700)
    (folder / "file").write_bytes(b"")
    with events.record() as log:
        assert not Store(folder / "file").put("one", SAMPLE) and Store(folder / "file").get("one") is None
        assert not Store(folder / "file" / "below").put("one", SAMPLE)
    assert len(refusals(log)) == 2
    (folder / "link").symlink_to(folder)
    with events.record() as log:
        assert not Store(folder / "link").put("one", SAMPLE)
    assert "symbolic link" in refusals(log)[0].why


def test_a_full_disk_is_refused(folder, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with events.record() as log:
        assert not Store(folder).put("one", SAMPLE)
    assert len(refusals(log)) == 1 and "No space left" in log[0].why and os.listdir(folder) == []


def test_a_huge_file_is_not_read(folder):
    store = Store(folder, limits=Limits(file_bytes=2000))
    store.put("one", SAMPLE)
    os.truncate(store.path("one"), 1 << 40)
    with events.record() as log:
        assert store.get("one") is None
    assert "1,099,511,627,776" in refusals(log)[0].why


def test_processes_that_are_killed_leave_nothing_corrupt(tmp_path):
    tmp_path.chmod(0o700)
    counts = soak(tmp_path, processes=4, seconds=1.5, kills_per_second=20)
    assert counts["problems"] == 0, counts
    assert counts["kills"] > 3 and counts["writes"] > 10 and counts["reads"] > 10


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x).sin()


def test_training_is_stored_before_its_backward_pass_has_run(folder):
    x = torch.ones(2, 3)
    with config.patch(artifact_dir=str(folder)):
        stator.compile(Layer(), backend="aot_eager")(x)
        assert len(os.listdir(folder)) == 1
        stator.reset()
        model = Layer()
        with events.record() as log:
            stator.compile(model, backend="aot_eager")(x).sum().backward()
    kinds = {type(event) for event in log}
    assert events.EntryLoaded in kinds and events.CaptureStarted not in kinds
    found, model.linear.weight.grad = model.linear.weight.grad, None
    model(x).sum().backward()
    torch.testing.assert_close(found, model.linear.weight.grad)


def test_processes_that_write_at_once_keep_each_others_files(folder):
    """Both have found the store empty: the second one takes the next slot."""
    with config.patch(artifact_dir=str(folder)):
        first, second = Slot("key"), Slot("key")
        for each in (first, second):
            each.put(SAMPLE)
        assert (first.number, second.number) == (0, 1)
        first.put(SAMPLE)
        assert first.number == 0 and len(os.listdir(folder)) == 2


def doubled(x):
    return x * 2


def test_why_not_cached_names_a_file_that_is_refused(folder):
    x = torch.ones(2)
    with config.patch(artifact_dir=str(folder)):
        stator.compile(doubled, backend="eager")(x)
        [path] = folder.glob("*.stator")
        path.rename(folder / "moved")
        path.symlink_to(folder / "moved")
        stator.reset()
        compiled = stator.compile(doubled, backend="eager")
        with events.record() as log:
            assert torch.equal(compiled(x), x * 2)
        assert [event.path for event in log if isinstance(event, events.ArtifactRefused)] == [str(path)]
        assert str(path) in (stator.why_not_cached(compiled) or "")
        assert not path.is_symlink() and (folder / "moved").exists()  # written anew, by the capture


@pytest.mark.parametrize("mode", ["read", "handed over"])
def test_nothing_is_described_where_nothing_is_written(folder, monkeypatch, mode):
    def refuse(*args, **kwargs):
        raise AssertionError("a capture was described")

    monkeypatch.setattr(store_writes, "describe", refuse)
    monkeypatch.setitem(room.given, "another", SAMPLE)
    where = {"artifact_dir": str(folder), "artifact_mode": "read"} if mode == "read" else {}
    with config.patch(**where):
        assert room.is_used() and not room.is_written()
        assert torch.equal(stator.compile(doubled, backend="eager")(torch.ones(2)), torch.ones(2) * 2)


def zeroed(x):
    torch.ops.aten._no_grad_zero_(x)  # an operator of TorchScript, which the dispatcher does not know
    return x + 1


def test_operators_of_torchscript_are_described(folder, monkeypatch):
    monkeypatch.setenv("STATOR_STRICT", "1")
    with config.patch(artifact_dir=str(folder)):
        x = torch.ones(2)
        assert torch.equal(stator.compile(zeroed, backend="eager")(x), torch.ones(2)) and not x.any()

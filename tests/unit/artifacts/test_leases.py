"""Leases: one process captures, the others wait; owners die, stop and take too long; nobody waits for ever."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import stator
from stator import events
from stator.artifacts import leases, store
from stator.artifacts.leases import Ended, Lease

OWNER = """
import sys, time
from pathlib import Path
from stator.artifacts import leases
held = leases.take(Path(sys.argv[1]))
print("held" if type(held) is leases.Lease else "not held", flush=True)
sys.stdin.readline()
if len(sys.argv) > 2:
    held.release()
    print("released", flush=True)
    time.sleep(60)
"""
NEVER = 600.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "key.lease"


@pytest.fixture
def owners() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for each in started:
        each.kill()
        each.communicate()


def owner(path: Path, owners: list[subprocess.Popen[str]], *more: str) -> subprocess.Popen[str]:
    """Another process that holds the lease."""
    command = [sys.executable, "-c", OWNER, str(path), *more]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    owners.append(process)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def later(action: Callable[[], object]) -> None:
    threading.Timer(0.2, action).start()


def opened(path: Path) -> int:
    found = leases.take(path)
    assert type(found) is int, found
    return found


def taken(path: Path) -> Lease:
    found = leases.take(path)
    assert isinstance(found, Lease), found
    return found


def test_one_owner(path: Path) -> None:
    held = taken(path)
    assert leases.is_held(path)
    os.close(opened(path))  # another file description: as another process would find it
    held.release()
    assert not leases.is_held(path)
    assert not path.exists()
    taken(path).release()


def test_a_killed_owner_is_replaced(path: Path, owners: list[subprocess.Popen[str]]) -> None:
    process = owner(path, owners)
    descriptor = opened(path)
    later(process.kill)
    ended, lease = leases.wait_for(path, descriptor, NEVER, lambda: False)
    assert ended is Ended.TAKEN_OVER and lease is not None
    lease.release()
    assert not path.exists()


def test_a_lease_that_nobody_holds_is_taken(path: Path) -> None:
    path.write_text("1 elsewhere\n")  # as a killed process leaves it; its time does not count
    os.utime(path, (2**33, 2**33))
    taken(path).release()


def test_a_release_ends_the_wait(path: Path, owners: list[subprocess.Popen[str]]) -> None:
    process = owner(path, owners, "release")
    assert process.stdin is not None
    later(lambda: (process.stdin.write("\n"), process.stdin.flush()))  # type: ignore[union-attr]
    assert leases.wait_for(path, opened(path), NEVER, lambda: False) == (Ended.RELEASED, None)


def test_a_file_ends_the_wait(path: Path, owners: list[subprocess.Popen[str]]) -> None:
    owner(path, owners)
    begun = time.monotonic()
    assert leases.wait_for(path, opened(path), NEVER, lambda: time.monotonic() > begun + 0.1) == (Ended.CHANGED, None)


def test_a_stopped_owner_is_not_awaited(path: Path, owners: list[subprocess.Popen[str]]) -> None:
    process = owner(path, owners)
    os.kill(process.pid, signal.SIGSTOP)
    assert leases.wait_for(path, opened(path), NEVER, lambda: False) == (Ended.SILENT, None)


def test_an_idle_owner_is_not_awaited(path: Path, owners: list[subprocess.Popen[str]],
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "SILENT_SECONDS", 0.3)
    owner(path, owners)
    assert leases.wait_for(path, opened(path), NEVER, lambda: False) == (Ended.SILENT, None)


def test_the_wait_has_a_limit(path: Path, owners: list[subprocess.Popen[str]]) -> None:
    owner(path, owners)
    begun = time.monotonic()
    assert leases.wait_for(path, opened(path), 0.3, lambda: False) == (Ended.TIME, None)
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("host", ["other-host", "", "a b c"])
def test_an_owner_elsewhere_is_awaited_until_the_limit(path: Path, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(leases.socket, "gethostname", lambda: host)
    held = taken(path)
    monkeypatch.undo()
    assert leases.wait_for(path, opened(path), 0.2, lambda: False)[0] in (Ended.TIME, Ended.SILENT)
    held.release()


def test_who_waits_is_seen(path: Path) -> None:
    held = taken(path)
    assert not held.is_wanted()
    leases.wait_for(path, opened(path), 0.0, lambda: False)
    assert held.is_wanted()
    held.release()


def test_a_forked_process_does_not_hold_it(path: Path) -> None:
    held = taken(path)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, b"held" if leases.is_held(path) else b"free")
        os.close(write)
        signal.pause()
    assert os.read(read, 4) == b"free"
    os.close(opened(path))  # the parent has it
    held.release()
    taken(path).release()  # though the child lives on
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_no_lease_without_locks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(leases.fcntl, "flock", no_locks)
    assert leases.take(path) is None


def test_no_lease_in_place_of_a_link_or_folder(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("text")
    (tmp_path / "link.lease").symlink_to(tmp_path / "target")
    (tmp_path / "folder.lease").mkdir()
    os.mkfifo(tmp_path / "pipe.lease")
    for name in ("link", "folder", "pipe"):
        assert leases.take(tmp_path / f"{name}.lease") is None
    assert (tmp_path / "target").read_text() == "text"


# ---------------------------------------------------------------------- at a miss


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with stator.config.patch(artifact_dir=str(tmp_path / "store"), artifact_key_file=str(tmp_path / "key")):
        yield tmp_path / "store"


def program(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def kinds(log: list[events.Event]) -> list[str]:
    return [type(event).__name__ for event in log
            if isinstance(event, (events.CaptureStarted, events.EntryLoaded, events.CaptureAwaited))]


def test_a_capture_leaves_no_lease(folder: Path) -> None:
    stator.compile(program, backend="eager")(torch.ones(3))
    assert [path.suffix for path in folder.iterdir()] == [store.SUFFIX]


def test_a_store_that_is_only_read_has_no_lease(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(leases, "take", lambda path: pytest.fail("a lease"))
    with stator.config.patch(artifact_mode="read"):
        stator.compile(program, backend="eager")(torch.ones(3))
    assert not list(folder.iterdir())


def test_a_failed_capture_leaves_no_lease(folder: Path) -> None:
    def refused(x: torch.Tensor) -> torch.Tensor:
        stator.graph_break()
        return x

    with pytest.raises(stator.errors.StatorError):
        stator.compile(refused, backend="eager", fullgraph=True)(torch.ones(3))
    assert not list(folder.glob("*" + leases.SUFFIX))


def held_by_another(monkeypatch: pytest.MonkeyPatch, owners: list[subprocess.Popen[str]],
                    then: Callable[[], object] = lambda: None) -> None:
    """Another process holds the lease of the next capture, and something happens a little later."""
    take = leases.take

    def contended(path: Path) -> Lease | int | None:
        if not owners:
            owner(path, owners)
            later(then)
        return take(path)

    monkeypatch.setattr(leases, "take", contended)


def test_a_miss_takes_what_the_other_process_writes(folder: Path, owners: list[subprocess.Popen[str]],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    stator.compile(program, backend="eager")(torch.ones(3))
    [file] = folder.iterdir()
    data = file.read_bytes()
    file.unlink()
    stator.reset()
    held_by_another(monkeypatch, owners, lambda: file.write_bytes(data))
    with events.record() as log:
        result = stator.compile(program, backend="eager")(torch.ones(3))
    assert torch.equal(result, torch.full((3,), 3.0))
    assert kinds(log) == ["CaptureAwaited", "EntryLoaded"]


def test_a_miss_takes_over_from_a_killed_process(folder: Path, owners: list[subprocess.Popen[str]],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    held_by_another(monkeypatch, owners, lambda: owners[0].kill())
    with events.record() as log:
        result = stator.compile(program, backend="eager")(torch.ones(4, 4))
    assert torch.equal(result, torch.full((4, 4), 3.0))
    assert kinds(log) == ["CaptureAwaited", "CaptureStarted"]
    assert not list(folder.glob("*" + leases.SUFFIX))


def test_a_miss_waits_no_longer_than_the_limit(folder: Path, owners: list[subprocess.Popen[str]],
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    held_by_another(monkeypatch, owners)
    with events.record() as log, stator.config.patch(artifact_wait_seconds=1):
        result = stator.compile(program, backend="eager")(torch.ones(5, 5))
    assert torch.equal(result, torch.full((5, 5), 3.0))
    assert kinds(log) == ["CaptureAwaited", "CaptureStarted"]


def test_random_kills(path: Path, owners: list[subprocess.Popen[str]]) -> None:
    """Of several processes that want a lease one always gets it, however many owners are killed."""
    rng = random.Random(0)
    for _ in range(5):
        process = owner(path, owners)
        time.sleep(rng.random() * 0.05)
        process.kill()
        process.communicate()
    taken(path).release()

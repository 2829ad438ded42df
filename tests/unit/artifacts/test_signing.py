"""The key of the user and trusted folders."""

from __future__ import annotations

import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from stator.artifacts import own_files, signing
from stator.artifacts.container import Container, pack
from stator.artifacts.refusal import Reason, Refused
from stator.settings.process_config import config

SAMPLE = Container({"a": 1}, {"b": b"code"}, "x")


@pytest.fixture
def home(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return tmp_path


def reason(call, *args):
    with pytest.raises(Refused) as refused:
        call(*args)
    return refused.value.reason


def made_key(_number):
    return signing.user_key()


def test_a_key_is_made_once_and_only_the_user_can_read_it(home):
    key = signing.user_key()
    path = home / "settings" / "stator" / "artifact_key"
    assert len(key) == 32 and path.read_bytes() == key == signing.user_key()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["artifact_key"]


def test_processes_that_make_a_key_at_once_agree(home):
    with multiprocessing.get_context("fork").Pool(6) as pool:
        keys = pool.map(made_key, range(24), chunksize=1)
    assert set(keys) == {signing.user_key()}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(home, mode):
    signing.user_key()
    signing.key_path().chmod(mode)
    assert reason(signing.user_key) is Reason.READABLE_BY_OTHERS


def test_keys_of_the_wrong_kind_are_refused(home, monkeypatch):
    signing.user_key()
    path = signing.key_path()
    path.write_bytes(b"short")
    assert reason(signing.user_key) is Reason.MALFORMED
    path.write_bytes(b"x" * 33)
    assert reason(signing.user_key) is Reason.TOO_LARGE
    path.unlink()
    path.symlink_to(home / "elsewhere")
    assert reason(signing.user_key) is Reason.SYMLINK
    path.unlink()
    path.mkdir()
    assert reason(signing.user_key) is Reason.NOT_A_FILE
    path.rmdir()
    os.mkfifo(path)
    assert reason(signing.user_key) is Reason.NOT_A_FILE
    path.unlink()
    path.parent.chmod(0o777)
    assert reason(signing.user_key) is Reason.WRITABLE_BY_OTHERS
    path.parent.chmod(0o700)
    signing.user_key()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert reason(signing.user_key) is Reason.OTHER_OWNER


def test_a_written_file_is_read_by_its_user_and_nobody_else(home, monkeypatch):
    path = home / "model.stator"
    signing.write_signed(path, SAMPLE)
    assert signing.read_signed(path) == SAMPLE and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert signing.read_signed(home / "none") is None
    with config.patch(artifact_key_file=str(home / "second" / "key")):
        assert reason(signing.read_signed, path) is Reason.OTHER_KEY
    link = home / "link"
    link.symlink_to(path)
    assert reason(signing.read_signed, link) is Reason.SYMLINK
    path.chmod(0o606)
    assert reason(signing.read_signed, path) is Reason.WRITABLE_BY_OTHERS
    path.chmod(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert reason(signing.read_signed, path) is Reason.OTHER_OWNER


def test_a_folder_that_the_user_names_is_trusted_and_others_are_not(home):
    folder = home / "shared" / "models"
    folder.mkdir(parents=True)
    path = folder / "model.stator"
    path.write_bytes(pack(SAMPLE, b"o" * 32))
    assert reason(signing.read_signed, path) is Reason.OTHER_KEY
    for named in (folder, folder.parent, f"{home}/x{os.pathsep}{folder}"):
        with config.patch(artifact_trusted_dirs=str(named)):
            assert signing.read_signed(path) == SAMPLE
    with config.patch(artifact_trusted_dirs=f"{folder}-2"):  # a name that only begins alike
        assert reason(signing.read_signed, path) is Reason.OTHER_KEY
    with config.patch(artifact_trusted_dirs=str(home / "shared")):
        for open_to_all in (folder, folder.parent):
            open_to_all.chmod(0o777)
            assert reason(signing.read_signed, path) is Reason.WRITABLE_BY_OTHERS
            open_to_all.chmod(0o755)
        data = path.read_bytes()
        path.write_bytes(data[:-1] + b"x")
        assert reason(signing.read_signed, path) is Reason.TAMPERED


def test_a_link_out_of_a_trusted_folder_does_not_carry_trust(home):
    trusted, outside = home / "trusted", home / "outside"
    trusted.mkdir(), outside.mkdir()
    (outside / "m").write_bytes(pack(SAMPLE, b"o" * 32))
    (trusted / "sub").symlink_to(outside)
    with config.patch(artifact_trusted_dirs=str(trusted)):
        assert reason(signing.read_signed, trusted / "sub" / "m") is Reason.OTHER_KEY


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(home, monkeypatch):
    path = home / "model.stator"
    own_files.write_file(path, b"old")

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        own_files.write_file(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(home) == ["model.stator"]


def test_no_home_folder_is_a_refusal(monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert reason(signing.user_key) is Reason.UNREADABLE

"""stator.config: the settings of the process that users of torch._dynamo.config know."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.errors import RecompileForbidden
from stator.settings.process_config import SETTINGS, UnknownSetting


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    with stator.config.patch():
        yield
    for name in SETTINGS:
        delattr(stator.config, name)


def times(x: torch.Tensor, n: Any) -> torch.Tensor:
    return x * len(n)


def test_values_and_defaults() -> None:
    assert {name: getattr(stator.config, name) for name in SETTINGS} == {
        "recompile_limit": 8, "accumulated_recompile_limit": 256, "fail_on_recompile_limit_hit": False,
        "error_on_recompile": False, "verify_correctness": False,
        "capture_iteration_limit": 100_000, "capture_progress_seconds": 5, "show_progress": True,
        "capture_backward": True, "disable": False, "suppress_errors": False, "specialize_int": False,
        "artifact_dir": "", "artifact_mode": "", "artifact_store_bytes": 4 << 30, "artifact_trusted_dirs": "",
        "artifact_wait_seconds": 300,
        "artifact_key_file": "", "enable_compiler_collectives": False, "compiler_collectives_seconds": 10, "optimize_ddp": True,
        "compile_on_one_rank": False}
    stator.config.cache_size_limit = 3
    assert stator.config.recompile_limit == stator.config.cache_size_limit == 3
    del stator.config.recompile_limit
    assert stator.config.recompile_limit == 8
    assert "recompile_limit=8" in repr(stator.config) and "error_on_recompile" in dir(stator.config)


@pytest.mark.parametrize(("name", "words"), [
    ("recompile_limt", "did you mean 'recompile_limit'"), ("specialize_float", "dynamic=False"),
    ("verbose", "STATOR_LOGS"), ("nonsense", "accepted, among them: accumulated_recompile_limit")])
def test_unknown_names_say_what_there_is(name: str, words: str) -> None:
    for attempt in (lambda: setattr(stator.config, name, True), lambda: getattr(stator.config, name),
                    lambda: stator.config.patch(**{name: True})):
        with pytest.raises(UnknownSetting, match=words):
            attempt()
    assert not hasattr(stator.config, name)


@pytest.mark.parametrize(("name", "value"), [
    ("recompile_limit", "8"), ("recompile_limit", 0), ("recompile_limit", True), ("error_on_recompile", 1),
    ("verify_correctness", None), ("artifact_dir", None), ("artifact_store_bytes", 0)])
def test_values_that_are_not_accepted(name: str, value: Any) -> None:
    with pytest.raises(stator.OptionError, match=name):
        setattr(stator.config, name, value)
    with pytest.raises(stator.OptionError, match=name), stator.config.patch(error_on_recompile=True, **{name: value}) \
            if name != "error_on_recompile" else stator.config.patch({name: value}):
        pass
    assert stator.config.error_on_recompile is False and getattr(stator.config, name) == SETTINGS[name][0]


def test_patches_nest_and_decorate() -> None:
    @stator.config.patch("recompile_limit", 5)
    def inside() -> tuple[int, bool]:
        return stator.config.recompile_limit, stator.config.error_on_recompile

    with stator.config.patch({"recompile_limit": 2}, error_on_recompile=True):
        assert inside() == (5, True)
        with stator.config.patch(error_on_recompile=False):
            assert stator.config.error_on_recompile is False
        assert stator.config.error_on_recompile is True and stator.config.recompile_limit == 2
    assert inside() == (5, False) and stator.config.recompile_limit == 8
    with pytest.raises(stator.OptionError, match="patch takes"):
        stator.config.patch(3)


def test_error_on_recompile() -> None:
    compiled, x = stator.compile(times, backend="eager"), torch.ones(2)
    with stator.config.patch(error_on_recompile=True):
        assert torch.equal(compiled(x, "ab"), x * 2) and torch.equal(compiled(x, "ab"), x * 2)
        with pytest.raises(RecompileForbidden, match=r"error_on_recompile is True: n was 'ab', is \(1, 2, 3\)"):
            compiled(x, (1, 2, 3))
        assert torch.equal(compiled(x, "ab"), x * 2)
    assert torch.equal(compiled(x, (1, 2, 3)), x * 3)


def branches(x: torch.Tensor, name: str) -> torch.Tensor:
    return x + 1 if name == "a" else x * (2 if name == "b" else 3 if name == "c" else 4)


def test_limits() -> None:
    x = torch.ones(2)
    with stator.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True):
        compiled = stator.compile(branches, backend="eager", fullgraph=True, dynamic=False)
        compiled(x, "a"), compiled(x, "b")
        with pytest.raises(stator.RecompileLimit, match=r"2 times \(recompile_limit\)"):
            compiled(x, "c")
        assert torch.equal(compiled(x, "b"), x * 2)
    explicit = stator.compile(branches, backend="eager", recompile_limit=3)
    with stator.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True):  # said to compile(): that counts
        for name in "abc":
            assert torch.equal(explicit(x, name), branches(x, name))


@pytest.mark.parametrize("fails", [False, True])
def test_accumulated_limit(fails: bool) -> None:
    stator.reset()  # what other tests have compiled of this code
    x = torch.ones(2)

    def program(x: torch.Tensor, name: str) -> torch.Tensor:
        return branches(x, name)

    with stator.config.patch(accumulated_recompile_limit=3, fail_on_recompile_limit_hit=fails):
        several = [stator.compile(program, backend="eager", isolate_recompiles=True) for _ in range(4)]
        for compiled in several[:3]:
            compiled(x, "a")
        with events.record() as log, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if fails:
                with pytest.raises(stator.RecompileLimit, match="accumulated_recompile_limit"):
                    several[3](x, "a")
            else:
                assert torch.equal(several[3](x, "a"), x + 1)
                assert "accumulated_recompile_limit" in str(said[0].message)
        assert not [event for event in log if isinstance(event, events.CaptureFinished)]
        assert torch.equal(several[0](x, "a"), x + 1)
    assert torch.equal(several[3](x, "b"), x * 2)


def wrong_backend(graph: Any, inputs: Any) -> Any:
    return lambda *args: tuple(each + 1 if isinstance(each, torch.Tensor) else each for each in graph(*args))


def test_verify_correctness() -> None:
    with stator.config.patch(verify_correctness=True):
        wrong = stator.compile(lambda x: x * 2, backend=wrong_backend)
        right = stator.compile(lambda x: x * 2, backend="eager")
    with pytest.warns(RuntimeWarning, match="differs from eager"):
        wrong(torch.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(right(torch.ones(2)), torch.full((2,), 2.0))


def test_torchs_config_counts_while_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = types.SimpleNamespace(recompile_limit=2, error_on_recompile=True, accumulated_recompile_limit="x")
    monkeypatch.setitem(sys.modules, "torch._dynamo.config", theirs)
    assert stator.config.error_on_recompile is False
    stator.install("eager")
    try:
        assert (stator.config.recompile_limit, stator.config.accumulated_recompile_limit) == (2, 256)
        compiled = torch.compile(times)
        compiled(torch.ones(2), "ab")
        with pytest.raises(RecompileForbidden):
            compiled(torch.ones(2), (1, 2, 3))
        stator.config.error_on_recompile = False  # what is said here comes first
        assert torch.equal(compiled(torch.ones(2), (1, 2, 3)), torch.full((2,), 3.0))
    finally:
        stator.uninstall()
    assert stator.config.recompile_limit == 8

"""A pipeline that captures nothing: each entry runs the function and remembers what was asked of it."""

import dataclasses
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

if importlib.util.find_spec("stator.capture.miss") is None:
    sys.modules["stator.capture.miss"] = types.ModuleType("stator.capture.miss")

from stator import api  # noqa: E402 (the pipeline has to exist first)


@dataclasses.dataclass
class RecordingPipeline:
    """Record the calls of the API to the pipeline, in order."""

    made: list[tuple[Callable[..., Any], Any]] = dataclasses.field(default_factory=list)
    called: list[Callable[..., Any]] = dataclasses.field(default_factory=list)
    resets: int = 0

    def make_entry(self, fn: Callable[..., Any], settings: Any) -> Callable[..., Any]:
        assert isinstance(fn, types.FunctionType) or (
            isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType)
        )
        self.made.append((fn, settings))

        def entry(*args: Any, **kwargs: Any) -> Any:
            self.called.append(fn)
            return fn(*args, **kwargs)

        return entry

    def explained_call(self, fn: Callable[..., Any], settings: Any, args: Any, kwargs: Any, probe: object) -> Any:
        return (fn, settings, args, kwargs), [], []

    def reset(self) -> None:
        self.resets += 1

    @property
    def settings(self) -> Any:
        return self.made[-1][1]


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> RecordingPipeline:
    recorder = RecordingPipeline()
    monkeypatch.setattr(api.first_call, "make_entry", recorder.make_entry)
    for name in ("explained_call", "reset"):
        monkeypatch.setattr(api.tracer(), name, getattr(recorder, name))
    return recorder

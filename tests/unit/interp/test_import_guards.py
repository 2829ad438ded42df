"""Imports inside a function, while sys.modules changes between the calls: as in eager."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.interp.opcodes import name_opcodes


def plain(x: Any) -> Any:
    import stm  # type: ignore[import-not-found]
    return x * stm.K


def name_of(x: Any) -> Any:
    from stm import K
    return x * K


def dotted(x: Any) -> Any:
    import stp.sub  # type: ignore[import-not-found]
    return x * stp.sub.K


def renamed(x: Any) -> Any:
    import stp.sub as sub
    return x * sub.K


def submodule(x: Any) -> Any:
    from stp import sub
    return x * sub.K


def late_submodule(x: Any) -> Any:
    from stp import other
    return x * other.K


def optional(x: Any) -> Any:
    try:
        import stm
    except ImportError:
        return x * 100
    return x * stm.K


def optional_submodule(x: Any) -> Any:
    try:
        from stp import absent
    except ImportError:
        return x * 200
    return x * absent.K


def optional_dotted(x: Any) -> Any:
    try:
        import stp.absent
    except ImportError:
        return x * 300
    return x * stp.sub.K


def by_function(x: Any) -> Any:
    return x * importlib.import_module("stm").K


def looked_up(x: Any) -> Any:
    module = sys.modules.get("stm")
    return x * (module.K if module else 0)


def with_k(name: str, k: int) -> types.ModuleType:
    module = types.ModuleType(name)
    module.K = k  # type: ignore[attr-defined]
    return module


def forget(*names: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in names or name in names]:
        del sys.modules[name]


CHANGES: dict[str, Callable[[], Any]] = {
    "replaced": lambda: sys.modules.update(stm=with_k("stm", 3)),
    "replaced by another name": lambda: sys.modules.update(stm=with_k("zz", 9)),
    "replaced by no module": lambda: sys.modules.update(stm=types.SimpleNamespace(K=11)),  # type: ignore[arg-type]
    "submodule replaced": lambda: sys.modules.update({"stp.sub": with_k("stp.sub", 30)}),
    "attribute replaced": lambda: setattr(importlib.import_module("stp"), "sub", with_k("stp.sub", 40)),
    "deleted": lambda: forget("stm"),
    "submodule deleted": lambda: forget("stp.sub", "stp.other"),
    "package deleted": lambda: forget("stp"),
    "none": lambda: sys.modules.update(stm=None),  # type: ignore[arg-type]
    "submodule none": lambda: sys.modules.update({"stp.sub": None}),  # type: ignore[dict-item]
    "made": lambda: sys.modules.update({"stp.absent": with_k("stp.absent", 77)}),
}
OF_PACKAGE = {"submodule replaced", "attribute replaced", "submodule deleted", "package deleted", "submodule none", "made"}
PROGRAMS = (plain, name_of, dotted, renamed, submodule, late_submodule, optional, optional_submodule, optional_dotted,
            by_function, looked_up)


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "stp").mkdir()
    for name, text in (("stm.py", "K = 1"), ("stp/__init__.py", "from . import sub"), ("stp/sub.py", "K = 5"),
                       ("stp/other.py", "K = 7")):
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    forget("stm", "stp")


def calls(fn: Any, change: str, loaded: bool) -> list[Any]:
    """Two calls, the change, two calls, everything deleted, two calls."""
    forget("stm", "stp")
    if loaded:
        importlib.import_module("stm"), importlib.import_module("stp.sub")
    seen: list[Any] = []
    for step in (lambda: None, CHANGES[change], lambda: forget("stm", "stp")):
        step()
        for _ in range(2):
            try:
                result = fn(torch.ones(1)).item()
            except Exception as error:
                result = f"{type(error).__name__}: {error}"
            seen.append((result, sorted(name for name in sys.modules if name[:3] in ("stm", "stp"))))
    return seen


@pytest.mark.parametrize(("fn", "loaded"), [(fn, True) for fn in PROGRAMS] + [(plain, False), (dotted, False)])
def test_as_in_eager(fn: Any, loaded: bool) -> None:
    of_package = any(name.partition(".")[0] == "stp" for name in fn.__code__.co_names)
    for change in OF_PACKAGE if of_package else CHANGES.keys() - OF_PACKAGE:
        with events.record() as log:
            assert calls(stator.compile(fn, backend="eager"), change, loaded) == calls(fn, change, loaded), change
        assert not [event for event in log if isinstance(event, events.InternalFailure)], change


def test_is_noticed_without_the_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_opcodes, "guard_registered", lambda vm, *names: None)
    compiled = stator.compile(plain, backend="eager", isolate_recompiles=True)
    assert calls(compiled, "replaced", True) != calls(plain, "replaced", True)

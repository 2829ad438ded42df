"""Namespaces that were scanned once are scanned again after each change, and only then."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator._core import holds_only, newest_version
from stator.host import suspended_patches
from stator.host.replaced_builtins import replaced
from stator.host.suspended_patches import find_patches, replaced_operator

CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a new key": lambda names: names.update(b=2), "another value": lambda names: names.update(a=2),
    "a deletion": lambda names: names.pop("a"), "clear": lambda names: names.clear(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("place", [0, 1])
def test_each_change_gives_another_number(place: int, change: Callable[[dict[str, Any]], Any]) -> None:
    dicts: list[dict[str, Any]] = [{"a": 1}, {"a": 1}]
    before = newest_version(dicts)
    assert before == newest_version(dicts) != 0
    change(dicts[place])
    assert newest_version(dicts) not in (before, 0)


def test_what_has_no_version() -> None:
    assert newest_version([{}, 3]) == 0
    with pytest.raises(TypeError):
        newest_version({})


def test_classes_of_values_are_exact() -> None:
    class Text(str):
        pass

    assert holds_only([{"a": 1, "b": "c"}, {}], (int, str)) and holds_only([], ())
    assert not holds_only([{"a": 1}, {"b": Text()}], (int, str)) and not holds_only([{"a": True}], (int,))
    with pytest.raises(TypeError):
        holds_only({}, (int,))
    with pytest.raises(TypeError):
        holds_only([3], (int,))


SEARCHES: dict[str, tuple[Any, str, Callable[[], Any]]] = {
    "Tensor": (torch.Tensor, "relu", find_patches), "Parameter": (nn.Parameter, "__repr__", find_patches),
    "Module": (nn.Module, "__call__", find_patches), "torch": (torch, "relu", find_patches),
    "nn.functional": (nn.functional, "relu", find_patches), "pytree": (torch.utils._pytree, "tree_map", find_patches),
    "aten": (torch.ops.aten, "relu", lambda: replaced_operator(False)),
    "aten, overloads too": (torch.ops.aten, "relu", lambda: replaced_operator(True)),
    "an overload": (torch.ops.aten.relu, "default", lambda: replaced_operator(True)),
    "builtins": (builtins, "len", replaced),
}


@pytest.mark.parametrize(("owner", "name", "search"), SEARCHES.values(), ids=SEARCHES)
def test_a_patch_is_found_after_a_search_without_result(owner: Any, name: str, search: Callable[[], Any],
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    old = getattr(owner, name)

    def new(*args: Any, **kwargs: Any) -> Any:
        return old(*args, **kwargs)

    def found() -> bool:  # beside what torch's own compiler has replaced, where another test has loaded it
        answer = search()
        return answer if type(answer) is not list else any(each[0] is owner and each[1] == name for each in answer)

    for _ in range(2):
        assert not found()
        assert not found()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, new)
            assert found()
            assert found()
    assert not found()


@pytest.fixture
def _without_patches() -> Iterator[None]:
    """Take off what libraries have replaced that other tests have imported."""
    originals = {id(owner): before for owner, _, before in suspended_patches._ORIGINALS}
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, _ in find_patches():
            patch.setattr(owner, name, originals[id(owner)][name])
        yield


@pytest.mark.usefixtures("_without_patches")
def test_unchanged_namespaces_are_not_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    stator.compile(program, backend="eager")(torch.ones(3))
    compared: list[Any] = []
    monkeypatch.setattr(suspended_patches, "_differ", lambda now, before: compared.append(now))
    stator.compile(program, backend="eager")(torch.ones(3))
    assert not compared


@pytest.mark.usefixtures("_without_patches")
def test_a_method_that_is_added_and_removed_is_no_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "method_of_a_test", lambda self: self, raising=False)
    assert not suspended_patches.find_patches()
    monkeypatch.undo()
    assert not suspended_patches.find_patches()


def test_installing_is_no_patch() -> None:
    was = stator.is_installed()
    stator.install()
    try:
        assert "compile" not in [name for owner, name, _ in find_patches() if owner is torch]
    finally:
        stator.uninstall()
    assert "compile" not in [name for owner, name, _ in find_patches() if owner is torch]
    if was:
        stator.install()

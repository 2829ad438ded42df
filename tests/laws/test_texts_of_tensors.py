"""Texts of tensors whose memory, flags or history change in a call; views of leaves; dicts of patched names."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stator

Program = Callable[[torch.Tensor, torch.Tensor, dict[str, Any]], Any]
LOG = logging.getLogger("tests.texts_of_tensors")


def new_memory(x: torch.Tensor, v: torch.Tensor, d: dict[str, Any]) -> None:
    x.data = v.clone()
    print(x)


def new_memory_twice(x: torch.Tensor, v: torch.Tensor, d: dict[str, Any]) -> None:
    d["k"] = 1
    print(x)
    x.data = v.clone()
    print(x, x.view(2, 2))
    x.data = v + 1
    print([x])


def texts_kept(x: torch.Tensor, v: torch.Tensor, d: dict[str, Any]) -> Any:
    d["before"] = f"{x}"
    x.data = v.clone()
    d["after"] = str(x)
    return repr(x)


def old_view(x: torch.Tensor, v: torch.Tensor, d: dict[str, Any]) -> None:
    y = x.detach()
    x.data = v.clone()
    print(y, x, x + 1)


def logged(x: torch.Tensor, v: torch.Tensor, d: dict[str, Any]) -> None:
    LOG.warning("%s", x)
    x.data = v.clone()
    LOG.warning("%s", x)


def logged_and_written(x: torch.Tensor, v: torch.Tensor, d: dict[str, Any]) -> Any:
    y = x * 2
    LOG.warning("%s", y)
    y.add_(1)
    LOG.warning("%s", y)
    return y


def new_flag(x: torch.Tensor, v: torch.Tensor, d: dict[str, Any]) -> None:
    d["k"] = 1
    print(x)
    x.requires_grad_()
    print(x)


def new_flag_before_use(x: torch.Tensor, v: torch.Tensor, d: dict[str, Any]) -> Any:
    print(x)
    x.requires_grad_()
    d["k"] = 1
    return x * 2


def new_flag_after_use(x: torch.Tensor, v: torch.Tensor, d: dict[str, Any]) -> Any:
    y = x * 2
    d["k"] = 1
    print(x)
    x.requires_grad_()
    return y


def new_parameter(x: torch.Tensor, v: torch.Tensor, d: dict[str, Any]) -> None:
    y = torch.nn.Parameter(x.detach())
    print(y)
    LOG.warning("%s", y)
    with torch.no_grad():
        y.add_(1)
    print(f"{y!r}")


PROGRAMS: list[Program] = [new_memory, new_memory_twice, texts_kept, old_view, logged, logged_and_written, new_flag,
                           new_flag_before_use, new_flag_after_use, new_parameter]


def shown(value: Any) -> Any:
    return (value.tolist(), value.requires_grad, value.is_leaf) if isinstance(value, torch.Tensor) else value


def outcome(program: Program, scale: float, wants_grad: bool) -> Any:
    x, v, d = torch.ones(4, requires_grad=wants_grad), torch.arange(4.0) * scale, {}  # type: ignore[var-annotated]
    out = io.StringIO()
    LOG.handlers[:], LOG.propagate = [logging.StreamHandler(out)], False
    with contextlib.redirect_stdout(out):
        result = program(x, v, d)
    return shown(result), shown(x), shown(v), d, out.getvalue()


@pytest.mark.parametrize("program", PROGRAMS)
def test_texts_are_of_their_moment(program: Program) -> None:
    compiled = stator.compile(program, backend="eager")
    for given in ((1.0, False), (-1.0, False), (1.0, True)):
        assert outcome(compiled, *given) == outcome(program, *given)


def test_the_history_of_an_outside_tensor_is_its_own() -> None:
    def program(x: torch.Tensor, z: torch.Tensor) -> Any:
        first = f"{x}"
        z.add_(1)
        second = str(x)
        x.add_(1)
        return first, second, str(x), str(z)

    compiled = stator.compile(program, backend="eager")
    leaf = torch.ones(2, requires_grad=True)
    for make in (lambda: leaf * 2, lambda: leaf + 1, lambda: leaf.relu(), lambda: leaf * 3):
        assert compiled(make(), torch.ones(2)) == program(make(), torch.ones(2))


# ---------------------------------------------------------------------- views of leaves


def read_flag(x: torch.Tensor, y: torch.Tensor) -> Any:
    before = y.requires_grad
    x.requires_grad_()
    return before, y.requires_grad, y.is_leaf, y * 2


def change_flag_after_use(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * 2
    x.requires_grad = True
    return z, y.requires_grad


def change_flag_of_the_other(x: torch.Tensor, y: torch.Tensor) -> Any:
    y.requires_grad_()
    return x.requires_grad, x * 2


OTHERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "apart": lambda x: x + 1, "view": lambda x: x.view(2, 2).view(4), "detached": lambda x: x.detach()}


@pytest.mark.parametrize("order", ["apart view detached", "view apart detached", "detached view apart"])
@pytest.mark.parametrize("program", [read_flag, change_flag_after_use, change_flag_of_the_other])
def test_flags_of_views(program: Any, order: str) -> None:
    compiled = stator.compile(program, backend="eager")
    for other in order.split() * 2:
        found = []
        for subject in (program, compiled):
            x = torch.ones(4)
            y = OTHERS[other](x)
            found.append((list(map(shown, subject(x, y))), shown(x), shown(y)))
        assert found[0] == found[1], other


# ---------------------------------------------------------------------- dicts that are the names of something


def patched(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=0) * 10


def names_of_patched(x: torch.Tensor, module: dict[str, Any], cls: Any) -> Any:
    kept = {**module}
    return (x + 1, module["relu"] is patched, kept["relu"] is patched, module["relu"](x), "relu" in cls,
            cls.get("relu") is patched, [name for name in cls if name == "relu"])


def taken_inside(x: torch.Tensor) -> Any:
    module, cls = vars(F), vars(torch.Tensor)
    stator.graph_break()
    return names_of_patched(x, module, cls)


def given(x: torch.Tensor) -> Any:
    return names_of_patched(x, vars(F), vars(torch.Tensor))


def patched_inside(x: torch.Tensor) -> Any:
    torch.Tensor.relu = patched  # type: ignore[method-assign]
    names = vars(torch.Tensor)
    stator.graph_break()
    found = x.relu(), "relu" in names
    del torch.Tensor.relu
    return *found, "relu" in names, x.relu()


@pytest.mark.parametrize("program", [taken_inside, given, patched_inside])
def test_names_of_patched_namespaces(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = stator.compile(program, backend="eager")
    for turn in range(4):
        with monkeypatch.context() as patch:
            if turn % 2:
                patch.setattr(F, "relu", patched)
            results = []
            for subject in (program, compiled):
                if turn % 2 and program is not patched_inside:
                    torch.Tensor.relu = patched  # type: ignore[method-assign]
                try:
                    results.append(list(map(shown, subject(torch.arange(-1.0, 2.0)))))
                finally:
                    if "relu" in vars(torch.Tensor):
                        del torch.Tensor.relu
            assert results[0] == results[1]


def dict_of_a_function(x: torch.Tensor) -> Any:
    def inner() -> None:
        """A function of the trace."""

    names, update = inner.__dict__, vars(inner).update
    names["a"] = 1
    stator.graph_break()
    names["b"] = 2
    update(c=3)
    return vars(inner), names is inner.__dict__, x + 1


def test_the_dict_of_a_function_stays_its_own_over_a_break() -> None:
    compiled = stator.compile(dict_of_a_function, backend="eager")
    for _ in range(2):
        assert list(map(shown, compiled(torch.ones(2)))) == list(map(shown, dict_of_a_function(torch.ones(2))))


def test_a_function_and_its_dict_are_returned_together() -> None:
    def program(x: torch.Tensor) -> Any:
        def inner() -> None:
            pass
        return inner, inner.__dict__, x + 1

    function, names, _ = stator.compile(program, backend="eager")(torch.ones(2))
    assert function.__dict__ is names

"""Backends by name: built in, registered, and from entry points."""

import importlib.metadata

import pytest
import torch

import stator
from stator.backends import registry
from stator.backends.registry import find_backend, list_backends, register_backend
from stator.errors import BackendError, OptionTypeError, OptionValueError


@pytest.fixture(autouse=True)
def own_table(monkeypatch):
    monkeypatch.setattr(registry, "_backends", dict(registry._backends))
    registry._entry_points.cache_clear()
    yield
    registry._entry_points.cache_clear()


def mine(gm, example_inputs):
    return gm.forward


def test_built_in_backends_are_listed():
    assert {"aot_eager", "aot_eager_decomp_partition", "eager", "eager_noexcept", "inductor"} <= set(
        list_backends()
    )


def test_register_as_call_and_decorator():
    assert register_backend(mine) is mine

    @register_backend(name="other", tags=("debug",))
    def unnamed(gm, example_inputs):
        return gm.forward

    assert find_backend("mine").function is mine
    assert find_backend("other").function is unnamed
    assert "mine" in list_backends() and "other" not in list_backends()
    assert "other" in list_backends(exclude_tags=())


def test_register_refuses_what_cannot_be_used():
    register_backend(mine)
    register_backend(mine)
    with pytest.raises(OptionValueError, match="already registered .*mine"):
        register_backend(lambda gm, inputs: gm, name="mine")
    with pytest.raises(OptionValueError, match="already registered"):
        register_backend(mine, name="eager")
    with pytest.raises(OptionTypeError, match="use a callable"):
        register_backend("mine")


def test_unknown_name_lists_the_known_and_the_closest():
    with pytest.raises(OptionValueError, match="no backend 'egaer'; did you mean 'eager'.*inductor"):
        find_backend("egaer")


def test_a_backend_is_told_when_a_capture_begins():
    order = []

    def function(gm, example_inputs, settings):
        order.append("compiled")
        return gm.forward

    registry._backends["told"] = registry.Backend("told", function, takes_settings=True,
                                                  prepare=lambda: order.append("prepared"))
    compiled = stator.compile(lambda x: x + 1, backend="told")
    assert order == []
    compiled(torch.ones(2))
    compiled(torch.ones(2))
    assert order == ["prepared", "compiled"]


def test_callable_is_its_own_backend():
    backend = find_backend(mine)
    assert backend.name == "mine" and backend.function is mine


@pytest.fixture
def entry_point(monkeypatch):
    def install(value):
        point = importlib.metadata.EntryPoint("third_party", value, "torch_dynamo_backends")
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: (point,))
        registry._entry_points.cache_clear()

    return install


def test_entry_point_is_listed_before_and_loaded_at_first_use(entry_point):
    entry_point("operator:matmul")
    assert "third_party" in list_backends()
    assert "third_party" not in registry._backends
    assert find_backend("third_party").function.__name__ == "matmul"


def test_entry_point_that_cannot_be_loaded_names_itself(entry_point):
    entry_point("no_such_package:compile")
    with pytest.raises(BackendError, match="third_party.*no_such_package") as failed:
        find_backend("third_party")
    assert isinstance(failed.value.__cause__, ModuleNotFoundError)

"""Every wrong argument raises at once and says what is accepted."""

import pytest

import stator
from stator.errors import OptionTypeError, OptionValueError
from stator.settings.options import build_settings, strict_from_environment


def identity(x):
    return x


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"backend": "inductr"}, ValueError, "did you mean 'inductor'.*aot_eager"),
        ({"backend": 3}, TypeError, "stator.list_backends"),
        ({"backend": None}, TypeError, "stator.list_backends"),
        ({"dynamic": "yes"}, TypeError, "True .*False .*None"),
        ({"dynamic": 1}, TypeError, "True .*False .*None"),
        ({"fullgraph": 1}, TypeError, "True or False"),
        ({"disable": "no"}, TypeError, "True or False"),
        ({"recompile_limit": -1}, ValueError, "int from 1"),
        ({"recompile_limit": 0}, ValueError, "int from 1"),
        ({"recompile_limit": 2.0}, TypeError, "int from 1"),
        ({"recompile_limit": True}, TypeError, "int from 1"),
        ({"name": 3}, TypeError, "None or a str"),
        ({"mode": "max-autotun"}, ValueError, "did you mean 'max-autotune'.*reduce-overhead"),
        ({"mode": 3}, TypeError, "mode"),
        ({"mode": "default", "options": {"max_autotune": True, "strict": True}}, ValueError,
         r"options of the backend \(max_autotune\).*use one of the two"),
        ({"mode": "reduce-overhead", "backend": "eager"}, ValueError, "'eager' takes no mode"),
        ({"options": {"max_autotune": True}, "backend": "aot_eager"}, ValueError, "takes no options"),
        ({"options": [1]}, TypeError, "use a dict"),
        ({"options": {3: 4}}, TypeError, "option names are str"),
        ({"options": {"stric": True}}, ValueError, "did you mean 'strict'"),
        ({"options": {"max_autotun": True}}, ValueError, "did you mean 'max_autotune'"),
        ({"options": {"max_autotune": "yes"}}, TypeError, "it takes bool"),
        ({"options": {"strict": 1}}, TypeError, "True or False"),
    ],
)
def test_refused(recording, arguments, kind, message):
    with pytest.raises(stator.OptionError, match=message) as called:
        stator.compile(identity, **arguments)
    assert isinstance(called.value, kind)
    with pytest.raises(stator.OptionError):
        stator.compile(**arguments)
    assert recording.made == []


def test_a_mode_beside_options_of_stator_itself():
    settings = build_settings(mode="max-autotune", options={"strict": True, "regions": "off"})
    assert (settings.mode, settings.strict, settings.regions, settings.options) == ("max-autotune", True, "off", {})


@pytest.mark.parametrize("model", [3, "name", [identity], object()])
def test_what_is_not_callable_is_refused(recording, model):
    with pytest.raises(OptionTypeError, match="not callable; use a function"):
        stator.compile(model)
    with pytest.raises(OptionTypeError, match="not callable"):
        stator.compile()(model)
    for api in (stator.disable, stator.assume_constant_result, stator.explain, stator.substitute_in_graph):
        with pytest.raises(OptionTypeError, match="not callable"):
            api(model)


def test_none_to_the_decorator_is_refused(recording):
    with pytest.raises(OptionTypeError, match="NoneType is not callable"):
        stator.compile()(None)


def test_class_without_a_call_is_refused(recording):
    class Plain:
        pass

    with pytest.raises(OptionTypeError, match="no __call__ written in Python"):
        stator.compile(Plain)


def test_user_backend_without_a_mode_parameter_refuses_a_mode(recording):
    def backend(gm, example_inputs):
        return gm.forward

    def tuned(gm, example_inputs, *, mode=None):
        return gm.forward

    with pytest.raises(OptionValueError, match="'backend' has no parameter 'mode'"):
        stator.compile(identity, backend=backend, mode="fast")
    stator.compile(identity, backend=tuned, mode="fast")
    assert recording.settings.mode == "fast"


def test_accepted_modes_and_options(recording):
    for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        stator.compile(identity, mode=mode)
    stator.compile(identity, options={"strict": True, "max_autotune": True, "triton.cudagraphs": False})
    assert recording.settings.strict is True
    assert dict(recording.settings.options) == {"max_autotune": True, "triton.cudagraphs": False}
    stator.compile(identity, backend="eager", options={"compile_nested": False})
    assert recording.settings.compile_nested is False


def test_options_are_copied(recording):
    options = {"max_autotune": True}
    stator.compile(identity, options=options)
    options["max_autotune"] = False
    assert dict(recording.settings.options) == {"max_autotune": True}


def test_strict_from_the_environment(monkeypatch):
    monkeypatch.delenv("STATOR_STRICT", raising=False)
    assert build_settings().strict is False
    monkeypatch.setenv("STATOR_STRICT", "1")
    assert build_settings().strict is True
    assert build_settings(options={"strict": False}).strict is False
    monkeypatch.setenv("STATOR_STRICT", "maybe")
    with pytest.raises(OptionValueError, match="use 1 or 0"):
        strict_from_environment()


def test_settings_are_frozen_and_hashable():
    settings = build_settings(backend="eager")
    assert hash(settings) == hash(build_settings(backend="eager"))
    with pytest.raises(AttributeError):
        settings.fullgraph = True


@pytest.mark.parametrize(("backend", "in_order", "own"), [
    ("eager", True, False), ("eager_noexcept", True, False), ("aot_eager", False, True), ("inductor", False, True),
    ("cudagraphs", False, True), (identity, False, False),
])
def test_what_a_backend_does_with_a_graph_is_known(backend, in_order, own):
    """Graphs that AOTAutograd would change are kept from Stator's own backends; users get whatever there is."""
    settings = build_settings(backend=backend)
    assert settings.runs_in_order is in_order and settings.has_own_backend is own
    assert settings.backend_name == (backend if isinstance(backend, str) else "identity")

"""stator.compile on every kind of callable."""

import functools
import gc
import inspect
import pickle
import weakref

import pytest
import torch

import stator
from stator.settings import marks


def scale(x, factor: float = 2.0, *, shift=0):
    """Scale and shift."""
    return x * factor + shift


def test_call_decorator_and_decorator_with_arguments(recording):
    called = stator.compile(scale, backend="eager")

    @stator.compile
    def bare(x):
        return x + 1

    @stator.compile(backend="eager", fullgraph=True)
    def with_arguments(x):
        return x + 2

    assert called(3) == 6
    assert bare(1) == 2
    assert with_arguments(1) == 3
    assert [settings.backend for _, settings in recording.made] == ["eager", "inductor", "eager"]
    assert recording.settings.fullgraph is True
    assert len(recording.called) == 3


def test_metadata_and_signature_are_the_originals(recording):
    compiled = stator.compile(scale)
    assert compiled.__name__ == "scale"
    assert compiled.__doc__ == "Scale and shift."
    assert compiled.__module__ == __name__
    assert compiled.__wrapped__ is scale
    assert inspect.signature(compiled) == inspect.signature(scale)
    assert compiled(1, 3, shift=4) == 7


def test_compiled_function_pickles_by_name(recording):
    compiled = stator.compile(scale)
    # What the name finds is the original here, so only a module that holds the compiled one round-trips.
    globals()["scale"], original = compiled, globals()["scale"]
    try:
        assert pickle.loads(pickle.dumps(compiled)) is compiled
    finally:
        globals()["scale"] = original


def test_method_in_a_class_body_binds(recording):
    class Counter:
        def __init__(self):
            self.n = 1

        @stator.compile(backend="eager")
        def add(self, x):
            return self.n + x

        @stator.compile
        @staticmethod
        def double(x):
            return 2 * x

        @stator.compile
        @classmethod
        def name(cls):
            return cls.__name__

        @staticmethod
        @stator.compile
        def triple(x):
            return 3 * x

    counter = Counter()
    assert counter.add(2) == 3
    assert Counter.add(counter, 4) == 5
    assert counter.double(4) == 8
    assert Counter.name() == "Counter"
    assert counter.triple(2) == 6
    assert len(recording.called) == 5


def test_bound_method(recording):
    class Holder:
        def __init__(self):
            self.n = 5

        def get(self, x):
            return self.n + x

    holder = Holder()
    compiled = stator.compile(holder.get)
    assert compiled(1) == 6
    traced, _ = recording.made[-1]
    assert traced.__self__ is holder and traced.__func__ is Holder.get
    assert compiled.__name__ == "get"
    assert inspect.signature(compiled) == inspect.signature(holder.get)


def test_callable_instance_is_traced_as_its_call_method(recording):
    class Adder:
        amount = 3

        def __call__(self, x):
            return x + self.amount

    adder = Adder()
    compiled = stator.compile(adder)
    assert compiled(1) == 4
    traced, _ = recording.made[-1]
    assert traced.__self__ is adder
    assert compiled.amount == 3
    with pytest.raises(AttributeError):
        compiled.missing

    class Owner:
        attribute = compiled

    assert Owner().attribute(1) == 4, "a callable object does not bind"


def test_partial(recording):
    partial = functools.partial(scale, 2, shift=1)
    compiled = stator.compile(partial)
    assert compiled() == 5
    assert compiled(10) == 21
    assert compiled(10, shift=5) == 25
    assert compiled.func is scale


def test_builtin(recording):
    assert stator.compile(torch.sin)(torch.zeros(2)).equal(torch.zeros(2))
    assert stator.compile(max)(1, 2) == 2
    assert len(recording.called) == 2


def test_class_has_the_calls_of_its_instances_compiled(recording):
    @stator.compile(backend="eager")
    class Adder:
        def __init__(self, amount):
            self.amount = amount

        def __call__(self, x):
            return x + self.amount

    assert isinstance(Adder, type)
    adder = Adder(2)
    assert adder(1) == 3
    assert len(recording.called) == 1
    assert stator.is_compiled(adder)
    # Compiling again replaces the compilation instead of stacking on it.
    stator.compile(Adder, backend="eager", fullgraph=True)
    assert adder(1) == 3
    assert len(recording.called) == 2


def test_module_class_keeps_hooks(recording):
    @stator.compile(backend="eager")
    class Net(torch.nn.Module):
        def forward(self, x):
            return x + 1

    net = Net()
    seen = []
    net.register_forward_hook(lambda module, args, output: seen.append(output))
    assert net(1) == 2
    assert seen == [2]
    assert len(recording.called) == 1
    assert stator.is_compiled(net)
    assert not stator.is_compiled(torch.nn.ReLU())


def test_compiling_a_compiled_callable_starts_from_the_original(recording):
    once = stator.compile(scale, backend="eager")
    twice = stator.compile(once, backend="eager", fullgraph=True)
    assert twice(2) == 4
    assert recording.called == [scale]
    assert twice is not once
    assert twice.__wrapped__ is scale


def test_is_compiled_is_not_fooled_by_wrappers(recording):
    compiled = stator.compile(scale)

    @functools.wraps(compiled)
    def wrapper(x):
        return compiled(x) + 1

    assert stator.is_compiled(compiled)
    assert not stator.is_compiled(wrapper)
    assert not stator.is_compiled(scale)
    assert not stator.is_compiled(3)
    again = stator.compile(wrapper)
    assert again(1) == 3, "the wrapper must not be skipped"


def test_disable_argument_returns_the_model_itself(recording):
    assert stator.compile(scale, disable=True) is scale
    assert recording.made == []


def test_compiled_function_does_not_outlive_its_last_use(recording):
    def make():
        def recursive(n):
            return n if n == 0 else itself(n - 1)

        itself = stator.compile(recursive)
        return itself

    compiled = make()
    assert compiled(3) == 0
    gone = weakref.ref(compiled)
    recording.made.clear()
    recording.called.clear()
    del compiled
    gc.collect()
    assert gone() is None


def test_entry_that_binds_is_used_without_a_wrapper(recording, monkeypatch):
    class Entry:
        def __init__(self, fn):
            self.fn = fn

        def __call__(self, *args, **kwargs):
            return self.fn(*args, **kwargs)

        def __get__(self, instance, owner=None):
            return self if instance is None else functools.partial(self, instance)

    monkeypatch.setattr(stator.api.first_call, "make_entry", lambda fn, settings: Entry(fn))
    compiled = stator.compile(scale)
    assert type(compiled) is Entry
    assert compiled(2) == 4
    assert compiled.__name__ == "scale"
    assert marks.compiled_mark(compiled).original is scale


def test_reset_and_explain(recording):
    stator.reset()
    assert recording.resets == 1
    fn, settings, args, kwargs = stator.explain(scale)(1, shift=2).value
    assert (fn, args, kwargs) == (scale, (1,), {"shift": 2})
    assert settings.backend == "eager"
    assert stator.explain(stator.compile(scale), fullgraph=True)(1).value[0] is scale


def test_object_whose_class_gets_another_call() -> None:
    class Shift:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    class Other(Shift):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x + 5

    shift = Shift()
    compiled = stator.compile(shift, backend="eager", fullgraph=True)
    x = torch.zeros(1)
    assert compiled(x) == 1
    Shift.__call__ = lambda self, x: x + 2  # type: ignore[method-assign]
    assert compiled(x) == 2
    shift.__class__ = Other
    assert compiled(x) == 5
    around = stator.compile(lambda x: compiled(x) * 2, backend="eager")
    assert around(x) == 10
    Other.__call__ = lambda self, x: x + 100  # type: ignore[method-assign]
    assert around(x) == 200 and compiled(x) == 100

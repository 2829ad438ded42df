"""Marks of users on their functions, and how the interpreter reads them."""

import gc
import weakref

import pytest
import torch

import stator
from stator.errors import OptionTypeError, OptionValueError
from stator.settings import marks


def test_disable_forms(recording):
    def work(x):
        return x, marks.disable_depth()

    for disabled in (stator.disable(work), stator.disable()(work), stator.disable(reason="slow")(work)):
        assert disabled(1) == (1, 1)
        assert marks.is_disabled(disabled)
        assert disabled.__name__ == "work" and disabled.__wrapped__ is work
    assert marks.disabled_mark(disabled).reason == "slow"
    assert not marks.is_disabled(work), "the original stays capturable under its own name"
    assert marks.disable_depth() == 0


def test_disable_region_ends_with_an_exception_and_nests(recording):
    context = stator.disable()
    with pytest.raises(ZeroDivisionError), context:
        with context:
            assert marks.disable_depth() == 2
        assert marks.disable_depth() == 1
        raise ZeroDivisionError
    assert marks.disable_depth() == 0
    with pytest.raises(OptionValueError, match="cannot be a context"), stator.disable(recursive=False):
        pass


def test_disable_not_recursive_marks_the_function_itself(recording):
    def work():
        return marks.disable_depth()

    assert stator.disable(work, recursive=False) is work
    assert work() == 0
    assert marks.is_disabled(work)
    assert marks.disabled_mark(work).recursive is False


def test_disable_methods_classes_and_modules(recording):
    class Holder:
        @stator.disable
        def method(self):
            return marks.disable_depth()

        @stator.disable
        @staticmethod
        def static():
            return marks.disable_depth()

    holder = Holder()
    assert holder.method() == 1 and marks.is_disabled(holder.method)
    assert holder.static() == 1 and marks.is_disabled(Holder.static)
    assert stator.disable(Holder) is Holder and marks.is_disabled(Holder)

    class Net(torch.nn.Module):
        def forward(self):
            return marks.disable_depth()

    net = Net()
    assert stator.disable(net) is net
    assert net() == 1
    assert marks.is_disabled(net)


def test_disable_of_a_compiled_function_runs_the_original(recording):
    compiled = stator.compile(lambda x: x + 1)
    assert stator.disable(compiled)(1) == 2
    assert recording.called == []


def test_functions_that_torch_disabled_are_disabled(recording):
    @torch.compiler.disable(reason="theirs")
    def work(x):
        return x

    assert marks.is_disabled(work)
    assert marks.disabled_mark(work).reason == "theirs"


def test_allow_in_graph(recording):
    def kernel(x):
        return x

    assert stator.allow_in_graph(kernel) is kernel
    assert marks.allowed_in_graph(kernel)
    assert not marks.allowed_in_graph(lambda x: x)
    assert stator.allow_in_graph([kernel, len]) == [kernel, len]
    with pytest.raises(OptionValueError, match="marked with stator.disable"):
        stator.allow_in_graph(stator.disable(kernel))
    with pytest.raises(OptionTypeError, match="not callable"):
        stator.allow_in_graph(3)


def test_assume_constant_result_on_methods(recording):
    class Config:
        @stator.assume_constant_result
        def size(self):
            return 3

    assert Config().size() == 3
    assert marks.is_constant_result(Config().size)
    assert not marks.is_constant_result(Config)


def test_substitute_in_graph(recording):
    def native(a, b=1, *rest, key=None):
        return a

    @stator.substitute_in_graph(native, can_constant_fold_through=True)
    def plain(a, b=1, *others, key=None):
        return a

    mark = marks.substitute(native)
    assert mark.replacement is plain and mark.can_constant_fold_through
    assert marks.substitute(plain) is None
    stator.substitute_in_graph(native)(plain)
    with pytest.raises(OptionValueError, match="already has the substitute"):
        stator.substitute_in_graph(native)(lambda *args, **kwargs: None)


@pytest.mark.parametrize(
    "replacement",
    [lambda a: a, lambda b, a=1: a, lambda a, b=2: a, lambda a, *, b=1: a, lambda a, b=1, *, c: a],
)
def test_substitute_signature_is_checked(recording, replacement):
    def native(a, b=1):
        return a

    with pytest.raises(TypeError, match="does not take the parameters of"):
        stator.substitute_in_graph(native)(replacement)
    stator.substitute_in_graph(native, skip_signature_check=True)(replacement)
    assert marks.substitute(native).replacement is replacement


def test_substitute_wildcards_and_refusals(recording):
    def native(a, b=1):
        return a

    stator.substitute_in_graph(native)(lambda *args, **kwargs: None)
    with pytest.raises(OptionTypeError, match="a class cannot be substituted"):
        stator.substitute_in_graph(int)
    with pytest.raises(OptionTypeError, match="use a Python function"):
        stator.substitute_in_graph(lambda x: x)(len)


def test_is_compiling_and_graph_break_outside_captured_code(recording):
    assert stator.is_compiling() is False
    assert stator.is_compiling is marks.is_compiling
    assert stator.graph_break() is None
    assert stator.graph_break is marks.graph_break


def test_marks_do_not_keep_objects_alive():
    table = marks.IdentityTable()

    def function():
        return None

    table.put(function, 1)
    table.put((), 2)  # tuples cannot be referenced weakly
    assert (table.get(function), table.get(()), len(table)) == (1, 2, 2)
    gone = weakref.ref(function)
    del function
    gc.collect()
    assert gone() is None
    assert len(table) == 1


def test_public_names():
    assert set(stator.__all__) == set(stator._MODULE_OF_NAME)
    for name in stator.__all__:
        assert getattr(stator, name) is not None
    assert "is_compiling" in vars(stator)
    with pytest.raises(AttributeError, match="has no attribute 'compil'"):
        stator.compil

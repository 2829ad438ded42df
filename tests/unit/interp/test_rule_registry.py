"""Rules: their parameters are the callee's, and a call that does not fit is the callee's to refuse."""

from __future__ import annotations

import inspect
import types

import pytest
import torch

import stator
from stator.interp.rule_registry import RULED, RULES, rule, suspending_rule
from tests.comparison import call, same_as_eager

stator.compile(len)  # loads every rule


def parameters_of_rule(function):
    """Those that stand for the callee's."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    for name in ("cont", "callee"):
        if parameters and parameters[0].name == name:
            parameters = parameters[1:]
    return inspect.Signature(parameters)


def python_callees():
    for callee, function in RULED:
        if type(callee) is types.FunctionType and callee.__module__.partition(".")[0] != "tests":
            signature = inspect.signature(callee, follow_wrapped=False)
            kinds = {parameter.kind for parameter in signature.parameters.values()}
            if inspect.Parameter.VAR_POSITIONAL not in kinds:  # wrappers hide what they take
                yield callee, function, signature


def ways_to_call(signature):
    """Every argument by name; by position, where it can be; as few as possible."""
    parameters = signature.parameters.values()
    positional = [each for each in parameters if each.kind is each.POSITIONAL_ONLY]
    flexible = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    named = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    needed = {each.name: None for each in named if each.default is each.empty}
    yield [None] * len(positional), {each.name: None for each in (*flexible, *named)}
    yield [None] * len([*positional, *flexible]), {each.name: None for each in named}
    yield [None for each in (*positional, *flexible) if each.default is each.empty], needed


def test_rules_of_python_functions_take_every_call_of_them():
    wrong = []
    for callee, function, signature in python_callees():
        own = parameters_of_rule(function)
        for args, kwargs in ways_to_call(signature):
            try:
                own.bind(*args, **kwargs)
            except TypeError as error:
                wrong.append(f"{callee.__module__}.{callee.__qualname__}{signature}: {own}: {error}")
                break
    assert not wrong, "\n".join(wrong)


def scaled(x, factor, *, offset=0):
    return x * factor + offset


@pytest.fixture
def ruled():
    seen = []

    @rule(scaled)
    def _scaled(vm, x, factor, *, offset=0):
        seen.append((factor, offset))
        return vm.torch_call(torch.mul, (x, factor + offset), None)

    yield seen
    del RULES[id(scaled)]


def test_a_rule_binds_arguments_by_position_and_by_name(ruled):
    assert torch.equal(stator.compile(lambda x: scaled(factor=2, x=x, offset=1), backend="eager")(torch.ones(2)),
                       torch.full((2,), 3.0))
    assert torch.equal(stator.compile(lambda x: scaled(x, 2), backend="eager")(torch.ones(2)), torch.full((2,), 2.0))
    assert ruled == [(2, 1), (2, 0)]


@pytest.mark.parametrize("wrong", [
    lambda x: scaled(x), lambda x: scaled(x, 1, 2), lambda x: scaled(x, 2, other=1), lambda x: scaled(x, 2, x=x),
    lambda x: len(), lambda x: len(x, x), lambda x: getattr(x), lambda x: isinstance(x, int, 3), lambda x: hash(),
    lambda x: [].append(), lambda x: {}.get(), lambda x: {}.setdefault(1, 2, 3), lambda x: vars(x, x),
    lambda x: print(x, colour=1), lambda x: list.__len__(), lambda x: torch.is_grad_enabled(1),
])
def test_a_call_that_does_not_fit_raises_what_eager_raises(ruled, wrong):
    same_as_eager(wrong, call(torch.ones(2)))
    assert ruled == []


def test_a_suspending_rule_gives_its_value_through_a_call():
    def twice(function, x):
        return function(function(x))

    @suspending_rule(twice)
    def _twice(vm, cont, function, x):
        vm.call(function, (vm.call_sync(function, (x,)),), {}, cont)

    same_as_eager(lambda x: twice(lambda y: y.sin() + 1, x) * 2, call(torch.rand(3)), call(torch.rand(4)))
    del RULES[id(twice)]


def test_a_rule_of_several_callables_is_told_which_is_called():
    same_as_eager(lambda x, xs: (x * xs.__len__(), (1, 2).__len__(), {1: 2}.__len__()), call(torch.ones(2), [1, 2, 3]),
                  call(torch.ones(2), [1]))


def test_a_wrapped_method_of_pybind11_has_the_rule_of_its_function():
    """Which of the two a class gives depends on its metaclass: torch 2.11 and 2.13 differ for process groups."""
    method = vars(torch._C.DispatchKeySet)["raw_repr"]
    assert type(method) is not types.BuiltinFunctionType
    assert id(method.__func__) not in RULES
    rule(method)(lambda vm, keys, /: "")
    try:
        assert id(method.__func__) in RULES and id(method) not in RULES
    finally:
        del RULES[id(method.__func__)]
        RULED.pop()

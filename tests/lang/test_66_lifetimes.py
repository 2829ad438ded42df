"""weakref.proxy of objects made inside, gc.collect(), namespaces that hold themselves."""

import gc
import types
import weakref

import pytest
import torch

import stator
from curriculum import call, case, ramp
from tests.comparison import same_as_eager


class Node:
    def __init__(self, value):
        self.value = value

    def get(self):
        return self.value


class Linked:
    """A list of nodes that refer back to each other weakly, as the OrderedDict in Python does."""

    def __init__(self):
        self.hard = Node(None)
        self.root = root = weakref.proxy(self.hard)
        root.previous = root.next = root

    def add(self, value):
        node = Node(value)
        last = self.root.previous
        node.previous, node.next = last, self.root
        last.next = node
        self.root.previous = weakref.proxy(node)

    def values(self):
        node, found = self.root.next, []
        while node is not self.root:
            found.append(node.value)
            node = node.next
        return found


@case()
def a_proxy_is_its_object(x, y):
    node = Node(x)
    proxy = weakref.proxy(node)
    proxy.value = proxy.value + y
    proxy.other = 1
    del proxy.other
    return (node.value, proxy.get(), hasattr(proxy, "other"), isinstance(proxy, Node), type(proxy) is Node,
            proxy is weakref.proxy(node), proxy.__class__ is Node)  # fmt: skip


@case(graphs=0)
def a_proxy_dies_with_its_object(x, y):
    node = Node(1)
    proxy = weakref.proxy(node)
    before = proxy.value
    del node
    said = []
    for ask in (lambda: proxy.value, lambda: setattr(proxy, "value", 2), lambda: weakref.proxy(Node(1)).value):
        try:
            ask()
        except ReferenceError as error:
            said.append(str(error))
    return before, said


@case()
def proxies_leave_the_call(x, y):
    linked = Linked()
    for value in (x, y, 3):
        linked.add(value)
    return linked.values(), x + y


@case()
def garbage_is_collected(x, y):
    node = Node(x)
    node.me = node
    del node
    gc.collect(0)
    gc.collect(0)
    return x + y


@case(graphs=0)
def a_namespace_holds_itself(x, y):
    namespace = types.SimpleNamespace(k=1)
    namespace.me = namespace
    return repr(namespace), namespace == namespace.me


@case(graphs=0)
def a_namespace_that_is_none(x, y):
    class Meta(type):
        @classmethod
        def __prepare__(cls, *args):
            return None

    try:
        class Made(metaclass=Meta):
            leaked = 1
    except TypeError as error:
        return str(error), "leaked" in globals()


@case(call(ramp(2)), graphs=0)
def names_of_classes_and_modules(x):
    return "get" in dir(Node), [name for name in dir(Linked) if name[0] != "_"], "ref" in dir(weakref), x is x


def test_a_collection_beside_weak_references_is_eager():
    def fn(x):
        node = Node(1)
        node.me = node
        reference = weakref.ref(node)
        del node
        gc.collect(0)
        return x + (reference() is None)

    same_as_eager(fn, call(torch.ones(2)), fullgraph=False)


def test_finalizers_run_between_effects():
    log = []

    class Logged:
        def __del__(self):
            log.append("dead")

    def fn(x):
        log.append("before")
        gc.collect(0)
        log.append("after")
        return x + 1

    from stator import api

    found = []
    gc.collect(0)
    gc.disable()
    try:
        for side in (fn, api.compile(fn, backend="eager")):
            for _ in range(2):
                garbage = Logged()
                garbage.me = garbage
                del garbage
                side(torch.ones(2))
            found.append(list(log))
            log.clear()
    finally:
        gc.enable()
    assert found[0] == found[1]
    assert found[0].count("dead") == 2


def test_dir_of_a_class_that_gets_a_name_later():
    from stator import api

    class Base:
        first = 1

    class Derived(Base):
        pass

    def fn(x):
        return [name for name in dir(Derived) if name[0] != "_"], x + 1

    compiled = api.compile(fn, backend="eager", fullgraph=True)
    assert compiled(torch.ones(1))[0] == ["first"]
    Base.second = 2
    assert compiled(torch.ones(1))[0] == ["first", "second"]


def raised_at_a_break(number):
    """A call that breaks, and raises."""
    raise ValueError(number)


def watched(number):
    node = Node(number)
    WATCHED.append(weakref.ref(node))
    raised_at_a_break(number)


WATCHED: list = []


@pytest.mark.parametrize("reads", ["never", "in the handler", "at a break in the handler"])
def test_a_handled_exception_lets_go_of_its_frames(reads):
    def dead_after_the_handler(number):
        WATCHED.clear()
        try:
            watched(number)
        except ValueError as error:
            lives = None if reads == "never" else WATCHED[0]() is not None if reads == "in the handler" \
                else touched_at_a_break(error)
        return lives, WATCHED[0]() is None

    touched_at_a_break = stator.disable(lambda error: str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "raised_at_a_break", stator.disable(raised_at_a_break))
        compiled = stator.compile(dead_after_the_handler, backend="eager")
        for number in (1, 1, 2):
            assert compiled(number) == dead_after_the_handler(number)
            assert compiled(number)[1]


def test_a_container_that_crossed_a_break_is_let_go():
    broken = stator.disable(lambda: None)

    def dead_with_its_list(number):
        held = [Node(number)]
        reference = weakref.ref(held[0])
        broken()
        lives = reference() is not None
        del held
        return lives, reference() is None

    compiled = stator.compile(dead_with_its_list, backend="eager")
    for number in (1, 1, 2):
        assert compiled(number) == dead_with_its_list(number) == (True, True)

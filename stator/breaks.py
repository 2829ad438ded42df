"""Graph breaks: the signal that stops the tracer, the registry of break codes, and the strategies to turn off.

In: a code, a detail and a `Stop`.  Out: `Break`, placed in the user's program by the interpreter's loop, which becomes
an event or `errors.Unsupported`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from stator.errors import InternalError, Unsupported, UserFrame


class Strategy(enum.StrEnum):
    """One way of capturing that a call site can turn off (`capture/next_attempt`), by its text in messages."""

    ADDRESSES_AS_SHOWN = "addresses in texts as the trace shows them"  # off: texts make the objects that they show
    BACKWARD_CODE = "code of backward passes, ahead of them"  # off: functions and hooks that autograd calls break
    CHECKPOINTS = "checkpoints"  # the backward pass reads memory again that was written to
    CODE_FROM_TEXT = "code made at run time"  # in dicts of the trace, which no resume function takes over
    COMPILER = "compilers"  # off: the graph is run as it is
    COMPILING_SHOWN = "torch.compiler.is_compiling"  # the program may see that it is captured
    CARRIED_NUMBERS = "numbers that a loop carries"  # Inductor of torch 2.13 fails on them
    COPIED_STORAGES = "deep copies of tensors"  # copy.deepcopy() notes in its memo which storages it has copied
    CUSTOM_FORMULAS = "formulas of custom operators"  # AOTAutograd traces them; off: it gets the pieces around
    DATA_ASSIGNMENTS = "memory of tensors"
    DRAWN_NUMBERS = "random numbers that the residual draws"  # off: the state of a stream is a guarded fact
    EXCEPTIONS_BEFOREHAND = "exceptions made beforehand"
    FIXED_STORAGES = "arrays on tensors"  # Tensor.numpy() makes a storage that cannot be resized
    FORWARD_MODE = "forward-mode differentiation"
    FUNCTION_MODES = "function modes"
    FUNCTIONS_OFF = "functions off"  # contexts that turn __torch_function__ off
    GRAD_FN = "nodes of autograd"
    GRADIENTS_INSIDE = "gradients inside"
    HANDLED_ERRORS = "errors that are handled"
    HASHES = "functions that hash keys"
    HOOK_GRAPHS = "graphs of hooks on tensors"  # off: autograd calls the hooks themselves
    INFERENCE_MODE = "inference mode"
    KEPT_LOCALS = "locals() whose dict is kept"
    LATE_COLLECTIONS = "collections of garbage after changes"
    LATE_OUTPUT = "output that is written later"
    LEAF_FLAGS = "flags of leaves"
    NEW_LEAVES = "new leaves"
    RECORDED_WARNINGS = "recorded warnings"
    SAVED_TENSOR_HOOKS = "hooks on saved tensors"
    SET_ORDER = "order of sets of objects made inside"
    SINGLE_DRAWS = "random numbers of numpy one by one"  # off: the residual calls pure functions that draw
    SPARSE_INPUTS = "sparse inputs"
    SYMBOLIC_WRAPPERS = "open sizes of wrappers"
    UNBACKED_VALUES = "unbacked values"  # off, under fullgraph: a guard computes ahead those that decide the capture
    UNSPOKEN_ASSERTIONS = "unspoken assertions"
    WEAK_COLLECTIONS = "collections of weak references"
    WRAPPED_BODIES = "bodies of the operator wrap"  # off: the function is called as eager calls it


class Native(enum.StrEnum):
    """The code that runs as plain Python at a break, by its text on the page of a break code."""

    INSTRUCTION = "This one instruction runs natively. Stator captures the code before and after it"
    FRAME = ("The function that the instruction is in runs natively to its end, because the instruction needs the real "
             "frame. Stator captures the code before it, and its callers")
    LONG_LOOP = ("One instruction runs natively, and the code before and after it is captured. A function whose loops "
                 "exceed the limit runs natively to its end")
    CALL = "The whole call runs natively. Entries that were captured before are used where they fit"


@dataclass(frozen=True)
class BreakCode:
    """One way in which a program cannot be captured; `inherent`: no tracer can capture it."""

    code: str
    title: str
    cause: str
    example: str
    remedy: str
    inherent: bool = False
    native: Native = Native.INSTRUCTION


REGISTRY: dict[str, BreakCode] = {}


def register(code: str, title: str, *, cause: str, example: str, remedy: str, inherent: bool = False,
             native: Native = Native.INSTRUCTION) -> BreakCode:
    """Add one code to the registry; a code is given a meaning once."""
    if code in REGISTRY:
        raise InternalError(f"break code {code} is already registered as {REGISTRY[code].title!r}")
    if not (len(code) == 5 and code.startswith("SB") and code[2:].isdigit()):
        raise InternalError(f"break code {code!r} is not of the form SBnnn")
    REGISTRY[code] = row = BreakCode(code, title, cause, example, remedy, inherent, native)
    return row


@dataclass(slots=True)
class Stop:
    """How a capture goes on after a Break; read by `capture/stages` and `emit/resume`."""

    turn_off: Strategy | None = None  # capture again without it
    not_rebuilt: type | None = None  # capture again, and break where a value of this C type is made
    branches_break: bool = False  # capture again, and break at branches on data
    once: bool = False  # run this call eagerly; later calls are captured
    whole_call: bool = False  # run the whole call eagerly
    whole_frame: bool = False  # run the rest of the innermost frame natively
    outermost: bool = False  # break in the outermost frame
    leave: str = ""  # break in the caller of the frames of this file
    asks_caller: bool = False  # the native code looks for its caller's frame
    varying: bool = False  # an instruction looked at a value that was handed around unread
    condition: object = None  # of a data-dependent break: a sympy expression
    why: str = ""  # why a branch was not captured, for the branch around it
    untouched: bool = False  # raised before the instruction changed anything but its own operands
    restored: bool = False  # the operands are on the stack again: the frame stands before the instruction


class Break(BaseException):
    """The tracer stops here; a BaseException, which `except Exception` in the code below does not catch."""

    def __init__(self, code: str, detail: str = "", stop: Stop | None = None, **stopping: Any) -> None:
        if code not in REGISTRY:
            raise InternalError(f"break code {code!r} is not registered; detail: {detail}")
        super().__init__(code, detail)
        self.code = code
        self.detail = detail
        self.stop = stop or Stop(**stopping)
        self.filename: str | None = None
        self.line: int | None = None
        self.stack: tuple[UserFrame, ...] = ()
        self.remedy = REGISTRY[code].remedy

    @property
    def title(self) -> str:
        return REGISTRY[self.code].title

    @property
    def cause(self) -> str:
        """The detail of this break, else the general cause of its code."""
        return self.detail or REGISTRY[self.code].cause

    def as_unsupported(self) -> Unsupported:
        """The error that the user sees under `fullgraph=True`."""
        return Unsupported(self.code, self.title, self.cause, self.remedy, self.filename, self.line, self.stack)

    def __str__(self) -> str:
        return str(self.as_unsupported())


register("SB001", "native function not in the table",
         cause="a function written in C was called that is not known to be free of side effects",
         example="some_extension.process(x)",
         remedy="teach it with stator.substitute_in_graph, put it into the graph with stator.allow_in_graph, or "
         "exclude the caller with stator.disable")
register("SB002", "data-dependent branch",
         cause="a branch depends on the value of a tensor, which exists only when the graph runs",
         example="if x.sum() > 0: ...",
         remedy="choose between values with torch.where, between computations with torch.cond, or capture both "
         "branches with options={'capture_control_flow': True}",
         inherent=True)
register("SB003", "data-dependent scalar",
         cause="a tensor's value is needed as a Python number, list or numpy array while tracing",
         example="n = int(x.max()); s = str(n)",
         remedy="keep the value in a tensor, or use it only as a size, bounded with torch._check",
         inherent=True)
register("SB004", "data-dependent output shape",
         cause="the shape of an operator's result depends on the values of its input",
         example="x[x > 0], torch.nonzero(x), torch.unique(x)",
         remedy="use a form with a fixed shape: torch.where, masks, nonzero_static", inherent=True)
register("SB005", "opaque outside object",
         cause="an object made outside the captured code has state that Python cannot see and no guard can cover",
         example="handle = ext.Handle(); stator.compile(lambda x: x * handle.scale)",
         remedy="read the needed values from the object beforehand and pass them in")
register("SB006", "mutation that cannot be written back",
         cause="the program changes an object of a kind whose changes cannot be replayed on the original",
         example="ext_object.value = x.shape[0]",
         remedy="move the mutation out of the compiled function, or return the new value")
register("SB007", "value that cannot be rebuilt",
         cause="a value that leaves the captured code cannot be made again by the compiled function",
         example="return ext.Handle(x)",
         remedy="build the object outside the compiled function from the values that it needs")
register("SB008", "frame inspection",
         cause="the program reads interpreter frames, which do not exist in the compiled function",
         example="sys._getframe(), inspect.stack(), inspect.currentframe()",
         remedy="pass the information as an argument, or exclude the function with stator.disable",
         native=Native.FRAME)
register("SB009", "explicit graph break", cause="the program called stator.graph_break()",
         example="stator.graph_break()", remedy="remove the call where one graph is wanted", inherent=True)
register("SB010", "disabled function called",
         cause="a function was called that is marked with stator.disable",
         example="@stator.disable\ndef log(x): ...",
         remedy="remove the mark, or move the call out of the compiled function", inherent=True)
register("SB011", "limit of the interpreter",
         cause="the bytecode holds an instruction that the interpreter declines, or exceeds its limits "
         "(900 nested calls; 100,000 loop iterations, stator.config.capture_iteration_limit)",
         example="def count(x, n): return x if n == 0 else count(x + 1, n - 1)   # n = 950",
         remedy="write deep recursion as a loop, move long loops without tensors out of the compiled function, or "
         "exclude the function with stator.disable", native=Native.LONG_LOOP)
# SB012 is retired: a break inside a callback of C code has the code of its own cause.
register("SB013", "impure read",
         cause="the program reads a value that changes from call to call and that no guard can cover",
         example="time.time(), os.environ['N'], random.choice(names)",
         remedy="read it outside the compiled function and pass it in", inherent=True)
register("SB014", "outside iterator or generator",
         cause="an iterator that was made outside is advanced; its position cannot be read without moving it",
         example="it = itertools.tee(map(abs, xs))[0]; stator.compile(lambda x: x + next(it))",
         remedy="make the iterator inside the compiled function, or pass a list")
register("SB015", "input or output", cause="the program opens files for writing, or uses sockets or processes",
         example="open(path, \"a\").write(text)",
         remedy="do it outside the compiled function, or exclude the function with stator.disable",
         inherent=True)
register("SB016", "autograd call inside", cause="the program runs autograd inside the captured code",
         example="loss.backward(create_graph=True)",
         remedy="compile the forward computation alone; call backward outside, or use torch.func.grad")
register("SB017", "tensor type that cannot be faked",
         cause="a tensor of this kind has no fake counterpart to trace with",
         example="a subclass with __torch_dispatch__ and no __tensor_flatten__; a quantised or strided nested tensor",
         remedy="use a plain tensor (of a nested one, the jagged layout; of a CSR one, which few operations take, "
         "to_sparse_coo()), "
         "or give the subclass __tensor_flatten__ and __tensor_unflatten__")
register("SB018", "concurrency", cause="the program starts or joins threads, or waits for an event loop",
         example="threading.Thread(target=f).start()",
         remedy="start the concurrent work outside the compiled function", inherent=True)
register("SB019", "weak reference or finalizer",
         cause="the program depends on when an object dies, and objects of the trace die at other times",
         example="weakref.finalize(obj, callback)",
         remedy="make and read weak references, and make objects with __del__, outside the compiled function",
         native=Native.FRAME)
register("SB020", "traceback read",
         cause="the program reads a traceback, whose frames do not exist in the compiled function",
         example="except ValueError as e: traceback.format_tb(e.__traceback__)",
         remedy="format the traceback outside the compiled function")
register("SB021", "recompile limit reached",
         cause="a function was compiled as often as its recompile_limit allows, and none of the entries fits the call",
         example="stator.compile(f, recompile_limit=8), called with nine different sizes or constants",
         remedy="turn the changing value into a tensor or a dynamic size, or raise recompile_limit",
         native=Native.CALL)
register("SB022", "change of Stator settings",
         cause="captured code changes or reads how compiled functions behave in the whole process",
         example="with stator.set_stance('force_eager'): ...",
         remedy="set the stance outside the compiled function", inherent=True)
register("SB023", "frame skipped on request", cause="the program called stator.skip_frame()",
         example="def log(x): stator.skip_frame(); ...",
         remedy="remove the call where the function is to be captured", inherent=True, native=Native.FRAME)
register("SB024", "value that changes from call to call",
         cause="a str, function or container at this place changed too often to be a constant; the "
         "instruction that reads it runs natively, and the code after it is captured",
         example="def f(x, name): return x + len(name)   # called with nine different names",
         remedy="pass the needed part of the value (a number, a tensor), or raise recompile_limit")
register("SB025", "no capture now",
         cause="the process is in a state in which no call is captured, or another thread keeps changing a fact",
         example="builtins.len = my_len; compiled(x)",
         remedy="restore the builtins, call the function outside torch.jit.trace, or let no other thread change "
         "the values it reads",
         inherent=True, native=Native.CALL)

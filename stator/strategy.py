"""Ways of capturing that a call site can do without.

In: a trace, or a backend, that fails because of one of them.  Out: the name under which a call site turns it off; the
next capture of that site breaks there instead.  `capture/next_attempt` decides.
"""

from __future__ import annotations

import enum


class Strategy(enum.StrEnum):
    """One way of capturing, by the text that messages use for it."""

    CHECKPOINTS = "checkpoints"  # the backward pass reads memory again that was written to
    COMPILER = "compilers"  # off: the graph is run as it is
    COMPILING_SHOWN = "torch.compiler.is_compiling"  # the program may see that it is captured
    CARRIED_NUMBERS = "numbers that a loop carries"  # Inductor of torch 2.13 fails on them
    COPIED_STORAGES = "deep copies of tensors"  # copy.deepcopy() notes in its memo which storages it has copied
    DATA_ASSIGNMENTS = "memory of tensors"
    EXCEPTIONS_BEFOREHAND = "exceptions made beforehand"
    FIXED_STORAGES = "arrays on tensors"  # Tensor.numpy() makes a storage that cannot be resized
    FORWARD_MODE = "forward-mode differentiation"
    FUNCTION_MODES = "function modes"
    FUNCTIONS_OFF = "functions off"  # contexts that turn __torch_function__ off
    GRAD_FN = "nodes of autograd"
    GRADIENTS_INSIDE = "gradients inside"
    HANDLED_ERRORS = "errors that are handled"
    INFERENCE_MODE = "inference mode"
    KEPT_LOCALS = "locals() whose dict is kept"
    LEAF_FLAGS = "flags of leaves"
    NEW_LEAVES = "new leaves"
    RECORDED_WARNINGS = "recorded warnings"
    SAVED_TENSOR_HOOKS = "hooks on saved tensors"
    SPARSE_INPUTS = "sparse inputs"
    SYMBOLIC_WRAPPERS = "open sizes of wrappers"
    UNSPOKEN_ASSERTIONS = "unspoken assertions"
    WEAK_COLLECTIONS = "collections of weak references"

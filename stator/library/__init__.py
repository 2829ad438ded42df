"""What single functions of Python, torch and numpy do in a trace.

In: a call of a function that has a rule.  Out: its value, its nodes, its effects, or a Break.
Importing this package registers every rule.
"""

from stator.library.numpy import (  # noqa: F401
    numpy_functions,
)
from stator.library.python import (  # noqa: F401
    caches,
    callables,
    class_makers,
    containers,
    context_variables,
    decimals,
    exception_groups,
    file_io,
    hashing,
    installed_packages,
    introspection,
    iteration,
    locks,
    object_functions,
    pickling,
    printing_and_logging,
    process_facts,
    random_numbers,
    running_frames,
    stator_policies,
    text_formatting,
    types_and_classes,
    warning_filters,
    weak_references,
)
from stator.library.torch import (  # noqa: F401
    checkpoint,
    compiler_queries,
    devices,
    function_mode_stack,
    higher_order_operators,
    optimisers,
    process_defaults,
    recurrent_layers,
    saved_tensor_hooks,
    settings,
    symbol_functions,
    tensor_copies,
    tensor_hooks,
    tensor_methods,
    tensor_subclasses,
    torch_rng,
)
from stator.library.torch.derivatives import (  # noqa: F401
    autograd_boundaries,
    autograd_functions,
    forward_mode,
    func_transforms,
    gradients,
    vmap,
)

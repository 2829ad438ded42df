"""Compilers of graphs.

In: a torch.fx.GraphModule and its fake inputs.  Out: a callable that computes the same from real inputs.
"""

from stator.backends import aot, cuda_graphs, eager, inductor
from stator.backends.compilation import compile_graph
from stator.backends.registry import (
                                      Backend,
                                      add_builtin,
                                      check_settings,
                                      find_backend,
                                      list_backends,
                                      register_backend,
)

__all__ = ["Backend", "check_settings", "compile_graph", "find_backend", "list_backends", "register_backend"]

add_builtin("eager", eager.compile_eager)
add_builtin("eager_noexcept", eager.compile_eager_noexcept)
add_builtin("aot_eager", aot.compile_aot_eager)
add_builtin("aot_eager_decomp_partition", aot.compile_aot_eager_decomp_partition)
add_builtin("inductor", inductor.compile_inductor, inductor.check_inductor_settings, inductor.wake_workers)
add_builtin("cudagraphs", cuda_graphs.compile_cuda_graphs)

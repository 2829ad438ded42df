"""Guards: facts about the outside world that a compiled function relies on.

In: facts that the trace used (`guard.py`), of tensors (`tensor_meta.py`), of torch (`global_state.py`).  Out: pruned,
ordered guards (`guard_set.py`), the flat program for C++ (`lower.py`), the reason of a failure (`guard_semantics.py`).
"""

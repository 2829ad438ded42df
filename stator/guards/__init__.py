"""Guards: facts about the outside world that a compiled function relies on.

guard.py           one fact as data                      what the trace used  ->  Guard(source, kind, value, where)
tensor_meta.py     the facts of a tensor                 tensor               ->  TensorMeta
global_state.py    the facts of torch                    now                  ->  GlobalState
guard_set.py       all facts of a trace                  Guards               ->  pruned, ordered Guards
lower.py           the flat program for C++              Guards + wanted      ->  nodes, checks, wanted
guard_semantics.py one guard, by C++                     Guard + arguments    ->  bool, and why not
"""

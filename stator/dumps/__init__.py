"""Dump captures to files.   stator.dump(compiled, "folder")  ->  folder/f_0.py, folder/f_0_graph.py

In: a compiled callable, or every capture of a process (STATOR_DUMP=folder).  Out: files of residual programs and
graphs; a debugger steps through them, because the functions that run name these files and their lines.
"""

from stator.dumps.dump import dump

__all__ = ["dump"]

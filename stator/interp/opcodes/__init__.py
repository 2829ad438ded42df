"""Handlers of opcodes.

In: an instruction and the frame that runs it.  Out: the changed frame: its stack, its locals, its next instruction.
"""

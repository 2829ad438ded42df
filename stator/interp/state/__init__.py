"""State of a trace, one object for each mechanism (see host/mechanism).

In: notes of opcodes, rules and C calls.  Out: what branch capture, replay and the residual compare and write back.
`mechanisms` lists them; `machine` adds the state of the loop itself.
"""

"""Rules for asyncio and async iterators.

In: a call of asyncio, or of an async iterator.  Out: values of coroutines that are interpreted in turn, effects, or a
Break.  `loop_tasks` is code of the trace, and no rule.
"""

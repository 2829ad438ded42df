"""From a call that no entry accepts to an installed entry.

In: a callable and the arguments of one call.  Out: an entry of its call site: traced, guarded, compiled.
The order of the stages, what is tried again with less, and the limits live here; what each stage does does not.
"""

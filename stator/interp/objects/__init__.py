"""What objects do: attributes, items, operators, texts.

In: an object and what the program asks of it.  Out: the value as CPython defines it, each read with a source.
"""

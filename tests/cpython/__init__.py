"""CPython's own tests of the language and its builtins, run as programs to capture."""

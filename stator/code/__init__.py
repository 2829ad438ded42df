"""Bytecode in and out.   types.CodeType  ->  CodeUnit  ->  types.CodeType

The one folder of the front end that knows which CPython it runs on; it imports nothing else of Stator.
"""

"""Which modules of the interpreter's own `test` package are run.

In: nothing.  Out: `MODULES`, everything `python -m tests.cpython` runs, and `QUICK`, the slice pytest runs.
"""

from __future__ import annotations

QUICK = ("test_augassign", "test_bool", "test_contains", "test_decorators", "test_opcodes")

MODULES = (
    *QUICK,
    "test_pow", "test_generators", "test_dict", "test_list", "test_tuple", "test_set", "test_int", "test_float",
    "test_iter", "test_itertools", "test_functools", "test_collections", "test_contextlib",
    "test_exceptions", "test_raise", "test_with", "test_class", "test_descr", "test_super",
    "test_property", "test_scope", "test_grammar", "test_unpack_ex", "test_compare", "test_enumerate",
    "test_range", "test_slice", "test_sort", "test_operator", "test_bisect", "test_heapq", "test_copy",
    "test_dataclasses", "test_enum", "test_patma", "test_named_expressions", "test_fstring",
    "test_keywordonlyarg", "test_positional_only_arg", "test_listcomps", "test_userdict", "test_deque",
    "test_defaultdict", "test_ordered_dict", "test_math", "test_cmath", "test_typing", "test_string",
    "test_complex", "test_long", "test_bytes", "test_unicode", "test_builtin", "test_types", "test_abc",
    "test_coroutines", "test_exception_group", "test_except_star", "test_exception_variations",
    "test_generator_stop", "test_yield_from", "test_genericalias", "test_index", "test_binop",
    "test_hash", "test_weakref", "test_weakset", "test_userlist", "test_userstring", "test_dynamic",
    "test_dictviews", "test_richcmp", "test_numeric_tower", "test_fractions", "test_statistics",
    "test_string_literals", "test_format", "test_funcattrs", "test_global", "test_isinstance",
    "test_subclassinit", "test_metaclass", "test_call", "test_contextlib_async", "test_reprlib",
    "test_textwrap", "test_re", "test_json", "test_copyreg", "test_pprint", "test_struct", "test_random",
    "test_contextvars", "test_dictcomps", "test_exception_hierarchy", "test_dynamicclassattribute",
    "test_genericclass", "test_int_literal", "test_iterlen", "test_colorsys", "test_flufl", "test_html", "test_errno",
    "test_graphlib", "test_baseexception", "test_fnmatch", "test_future_stmt", "test_asyncgen",
    "test_unpack", "test_syntax", "test_decimal",
    "test_unary", "test_typechecks", "test_keyword", "test_structseq",
)

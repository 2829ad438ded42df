"""Rows for C modules of the standard library that compute: algorithms, values, text and bytes.

In: the modules. Out: rows. Algorithms run the program's own objects to add, compare, hash or iterate, so `calls_back`
is common, and a result may be an argument or a part of one. Dates, patterns, matches and Structs are immutable or
fresh; readers of a clock, the time zone, the decimal context or a random state are impure.
"""

from __future__ import annotations

import _bisect
import _codecs
import _collections
import _datetime
import _decimal
import _functools
import _heapq
import _json
import _operator
import _random
import _sre
import _string
import _struct
import array
import binascii
import cmath
import hashlib
import itertools
import math
import re
import time
import unicodedata
import zlib
from typing import Any

from stator.native.rows_builtins import declare_iterator
from stator.native.rows_declare import (
    NativeClass,
    attribute_slots,
    attributes,
    deep,
    deny,
    impure,
    is_c_type,
    iterator,
    mutates,
    optional_module,
    outside,
    pure,
    shell,
    special,
    type_of,
    wrapper,
)

COMPARISONS = "__eq__ __ne__ __lt__ __le__ __gt__ __ge__"
TIME_ZONE = "reads the time zone of the process"
GUARDED_CONTEXT = "the settings of the decimal context are guarded, its flags written back"
DECIMAL_CONTEXT = "reads the decimal context, and leaves its flags there"
DIGEST_MODULES = ("_hashlib", "_md5", "_sha1", "_sha2", "_sha256", "_sha512", "_sha3", "_blake2")
REGISTRY = "changes a registry of the process"


def _operators() -> None:
    shell(_operator, "is_ is_not is_none is_not_none")
    pure(_operator, "truth not_ index", calls_back=True)
    deep(_operator, "eq ne lt le gt ge", calls_back=True, compares=True, fresh=None)
    deep(_operator, "contains indexOf countOf", calls_back=True, compares=True)
    pure(_operator,
         "add sub mul matmul floordiv truediv neg pos abs inv invert lshift rshift and_ xor or_ pow concat",
         calls_back=True, compares=True, fresh=None)
    deep(_operator, "mod", calls_back=True, formats=True, fresh=None, why="text % values")
    mutates(_operator, "iadd isub imul imatmul ifloordiv itruediv ilshift irshift iand ixor ior ipow iconcat",
            calls_back=True, compares=True, fresh=None)
    mutates(_operator, "imod", calls_back=True, compares=True, formats=True, fresh=None)
    pure(_operator, "getitem", calls_back=True, compares=True, fresh=None)
    mutates(_operator, "setitem delitem", calls_back=True, compares=True)
    shell(_operator, "length_hint", calls_back=True)
    pure(_operator, "_compare_digest", calls_back=True)
    special(_operator, "call", why="calls its argument, which may be Python")
    special(_operator, "attrgetter itemgetter methodcaller", why="reads attributes and items of its argument later")
    for owner in (_operator.attrgetter, _operator.itemgetter, _operator.methodcaller):
        attribute_slots(owner)
        deep(owner, "__repr__", calls_back=True, formats=True)
        special(owner, "__new__ __call__ __vectorcalloffset__", why="reads attributes and items of its argument")
        shell(owner, "__reduce__", fresh=None)
        attributes(owner, "*", NativeClass.SPECIAL, why="part of the vectorcall protocol")


def _mathematics() -> None:
    pure(math, "ceil floor trunc prod sumprod", calls_back=True, fresh=None, why="asks the number itself")
    pure(math, "*", calls_back=True)
    pure(cmath, "*", calls_back=True)
    pure(optional_module("_statistics"), "*", calls_back=True)


def _itertools() -> None:
    iterator(itertools, "*")
    for owner in [value for value in vars(itertools).values() if is_c_type(value)]:
        declare_iterator(owner, calls_back=True)
        iterator(owner, "__new__ from_iterable")
        shell(owner, "__copy__", fresh=None)
        deep(owner, "__repr__", calls_back=True, formats=True)


def _functools_functions() -> None:
    pure(_functools, "reduce", calls_back=True, fresh=None)
    shell(_functools, "cmp_to_key")
    key = type_of(_functools.cmp_to_key(max))
    attribute_slots(key)
    shell(key, "__call__")
    deep(key, COMPARISONS, calls_back=True, compares=True, why="calls the comparison function")
    attributes(key, "*", NativeClass.PURE_SHELL)

    partial = _functools.partial
    attribute_slots(partial)
    pure(_functools, "partial")
    pure(partial, "__new__")
    wrapper(partial, "__call__", why="calls the function it holds, with the arguments it holds")
    special(partial, "__get__", why="may bind")
    deep(partial, "__repr__", calls_back=True, formats=True)
    special(partial, "__reduce__", why="hands out the instance's __dict__")
    mutates(partial, "__setstate__", calls_back=True)
    shell(partial, "__class_getitem__")
    attributes(partial, "__dict__", NativeClass.SPECIAL, why="hands out the instance's __dict__")
    attributes(partial, "*", NativeClass.PURE_SHELL)

    cached = _functools._lru_cache_wrapper
    attribute_slots(cached)
    pure(_functools, "_lru_cache_wrapper", calls_back=True)
    pure(cached, "__new__", calls_back=True)
    wrapper(cached, "__call__", why="a hit or a miss shows in the cache; what it wraps is interpreted")
    special(cached, "__get__", why="binds the function it wraps")
    impure(cached, "cache_info", why="counts calls made elsewhere")
    deny(cached, "cache_clear", code="SB006", why="empties a cache that others use")
    shell(cached, "__copy__ __deepcopy__ __reduce__", fresh=None)
    attributes(cached, "*", NativeClass.SPECIAL, why="hands out the instance's __dict__")


def _deques() -> None:
    deque = _collections.deque
    attribute_slots(deque)
    pure(_collections, "deque", calls_back=True)
    shell(deque, "__new__ __len__ __class_getitem__")
    mutates(deque, "__init__ extend extendleft __setitem__ __delitem__", calls_back=True)
    shell(deque, "append", mutates=True)
    # What they do depends on the length, which nobody guards for a shell.
    mutates(deque, "appendleft clear reverse")
    mutates(deque, "insert rotate", calls_back=True)
    mutates(deque, "pop popleft", fresh=None)
    mutates(deque, "__iadd__ __imul__", calls_back=True, fresh=None)
    mutates(deque, "remove", calls_back=True, compares=True)
    deep(deque, f"{COMPARISONS} __contains__ count index", calls_back=True, compares=True)
    deep(deque, "__repr__", calls_back=True, formats=True)
    pure(deque, "__getitem__ __add__ __mul__ __rmul__", calls_back=True, fresh=None)
    pure(deque, "copy __copy__", calls_back=True)
    iterator(deque, "__iter__ __reversed__", calls_back=False)
    special(deque, "__reduce__", why="hands out the instance's __dict__")
    deny(deque, "__sizeof__", code="SB013", why="depends on how the object grew")
    attributes(deque, "*", NativeClass.PURE_SHELL)
    iterator(_collections, "_deque_iterator _deque_reverse_iterator")
    for owner in (_collections._deque_iterator, _collections._deque_reverse_iterator):
        declare_iterator(owner, calls_back=False)
        iterator(owner, "__new__")


def _dictionaries() -> None:
    pure(_collections, "OrderedDict defaultdict", calls_back=True, compares=True)
    for owner in (_collections.OrderedDict, _collections.defaultdict):
        attribute_slots(owner)
        shell(owner, "__new__ keys values items __class_getitem__")
        mutates(owner, "__init__ update", calls_back=True, compares=True)
        mutates(owner, "setdefault pop popitem __delitem__ __ior__ move_to_end __missing__", calls_back=True,
                compares=True, fresh=None)  # fmt: skip
        shell(owner, "__setitem__", mutates=True, calls_back=True, compares=True)
        mutates(owner, "clear")  # which keys go is a fact
        pure(owner, "__or__ __ror__ fromkeys copy __copy__", calls_back=True, compares=True)
        deep(owner, COMPARISONS, calls_back=True, compares=True)
        deep(owner, "__repr__", calls_back=True, formats=True)
        iterator(owner, "__iter__ __reversed__", calls_back=False)
        special(owner, "__reduce__", why="hands out the instance's __dict__")
        deny(owner, "__sizeof__", code="SB013", why="depends on how the object grew")
        attributes(owner, "default_factory", NativeClass.PURE_SHELL)
        attributes(owner, "*", NativeClass.SPECIAL, why="hands out the instance's __dict__")
    views = (_collections.OrderedDict().keys(), _collections.OrderedDict().values(),
             _collections.OrderedDict().items())
    for view in views:
        attribute_slots(type(view))
        iterator(type(view), "__iter__ __reversed__", calls_back=False)
    declare_iterator(type_of(iter(_collections.OrderedDict())), calls_back=False)
    mutates(_collections, "_count_elements", calls_back=True, compares=True)

    getter = _collections._tuplegetter
    attribute_slots(getter)
    pure(_collections, "_tuplegetter", calls_back=True)
    pure(getter, "__new__", calls_back=True)
    shell(getter, "__get__", fresh=None, why="a field of a named tuple")
    shell(getter, "__set__ __delete__", why="always raises")
    shell(getter, "__repr__ __reduce__", fresh=None)
    attributes(getter, "*", NativeClass.PURE_SHELL)


def _ordered_lists() -> None:
    pure(_bisect, "bisect_left bisect_right", calls_back=True, compares=True)
    mutates(_bisect, "insort_left insort_right", calls_back=True, compares=True)
    mutates(
        _heapq,
        "heappush heappushpop heappop heapreplace heapify _heappop_max _heapify_max _heapreplace_max "
        "heappush_max heappushpop_max heappop_max heapreplace_max heapify_max",
        calls_back=True,
        compares=True,
        fresh=None,
    )


_operators()
_mathematics()
_itertools()
_functools_functions()
_deques()
_dictionaries()
_ordered_lists()


def declare_named_fields(owner: type) -> None:
    """A C struct sequence (time.struct_time, sys.version_info): a tuple with names."""
    attribute_slots(owner)
    pure(owner, "__new__ __replace__", calls_back=True)
    deep(owner, "__repr__", calls_back=True, formats=True)
    shell(owner, "__reduce__", fresh=None)
    attributes(owner, "*", NativeClass.PURE_SHELL)


def _dates() -> None:
    owners = dict.fromkeys(value for value in vars(_datetime).values() if is_c_type(value))
    pure(_datetime, "*", calls_back=True)
    for owner in owners:
        attribute_slots(owner)
        impure(owner, "now utcnow today")
        impure(owner, "fromtimestamp timestamp astimezone", why=TIME_ZONE)
        pure(owner, "*", calls_back=True)
        attributes(owner, "*", NativeClass.PURE_SHELL, why="dates are immutable")
    calendar = type_of(_datetime.date(2000, 1, 1).isocalendar())
    attribute_slots(calendar)
    pure(calendar, "*", calls_back=True)
    attributes(calendar, "*", NativeClass.PURE_SHELL)


def _decimals() -> None:
    decimal = _decimal.Decimal
    attribute_slots(decimal)
    pure(decimal, "is_canonical is_finite is_infinite is_nan is_qnan is_snan is_signed is_zero adjusted canonical "
         "conjugate radix copy_abs copy_negate as_tuple as_integer_ratio __bool__ __hash__ __int__ __float__ "
         "__ceil__ __floor__ __trunc__ __complex__ __sizeof__ __repr__ __str__")  # fmt: skip
    for name in "add sub mul truediv floordiv mod divmod pow".split():
        pure(decimal, f"__{name}__ __r{name}__", why=GUARDED_CONTEXT)
    pure(decimal, f"{COMPARISONS} __neg__ __pos__ __abs__ __round__", why=GUARDED_CONTEXT)
    shell(decimal, "__copy__ __deepcopy__", fresh=None)
    attributes(decimal, "*", NativeClass.PURE_SHELL)
    impure(decimal, "*", why=DECIMAL_CONTEXT)
    impure.whole_module(_decimal, why=DECIMAL_CONTEXT)
    impure.whole_type(type_of(_decimal.localcontext()), why=DECIMAL_CONTEXT)
    context = _decimal.getcontext()
    impure.whole_type(type_of(context.flags), why=DECIMAL_CONTEXT)


def _arrays() -> None:
    owner = array.array
    attribute_slots(owner)
    pure(array, "array _array_reconstructor", calls_back=True)
    pure(owner, f"__new__ {COMPARISONS} __contains__ count index __getitem__ __add__ __mul__ __rmul__",
         calls_back=True)
    pure(owner, "__copy__ __deepcopy__ tolist tobytes tounicode", calls_back=True)
    iterator(owner, "__iter__", calls_back=False)
    shell(owner, "__len__ __repr__ __class_getitem__")
    mutates(owner, "append extend fromlist frombytes fromunicode insert pop remove reverse byteswap clear __setitem__ "
            "__delitem__", calls_back=True)  # fmt: skip
    mutates(owner, "__iadd__ __imul__", calls_back=True, fresh=None)
    pure(owner, "__reduce_ex__", calls_back=True, fresh=None)
    deny(owner, "fromfile tofile", code="SB015")
    deny(owner, "buffer_info __sizeof__ __buffer__ __release_buffer__", code="SB013", why="shows an address")
    attributes(owner, "*", NativeClass.PURE_SHELL)
    declare_iterator(type_of(iter(array.array("b"))), calls_back=False)


def _clocks_and_chance() -> None:
    deny(time, "sleep", code="SB018", why="waits")
    deny(time, "clock_settime clock_settime_ns tzset", code="SB006")
    pure(time, "struct_time", calls_back=True)
    declare_named_fields(time.struct_time)
    impure(time, "*")
    impure(_random, "Random", why="seeded from the system; its state advances")
    impure.whole_type(_random.Random, why="its state advances")


_dates()
_decimals()
_arrays()
_clocks_and_chance()


def _regular_expressions() -> None:
    pure(_sre, "compile template", calls_back=True)
    shell(_sre, "getcodesize")
    shell(_sre, "ascii_iscased unicode_iscased ascii_tolower unicode_tolower", calls_back=True)
    pattern, match = re.Pattern, re.Match
    attribute_slots(pattern)
    attribute_slots(match)
    pure(pattern, "match fullmatch search findall split", calls_back=True)
    pure(pattern, "sub subn", calls_back=True,
         why="the replacement may be a function; re expands templates in Python")
    iterator(pattern, "finditer scanner")
    pure(pattern, COMPARISONS, compares=True, calls_back=True)
    shell(pattern, "__hash__ __repr__ __class_getitem__")
    shell(pattern, "__copy__ __deepcopy__", fresh=None)
    attributes(pattern, "*", NativeClass.PURE_SHELL, why="a pattern is immutable")
    pure(match, "group groups groupdict start end span __getitem__ expand", calls_back=True, fresh=None)
    shell(match, "__repr__ __class_getitem__")
    shell(match, "__copy__ __deepcopy__", fresh=None)
    attributes(match, "*", NativeClass.PURE_SHELL, why="a match is immutable")
    empty: Any = re.compile("")
    scanner = type_of(empty.scanner(""))
    attribute_slots(scanner)
    mutates(scanner, "match search", why="advances itself")
    attributes(scanner, "*", NativeClass.PURE_SHELL)


def _formats() -> None:
    shell(_string, "formatter_parser formatter_field_name_split")
    for example in (_string.formatter_parser(""), _string.formatter_field_name_split("")[1]):
        declare_iterator(type_of(example), calls_back=False)
    shell(_struct, "_clearcache")
    shell(_struct, "calcsize", calls_back=True)
    pure(_struct, "pack unpack unpack_from Struct", calls_back=True)
    iterator(_struct, "iter_unpack")
    special(_struct, "pack_into", why="changes its second argument")
    struct = _struct.Struct
    attribute_slots(struct)
    pure(struct, "__new__", calls_back=True)
    mutates(struct, "__init__", calls_back=True)
    pure(struct, "pack unpack unpack_from", calls_back=True)
    iterator(struct, "iter_unpack")
    special(struct, "pack_into", why="changes its second argument")
    shell(struct, "__sizeof__ __repr__")
    attributes(struct, "*", NativeClass.PURE_SHELL)
    declare_iterator(type_of(_struct.iter_unpack("b", b"")), calls_back=False)


def _json_and_codecs() -> None:
    shell(_json, "encode_basestring encode_basestring_ascii")
    pure(_json, "scanstring", calls_back=True)
    pure(_json, "make_scanner make_encoder", calls_back=True)
    for owner in (_json.make_scanner, _json.make_encoder):
        attribute_slots(owner)
        pure(owner, "__new__", calls_back=True)
        deep(owner, "__call__", calls_back=True, formats=True)
        attributes(owner, "*", NativeClass.PURE_SHELL)
    deny(_codecs, "register unregister register_error", code="SB006", why=REGISTRY)
    outside(_codecs, "lookup lookup_error", calls_back=True, why="reads the codec registry")
    pure(_codecs, "*", calls_back=True)


def _digests() -> None:
    pure(binascii, "*", calls_back=True)
    pure(zlib, "adler32 crc32 compress decompress compressobj decompressobj", calls_back=True)
    for example in (zlib.compressobj(), zlib.decompressobj()):
        attribute_slots(type(example))
        mutates(type(example), "compress decompress flush", calls_back=True)
        pure(type(example), "copy __copy__ __deepcopy__")
        attributes(type(example), "*", NativeClass.PURE_SHELL)
    decompressor = vars(zlib).get("_ZlibDecompressor")
    if decompressor is not None:
        special.whole_type(decompressor, why="holds a stream")
        special(zlib, "_ZlibDecompressor", why="holds a stream")
    modules = [optional_module(name) for name in DIGEST_MODULES]
    owners = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    owners += [type(hashlib.new(name)) for name in ("md5", "sha1", "sha256", "sha512", "sha3_256", "shake_128")]
    for module in modules:
        pure(module, "*", calls_back=True)
    for owner in dict.fromkeys(owners):
        if "hexdigest" not in dir(owner):
            continue
        attribute_slots(owner)
        pure(owner, "__new__", calls_back=True)
        mutates(owner, "update", calls_back=True)
        pure(owner, "digest hexdigest copy", calls_back=True)
        shell(owner, "__repr__")
        attributes(owner, "*", NativeClass.PURE_SHELL)


def _unicode() -> None:
    pure(unicodedata, "*", calls_back=True)
    attribute_slots(unicodedata.UCD)
    pure(unicodedata.UCD, "*", calls_back=True)
    attributes(unicodedata.UCD, "*", NativeClass.PURE_SHELL)


_regular_expressions()
_formats()
_json_and_codecs()
_digests()
_unicode()

"""Rows for C modules of the standard library that compute: algorithms, values, text and bytes.

Algorithms run the program's own objects, so `calls_back` is common.  Dates, patterns, matches and Structs are immutable
or fresh; readers of a clock, the time zone, the decimal context or a random state are impure.
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

from stator.native import rows_declare as row
from stator.native.rows_builtins import declare_iterator

owner: type
TIME_ZONE = "reads the time zone of the process"
DECIMAL_METHODS = """exp ln log10 next_minus next_plus normalize to_integral to_integral_exact to_integral_value sqrt
    compare compare_signal max max_mag min min_mag next_toward quantize remainder_near fma is_normal is_subnormal logb
    logical_invert number_class to_eng_string compare_total compare_total_mag copy_sign same_quantum logical_and
    logical_or logical_xor rotate scaleb shift"""
GUARDED_CONTEXT = "the settings of the decimal context are guarded, its flags written back"
DECIMAL_CONTEXT = "reads the decimal context, and leaves its flags there"
DIGEST_MODULES = ("_hashlib", "_md5", "_sha1", "_sha2", "_sha256", "_sha512", "_sha3", "_blake2")
REGISTRY = "changes a registry of the process"

# Operators.
row.shell(_operator, "is_ is_not is_none is_not_none")
row.pure(_operator, "truth not_ index", calls_back=True)
row.deep(_operator, "eq ne lt le gt ge", calls_back=True, compares=True, fresh=None)
row.deep(_operator, "contains indexOf countOf", calls_back=True, compares=True)
row.pure(_operator, "add sub mul matmul floordiv truediv neg pos abs inv invert lshift rshift and_ xor or_ "
         "pow concat", calls_back=True, compares=True, fresh=None)
row.deep(_operator, "mod", calls_back=True, formats=True, fresh=None, why="text % values")
row.mutates(_operator, "iadd isub imul imatmul ifloordiv itruediv ilshift irshift iand ixor ior ipow "
            "iconcat", calls_back=True, compares=True, fresh=None)
row.mutates(_operator, "imod", calls_back=True, compares=True, formats=True, fresh=None)
row.pure(_operator, "getitem", calls_back=True, compares=True, fresh=None)
row.mutates(_operator, "setitem delitem", calls_back=True, compares=True)
row.shell(_operator, "length_hint", calls_back=True)
row.pure(_operator, "_compare_digest", calls_back=True)
row.special(_operator, "call", why="calls its argument, which may be Python")
row.special(_operator, "attrgetter itemgetter methodcaller", why="reads attributes and items of its argument later")
for owner in (_operator.attrgetter, _operator.itemgetter, _operator.methodcaller):
    row.deep(owner, "__repr__", calls_back=True, formats=True)
    row.special(owner, "__new__ __call__ __vectorcalloffset__", why="reads attributes and items of its argument")
    row.shell(owner, "__reduce__", fresh=None)
    row.attributes(owner, "*", row.NativeClass.SPECIAL, why="part of the vectorcall protocol")

# Mathematics.
row.pure(math, "ceil floor trunc prod sumprod", calls_back=True, fresh=None, why="asks the number itself")
row.pure(math, "*", calls_back=True)
row.pure(cmath, "*", calls_back=True)
row.pure(row.optional_module("_statistics"), "*", calls_back=True)

# Itertools.
row.iterator(itertools, "*")
for owner in [value for value in vars(itertools).values() if row.is_c_type(value)]:
    declare_iterator(owner, calls_back=True)
    row.iterator(owner, "__new__ from_iterable")
    row.shell(owner, "__copy__", fresh=None)
    row.deep(owner, "__repr__", calls_back=True, formats=True)

# Functools functions.
row.pure(_functools, "reduce", calls_back=True, fresh=None)
row.shell(_functools, "cmp_to_key")
key = row.type_of(_functools.cmp_to_key(max))
row.shell(key, "__call__")
row.deep(key, row.COMPARISONS, calls_back=True, compares=True, why="calls the comparison function")
row.attributes(key, "*", row.NativeClass.PURE_SHELL)

partial = _functools.partial
row.pure(_functools, "partial")
row.pure(partial, "__new__")
row.wrapper(partial, "__call__", why="calls the function it holds, with the arguments it holds")
row.special(partial, "__get__", why="may bind")
row.deep(partial, "__repr__", calls_back=True, formats=True)
row.special(partial, "__reduce__", why="hands out the instance's __dict__")
row.mutates(partial, "__setstate__", calls_back=True)
row.shell(partial, "__class_getitem__")
row.attributes(partial, "__dict__", row.NativeClass.SPECIAL, why="hands out the instance's __dict__")
row.attributes(partial, "*", row.NativeClass.PURE_SHELL)

cached = _functools._lru_cache_wrapper
row.pure(_functools, "_lru_cache_wrapper", calls_back=True)
row.pure(cached, "__new__", calls_back=True)
row.wrapper(cached, "__call__", why="a hit or a miss shows in the cache; what it wraps is interpreted")
row.special(cached, "__get__", why="binds the function it wraps")
row.impure(cached, "cache_info", why="counts calls made elsewhere")
row.deny(cached, "cache_clear", code="SB006", why="empties a cache that others use")
row.shell(cached, "__copy__ __deepcopy__ __reduce__", fresh=None)
row.attributes(cached, "*", row.NativeClass.SPECIAL, why="hands out the instance's __dict__")

# Deques.
deque = _collections.deque
row.pure(_collections, "deque", calls_back=True)
row.shell(deque, "__new__ __len__ __class_getitem__")
row.mutates(deque, "__init__ extend extendleft __setitem__ __delitem__", calls_back=True)
row.shell(deque, "append", mutates=True)
# What they do depends on the length, which nobody guards for a shell.
row.mutates(deque, "appendleft clear reverse")
row.mutates(deque, "insert rotate", calls_back=True)
row.mutates(deque, "pop popleft", fresh=None)
row.mutates(deque, "__iadd__ __imul__", calls_back=True, fresh=None)
row.mutates(deque, "remove", calls_back=True, compares=True)
row.compared_and_shown(deque, "__contains__ count index")
row.pure(deque, "__getitem__ __add__ __mul__ __rmul__", calls_back=True, fresh=None)
row.pure(deque, "copy __copy__", calls_back=True)
row.iterator(deque, "__iter__ __reversed__", calls_back=False)
row.special(deque, "__reduce__", why="hands out the instance's __dict__")
row.deny(deque, "__sizeof__", code="SB013", why="depends on how the object grew")
row.attributes(deque, "*", row.NativeClass.PURE_SHELL)
row.iterator(_collections, "_deque_iterator _deque_reverse_iterator")
for owner in (_collections._deque_iterator, _collections._deque_reverse_iterator):
    declare_iterator(owner, calls_back=False)
    row.iterator(owner, "__new__")

# Dictionaries.
row.pure(_collections, "OrderedDict defaultdict", calls_back=True, compares=True)
for owner in (_collections.OrderedDict, _collections.defaultdict):
    row.shell(owner, "__new__ keys values items __class_getitem__")
    row.mutates(owner, "__init__ update", calls_back=True, compares=True)
    row.mutates(owner, "setdefault pop popitem __delitem__ __ior__ move_to_end __missing__", calls_back=True,
                compares=True, fresh=None)
    row.shell(owner, "__setitem__", mutates=True, calls_back=True, compares=True)
    row.mutates(owner, "clear")  # which keys go is a fact
    row.pure(owner, "__or__ __ror__ fromkeys copy __copy__", calls_back=True, compares=True)
    row.compared_and_shown(owner)
    row.iterator(owner, "__iter__ __reversed__", calls_back=False)
    row.special(owner, "__reduce__", why="hands out the instance's __dict__")
    row.deny(owner, "__sizeof__", code="SB013", why="depends on how the object grew")
    row.attributes(owner, "default_factory", row.NativeClass.PURE_SHELL)
    row.attributes(owner, "*", row.NativeClass.SPECIAL, why="hands out the instance's __dict__")
views = (_collections.OrderedDict().keys(), _collections.OrderedDict().values(), _collections.OrderedDict().items())
for view in views:
    row.iterator(type(view), "__iter__ __reversed__", calls_back=False)
declare_iterator(row.type_of(iter(_collections.OrderedDict())), calls_back=False)
row.mutates(_collections, "_count_elements", calls_back=True, compares=True)

getter = _collections._tuplegetter
row.pure(_collections, "_tuplegetter", calls_back=True)
row.pure(getter, "__new__", calls_back=True)
row.shell(getter, "__get__", fresh=None, why="a field of a named tuple")
row.shell(getter, "__set__ __delete__", why="always raises")
row.shell(getter, "__repr__ __reduce__", fresh=None)
row.attributes(getter, "*", row.NativeClass.PURE_SHELL)

# Ordered lists.
row.pure(_bisect, "bisect_left bisect_right", calls_back=True, compares=True)
row.mutates(_bisect, "insort_left insort_right", calls_back=True, compares=True)
row.mutates(_heapq, "heappush heappushpop heappop heapreplace heapify _heappop_max _heapify_max "
            "_heapreplace_max heappush_max heappushpop_max heappop_max heapreplace_max heapify_max",
            calls_back=True, compares=True, fresh=None)


def declare_named_fields(owner: type) -> None:
    """A C struct sequence (time.struct_time, sys.version_info): a tuple with names."""
    row.pure(owner, "__new__ __replace__", calls_back=True)
    row.deep(owner, "__repr__", calls_back=True, formats=True)
    row.shell(owner, "__reduce__", fresh=None)
    row.attributes(owner, "*", row.NativeClass.PURE_SHELL)

# Dates.
owners = dict.fromkeys(value for value in vars(_datetime).values() if row.is_c_type(value))
row.pure(_datetime, "*", calls_back=True)
for owner in owners:
    row.impure(owner, "now utcnow today")
    row.impure(owner, "fromtimestamp timestamp astimezone", why=TIME_ZONE)
    row.pure(owner, "*", calls_back=True)
    row.attributes(owner, "*", row.NativeClass.PURE_SHELL, why="dates are immutable")
calendar = row.type_of(_datetime.date(2000, 1, 1).isocalendar())
row.pure(calendar, "*", calls_back=True)
row.attributes(calendar, "*", row.NativeClass.PURE_SHELL)

# Decimals.
decimal = _decimal.Decimal
row.pure(decimal, "is_canonical is_finite is_infinite is_nan is_qnan is_snan is_signed is_zero adjusted "
         "canonical conjugate radix copy_abs copy_negate as_tuple as_integer_ratio __reduce__ __bool__ __hash__ "
         "__int__ __float__ __ceil__ __floor__ __trunc__ __complex__ __sizeof__ __repr__ __str__")
for name in "add sub mul truediv floordiv mod divmod pow".split():
    row.pure(decimal, f"__{name}__ __r{name}__", why=GUARDED_CONTEXT)
row.pure(decimal, f"{row.COMPARISONS} __neg__ __pos__ __abs__ __round__", why=GUARDED_CONTEXT)
row.special(decimal, f"__new__ {DECIMAL_METHODS}", why=f"{GUARDED_CONTEXT}; a context of its own breaks")
row.shell(decimal, "__copy__ __deepcopy__", fresh=None)
row.attributes(decimal, "*", row.NativeClass.PURE_SHELL)
row.impure(decimal, "*", why=DECIMAL_CONTEXT)
row.impure.whole_module(_decimal, why=DECIMAL_CONTEXT)
row.impure.whole_type(row.type_of(_decimal.localcontext()), why=DECIMAL_CONTEXT)
context = _decimal.getcontext()
row.impure.whole_type(row.type_of(context.flags), why=DECIMAL_CONTEXT)

# Arrays.
owner = array.array
row.pure(array, "array _array_reconstructor", calls_back=True)
row.pure(owner, f"__new__ {row.COMPARISONS} __contains__ count index __getitem__ __add__ __mul__ __rmul__ __copy__ "
         "__deepcopy__ tolist tobytes tounicode", calls_back=True)
row.iterator(owner, "__iter__", calls_back=False)
row.shell(owner, "__len__ __repr__ __class_getitem__")
row.mutates(owner, "append extend fromlist frombytes fromunicode insert pop remove reverse byteswap clear "
            "__setitem__ __delitem__", calls_back=True)
row.mutates(owner, "__iadd__ __imul__", calls_back=True, fresh=None)
row.pure(owner, "__reduce_ex__", calls_back=True, fresh=None)
row.deny(owner, "fromfile tofile", code="SB015")
row.deny(owner, "buffer_info __sizeof__ __buffer__ __release_buffer__", code="SB013", why="shows an address")
row.attributes(owner, "*", row.NativeClass.PURE_SHELL)
declare_iterator(row.type_of(iter(array.array("b"))), calls_back=False)

# Clocks and chance.
row.deny(time, "sleep", code="SB018", why="waits")
row.deny(time, "clock_settime clock_settime_ns tzset", code="SB006")
row.pure(time, "struct_time", calls_back=True)
declare_named_fields(time.struct_time)
row.impure(time, "*")
row.impure(_random, "Random", why="seeded from the system; its state advances")
row.impure.whole_type(_random.Random, why="its state advances")

# Regular expressions.
row.pure(_sre, "compile template", calls_back=True)
row.shell(_sre, "getcodesize")
row.shell(_sre, "ascii_iscased unicode_iscased ascii_tolower unicode_tolower", calls_back=True)
pattern, match = re.Pattern, re.Match
row.pure(pattern, "match fullmatch search findall split", calls_back=True)
row.pure(pattern, "sub subn", calls_back=True, why="the replacement may be a function; re expands templates in Python")
row.iterator(pattern, "finditer scanner")
row.pure(pattern, row.COMPARISONS, compares=True, calls_back=True)
row.shell(pattern, "__hash__ __repr__ __class_getitem__")
row.shell(pattern, "__copy__ __deepcopy__", fresh=None)
row.attributes(pattern, "*", row.NativeClass.PURE_SHELL, why="a pattern is immutable")
row.pure(match, "group groups groupdict start end span __getitem__ expand", calls_back=True, fresh=None)
row.shell(match, "__repr__ __class_getitem__")
row.shell(match, "__copy__ __deepcopy__", fresh=None)
row.attributes(match, "*", row.NativeClass.PURE_SHELL, why="a match is immutable")
empty: Any = re.compile("")
scanner = row.type_of(empty.scanner(""))
row.mutates(scanner, "match search", why="advances itself")
row.attributes(scanner, "*", row.NativeClass.PURE_SHELL)

# Formats.
row.shell(_string, "formatter_parser formatter_field_name_split")
for example in (_string.formatter_parser(""), _string.formatter_field_name_split("")[1]):
    declare_iterator(row.type_of(example), calls_back=False)
row.shell(_struct, "_clearcache")
row.shell(_struct, "calcsize", calls_back=True)
row.pure(_struct, "pack unpack unpack_from Struct", calls_back=True)
row.iterator(_struct, "iter_unpack")
row.special(_struct, "pack_into", why="changes its second argument")
struct = _struct.Struct
row.pure(struct, "__new__", calls_back=True)
row.mutates(struct, "__init__", calls_back=True)
row.pure(struct, "pack unpack unpack_from", calls_back=True)
row.iterator(struct, "iter_unpack")
row.special(struct, "pack_into", why="changes its second argument")
row.shell(struct, "__sizeof__ __repr__")
row.attributes(struct, "*", row.NativeClass.PURE_SHELL)
declare_iterator(row.type_of(_struct.iter_unpack("b", b"")), calls_back=False)

# Json and codecs.
row.shell(_json, "encode_basestring encode_basestring_ascii")
row.pure(_json, "scanstring", calls_back=True)
row.pure(_json, "make_scanner make_encoder", calls_back=True)
for owner in (_json.make_scanner, _json.make_encoder):
    row.pure(owner, "__new__", calls_back=True)
    row.deep(owner, "__call__", calls_back=True, formats=True)
    row.attributes(owner, "*", row.NativeClass.PURE_SHELL)
row.deny(_codecs, "register unregister register_error", code="SB006", why=REGISTRY)
row.outside(_codecs, "lookup lookup_error", calls_back=True, why="reads the codec registry")
row.pure(_codecs, "*", calls_back=True)

# Digests.
row.pure(binascii, "*", calls_back=True)
row.pure(zlib, "adler32 crc32 compress decompress compressobj decompressobj", calls_back=True)
for example in (zlib.compressobj(), zlib.decompressobj()):
    row.mutates(type(example), "compress decompress flush", calls_back=True)
    row.pure(type(example), "copy __copy__ __deepcopy__")
    row.attributes(type(example), "*", row.NativeClass.PURE_SHELL)
decompressor = vars(zlib).get("_ZlibDecompressor")
if decompressor is not None:
    row.special.whole_type(decompressor, why="holds a stream")
    row.special(zlib, "_ZlibDecompressor", why="holds a stream")
modules = [row.optional_module(name) for name in DIGEST_MODULES]
digests = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
digests += [type(hashlib.new(name)) for name in ("md5", "sha1", "sha256", "sha512", "sha3_256", "shake_128")]
for module in modules:
    row.pure(module, "*", calls_back=True)
for owner in dict.fromkeys(digests):
    if "hexdigest" not in dir(owner):
        continue
    row.pure(owner, "__new__", calls_back=True)
    row.mutates(owner, "update", calls_back=True)
    row.pure(owner, "digest hexdigest copy", calls_back=True)
    row.shell(owner, "__repr__")
    row.attributes(owner, "*", row.NativeClass.PURE_SHELL)

# Unicode.
row.pure(unicodedata, "*", calls_back=True)
row.pure(unicodedata.UCD, "*", calls_back=True)
row.attributes(unicodedata.UCD, "*", row.NativeClass.PURE_SHELL)

"""Rows for the C modules of text and bytes: regular expressions, formats, codecs, json, digests, unicode.

In: the modules. Out: rows. Their objects (compiled patterns, matches, Structs) are immutable or fresh.
"""

from __future__ import annotations

import _codecs
import _json
import _sre
import _string
import _struct
import binascii
import hashlib
import re
import unicodedata
import zlib
from typing import Any

from stator.native.rows_containers import declare_iterator
from stator.native.rows_declare import (
    NativeClass,
    attribute_slots,
    attributes,
    deep,
    deny,
    iterator,
    mutates,
    optional_module,
    outside,
    pure,
    shell,
    special,
    type_of,
)

COMPARISONS = "__eq__ __ne__ __lt__ __le__ __gt__ __ge__"
DIGEST_MODULES = ("_hashlib", "_md5", "_sha1", "_sha2", "_sha256", "_sha512", "_sha3", "_blake2")
PROCESS_WIDE = "changes a registry of the process"


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
    deny(_codecs, "register unregister register_error", code="SB006", why=PROCESS_WIDE)
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

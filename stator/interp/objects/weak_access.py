"""weakref.proxy of objects made inside the trace.   proxy.x  ->  attribute x of the object behind it

In: a proxy.  Out: the object that it stands for.  A proxy of the trace is a real one to a real object, which dies where
the program lets go of it, as in eager.
"""

from __future__ import annotations

import ctypes
import weakref

from stator.breaks import Break
from stator.interp.frame import Raised
from stator.interp.services import VM

PROXIES = (weakref.ProxyType, weakref.CallableProxyType)


def proxied(proxy: object) -> object:
    """The object behind a proxy, None where it died: the first field of the proxy."""
    return ctypes.py_object.from_address(id(proxy) + object.__basicsize__).value


def behind_proxy(vm: VM, proxy: object) -> object:
    """The object behind a proxy that the program has made."""
    if vm.heap.is_opaque(proxy) or vm.heap.tracker_of(proxy) is not None:
        raise Break("SB019", f"a {type(proxy).__name__} from outside")
    found = proxied(proxy)
    if found is None:
        raise Raised(ReferenceError("weakly-referenced object no longer exists"))
    return found

"""Which function evaluates frames in this interpreter (PEP 523): nobody may leave another one behind."""

from __future__ import annotations

import ctypes


def default_evaluator_installed() -> bool:
    """Whether CPython evaluates frames by itself, so that it may inline Python calls."""
    api = ctypes.pythonapi
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    api._PyInterpreterState_GetEvalFrameFunc.restype = ctypes.c_void_p
    api._PyInterpreterState_GetEvalFrameFunc.argtypes = [ctypes.c_void_p]
    current = api._PyInterpreterState_GetEvalFrameFunc(api.PyInterpreterState_Get())
    return current == ctypes.cast(api._PyEval_EvalFrameDefault, ctypes.c_void_p).value


def install_default_evaluator() -> None:
    api = ctypes.pythonapi
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    api._PyInterpreterState_SetEvalFrameFunc.restype = None
    api._PyInterpreterState_SetEvalFrameFunc.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    default = ctypes.cast(api._PyEval_EvalFrameDefault, ctypes.c_void_p)
    api._PyInterpreterState_SetEvalFrameFunc(api.PyInterpreterState_Get(), default)

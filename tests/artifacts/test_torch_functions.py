"""aot_compile, load_compiled_function, save_cache_artifacts and compiled.save: two processes, nothing captured twice."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
import torch

import stator
from stator.errors import OptionTypeError, OptionValueError, RecompileForbidden
from tests.artifacts import torch_functions
from tests.own_process import in_forked_interpreters

MODULE = "tests.artifacts.torch_functions"


def test_two_processes(tmp_path: Path) -> None:
    saved = json.loads(in_forked_interpreters([MODULE, "save", str(tmp_path)])[0].splitlines()[-1])
    assert saved["calls of aot_compile"] == []  # the function was captured, not called
    assert saved["result"] == pytest.approx([math.sin(1) * 3 + 2] * 3)
    assert "stator" in saved["kinds"] and saved["in the bundle"] == 4
    assert (saved["method"], saved["bound"], saved["own method"]) == (1, 1, "the model's own: here")
    found = json.loads(in_forked_interpreters([MODULE, "load", str(tmp_path)])[0].splitlines()[-1])
    assert found["ahead"] == saved["result"]
    assert found["refused"].startswith("RecompileForbidden: no capture of scaled fits this call: x")
    assert found["method"] is True and found["gradient"] == found["eager gradient"]
    assert found["bundled"][0] is True and found["bundled"][1] == pytest.approx([math.sin(1) * 3 + 1] * 3)
    assert (found["captures"], found["loaded"]) == (0, 5)
    assert found["after a change"] == pytest.approx([math.sin(1) * 4 + 1] * 3) and found["recaptured"] == 1


@pytest.fixture
def installed(tmp_path: Path):  # type: ignore[no-untyped-def]
    with stator.config.patch(artifact_key_file=str(tmp_path / "key")):
        stator.install()
        yield
        stator.uninstall()


@pytest.mark.usefixtures("installed")
def test_what_aot_compile_refuses() -> None:
    with pytest.raises(OptionValueError, match="fullgraph=True"):
        torch.compile(torch_functions.scaled, backend="eager").aot_compile(((torch.ones(2),), {}))
    whole = torch.compile(torch_functions.scaled, backend="eager", fullgraph=True)
    with pytest.raises(OptionTypeError, match=r"\(\(args...\), {kwargs}\)"):
        whole.aot_compile(3)
    ahead = whole.aot_compile(((torch.ones(2),), {}))
    with pytest.raises(OptionValueError, match="wrong result"):
        ahead.disable_guard_check()
    with pytest.raises(RecompileForbidden, match="float32\\[2\\].*float32\\[5\\]"):
        ahead(torch.ones(5))
    assert ahead(torch.ones(2)).tolist() == pytest.approx([math.sin(1) * 3 + 1] * 2)


@pytest.mark.usefixtures("installed")
def test_a_file_of_another_key_is_refused(tmp_path: Path) -> None:
    ahead = torch.compile(torch_functions.scaled, backend="eager", fullgraph=True).aot_compile(((torch.ones(2),), {}))
    ahead.save_compiled_function(str(tmp_path / "scaled"))
    data = (tmp_path / "scaled").read_bytes()
    another = stator.config.patch(artifact_key_file=str(tmp_path / "another" / "key"))
    with another, pytest.raises(Exception, match="key"):
        torch.compiler.load_compiled_function(io.BytesIO(data))


def test_calls_are_not_kept_alive() -> None:
    """The table of calls whose captures can be saved holds none of them."""
    import gc
    import weakref
    model = torch_functions.Layer()
    stator.compile(model, backend="eager")(torch.ones(3))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None

"""Hits run neither tracer nor compilers; values of one process are not stored; changes of a package give no stale hit."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.artifacts import entry_files, environment, signing, site_reader
from stator.artifacts.value_writer import NotPortable, ValueWriter
from stator.backends import registry
from tests.artifacts import set_order
from tests.artifacts.mutations import program_of
from tests.own_process import in_forked_interpreters, in_new_interpreters


def test_a_hit_loads_no_tracer(tmp_path: Path) -> None:
    rows = []
    for what in ("save", "load"):
        output, = in_new_interpreters(["-m", "tests.artifacts.light_restart", what, str(tmp_path)])
        rows.append(json.loads(output.splitlines()[-1]))
    assert rows[0] == {"saved": 1}
    assert rows[1]["events"] == ["EntryLoaded", "EntryLoaded"]
    assert rows[1]["loaded"] == []
    assert rows[1]["behind reset"] == 0
    assert rows[1]["equal"] and rows[1]["then"] == [True, True, True] and rows[1]["entries"] == 2


def test_changes_of_a_package_give_no_stale_result() -> None:
    output, = in_forked_interpreters(["tests.artifacts.package_mutations", "20", "0", "light"])
    last = output.splitlines()[-1]
    assert last.endswith(" 0 problems") and "unrelated hit" in last and "source miss" in last


@pytest.mark.slow  # a thousand processes
def test_a_thousand_changes_of_a_package() -> None:
    output, = in_new_interpreters(["-m", "tests.artifacts.package_mutations", "1000"], seconds=1200)
    assert output.splitlines()[-1].endswith(" 0 problems")


class Held:
    pass


held = Held()


def address(x: torch.Tensor) -> torch.Tensor:
    return x + id(held) % 1009


def address_hash(x: torch.Tensor) -> torch.Tensor:
    return x + hash(held) % 1009


def text_hash(x: torch.Tensor) -> torch.Tensor:
    return x + hash("text") % 1009


def shown(x: torch.Tensor) -> torch.Tensor:
    return x + len(repr(held)) if repr(held)[-3] > "7" else x


def compared(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if held is not None else x


@pytest.mark.parametrize(("fn", "why"), [(address, "id()"), (address_hash, "hash()"), (text_hash, "hash()"),
                                         (shown, "address"), (compared, None)])
def test_values_of_one_process_are_not_stored(fn: Callable[..., Any], why: str | None, tmp_path: Path) -> None:
    with stator.config.patch(artifact_key_file=str(tmp_path / "key")):
        compiled = stator.compile(fn, backend="eager")
        assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))
        assert stator.save(compiled, str(tmp_path / "entries")) == (why is None)
        assert why is None or why in str(stator.why_not_cached(compiled))


def test_orders_of_sets_are_those_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings have other hashes in another process: an entry is used where its sets have the same order there."""
    rows = []
    for what, seed in (("save", "1"), ("load", "1"), ("load", "2"), ("load", "4")):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        output, = in_new_interpreters(["-m", "tests.artifacts.set_order", what, str(tmp_path)])
        rows.append(json.loads(output.splitlines()[-1]))
    seeded = [each.__name__ for each in set_order.SEEDED]
    rest = [each.__name__ for each in set_order.IN_ORDER]
    assert rows[0]["stored"] == [*seeded, *rest]  # addresses of classes belong to one process
    assert rows[1] == {"stored": [], "loaded": [*seeded, *rest], "wrong": []}
    assert [row["wrong"] for row in rows] == [[]] * 4
    assert all(set(rest) <= set(row["loaded"]) < {*seeded, *rest} for row in rows[2:])
    assert sorted(["of_two" in row["loaded"] for row in rows[2:]]) == [False, True]


@pytest.mark.parametrize(("fact", "text"), [("processor", "AVX2"), ("driver", 12040), ("GPU", "another GPU 9.0"),
                                            ("torch", "2.12.0"), ("machine", "aarch64"), ("stator", "0123")])
def test_another_machine_is_a_miss_with_a_reason(fact: str, text: object, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    with stator.config.patch(artifact_key_file=str(tmp_path / "key")):
        compiled = stator.compile(compared, backend="eager")
        compiled(torch.ones(2))
        assert stator.save(compiled, str(tmp_path / "entries")) == 1
        here = environment.process_facts()
        monkeypatch.setattr(entry_files, "process_facts", lambda: {**here, fact: text})
        with events.record() as log:
            loaded = stator.load(str(tmp_path / "entries"), compared, backend="eager")
            assert torch.equal(loaded(torch.ones(2)), compared(torch.ones(2)))
    assert stator.why_not_cached(loaded) == f"{fact} is {text!r}, and was {here.get(fact)!r}"
    assert any(isinstance(event, events.CaptureStarted) for event in log)


def test_a_compiled_graph_belongs_to_the_settings_of_its_compilation(tmp_path: Path) -> None:
    """The settings count that were in force when the graph was compiled, not when it was saved."""
    path = str(tmp_path / "entries")
    with stator.config.patch(artifact_key_file=str(tmp_path / "key")):
        compiled = stator.compile(compared, backend="aot_eager")
        compiled(torch.ones(2))
        before = torch.get_float32_matmul_precision()
        try:
            torch.set_float32_matmul_precision("medium")
            assert stator.save(compiled, path) == 1
            loaded = stator.load(path, compared, backend="aot_eager")
            assert torch.equal(loaded(torch.ones(2)), compared(torch.ones(2)))
            assert "float32 matmul precision is 'medium', and was " in str(stator.why_not_cached(loaded))
        finally:
            torch.set_float32_matmul_precision(before)
        with events.record() as log:
            again = stator.load(path, compared, backend="aot_eager")
            assert torch.equal(again(torch.ones(2)), compared(torch.ones(2)))
    assert [type(event).__name__ for event in log] == ["EntryLoaded"]


def test_entries_of_one_rank_serve_another_where_nothing_of_a_rank_was_read(tmp_path: Path) -> None:
    rows = []
    for what in ("save", "load"):
        outputs = in_forked_interpreters(*[["tests.artifacts.rank_restart", what, str(tmp_path), rank]
                                           for rank in ("0", "1")])
        rows.append([json.loads(output.splitlines()[-1]) for output in outputs])
    assert rows[0][0]["stored"] == ["agnostic"]  # the others hold a process group
    assert rows[1] == [{"stored": [], "loaded": ["agnostic"], "wrong": []}] * 2


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"[" * 100_000, b'{"rows":[],"call":{}}', b'{"rows":1,"call":{"site":2}}',
                                  b'{"rows":[],"call":{"site":{"entries":[{}],"learned":{}},"points":[],"nested":[]}}'])
def test_signed_entries_of_another_form(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "entries"
    with stator.config.patch(artifact_key_file=str(tmp_path / "key")):
        compiled = stator.compile(compared, backend="eager")
        compiled(torch.ones(2))
        stator.save(compiled, str(path))
        found = signing.read_signed(path)
        signing.write_signed(path, dataclasses.replace(found, blobs={**found.blobs, entry_files.ENTRIES: text}))
        loaded = stator.load(str(path), compared, backend="eager")
        assert torch.equal(loaded(torch.ones(2)), compared(torch.ones(2)))
        assert "cannot be read" in str(stator.why_not_cached(loaded))


def rooted(x: torch.Tensor) -> torch.Tensor:
    return x * math.sqrt(4)


def test_a_replaced_function_of_c_is_no_hit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name leads to something else in the process that loads: a stale result otherwise."""
    with stator.config.patch(artifact_key_file=str(tmp_path / "key")):
        compiled = stator.compile(rooted, backend="eager")
        compiled(torch.ones(2))
        assert stator.save(compiled, str(tmp_path / "file")) == 1
        stator.reset()
        monkeypatch.setattr(math, "sqrt", lambda value: 7.0)
        loaded = stator.load(str(tmp_path / "file"), rooted, backend="eager")
        assert loaded(torch.ones(2)).tolist() == [7.0, 7.0]
        assert "math.sqrt was replaced" in str(stator.why_not_cached(loaded))


def test_small_programs_give_no_stale_result() -> None:
    names = ["math name", "other globals", "custom op shape", "custom op autograd", "composite op", "allow_in_graph aot",
             "op globals aot_eager", "fake", "aten override", "itemgetter", "attrgetter", "methodcaller", "typing"]
    output, = in_forked_interpreters(["tests.artifacts.small_programs", *names])
    assert output.splitlines()[-1] == "28 changes, 2 hits, 0 problems", output


@pytest.mark.slow  # three hundred processes
def test_all_small_programs_give_no_stale_result() -> None:
    output, = in_new_interpreters(["-m", "tests.artifacts.small_programs"])
    assert output.splitlines()[-1].endswith(" 0 problems"), output


@torch.compiler.assume_constant_result
def settled() -> int:
    return 3


def test_a_result_that_is_assumed_constant_is_not_stored(tmp_path: Path) -> None:
    compiled = stator.compile(lambda x: x * settled(), backend="eager")
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert stator.save(compiled, str(tmp_path / "entries")) == 0
    assert "assumed constant" in (stator.why_not_cached(compiled) or "")


FACTOR = 2


def scaled_by_factor(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR


def test_a_miss_names_the_fact_and_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, line = str(tmp_path / "entries"), scaled_by_factor.__code__.co_firstlineno + 1
    compiled = stator.compile(scaled_by_factor, backend="eager")
    compiled(torch.ones(2))
    assert stator.save(compiled, path) == 1
    stator.reset()
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3)
    loaded = stator.load(path, scaled_by_factor, backend="eager")
    with events.record() as log:
        assert torch.equal(loaded(torch.ones(2)), torch.full((2,), 3.0))
        loaded(torch.ones(2, dtype=torch.int64))
    reasons = [(each.why, each.filename, each.line) for each in log if isinstance(each, events.NotCached)]
    assert ("guard failed: FACTOR == 2", __file__, line) in reasons, reasons
    assert len(reasons) == len(set(reasons))
    assert f"{__file__}:{line} in scaled_by_factor" in (stator.why_not_cached(loaded) or "")


def attended(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def test_the_order_of_attention_kernels_is_settled_before_its_guard(tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    path, x, settled = str(tmp_path / "entries"), torch.ones(1, 1, 4, 8), []
    compiled = stator.compile(attended, backend="eager")
    compiled(x)
    assert stator.save(compiled, path) == 1
    stator.reset()
    monkeypatch.setattr(site_reader, "settle_attention", lambda: settled.append(True))
    loaded = stator.load(path, attended, backend="eager")
    with events.record() as log:
        assert torch.equal(loaded(x), attended(x))
    assert settled and not any(isinstance(each, events.CaptureStarted) for each in log)


LINES = {
    "a code object": "def h(x): return x\ndef program(x): return x * h.__code__.co_firstlineno",
    "its positions": "def h(x): return x\ndef program(x): return x * list(h.__code__.co_positions())[0][0]",
    "a traceback": "def program(x):\n    try: raise KeyError\n    except KeyError as e: return x * e.__traceback__.tb_lineno",
    "equal code": "f = lambda x: x\ng = lambda x: x\ndef program(x): return x * (2 + (f.__code__ == g.__code__))"}


@pytest.mark.parametrize("kind", LINES)
def test_an_entry_that_reads_a_line_belongs_to_that_line(kind: str, tmp_path: Path) -> None:
    path, x, hits = str(tmp_path / "entries"), torch.ones(2), []
    with stator.config.patch(artifact_key_file=str(tmp_path / "key")):
        for moved in (0, 0, 3):
            (folder := tmp_path / "program").mkdir(exist_ok=True)
            program = program_of("\n" * moved + LINES[kind], folder).program
            if not Path(path).exists():
                compiled = stator.compile(program, backend="eager")
                compiled(x)
                assert stator.save(compiled, path) == 1, stator.why_not_cached(compiled)
                continue
            with events.record() as log:
                loaded = stator.load(path, program, backend="eager")
                assert torch.equal(loaded(x), program(x))
            hits.append(any(isinstance(each, events.EntryLoaded) for each in log))
        assert hits == [True, False]
        assert "have moved" in str(stator.why_not_cached(loaded))


def interpreted(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    return module


@pytest.mark.parametrize("named", [True, False])
def test_a_backend_of_the_program_may_read_anything(named: bool, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_backends", {**registry._backends})
    if named:
        stator.register_backend(interpreted, name="interpreted_by_the_program")
    compiled = stator.compile(compared, backend="interpreted_by_the_program" if named else interpreted)
    with stator.config.patch(artifact_key_file=str(tmp_path / "key"), artifact_dir=str(tmp_path / "store")), \
            events.record() as log:
        assert torch.equal(compiled(torch.ones(2)), compared(torch.ones(2)))
        assert stator.save(compiled, str(tmp_path / "entries")) == 0
    assert not (tmp_path / "entries").exists() and not [*tmp_path.glob("store/*.stator")]
    assert "a function of the program, which may read anything" in str(stator.why_not_cached(compiled))
    assert any(isinstance(each, events.NotCached) and "may read anything" in each.why for each in log)


def test_passes_and_lowerings_of_the_program_are_settings_of_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config, lowering  # its import takes seconds

    settings = stator.api.build_settings(backend="inductor")
    before = environment.settings_facts(settings, ValueWriter(compared))
    with config.patch(post_grad_custom_post_pass=lambda graph: None), pytest.raises(NotPortable, match="custom_post_pass"):
        environment.settings_facts(settings, ValueWriter(compared))
    monkeypatch.setitem(lowering.lowerings, torch.ops.aten.sin.default, interpreted)
    found = environment.settings_facts(settings, ValueWriter(compared))
    assert found.pop("lowerings of the program")[0] == "aten.sin.default"  # type: ignore[index, call-overload]
    assert found == before

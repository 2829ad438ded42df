"""Pytest's side of the curriculum: each `@case` is an item, and the run ends with the share captured whole."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pluggy
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from curriculum import Case, cases_of, run_case  # noqa: E402
from frame_evaluator import default_evaluator_installed, install_default_evaluator  # noqa: E402
from hidden_failures import is_hidden_failure  # noqa: E402
from stator.backends import compiled_graphs  # noqa: E402
from stator.backends.graph_key import Unkeyed  # noqa: E402
from stator.capture import call_site_family, code_memory, miss  # noqa: E402
from stator.settings.process_config import config  # noqa: E402
from tests.comparison import Report, identity_mode  # noqa: E402

take_from_family, record_of, key_of = miss.take_from_family, code_memory.record_of, compiled_graphs.key_of
LANG = Path(__file__).parent / "lang"
ENVIRONMENT = frozenset(os.environ)
MODULES = 50  # so many new ones are worth a collection
REDONE: list[str] = []  # tests during which a graph or a capture failed and the call was made again
TALLY: pytest.StashKey[list[tuple[str, bool, Report | None]]] = pytest.StashKey()
FROZEN: pytest.StashKey[int] = pytest.StashKey()  # modules whose objects no collection visits


class LangCase(pytest.Item):
    """One case of the curriculum."""

    def __init__(self, *, case: Case, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case = case

    def runtest(self) -> None:
        tally = self.config.stash.setdefault(TALLY, [])
        topic = self.path.stem
        tally.append((topic, False, None))
        report = run_case(self.path, self.case)
        tally[-1] = (topic, self.case.breaks is None and report.captured_whole, report)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, AssertionError):
            return f"{self.name}: {excinfo.value}"
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.fn.__code__.co_firstlineno - 1, self.name


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> pytest.Item | None:
    if not isinstance(collector, pytest.Module) or collector.path.parent != LANG:
        return None
    found = cases_of(collector.obj).get(name)
    if found is None or found.fn is not obj:
        return None
    return LangCase.from_parent(collector, name=name, case=found)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Entries of another compile() would serve here: tests count what their own one captures, or change the engine."""
    freeze_loaded_modules(item.config)
    call_site_family._members.clear()
    compiled_graphs.forget()
    code_memory.forget()
    shares = item.get_closest_marker("shares_entries") is not None
    miss.take_from_family = take_from_family if shares else lambda site, bound: False
    code_memory.record_of = record_of if shares else lambda site, bound: None
    compiled_graphs.key_of = key_of if shares else compile_alone


def freeze_loaded_modules(config: pytest.Config) -> None:
    """Leave the objects of loaded modules out of later collections: those of torch take half a second each time."""
    if len(sys.modules) >= config.stash.get(FROZEN, 0) + MODULES:
        gc.collect()
        gc.freeze()
        config.stash[FROZEN] = len(sys.modules)


def compile_alone(*args: object) -> Any:
    raise Unkeyed


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, pluggy.Result[None], None]:
    """Fail the test that leaves a hook or a setting behind, not a later one that meets it."""
    outcome = yield
    left = []
    if not default_evaluator_installed():
        install_default_evaluator()
        left.append("another function to evaluate frames")
    if config._values:
        left.append(repr(dict(config._values)))
        config._values.clear()
    if names := [name for name in os.environ if name.startswith("STATOR_") and name not in ENVIRONMENT]:
        left += names
        for name in names:
            del os.environ[name]
    if left and outcome.exception is None:
        outcome.force_exception(AssertionError(f"{item.nodeid} left {', '.join(left)}"))


def pytest_warning_recorded(warning_message: Any, nodeid: str) -> None:
    if is_hidden_failure(warning_message.message):
        REDONE.append(nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if REDONE and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for nodeid in dict.fromkeys(REDONE):
        terminalreporter.write_line(f"FAILED {nodeid}: a graph or a capture failed, and the call was made again", red=True)
    tally = config.stash.get(TALLY, [])
    if not tally:
        return
    topics = len({topic for topic, _, _ in tally})
    same = sum(report is not None for _, _, report in tally)
    whole = sum(captured for _, captured, _ in tally)
    again = sum(report is not None and report.recompiled_on_repeat for _, _, report in tally)
    share = 100.0 * whole / len(tally)
    terminalreporter.section("language curriculum" + (" (identity: nothing compiled)" if identity_mode() else ""))
    terminalreporter.write_line(
        f"{topics} topics, {len(tally)} cases: {same} same as eager, "
        f"{whole} captured whole ({share:.1f}%), {again} compiled again on an identical repeat"
    )

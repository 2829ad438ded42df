"""Every module of Stator is switched off piece by piece, or is aside for a reason that is written down."""

from __future__ import annotations

import pytest

from tests.mutation import learning, subjects
from tests.mutation.__main__ import HERE, justified
from tests.mutation.core_faults import numbered


def test_every_module_is_a_subject_or_aside() -> None:
    mutated = set(subjects.module_files())
    for file in subjects.STATOR.rglob("*.py"):
        assert (file in mutated) != (file.relative_to(subjects.STATOR).with_suffix("").parts[0] in subjects.ASIDE), file
    assert len(mutated) > 270


def test_what_is_aside_exists_and_says_why() -> None:
    assert all((subjects.STATOR / name).is_dir() or (subjects.STATOR / f"{name}.py").exists() for name in subjects.ASIDE)
    assert all(subjects.ASIDE.values())


def test_what_is_justified_or_open_exists() -> None:
    lines = (HERE / "open.txt").read_text().splitlines()
    said = {*justified(), *(line for line in lines if not line.startswith("#"))}
    names = {mutant.name for mutant in subjects.of_functions("\n".join(said))} | {each.mutant for _, each in numbered()}
    gone = [name for name in said - names if not name.startswith(("no guards", "rows of"))]
    assert not gone, gone


class WithoutFixtures(pytest.Item):
    """As the items of the curriculum are."""

    def runtest(self) -> None:
        raise NotImplementedError


def test_an_item_that_is_no_function_is_learned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "runtestprotocol", lambda item, log: [])
    assert learning.passes(WithoutFixtures.from_parent(request.session, name="plain")) is not None

"""docs/native.md is what the table says."""

from __future__ import annotations

from tests.own_process import in_forked_interpreters
from tools import native_page as render


def test_page_is_up_to_date():
    """In a process of its own: other tests add rows, for copies of modules."""
    in_forked_interpreters(["tools.native_page", "--check"])


def test_check_finds_an_outdated_page(tmp_path, monkeypatch, capsys):
    page = tmp_path / "native.md"
    monkeypatch.setattr(render, "PAGE", page)
    assert render.main(["--check"]) == 1
    assert render.main([]) == 0
    assert render.main(["--check"]) == 0
    page.write_text(page.read_text().replace("`append`", "`appended`"))
    assert render.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().out


def test_page_of_other_versions_is_not_compared(tmp_path, monkeypatch, capsys):
    page = tmp_path / "native.md"
    page.write_text(render.render().replace(render.written_for(), "Written for CPython 9.9."))
    monkeypatch.setattr(render, "PAGE", page)
    assert render.main(["--check"]) == 0
    assert "other versions" in capsys.readouterr().out


def test_marks():
    assert "`sort` c=!" in render.render()
    assert "**list**" in render.render()
    assert "**_socket**" not in render.render()

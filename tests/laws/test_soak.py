"""Short soaks: the full ones are `python -m tests.laws.soak`."""

from __future__ import annotations

from soak import SUBJECTS, soak_calls, soak_captures

# torch and the standard library fill caches of their own the first time something is used.
SOME_CACHES = 300


def test_calls_hold_memory_flat() -> None:
    growth = soak_calls(2_000)
    assert growth.total < SOME_CACHES, growth.text()


def test_captures_leak_nothing() -> None:
    growth = soak_captures(300)
    assert growth.total < SOME_CACHES, growth.text()


def test_the_soak_can_fail() -> None:
    kept = []

    def leaking(k):
        subject = SUBJECTS[0](k)
        kept.append([subject, [k], {"k": [k]}])
        return subject

    assert soak_captures(300, (leaking,)).total > SOME_CACHES

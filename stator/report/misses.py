"""Causes of recompiles.   tensor x: float32[3] cpu  ->  x was float32[3], is float32[4]

In: the failed guard of an entry with the old and the new value.  Out: its subject, before and after, in one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stator import events
from stator.report.names import translate

# Fields of `GlobalState` as the user reads them.
SETTINGS = {
    "grad_enabled": "torch.is_grad_enabled()", "inference_mode": "torch.is_inference_mode_enabled()",
    "autocast_cache": "torch.is_autocast_cache_enabled()", "default_dtype": "torch.get_default_dtype()",
    "deterministic": "torch.are_deterministic_algorithms_enabled()",
    "deterministic_warn_only": "torch.is_deterministic_algorithms_warn_only_enabled()",
    "torch_function_disabled": "the level that disables __torch_function__",
    "dispatch_modes": "the number of dispatch modes", "functorch_level": "the number of torch.func transforms"}
AUTOCAST = ("cpu", "cuda")
ADDRESS = re.compile(r"<(\w+) object at 0x[0-9a-f]+>")


def nearest(event: events.Recompile) -> events.Miss:
    """The miss of the entry with the fewest failed guards."""
    return events.Miss(event.guard_text, event.old, event.new, event.filename, event.line)


def change(miss: events.Miss, terms: events.Terms) -> str:
    """`x was float32[3], is float32[4]`: the subject of a guard, before and after."""
    guard = translate(miss.guard_text, terms)
    if not miss.old and not miss.new:
        return guard
    old, new = (_plain(translate(text, terms)) for text in (miss.old, miss.new))
    if guard.startswith("torch state"):
        return ", ".join(_settings(old, new))
    old = f"[{old[1:-1].removesuffix(',')}]" if miss.new.startswith("keys ") else old
    subject = re.fullmatch(r"tensor (.+?): .*|(.+?) (?:==|is|holds) .*", miss.guard_text, re.DOTALL)
    if (relation := _relation(miss, guard, new)) or subject is None:
        return relation or f"{guard} no longer holds{f': {new}' if new not in ('', 'True', 'False') else ''}"
    name = translate(subject[1] or subject[2], terms)
    if new.endswith(" is gone"):
        return f"{name} was {old}, is gone" + ("" if name == new.removesuffix(" is gone") else f": {new}")
    if subject[1] and (before := Tensor.parse(old)) and (after := Tensor.parse(new)):
        return ", ".join(f"{about} was {was}, is {now}" for about, was, now in before.differences(name, after)) \
            or f"{name} was {old}, is another tensor with these properties"
    old, new = _objects(_tensor(old), _tensor(new))
    if left := re.fullmatch(r"length_hint\((.+)\)", name):
        return f"{left[1]} had {old} item{'s' * (old != '1')} left, has {new if new != '0' else 'none'}"
    return f"{name} was {old}, is {new}"


def subject_of(event: events.Recompile) -> str:
    """The value or relation that a failed guard is about, without its values."""
    guard = translate(event.guard_text, event.terms)
    left = re.match(r"length_hint\((.+)\) (?:==|>=|<) ", guard)
    return f"the items left in {left[1]}" if left else guard.partition(" == ")[0]


def _relation(miss: events.Miss, guard: str, new: str) -> str:
    """A relation that no longer holds; empty for a value."""
    if new in ("one object", "two objects"):
        return f"{guard} was True, is False"
    if " share " in new:
        return f"{new} now"
    if new in ("present", "absent") and (member := re.fullmatch(r"(.+?) (?:not )?in (vars\()?(.+?)(\))?", guard)):
        key, own, holder = member[1], member[2], member[3]
        if own:
            name = f"{holder}.{key.strip(chr(39))}"
            return f"{name} was not set on {holder} itself, is now" if new == "present" else f"{name} is gone"
        holder = "the globals" if holder == "globals()" else f"{holder}{member[4] or ''}"
        return f"{key} was not in {holder}, is now" if new == "present" else f"{key} was in {holder}, is gone"
    if left := re.fullmatch(r"length_hint\((.+)\) (>=|<) (\d+)", guard):
        ended = left[2] == ">="
        if left[3] == "1":
            return f"{left[1]} had {'items' if ended else 'no item'} left, has {'none' if ended else 'some'}"
        how, now = ("at least", "fewer") if ended else ("fewer than", "more")
        return f"{left[1]} had {how} {left[3]} items left, has {now}"
    if miss.old == miss.guard_text:
        return f"{guard} no longer holds{f': {new}' if new not in ('', 'True', 'False') else ''}"
    return ""


def _settings(old: str, new: str) -> Iterator[str]:
    """Settings of torch, each before and after."""
    for was, now in zip(old.split("; "), new.split("; "), strict=False):
        name, _, before = was.partition("=")
        after = now.partition("=")[2]
        if name == "autocast":
            pairs = (re.findall(r"\((True|False), torch\.(\w+)\)", text) for text in (before, after))
            for device, *states in zip(AUTOCAST, *pairs, strict=False):
                if states[0] != states[1]:
                    shown = [dtype if on == "True" else "off" for on, dtype in states]
                    yield (f"torch.autocast({device!r}) was {shown[0]}, is {shown[1]}" if shown[0] != shown[1] else
                           f"torch.get_autocast_dtype({device!r}) was {states[0][1]}, is {states[1][1]}")
        elif name == "function_modes":
            modes = (", ".join(_modes(text)) or "none" for text in (before, after))
            yield "the torch function modes (torch.device, ...) were {}, are {}".format(*modes)
        else:
            yield f"{SETTINGS.get(name, name)} was {before}, is {after}"


def _modes(text: str) -> list[str]:
    """`torch.device('meta')` and the classes of other modes."""
    found = re.findall(r"device\(type='(\w+)'(?:, index=(\d+))?\)|<class '([^']+)'>", text)
    return [kind.rpartition(".")[2] if kind else f"torch.device('{device}{':' + index if index else ''}')"
            for device, index, kind in found]


class Tensor:
    """Properties of a tensor, from the text of its guard."""

    TEXT = re.compile(r"(\w+)\[([\d?, ]*)\] (\S+) requires_grad=(True|False)(?: type (\S+))?(?: strides \(([^)]*)\))?"
                      r"(?: layout (\w+))?(?: offset (\d+))?(?: keys (.+))?")

    def __init__(self, found: re.Match[str]) -> None:
        dtype, sizes, self.device, self.requires_grad, kind, strides, layout, self.offset, self.keys = found.groups()
        self.shape = f"{dtype}[{sizes}]"
        self.sizes = sizes.split(", ") if sizes else []
        self.type = (kind or "Tensor").rpartition(".")[2]
        self.strides, self.layout = strides or self.contiguous(), layout or "strided"

    @classmethod
    def parse(cls, text: str) -> Tensor | None:
        found = cls.TEXT.fullmatch(text)
        return None if found is None else cls(found)

    def contiguous(self) -> str:
        steps, step = [], 1
        for size in reversed(self.sizes):
            steps.append(str(step) if step else "?")
            step = 0 if size == "?" else step * max(int(size), 1)
        return ", ".join(reversed(steps))

    def differences(self, name: str, now: Tensor) -> Iterator[tuple[str, str, str]]:
        """(property, before, after) of each that differs."""
        name, _, function = name.partition(" in ")  # x in Block.forward
        where = f" in {function}" if function else ""
        if self.type != now.type:
            yield f"type({name}){where}", self.type, now.type
        if self.shape != now.shape:
            yield f"{name}{where}", self.shape, now.shape
        elif self.strides != now.strides:
            yield f"{name}.stride(){where}", self.steps(), now.steps()
        for about, before, after in (("requires_grad", self.requires_grad, now.requires_grad),
                                     ("device", self.device, now.device), ("layout", self.layout, now.layout),
                                     ("storage_offset()", self.offset or "0", now.offset or "0")):
            if before != after:
                yield f"{name}.{about}{where}", before, after
        was, are = (set((each.keys or "").split(", ")) - {""} for each in (self, now))
        for key in sorted(was ^ are):
            yield f"{name}.{KEYS.get(key, key)}{where}", str(key in was), str(key in are)

    def steps(self) -> str:
        """Strides, and their name where they have one."""
        if self.strides == self.contiguous():
            return f"({self.strides})"
        order = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}.get(len(self.sizes), ())
        steps = self.strides.split(", ")
        moved = Tensor.parse(f"t[{', '.join(self.sizes[each] for each in order)}] cpu requires_grad=False")
        last = bool(order) and moved is not None and ", ".join(steps[each] for each in order) == moved.strides
        return f"({self.strides}){' (channels_last)' if last else ''}"


KEYS = {"inference": "is_inference()", "conjugate": "is_conj()", "negative": "is_neg()"}


def _tensor(text: str) -> str:
    """A tensor beside a value of another kind: `a tensor float32[3]`."""
    found = Tensor.parse(text)
    return text if found is None else f"a {found.type} {found.shape}" if found.type != "Tensor" \
        else f"a tensor {found.shape}"


def _objects(old: str, new: str) -> tuple[str, str]:
    """Without addresses, where the objects differ in more than these."""
    before, after = (ADDRESS.sub(r"<\1>", text) for text in (old, new))
    return (before, after) if before != after else (old, new)


def _plain(text: str) -> str:
    """`length 2` -> 2, `keys [0, 1]` -> [0, 1]: values as Python writes them."""
    return re.sub(r"^(?:length|keys) (?=[\[\d])", "", text)

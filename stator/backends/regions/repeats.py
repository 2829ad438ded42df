"""Find equal stretches that need not follow one another.   a x y b x y c d x y  ->  "x y", from 1, 4 and 8

In: numbers, one for each node, and the stretches where to look.  Out: sets of equal stretches without overlap, those
that save most chosen first. Blocks that alternate with others of many sizes (attention and convolutions of a UNet) have
no period.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_MOST = 32  # sets in one graph

Stretch = tuple[int, int]


@dataclass(frozen=True)
class Repeat:
    """The numbers from each start on are equal, for so many nodes."""

    starts: tuple[int, ...]
    length: int

    @property
    def saving(self) -> int:
        """Nodes that need no compilation."""
        return (len(self.starts) - 1) * self.length


def find_repeats(numbers: Sequence[int], free: list[Stretch], least_repeats: int, least_length: int,
                 least_saving: int) -> list[Repeat]:
    found: list[Repeat] = []
    while len(found) < _MOST:
        best = best_repeat(numbers, free, least_repeats, least_length)
        if best is None or best.saving < least_saving:
            break
        found.append(best)
        free = without(free, [(start, start + best.length) for start in best.starts])
    return found


def without(free: list[Stretch], taken: list[Stretch]) -> list[Stretch]:
    """The rest of stretches; each one of `taken`, in order, lies inside one of them."""
    left = []
    for start, stop in free:
        for first, last in taken:
            if start <= first and last <= stop:
                left.append((start, first))
                start = last
        left.append((start, stop))
    return [(start, stop) for start, stop in left if stop > start]


def best_repeat(numbers: Sequence[int], free: list[Stretch], least_repeats: int, least_length: int) -> Repeat | None:
    """The set that saves most; the first one of equals."""
    places = list(frequent(numbers, free, least_repeats, least_length))
    text = [number for number, _ in places]
    order = suffixes(text)
    candidates = sorted(common_prefixes(text, order, least_repeats, least_length),
                        key=lambda each: (-each[0] * (each[2] - each[1] - 1), -each[0]))
    best: Repeat | None = None
    for length, first, last in candidates:
        if best is not None and (last - first - 1) * length <= best.saving:
            break
        starts: list[int] = []
        for place in sorted([places[each][1] for each in order[first:last]]):
            if not starts or place >= starts[-1] + length:
                starts.append(place)
        found = Repeat(tuple(starts), length)
        if len(starts) >= least_repeats and (best is None or found.saving > best.saving):
            best = found
    return best


def frequent(numbers: Sequence[int], free: list[Stretch], least_repeats: int,
             least_length: int) -> Iterator[tuple[int, int]]:
    """(number, place) of the stretches where each number occurs often enough; between two of them a unique number."""
    counts = Counter([number for start, stop in free for number in numbers[start:stop]])
    separator = 0
    for start, stop in free:
        begun = start
        for place in range(start, stop + 1):
            if place == stop or counts[numbers[place]] < least_repeats:
                if place - begun >= least_length:
                    yield from zip(numbers[begun:place], range(begun, place), strict=True)
                    separator -= 1
                    yield separator, -1
                begun = place + 1


def suffixes(text: Sequence[int]) -> list[int]:
    """The places of a text in the order of what begins there, by doubling the length that is compared."""
    count, length = len(text), 1
    numbered = {value: number for number, value in enumerate(sorted(set(text)))}
    rank = [numbered[value] for value in text]
    order = sorted(range(count), key=rank.__getitem__)
    while length < count:
        keys = [rank[place] * (count + 1) + (rank[place + length] + 1 if place + length < count else 0)
                for place in range(count)]
        order.sort(key=keys.__getitem__)
        now = -1
        before = None
        for place in order:
            now += keys[place] != before
            before = keys[place]
            rank[place] = now
        if now == count - 1:
            break
        length *= 2
    return order


def common_prefixes(text: Sequence[int], order: list[int], least_repeats: int,
                    least_length: int) -> Iterator[tuple[int, int, int]]:
    """(length, first, last): what begins at the places order[first:last] is equal for so long, and no longer."""
    count = len(text)
    rank = [0] * count
    for number, place in enumerate(order):
        rank[place] = number
    shared = [0] * (count + 1)  # with the place before, in this order
    length = 0
    for place in range(count):
        if rank[place]:
            other = order[rank[place] - 1]
            while max(place, other) + length < count and text[place + length] == text[other + length]:
                length += 1
            shared[rank[place]] = length
            length = max(length - 1, 0)
        else:
            length = 0
    waiting: list[tuple[int, int]] = []  # (length, first) of those that may go on
    for number in range(1, count + 1):
        first = number - 1
        while waiting and waiting[-1][0] > shared[number]:
            length, first = waiting.pop()
            if length >= least_length and number - first >= least_repeats:
                yield length, first, number
        if shared[number] and (not waiting or waiting[-1][0] < shared[number]):
            waiting.append((shared[number], first))

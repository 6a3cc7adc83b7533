"""Reading and adding the alignment tiers of a cut.

The result of any stage is a tier: a list of lhotse ``AlignmentItem(symbol, start, duration,
score)`` in the one supervision of a cut, under a name such as ``fa`` or ``mlvae``. Two habits of
lhotse make the obvious ways unsafe: ``SupervisionSegment.with_alignment`` adds the tier to the
supervision it was called on as well, and ``AlignmentItem.trim`` returns an item without its score.
The functions here do neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lhotse import MonoCut, SupervisionSegment
from lhotse.supervision import AlignmentItem
from lhotse.utils import fastcopy

#: Tiers of localisation; see :mod:`mlvae.systems.localize`. Those of units have equal times.
UNIT_TIERS = ("mlvae", "mlvae_perceived", "mlvae_deleted")
VARIANT = "mlvae_variant"
WORD_TIER = "mlvae_word"
#: Fields of a supervision that go unit by unit with its canonical units.
OF_UNITS = ("units", "words", "word_of_unit", "pronunciations", "sources")
#: Symbols of the tier ``mlvae_perceived``, and of references: an unknown unit, and a deletion.
UNKNOWN = "*"
DELETED = "-"


def tier(cut: MonoCut, name: str) -> list[AlignmentItem]:
    """The items of one tier of a cut with one supervision, a new list; times in seconds.

    Raises:
        ValueError: the cut has not exactly one supervision.
        KeyError: the cut has no such tier; names the cut and the tiers that it has.
    """
    tiers = _supervision(cut).alignment or {}
    if name not in tiers:
        existing = ", ".join(sorted(tiers)) or "none"
        raise KeyError(f"cut {cut.id} has no tier {name!r} (tiers that exist: {existing})")
    return list(tiers[name])


def has_tier(cut: MonoCut, name: str) -> bool:
    """Whether a cut, which has one supervision (ValueError), has a tier of this name."""
    return name in (_supervision(cut).alignment or {})


def with_tiers(cut: MonoCut, tiers: Mapping[str, Sequence[AlignmentItem]]) -> MonoCut:
    """A copy of a cut with one supervision that has tiers, by name, besides those it already had.

    A tier of the same name is replaced in the copy. The cut passed in, its supervision and its
    tiers stay as they were. Numbers of numpy and torch become plain floats, so that the result
    can be written to a manifest; an item's score is kept. Times are seconds from the cut's start.

    Raises:
        ValueError: the cut has not exactly one supervision, or an item has a negative duration.
    """
    supervision = _supervision(cut)
    merged = dict(supervision.alignment or {})
    for name, items in tiers.items():
        merged[name] = [_plain(cut.id, name, item) for item in items]
    return fastcopy(cut, supervisions=[fastcopy(supervision, alignment=merged)])


def units_of_words(cut: MonoCut) -> list[int] | None:
    """The index of the word of each canonical unit of a cut.

    The supervision's ``custom["words"]`` are the words, and ``custom["word_of_unit"]`` the index
    of each unit's word among them; without the latter there must be as many words as units. None
    where the cut has no words, or nothing tells which units are a word's.

    Raises:
        ValueError: ``word_of_unit`` does not go through the words one by one; names the cut.
    """
    custom = _supervision(cut).custom or {}
    words, word_of = custom.get("words"), custom.get("word_of_unit")
    if not words:
        return None
    num_units = len(custom["units"])
    if word_of is None:
        return list(range(num_units)) if len(words) == num_units else None
    steps = [b - a for a, b in zip(word_of[:-1], word_of[1:])]
    in_order = all(step in (0, 1) for step in steps)
    if (
        not in_order
        or len(word_of) != num_units
        or (word_of[0], word_of[-1] + 1) != (0, len(words))
    ):
        raise ValueError(
            f"{cut.id}: word_of_unit {word_of} does not go through {len(words)} words one by one "
            f"in {num_units} units"
        )
    return list(word_of)


def word_spans(units: Sequence[AlignmentItem], word_of: Sequence[int]) -> list[tuple[float, float]]:
    """Start and duration in seconds of each word, given a tier of units and the word of each.

    A word lies from the start of its first unit that has a length to the end of its last one: a
    deleted unit neither begins nor ends it. A word all of whose units were deleted has no length,
    and lies where its first unit does.
    """
    units_of: dict[int, list[AlignmentItem]] = {}
    for item, word in zip(units, word_of):
        units_of.setdefault(word, []).append(item)
    spans = []
    for _, mine in sorted(units_of.items()):
        present = [item for item in mine if item.duration > 0]
        start = (present or mine)[0].start
        end = max((item.end for item in present), default=start)
        spans.append((start, max(round(end - start, 6), 0.0)))
    return spans


def word_items(
    cut: MonoCut, units: Sequence[AlignmentItem], word_of: Sequence[int], scores: Sequence[float]
) -> list[AlignmentItem]:
    """Items of the words of a cut, with their scores; ``units`` and ``word_of`` as above."""
    words = _supervision(cut).custom["words"]
    return [
        AlignmentItem(word, *span, score)
        for word, span, score in zip(words, word_spans(units, word_of), scores)
    ]


def with_units(cut: MonoCut, units: Sequence[str], words: Sequence[int] | None = None) -> MonoCut:
    """A copy of a cut with other canonical units, without tiers and the fields of the old units.

    ``words`` are the word of each unit, non-decreasing; None: nothing is known of words.
    """
    supervision = _supervision(cut)
    kept = {key: value for key, value in (supervision.custom or {}).items() if key not in OF_UNITS}
    custom = {**kept, "units": list(units)}
    if words is not None:
        used = {word: index for index, word in enumerate(sorted(set(words)))}
        custom["words"] = [str(word) for word in used]
        custom["word_of_unit"] = [used[word] for word in words]
    return fastcopy(cut, supervisions=[fastcopy(supervision, custom=custom, alignment=None)])


def _supervision(cut: MonoCut) -> SupervisionSegment:
    if len(cut.supervisions) != 1:
        raise ValueError(f"cut {cut.id} has {len(cut.supervisions)} supervisions, expected one")
    return cut.supervisions[0]


def _plain(cut_id: str, name: str, item: AlignmentItem) -> AlignmentItem:
    duration = float(item.duration)
    if duration < 0:
        raise ValueError(f"cut {cut_id}, tier {name!r}: {item.symbol!r} lasts {duration} s")
    score = None if item.score is None else float(item.score)
    return AlignmentItem(str(item.symbol), float(item.start), duration, score)

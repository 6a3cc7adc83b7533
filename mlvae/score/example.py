"""The utterance of the picture: which one, and what of it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lhotse import MonoCut
from lhotse.supervision import AlignmentItem

from mlvae.config import System
from mlvae.report.picture import draw_answer
from mlvae.score.table import title_of
from mlvae.score.truth import Truth
from mlvae.systems import KINDS
from mlvae.tiers import has_tier, tier

MIN_UNITS = 5


def choose_example(truth: Truth, missing: set[str]) -> tuple[str, str]:
    """Choose the utterance of the picture by a rule that does not look at how well it went.

    Args:
        truth: The test set.
        missing: Ids of utterances that cannot be shown.

    Returns:
        The utterance's id and the rule as words for the caption.

    Raises:
        ValueError: No utterance has an answer.
    """
    positive, rows = truth.positive, range(len(truth.utterances))
    spans = [slice(*truth.first[row : row + 2]) for row in rows]
    answered = [row for row in rows if truth.utterances[row] not in missing]
    mismatched = [row for row in answered if positive[spans[row]].any()]
    long = [row for row in mismatched if len(positive[spans[row]]) >= MIN_UNITS]
    choices = [
        (long, f"with a mismatch and at least {MIN_UNITS} units"),
        (mismatched, "with a mismatch"),
        (answered, "with an answer (none has a mismatch)"),
    ]
    for found, rule in choices:
        if found:
            return truth.utterances[found[0]], f"the first test utterance {rule}"
    raise ValueError("no test utterance has an answer")


def check_example(truth: Truth, utterance: str | None) -> None:
    """Raises ValueError where an utterance was asked for that is not in the test set."""
    if utterance is not None and utterance not in truth.utterances:
        raise ValueError(f"there is no test utterance {utterance!r} to draw")


def draw_example(
    truth: Truth,
    systems: Sequence[System],
    cuts: dict[str, list[MonoCut]],
    missing: set[str],
    corpus: dict,
    path: Path,
    utterance: str | None = None,
) -> None:
    """Draw the answers of all systems to one utterance, one under another.

    Args:
        truth: The test set.
        systems: Those with answers; of them those are drawn that are for the picture.
        cuts: By name of the system its cuts; all have the tier ``fa`` and features.
        missing: Ids of utterances without an answer of some system.
        corpus: Content of ``corpus.json``.
        path: The PNG file.
        utterance: Id of the utterance; None: that of ``choose_example``.

    Raises:
        ValueError: No utterance has an answer, or this one has none of any system.
    """
    if utterance is None:
        chosen, rule = choose_example(truth, missing)
        rule = f"Shown is {rule}."
    else:
        chosen, rule = utterance, "Shown is the utterance that was asked for."
    row = truth.utterances.index(chosen)
    units = slice(*truth.first[row : row + 2])
    own = {name: cut for name, some in cuts.items() for cut in some if cut.id == chosen}
    if not own:
        raise ValueError(f"no system has an answer for utterance {chosen!r}")
    draw_answer(
        next(iter(own.values())),
        perceived=truth.perceived[units],
        true_starts=truth.starts[units],
        true_ends=truth.ends[units],
        found={
            system.label: _answer(system, own.get(system.label))
            for system in systems
            if system.in_picture
        },
        title=f"{title_of(corpus)}: utterance {chosen}",
        caption=rule,
        path=path,
        added=[] if truth.annotation is None else truth.annotation.insertions[row],
    )


def _answer(
    system: System, cut: MonoCut | None
) -> tuple[list[AlignmentItem], list[AlignmentItem]] | None:
    """The units and what was heard; None where the system has no answer."""
    kind = KINDS[system.kind]
    heard = kind.heard or kind.spans
    if cut is None or not (has_tier(cut, kind.spans) and has_tier(cut, heard)):
        return None
    return tier(cut, kind.spans), tier(cut, heard)

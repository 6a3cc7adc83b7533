"""The utterance of the picture: which one, and what of it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lhotse import MonoCut

from mlvae.report.picture import draw_answer
from mlvae.score.systems import System
from mlvae.score.truth import Truth
from mlvae.tiers import tier

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


def draw_example(
    truth: Truth,
    systems: Sequence[System],
    cuts: dict[str, list[MonoCut]],
    missing: set[str],
    corpus: dict,
    path: Path,
) -> None:
    """Draw the picture of the example utterance.

    Args:
        truth: The test set.
        systems: Those with answers; of them those are drawn that are for the picture.
        cuts: By name of the system its cuts; all have the tier ``fa`` and features.
        missing: Ids of utterances without an answer of some system.
        corpus: Content of ``corpus.json``.
        path: The PNG file.

    Raises:
        ValueError: No utterance has an answer.
    """
    chosen, rule = choose_example(truth, missing)
    row = truth.utterances.index(chosen)
    units = slice(*truth.first[row : row + 2])
    own = {name: next(cut for cut in some if cut.id == chosen) for name, some in cuts.items()}
    synthetic = ", synthetic speech" if corpus["synthetic"] else ""
    draw_answer(
        own[systems[0].name],
        perceived=truth.perceived[units],
        true_starts=truth.starts[units],
        true_ends=truth.ends[units],
        found={
            system.name: (tier(own[system.name], system.spans), tier(own[system.name], heard))
            for system in systems
            if system.in_picture and (heard := system.heard)
        },
        title=f"{corpus['title']}{synthetic}: utterance {chosen}",
        caption=f"Shown is {rule}.",
        path=path,
    )

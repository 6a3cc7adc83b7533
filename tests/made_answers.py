"""Folders of answers that nobody computed: a unit a tenth of a second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lhotse import MonoCut, SupervisionSegment
from lhotse.supervision import AlignmentItem

from mlvae.data.audio import file_recording
from mlvae.data.manifests import write_manifest

STEP = 0.1


def answered(
    cut_id: str,
    words: str,
    perceived: str | None = None,
    wrong: Sequence[float] = (),
    gain: float = 1.0,
    speaker: str | None = "ann",
) -> MonoCut:
    """A cut with answers.

    Args:
        cut_id: of it.
        words: with blanks between; each letter is a unit.
        perceived: a letter for each unit, with or without blanks; None: the units.
        wrong: P of each unit; empty: 0.9 of those that are perceived as others, 0.02 of the rest.
        gain: ``loop_gain``.
        speaker: of it.
    """
    units = words.replace(" ", "")
    perceived = (perceived or units).replace(" ", "")
    wrong = wrong or [0.02 if a == b else 0.9 for a, b in zip(units, perceived)]
    word_of = [place for place, word in enumerate(words.split()) for _ in word]
    duration = round(STEP * (len(units) + 1), 6)  # ends with silence

    def tier(symbols: str) -> list[AlignmentItem]:
        spoken = [a != "-" for a in perceived]
        starts = [round(STEP * place, 6) for place in range(len(units))]
        lengths = [STEP if one else 0.0 for one in spoken]
        return [AlignmentItem(*item) for item in zip(symbols, starts, lengths, wrong)]

    custom = {"units": list(units), "words": words.split(), "word_of_unit": word_of}
    tiers = {"fa": tier(units), "mlvae": tier(units), "mlvae_perceived": tier(perceived)}
    supervision = SupervisionSegment(
        cut_id, cut_id, 0.0, duration, text=words, speaker=speaker, custom=custom, alignment=tiers
    )
    recording = file_recording(cut_id, Path("none.wav"), round(8000 * duration), 8000)
    fit = {"score_per_frame": 2.0, "loop_gain": gain}
    return MonoCut(cut_id, 0.0, duration, 0, [supervision], None, recording, custom=fit)


def write_answers(folder: Path, cuts: Sequence[MonoCut], name: str = "cuts.jsonl.gz") -> Path:
    """Write a folder as `mlvae localize` does, or stage 5; returns it."""
    write_manifest(folder / name, cuts)
    return folder

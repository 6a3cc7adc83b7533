"""From a folder of recordings with texts of the same names to TextGrids for Praat, in Python.

    python examples/folder_to_textgrids.py MODEL RECORDINGS OUT

`mlvae localize MODEL RECORDINGS OUT --format textgrid` does this, too, in several processes and so
that it can be killed; here are its parts.
"""

import sys
from pathlib import Path

import mlvae
from mlvae.data.recordings import find_recordings
from mlvae.program import start_program
from mlvae.report.exports import write_answer_textgrid


def textgrids(model_folder: Path, recordings: Path, out: Path) -> int:
    """Write a TextGrid for each recording; returns how many could not be used."""
    model = mlvae.load(model_folder)
    found = find_recordings(recordings)
    reasons = {name: reason for name, reason, _ in found.skipped}
    for utterance in found.items():
        try:
            localized = model.localize([utterance.cut()])
        except (ValueError, OSError) as error:
            reasons[utterance.id] = str(error)
            continue
        reasons.update(localized.skipped)
        for answer in localized.answers:
            write_answer_textgrid(answer, out)
            print(f"{answer.id}: {answer.num_flagged} of {len(answer.units)} units flagged")
    for name, reason in reasons.items():
        print(f"{name}: {reason}", file=sys.stderr)
    return len(reasons)


if __name__ == "__main__":
    start_program()
    sys.exit(min(textgrids(*map(Path, sys.argv[1:])), 1))

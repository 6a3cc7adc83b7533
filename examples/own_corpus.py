#!/usr/bin/env python3
"""Stage 0 for English recordings of one's own: copy it to recipes/NAME/prepare.py.

The folder that --corpus-dir names has ``train``, ``valid`` and ``test``, each with pairs of a mono
recording (``NAME.wav``, ``NAME.FLAC``, ...) and ``NAME.txt`` in UTF-8, the sentence that was
supposed to be read; in subfolders, too. The path below ``train``, ``valid`` or ``test`` is the name
of a recording, and names differ. Words that no lexicon has, numbers and signs are named: write them
as words, or give their pronunciations. There is no truth, so stage 6, which scores, is left out.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from lhotse import MonoCut, SupervisionSegment

from mlvae.data.audio import AudioError, audio_info
from mlvae.data.clips import file_recording
from mlvae.data.lexicon import Lexicon
from mlvae.data.manifests import SPLITS, write_json, write_manifest
from mlvae.data.pairs import RecordingWithText, find_pairs
from mlvae.data.text import UNKNOWN_WORDS, UnknownWords, list_unknown_words
from mlvae.made import InTheWayError, check_apart, remove_made
from mlvae.program import start_program
from mlvae.stage import StageReport, in_one_line, stage_folder

SAMPLING_RATE = 16000
REMEDY = "give their pronunciations with --lexicon FILE, or skip such texts: --unknown-words skip"


def main() -> int:
    """Run the stage; returns its exit status."""
    parser = ArgumentParser(prog="prepare.py", description=__doc__)
    parser.add_argument("--corpus-dir", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--data-dir", type=Path, required=True, help="corpus folder to make")
    parser.add_argument("--lexicon", type=Path, help="pronunciations: lines 'word phone phone ...'")
    parser.add_argument(
        "--unknown-words",
        choices=["skip", "stop"],
        default="skip",
        help="texts with words without a pronunciation: skip them, or stop with their list",
    )
    parser.add_argument("--corpus", type=str, help="not used here; run.sh gives it")
    parser.add_argument("--seed", type=int, help="not used here; run.sh gives it")
    args = parser.parse_args()
    return in_one_line("prepare.py", lambda: prepare(args))


def prepare(args: Namespace) -> int:
    """Write, while nobody else writes to the corpus folder, and over nothing of the user's."""
    outputs = [args.data_dir / "manifests" / f"cuts_{split}.jsonl.gz" for split in SPLITS]
    outputs.append(args.data_dir / "corpus.json")
    check_apart(args.corpus_dir, *outputs)
    with stage_folder("0 prepare", args.data_dir, outputs):
        return write_cuts(args)


def write_cuts(args: Namespace) -> int:
    """Write ``manifests/cuts_{train,valid,test}.jsonl.gz``, and ``corpus.json`` last."""
    report = StageReport(stage="0 prepare", folder=args.data_dir)
    try:
        cuts, unknown = read_cuts(args.corpus_dir, Lexicon.load(args.lexicon), report)
        if unknown and args.unknown_words == "stop":
            raise ValueError(
                list_unknown_words(unknown, args.data_dir, "not in the lexicon", REMEDY)
            )
        for split in SPLITS:
            if not cuts[split]:
                raise ValueError(f"no recording to use in {args.corpus_dir / split}")
    except ValueError:
        report.finish()
        raise
    with contextlib.suppress(InTheWayError):  # one that was changed is somebody's lexicon now
        remove_made(args.data_dir / UNKNOWN_WORDS)  # of an earlier run
    for split in SPLITS:
        write_manifest(args.data_dir / "manifests" / f"cuts_{split}.jsonl.gz", cuts[split])
    about = {"title": args.corpus_dir.name, "sampling_rate": SAMPLING_RATE}
    write_json(args.data_dir / "corpus.json", about)
    return report.finish()


def read_cuts(
    corpus_dir: Path, lexicon: Lexicon, report: StageReport
) -> tuple[dict[str, list[MonoCut]], set[str]]:
    """The cuts of each part, and the words that are not in the lexicon."""
    cuts: dict[str, list[MonoCut]] = {split: [] for split in SPLITS}
    names: set[str] = set()
    unknown: set[str] = set()
    for split in SPLITS:
        for pair in find_pairs(corpus_dir / split, report, names):
            try:
                cuts[split].append(read_cut(pair, lexicon))
            except UnknownWords as error:
                unknown |= set(error.words)
                report.skip(pair.id, str(error), place=str(pair.text))
            except (AudioError, OSError, ValueError) as error:
                report.skip(pair.id, str(error), place=str(pair.recording))
            else:
                names.add(pair.id)
                report.done()
    return cuts, unknown


def read_cut(pair: RecordingWithText, lexicon: Lexicon) -> MonoCut:
    """The cut of a recording, its phones as canonical units.

    Raises:
        UnknownWords: the text has words that are not in the lexicon, or signs.
        AudioError, OSError, ValueError: the recording or its text cannot be used.
    """
    num_samples, sampling_rate = audio_info(pair.recording)  # says what is wrong with a file
    try:
        text = pair.text.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{pair.text.name} is not in UTF-8: {error}") from None
    words = lexicon.read(text)
    if not words:
        raise ValueError("its text has no words")
    phones = [pronunciations[0] for _, pronunciations in words]
    custom = {
        "units": [phone for word in phones for phone in word],
        "words": [word for word, _ in words],  # with word_of_unit, for the tier mlvae_word;
        "word_of_unit": [place for place, word in enumerate(phones) for _ in word],  # no must
    }
    path = pair.recording.resolve()
    recording = file_recording(pair.id, path, num_samples, sampling_rate).resample(SAMPLING_RATE)
    supervision = SupervisionSegment(pair.id, pair.id, 0.0, recording.duration, custom=custom)
    return MonoCut(pair.id, 0.0, recording.duration, 0, [supervision], recording=recording)


if __name__ == "__main__":
    start_program()
    sys.exit(main())

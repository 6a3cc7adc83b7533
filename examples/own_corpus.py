#!/usr/bin/env python3
"""Stage 0 for English recordings of one's own: copy it to recipes/NAME/prepare.py.

The folder that --corpus-dir names has ``train``, ``valid`` and ``test``, each with pairs of a mono
``.wav`` and a ``.txt`` in UTF-8, the sentence that was supposed to be read. Names of files differ.
There is no truth, so stage 6, which scores, is left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jsonargparse import ArgumentParser
from lhotse import MonoCut, Recording, SupervisionSegment

from mlvae.data.audio import AudioError, audio_info
from mlvae.data.lexicon import Lexicon
from mlvae.data.manifests import SPLITS, write_json, write_manifest
from mlvae.data.text import words_of_text
from mlvae.stage import StageReport

SAMPLING_RATE = 16000


def main() -> int:
    """Write ``manifests/cuts_{train,valid,test}.jsonl.gz``, and ``corpus.json`` last."""
    parser = ArgumentParser(prog="prepare.py", description=__doc__)
    parser.add_argument("--corpus-dir", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--data-dir", type=Path, required=True, help="corpus folder to make")
    parser.add_argument("--corpus", type=str, help="not used here; run.sh gives it")
    parser.add_argument("--seed", type=int, help="not used here; run.sh gives it")
    args = parser.parse_args()
    report = StageReport(stage="0 prepare", folder=args.data_dir)
    lexicon, names = Lexicon.load(), set()
    for split in SPLITS:
        cuts = []
        for wav in sorted((args.corpus_dir / split).glob("*.wav")):
            try:
                if wav.stem in names:
                    raise ValueError("another recording has the same name")
                cuts.append(read_cut(wav, lexicon))
            except (AudioError, OSError, ValueError) as error:
                report.skip(wav.stem, str(error), place=str(wav))
            else:
                names.add(wav.stem)
                report.done()
        if not cuts:
            print(f"prepare.py: no recording to use in {args.corpus_dir / split}", file=sys.stderr)
            return 1
        write_manifest(args.data_dir / "manifests" / f"cuts_{split}.jsonl.gz", cuts)
    about = {"title": args.corpus_dir.name, "sampling_rate": SAMPLING_RATE}
    write_json(args.data_dir / "corpus.json", about)
    return report.finish()


def read_cut(wav: Path, lexicon: Lexicon) -> MonoCut:
    """The cut of a recording, its phones as canonical units.

    Raises:
        AudioError, OSError, ValueError: the recording or its text cannot be used.
    """
    audio_info(wav)  # says what is wrong with a file
    words = words_of_text(wav.with_suffix(".txt").read_text(encoding="utf-8"))
    if not words:
        raise ValueError("its text has no words")
    unknown = [word for word in words if word not in lexicon]
    if unknown:
        raise ValueError(f"no pronunciation is known of {', '.join(unknown)}")
    phones = [lexicon.find(word)[0] for word in words]
    custom = {
        "units": [phone for word in phones for phone in word],
        "words": words,  # with word_of_unit, for the tier mlvae_word; neither is a must
        "word_of_unit": [place for place, word in enumerate(phones) for _ in word],
    }
    recording = Recording.from_file(wav).resample(SAMPLING_RATE)
    supervision = SupervisionSegment(wav.stem, wav.stem, 0.0, recording.duration, custom=custom)
    return MonoCut(wav.stem, 0.0, recording.duration, 0, [supervision], recording=recording)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Stage 0 for English recordings of one's own: copy it to recipes/NAME/prepare.py.

The folder that --corpus-dir names has ``train``, ``valid`` and ``test``, each with pairs of a
``.wav`` and a ``.txt``, the sentence that was supposed to be read. Names of files differ. There is
no truth, so stage 6, which scores, is left out.
"""

from __future__ import annotations

import json
from pathlib import Path

from jsonargparse import ArgumentParser
from lhotse import MonoCut, Recording, SupervisionSegment

from mlvae.data.lexicon import Lexicon, words_of_text
from mlvae.data.manifests import SPLITS, write_manifest

SAMPLING_RATE = 16000


def main() -> None:
    """Write ``manifests/cuts_{train,valid,test}.jsonl.gz``, and ``corpus.json`` last."""
    parser = ArgumentParser(prog="prepare.py", description=__doc__)
    parser.add_argument("--corpus-dir", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--data-dir", type=Path, required=True, help="corpus folder to make")
    parser.add_argument("--corpus", type=str, help="not used here; run.sh gives it")
    parser.add_argument("--seed", type=int, help="not used here; run.sh gives it")
    args = parser.parse_args()
    lexicon = Lexicon.load()
    for split in SPLITS:
        wavs = sorted((args.corpus_dir / split).glob("*.wav"))
        cuts = [cut for cut in (read_cut(wav, lexicon) for wav in wavs) if cut is not None]
        write_manifest(args.data_dir / "manifests" / f"cuts_{split}.jsonl.gz", cuts)
        print(f"{split}: {len(cuts)} of {len(wavs)} recordings")
    about = {"title": args.corpus_dir.name, "sampling_rate": SAMPLING_RATE}
    (args.data_dir / "corpus.json").write_text(json.dumps(about), encoding="utf-8")


def read_cut(wav: Path, lexicon: Lexicon) -> MonoCut | None:
    """The cut of a recording, its phones as canonical units; None where a word is unknown."""
    words = words_of_text(wav.with_suffix(".txt").read_text(encoding="utf-8"))
    unknown = [word for word in words if word not in lexicon]
    if unknown or not words:
        print(f"left out: {wav} ({', '.join(unknown) or 'no text'})")
        return None
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
    main()

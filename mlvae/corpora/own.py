"""Stage 0 for recordings of one's own: each has the text that should be read, nothing else.

Recordings are found as ``mlvae localize`` finds them, see :mod:`mlvae.data.recordings`. They are
divided here: about a tenth is validation, the rest is training, and the test part is all of them
once more, so that stage 5 answers for every recording. There is no reference.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lhotse import MonoCut, SupervisionSegment

from mlvae.data.audio import AudioError, file_recording, read_cut, wav_bytes
from mlvae.data.checks import check_cut
from mlvae.data.g2p import g2p_fields, g2p_of, write_made
from mlvae.data.lexicon import PHONES, Lexicon, Pronunciation, read_words
from mlvae.data.manifests import SPLITS, corpus_files, write_corpus
from mlvae.data.recordings import Utterance, find_recordings
from mlvae.data.text import (
    UnknownWords,
    forget_unknown_words,
    list_unknown_words,
    normalized,
    spelt_words,
)
from mlvae.errors import one_line
from mlvae.made import Record, atomic_path, check_apart, path_of_id
from mlvae.plausibility import training_data_warnings
from mlvae.stage import StageReport, log, progress, stage_folder

STAGE = "0 prepare"
SAMPLING_RATE = 16000
"""Hz, of the audio that features are made of."""
#: The part of the speakers, or of the recordings, that is validation.
VALID_PART = 0.1
#: Of fewer speakers none is held out; recordings are.
MIN_SPEAKERS = 3


@dataclass(frozen=True)
class Options:
    """What is made of recordings and texts."""

    # ``phone``, of the CMU dictionary; ``lexicon``, of any units, those of the lexicon; or ``bpe``:
    # tokens that stage 2 learns of the texts
    unit: str = "phone"
    # texts with words that cannot be read: ``skip`` them, or ``stop`` with a list of the words in
    # ``unknown_words.txt``
    unknown_words: str = "skip"
    # for phones, pronunciations besides those of the dictionary, see
    # :func:`mlvae.data.lexicon.read_lexicon`; for its own units the only ones, see
    # :func:`mlvae.data.lexicon.read_words`
    lexicon: Path | None = None
    allow_commands: bool = False  # whether shell commands that a manifest names for audio are run
    # language in which words that are in no lexicon are read, see :mod:`mlvae.data.g2p`; None: they
    # are unknown
    g2p: str | None = None
    # with ``lexicon``, which units the sounds of espeak-ng are; None: units are its IPA symbols
    g2p_table: Path | None = None
    sampling_rate: int = SAMPLING_RATE  # Hz, of the audio that features are made of


def prepare_own(corpus: Path, data_dir: Path, options: Options) -> int:
    """Write the manifests and ``corpus.json`` of a folder, table, Kaldi data directory or cuts.

    What cannot be used is skipped by name. Returns the exit status of the stage.

    Raises:
        ValueError: the input or the lexicon cannot be used, words are unknown and the policy is to
            stop, or there are too few recordings to hold one out.
        OSError: something cannot be written.
    """
    data_dir = Path(data_dir).resolve()  # manifests must work from any folder
    outputs = corpus_files(data_dir, with_reference=False)
    check_apart(corpus, *outputs, data_dir / "wav")
    with stage_folder(STAGE, data_dir, outputs) as record:
        report = StageReport(stage=STAGE, folder=data_dir)
        try:
            reader = _Reader(data_dir, record, options)
            cuts = reader.read_all(corpus, report)
            made = reader.lexicon.g2p.made if reader.lexicon and reader.lexicon.g2p else {}
            write_made(made, data_dir, record, f"stage {STAGE}")
            if reader.unknown and options.unknown_words == "stop":
                spelt = options.unit == "bpe"
                raise ValueError(
                    list_unknown_words(reader.unknown, data_dir, spelt, "texts", "recordings")
                )
            by, valid = choose_valid(cuts, reader.sources)
        except ValueError:
            report.finish()
            raise
        forget_unknown_words(data_dir)
        parts = {
            "train": [cut for cut in cuts if cut.id not in valid],
            "valid": [cut for cut in cuts if cut.id in valid],
            "test": cuts,
        }
        counts = {split: _counts(parts[split]) for split in SPLITS}
        about = {
            "corpus": "own",
            "title": corpus.resolve().name,
            "synthetic": False,
            "unit": options.unit,
            "unknown_words": options.unknown_words,
            "split": f"by {by}",
            "test": "all",
            "reference": False,
            "num_utterances": len(cuts),
            "sampling_rate": options.sampling_rate,
            "counts": counts,
        }
        if options.g2p is not None:
            about["g2p"] = g2p_fields(options.g2p, options.g2p_table)
        write_corpus(data_dir, parts, about)
        _say(by, counts)
        return report.finish()


class _Reader:
    """Makes cuts of what was found.

    Attributes:
        sources: by id of each cut what its audio is taken from.
        unknown: words and signs that cannot be read.
    """

    def __init__(self, data_dir: Path, record: Record, options: Options) -> None:
        self.data_dir, self.record, self.options = data_dir, record, options
        self.lexicon = _lexicon(options)
        self.sources: dict[str, str] = {}
        self.unknown: set[str] = set()

    def read_all(self, corpus: Path, report: StageReport) -> list[MonoCut]:
        """The cuts that can be used, in the order of their ids; the others are skipped."""
        found = find_recordings(corpus)
        log(f"stage {STAGE}: {found.count} recordings with texts in a {found.kind}")
        for name, reason, place in found.skipped:
            report.skip(name, reason, place=place)
        cuts = []
        for utterance in progress(found.items(), "prepare", "recording", found.count):
            try:
                cuts.append(self.read(utterance))
            except (ValueError, OSError) as error:
                if isinstance(error, UnknownWords):
                    self.unknown |= set(error.words)
                place = utterance.place
                if utterance.text_file and not isinstance(error, AudioError):
                    place = utterance.text
                reason = one_line(error).removeprefix(f"{utterance.place}: ")
                report.skip(utterance.id, reason.removeprefix(f"{utterance.id}: "), place=place)
            else:
                report.done()
        return sorted(cuts, key=lambda cut: cut.id)

    def read(self, utterance: Utterance) -> MonoCut:
        """The cut of a recording, with canonical units, or words that stage 2 makes them of.

        Raises:
            UnknownWords: the text has words that are not in the lexicon, or signs.
            AudioError, OSError, ValueError: the recording or its text cannot be used.
        """
        cut = utterance.cut(allow_commands=self.options.allow_commands)
        if not isinstance(cut, MonoCut):
            raise ValueError(f"a {type(cut).__name__}, where a MonoCut is expected")
        if len(cut.supervisions) != 1:
            raise ValueError(f"{len(cut.supervisions)} supervisions where one is expected")
        if cut.recording is None:
            raise AudioError("no audio")
        said = cut.supervisions[0]
        if not isinstance(said.text, str) or not said.text.strip():
            raise ValueError("no text")
        custom = self._of_text(said.text)
        source = utterance.audio or cut.recording.sources[0].source
        self.sources[cut.id] = (
            os.path.realpath(source) if isinstance(source, str) else cut.recording_id
        )
        if any(one.type == "memory" for one in cut.recording.sources):
            cut = self._written(cut)
        if cut.sampling_rate != self.options.sampling_rate:
            cut = cut.resample(self.options.sampling_rate)
        spoken = {name: getattr(said, name) for name in ("text", "language", "speaker", "gender")}
        place = (cut.id, cut.recording.id, 0.0, cut.duration, cut.channel)
        supervision = SupervisionSegment(*place, **spoken, custom=custom)
        place = (cut.id, cut.start, cut.duration, cut.channel)
        cut = MonoCut(*place, supervisions=[supervision], recording=cut.recording)
        check_cut(cut, units_come_later=self.lexicon is None)
        return cut

    def _of_text(self, text: str) -> dict[str, Any]:
        if self.lexicon is None:
            words = spelt_words(text)
            if not words:
                raise ValueError("its text has no words")
            return {"words": words}
        return self.lexicon.fields(text)

    def _written(self, cut: MonoCut) -> MonoCut:
        """A cut whose audio ffmpeg or a command has given, with the audio in a file."""
        samples, _ = read_cut(cut)
        path = path_of_id(self.data_dir / "wav", cut.id, ".wav")
        with atomic_path(path, self.record) as temporary:
            temporary.write_bytes(wav_bytes(samples, cut.sampling_rate))
        recording = file_recording(cut.id, path, len(samples), cut.sampling_rate)
        return replace(cut, start=0.0, duration=recording.duration, channel=0, recording=recording)


def _lexicon(options: Options) -> Lexicon | None:
    """What texts are read with; None: they are spelt."""
    if options.unit == "bpe":
        return None
    g2p = None if options.g2p is None else g2p_fields(options.g2p, options.g2p_table)
    if options.unit == "phone":
        return Lexicon.load(options.lexicon, g2p and g2p_of(g2p, True, PHONES))
    if options.lexicon is None and g2p is None:
        raise ValueError("--unit lexicon goes with --lexicon FILE, or --g2p LANGUAGE")
    entries: dict[str, list[Pronunciation]] = defaultdict(list)
    if options.lexicon is not None:
        for word, pronunciations in read_words(options.lexicon).items():
            entries[normalized(word)] += pronunciations
    units = {unit for found in entries.values() for units in found for unit in units}
    return Lexicon(entries, units, g2p and g2p_of(g2p, False, units or None))


def choose_valid(cuts: Sequence[MonoCut], sources: Mapping[str, str]) -> tuple[str, set[str]]:
    """Choose what is validation: about a tenth of the speakers, or else of the recordings.

    Speakers are held out whole where every recording names one, there are at least
    :data:`MIN_SPEAKERS`, and no file has two. Which ones is a matter of their names alone, or of
    the ids of recordings, so that it is the same whenever and wherever it is asked; only one with
    more than half of everything is never taken. Cuts of one source of audio stay together.

    Returns:
        ``speaker`` or ``recording``, and the ids of the validation cuts.

    Raises:
        ValueError: there are not two recordings.
    """
    first: dict[str, str] = {}
    speakers_of: dict[str, set[str | None]] = defaultdict(set)
    for cut in sorted(cuts, key=lambda cut: cut.id):
        first.setdefault(sources[cut.id], cut.id)
        speakers_of[sources[cut.id]].add(cut.supervisions[0].speaker)
    if len(first) < 2:
        raise ValueError(
            f"recordings that can be used: {len(first)}; at least 2 are needed, one to learn from "
            "and one to be held out"
        )
    speakers = set().union(*speakers_of.values())
    one_each = all(len(some) == 1 for some in speakers_of.values())
    if all(speakers) and len(speakers) >= MIN_SPEAKERS and one_each:
        by, groups = "speaker", {cut.id: str(cut.supervisions[0].speaker) for cut in cuts}
    else:
        by, groups = "recording", {cut.id: first[sources[cut.id]] for cut in cuts}
    sizes = Counter(groups.values())
    candidates = [name for name, size in sizes.items() if 2 * size <= len(cuts)]
    candidates.sort(key=lambda name: hashlib.sha256(name.encode("utf-8", "replace")).digest())
    chosen = set(candidates[: max(1, round(VALID_PART * len(sizes)))])
    return by, {cut_id for cut_id, group in groups.items() if group in chosen}


def _counts(cuts: Sequence[MonoCut]) -> dict[str, float]:
    spoken = [cut.supervisions[0] for cut in cuts]
    return {
        "utterances": len(cuts),
        "speakers": len({one.speaker for one in spoken if one.speaker}),
        "seconds": round(sum(cut.duration for cut in cuts), 3),
    }


def _say(by: str, counts: Mapping[str, Mapping[str, float]]) -> None:
    for split, count in counts.items():
        log(
            f"stage {STAGE}: {split}: {count['utterances']} utterances of {count['speakers']} "
            f"speakers, {count['seconds'] / 60:.1f} minutes"
            + (" (every recording)" if split == "test" else f" (by {by})")
        )
    train = counts["train"]
    for warning in training_data_warnings(int(train["utterances"]), train["seconds"]):
        log(f"stage {STAGE}: warning: {warning}")

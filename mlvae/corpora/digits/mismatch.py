"""Mismatch corpora: digit clips joined to utterances, some of their labels deliberately wrong.

The protocol is that of Mismatch-AudioMNIST: an utterance is 3 to 7 clips of one speaker, joined
with no gap, and a label is replaced by another digit with probability 0.201. The wrong label
belongs to the recording: one that is used in several utterances is wrong in all of them, as it
would be in a corpus where somebody had once written down the wrong thing. What the utterance is
said to contain (the canonical units) goes into the manifests; what it does contain (the perceived
units), and all times, only into the reference. The manifests also say which units come from the
same recording, as the maker of a corpus knows without listening; as file names tell the digit,
under ids that tell nothing.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lhotse import MonoCut, Recording, SupervisionSegment
from lhotse.supervision import AlignmentItem

from mlvae.corpora.digits.clips import DIGIT_WORDS, SourceClip
from mlvae.data.audio import AudioError, file_recording, read_cut, write_wav
from mlvae.data.manifests import SPLITS, corpus_files, recording_cut, write_corpus
from mlvae.made import Record, path_of_id, remove_made, replaced_folder
from mlvae.stage import progress

MISMATCH_RATE = 0.201
MIN_UNITS, MAX_UNITS = 3, 7
MIN_UTTERANCES = 5  # with fewer, one of the splits would be empty


@dataclass(frozen=True)
class PlannedUtterance:
    """An utterance before any audio is touched: which clips, and what they are said to be."""

    id: str
    split: str
    speaker: str
    clips: tuple[SourceClip, ...]
    canonical: tuple[str, ...]


@dataclass(frozen=True)
class CorpusOptions:
    """What fixes a mismatch corpus, together with its source clips.

    Raises:
        ValueError: if fewer than 5 utterances are asked for, or the rate is no probability.
    """

    corpus: str
    title: str
    split: str
    num_utterances: int
    sampling_rate: int
    seed: int = 0
    synthetic: bool = False
    mismatch_rate: float = MISMATCH_RATE

    def __post_init__(self) -> None:
        if self.num_utterances < MIN_UTTERANCES:
            raise ValueError(
                f"{self.num_utterances} utterances asked for, at least {MIN_UTTERANCES} are needed"
            )
        if not 0 <= self.mismatch_rate <= 1:
            raise ValueError(f"a mismatch rate of {self.mismatch_rate} is not within 0 and 1")


def canonical_label(clip: SourceClip, seed: int, mismatch_rate: float = MISMATCH_RATE) -> str:
    """What a recording is said to be: its digit, or with ``mismatch_rate`` another one.

    The answer depends on the seed and the recording's id alone, not on the utterance or on which
    other recordings there are.
    """
    rng = random.Random(f"{seed}/label/{clip.recording.id}")
    if rng.random() >= mismatch_rate:
        return clip.digit
    return rng.choice([digit for digit in DIGIT_WORDS if digit != clip.digit])


def source_id(clip: SourceClip, seed: int) -> str:
    """An id of a recording that does not tell its digit: 16 hexadecimal digits."""
    return hashlib.sha256(f"{seed}/source/{clip.recording.id}".encode()).hexdigest()[:16]


def plan_utterances(
    clips: Sequence[SourceClip],
    num_utterances: int,
    seed: int = 0,
    mismatch_rate: float = MISMATCH_RATE,
) -> list[PlannedUtterance]:
    """Choose the clips of every utterance, 60:20:20 over the splits.

    Speakers take turns, and each speaker's clips are dealt like cards: none comes again before all
    have been used, and none twice in one utterance unless the speaker has fewer clips than that.

    Raises:
        ValueError: if a split has no clip, or two clips have the same id.
    """
    ids = {clip.recording.id for clip in clips}
    if len(ids) < len(clips):
        raise ValueError("two clips have the same id")
    num_train, num_valid = round(0.6 * num_utterances), round(0.2 * num_utterances)
    counts = {
        "train": num_train,
        "valid": num_valid,
        "test": num_utterances - num_train - num_valid,
    }
    plan = []
    for split in SPLITS:
        pool = [clip for clip in clips if clip.split == split]
        if not pool:
            raise ValueError(f"split {split} has no usable clip")
        plan.extend(_plan_split(split, pool, counts[split], seed, mismatch_rate))
    return plan


def _plan_split(
    split: str, pool: Iterable[SourceClip], count: int, seed: int, mismatch_rate: float
) -> Iterator[PlannedUtterance]:
    by_speaker: dict[str, list[SourceClip]] = defaultdict(list)
    for clip in sorted(pool, key=lambda clip: clip.recording.id):
        by_speaker[clip.speaker].append(clip)
    rng = random.Random(f"{seed}/plan/{split}")
    speakers = _Deck(sorted(by_speaker), rng)
    decks = {speaker: _Deck(own, rng) for speaker, own in sorted(by_speaker.items())}
    digits = len(str(max(count - 1, 0)))
    for number in range(count):
        (speaker,) = speakers.deal(1)
        chosen = tuple(decks[speaker].deal(rng.randint(MIN_UNITS, MAX_UNITS)))
        yield PlannedUtterance(
            id=f"{speaker}-{split}-{number:0{digits}d}",
            split=split,
            speaker=speaker,
            clips=chosen,
            canonical=tuple(canonical_label(clip, seed, mismatch_rate) for clip in chosen),
        )


class _Deck:
    """Deals items in random order; all of them once before any again."""

    def __init__(self, items: Sequence, rng: random.Random):
        self.items = list(items)
        self.rng = rng
        self.left: list = []

    def deal(self, count: int) -> list:
        hand: list = []
        while len(hand) < count:
            if not self.left:
                # What is already in this hand goes to the bottom of the new deck.
                fresh = [item for item in self.items if item not in hand]
                again = [item for item in self.items if item in hand]
                self.rng.shuffle(fresh)
                self.rng.shuffle(again)
                self.left = again + fresh  # dealt from the end
            hand.append(self.left.pop())
        return hand


def build_mismatch_corpus(
    clips: Sequence[SourceClip], data_dir: Path, options: CorpusOptions
) -> dict[str, dict[str, float]]:
    """Write the corpus: joined 16-bit wavs, manifests, the reference and ``corpus.json``.

    The same clips and options give the same files. A run that is killed leaves either the earlier
    corpus or no manifests at all, never manifests that do not fit the audio; ``corpus.json``
    comes last.

    Returns:
        Counts by split: utterances, units, recordings, seconds. (How many labels are wrong is
        part of the reference, and only there.)

    Raises:
        ValueError: as `plan_utterances`, and if a clip can no longer be read, or something that
            was not made here is in the way.
        OSError: if something cannot be written; names it.
    """
    data_dir = Path(data_dir).resolve()  # manifests must work from any folder
    plan = plan_utterances(clips, options.num_utterances, options.seed, options.mismatch_rate)
    record, wav_dir, files = Record.begin(data_dir), data_dir / "wav", corpus_files(data_dir)
    record.check(files)
    cuts: dict[str, list[MonoCut]] = {split: [] for split in SPLITS}
    reference: list[SupervisionSegment] = []
    with replaced_folder(wav_dir, record) as fresh_dir:
        for utterance in progress(plan, "join clips", "utt"):
            samples, lengths = _join(utterance.clips, options.sampling_rate)
            name = f"{utterance.speaker}/{utterance.id}"
            made = path_of_id(fresh_dir, name, ".wav")
            made.parent.mkdir(parents=True, exist_ok=True)
            write_wav(made, samples, options.sampling_rate)
            path = path_of_id(wav_dir, name, ".wav")
            cuts[utterance.split].append(_cut(utterance, path, sum(lengths), options))
            reference.append(_reference(utterance, lengths, options.sampling_rate))
        for path in reversed(files):
            remove_made(path)
    counts = _counts(plan, cuts)
    about = {
        "corpus": options.corpus,
        "title": options.title,
        "synthetic": options.synthetic,
        "split": options.split,
        "seed": options.seed,
        "num_utterances": options.num_utterances,
        "sampling_rate": options.sampling_rate,
        "mismatch_rate": options.mismatch_rate,
        "counts": counts,
    }
    write_corpus(data_dir, cuts, about, reference)
    return counts


def _join(clips: Sequence[SourceClip], sampling_rate: int) -> tuple[np.ndarray, list[int]]:
    pieces = [_load(clip.recording, sampling_rate) for clip in clips]
    return np.concatenate(pieces), [len(piece) for piece in pieces]


def _load(recording: Recording, sampling_rate: int) -> np.ndarray:
    try:
        return read_cut(recording.resample(sampling_rate).to_cut())[0]
    except Exception as error:  # lhotse's transforms raise many kinds
        raise AudioError(f"{recording.sources[0].source}: no longer readable: {error}") from error


def _cut(
    utterance: PlannedUtterance, path: Path, num_samples: int, options: CorpusOptions
) -> MonoCut:
    recording = file_recording(utterance.id, path, num_samples, options.sampling_rate)
    words = [DIGIT_WORDS[unit] for unit in utterance.canonical]
    custom = {
        "units": list(utterance.canonical),
        "words": words,
        "sources": [source_id(clip, options.seed) for clip in utterance.clips],
    }
    return recording_cut(
        recording, custom, text=" ".join(words), language="English", speaker=utterance.speaker
    )


def _reference(
    utterance: PlannedUtterance, lengths: Sequence[int], sampling_rate: int
) -> SupervisionSegment:
    boundaries = np.cumsum([0, *lengths]).tolist()
    times = [
        (start / sampling_rate, (end - start) / sampling_rate)
        for start, end in zip(boundaries[:-1], boundaries[1:])
    ]
    perceived = [clip.digit for clip in utterance.clips]
    tiers = {"canonical": utterance.canonical, "perceived": perceived}
    return SupervisionSegment(
        id=utterance.id,
        recording_id=utterance.id,
        start=0.0,
        duration=boundaries[-1] / sampling_rate,
        speaker=utterance.speaker,
        custom={
            "split": utterance.split,
            "units_from": [clip.recording.id for clip in utterance.clips],
        },
        alignment={
            tier: [AlignmentItem(symbol, *time) for symbol, time in zip(symbols, times)]
            for tier, symbols in tiers.items()
        },
    )


def _counts(
    plan: Sequence[PlannedUtterance], cuts: dict[str, list[MonoCut]]
) -> dict[str, dict[str, float]]:
    counts = {}
    for split in SPLITS:
        own = [utterance for utterance in plan if utterance.split == split]
        counts[split] = {
            "utterances": len(own),
            "units": sum(len(utterance.clips) for utterance in own),
            "recordings": len({clip.recording.id for utt in own for clip in utt.clips}),
            "seconds": round(sum(cut.duration for cut in cuts[split]), 3),
        }
    return counts

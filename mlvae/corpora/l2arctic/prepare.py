"""Stage 0 of L2-ARCTIC: manifests, the reference, and statistics of the annotation.

Written to the corpus folder, besides what every corpus has (``manifests``, ``reference.jsonl.gz``,
``corpus.json``): ``annotation.json``, numbers of labels by error type before and after folding,
and ``repairs.jsonl``, a line for each thing that was read otherwise than it is written. Recordings
stay where they are; the manifests resample them to 16 kHz when they are read.

Cuts are as docs/formats.md has them; those of protocol annotation have ``units`` alone, as its
silence is of no word.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lhotse import MonoCut, SupervisionSegment

from mlvae.corpora.l2arctic.align import check_phones, check_words
from mlvae.corpora.l2arctic.files import (
    SPEAKERS,
    TEST,
    VALID,
    Utterance,
    UtteranceError,
    UtteranceFiles,
    read_utterance,
)
from mlvae.corpora.l2arctic.reference import (
    UtteranceReference,
    annotation_reference,
    phone_reference,
    word_reference,
)
from mlvae.data.audio import file_recording
from mlvae.data.lexicon import Lexicon, fields_of
from mlvae.data.manifests import (
    SPLITS,
    corpus_files,
    counts_of,
    recording_cut,
    write_corpus,
    write_json,
)
from mlvae.data.text import (
    UnknownWords,
    forget_unknown_words,
    list_unknown_words,
    spelt_words,
    words_of_text,
)
from mlvae.made import Record, remove_made
from mlvae.stage import StageReport, atomic_path, progress

SAMPLING_RATE = 16000
"""Hz, of the audio that features are made of."""


OWN_FILES = ("repairs.jsonl", "annotation.json")


@dataclass(frozen=True)
class CorpusOptions:
    """What fixes the corpus folder, together with the tree it is made from.

    Raises:
        ValueError: if a choice is none of these, or BPE tokens of the annotation are wanted.
    """

    title: str = "L2-ARCTIC"  # heading of tables
    synthetic: bool = False  # whether the speech was simulated
    protocol: str = "text"  # ``text`` or ``annotation``
    unit: str = "phone"  # ``phone`` or ``bpe`` (BPE tokens, protocol text only)
    unknown_words: str = "stop"  # ``stop`` or ``skip``
    # ``official``, or ``speaker:<NAME>``: that one is test, those of `VALID` are valid
    split: str = "official"
    # of the annotated ones, drawn evenly from the speakers; None: all
    num_utterances: int | None = None
    seed: int = 0  # of the drawing

    def __post_init__(self) -> None:
        for value, choices in (
            (self.protocol, ("text", "annotation")),
            (self.unit, ("phone", "bpe")),
            (self.unknown_words, ("stop", "skip")),
        ):
            if value not in choices:
                raise ValueError(f"{value!r} is none of {', '.join(choices)}")
        if self.unit == "bpe" and self.protocol == "annotation":
            raise ValueError("BPE tokens are of the text: unit bpe goes with protocol text alone")
        kind, _, speaker = self.split.partition(":")
        if self.split != "official" and (kind != "speaker" or speaker not in SPEAKERS):
            raise ValueError(
                f"no split {self.split!r}; there are official and speaker:<NAME> of "
                f"{' '.join(sorted(SPEAKERS))}"
            )
        if self.num_utterances is not None and self.num_utterances < 1:
            raise ValueError(f"{self.num_utterances} utterances asked for, at least 1 is needed")

    def split_of(self, speaker: str) -> str:
        """The split of a speaker of `SPEAKERS`."""
        test = TEST if self.split == "official" else (self.split.partition(":")[2],)
        return "test" if speaker in test else "valid" if speaker in VALID else "train"


_COUNTED = ("labels", "folded", "units", "repairs")


@dataclass
class _Corpus:
    """What has been made so far."""

    cuts: dict[str, list[MonoCut]] = field(default_factory=lambda: {s: [] for s in SPLITS})
    reference: list[SupervisionSegment] = field(default_factory=list)
    counts: dict[str, Counter] = field(default_factory=lambda: {n: Counter() for n in _COUNTED})
    repairs: list[dict] = field(default_factory=list)
    unknown: Counter = field(default_factory=Counter)


def choose(utterances: Sequence[UtteranceFiles], count: int, seed: int) -> list[UtteranceFiles]:
    """Some utterances, drawn at random, as evenly from the speakers as can be; in their order."""
    ranked = []
    for speaker in sorted({files.speaker for files in utterances}):
        mine = [files for files in utterances if files.speaker == speaker]
        random.Random(f"{seed}/choose/{speaker}").shuffle(mine)
        ranked += [(index, files.id) for index, files in enumerate(mine)]
    chosen = {name for _, name in sorted(ranked)[:count]}
    return [files for files in utterances if files.id in chosen]


def written_files(data_dir: Path) -> list[Path]:
    """What `build_corpus` writes when all goes well; what others need comes last."""
    return [data_dir / name for name in OWN_FILES] + corpus_files(data_dir)


def build_corpus(
    utterances: Sequence[UtteranceFiles],
    data_dir: Path,
    options: CorpusOptions,
    lexicon: Lexicon | None,
    report: StageReport,
) -> dict[str, dict[str, float]]:
    """Read utterances of `list_corpus` and write the corpus folder.

    Of each the report says that it is done, or skipped with the file (and time) and the reason. A
    lexicon is needed for phones of the text.

    Returns:
        Counts by split: utterances, units, recordings, speakers, seconds.

    Raises:
        ValueError: if words are not in the lexicon and the policy is to stop (they are then listed
            in ``unknown_words.txt``), nothing is left, or something that was not made here is in
            the way.
        OSError: if something cannot be written; names it.
    """
    data_dir = Path(data_dir).resolve()  # manifests must work from any folder
    Record.begin(data_dir).check(written_files(data_dir))
    chosen = [files for files in utterances if _known_speaker(files, report)]
    if options.num_utterances is not None:
        chosen = choose(chosen, options.num_utterances, options.seed)
    made = _Corpus()
    for files in progress(chosen, "read L2-ARCTIC", "utt"):
        try:
            _add(made, read_utterance(files, options.protocol == "text"), options, lexicon)
        except UtteranceError as error:
            report.skip(files.id, str(error), place=str(error.place))
        else:
            report.done()
    if made.unknown and options.unknown_words == "stop":
        of = options.unit == "bpe", "transcripts", "utterances"
        raise ValueError(list_unknown_words(made.unknown, data_dir, *of))
    if not made.reference:
        raise ValueError("no utterance can be used")
    counts = _counts(made)
    _write(data_dir, made, options, counts)
    return counts


def _known_speaker(files: UtteranceFiles, report: StageReport) -> bool:
    if files.speaker in SPEAKERS:
        return True
    report.skip(files.id, f"no speaker of the corpus: {files.speaker}", str(files.annotation))
    return False


def _add(
    made: _Corpus, utterance: Utterance, options: CorpusOptions, lexicon: Lexicon | None
) -> None:
    files = utterance.files
    try:
        if options.protocol == "annotation":
            check_words(utterance, words_of_text(utterance.text))
            reference = annotation_reference(utterance)
            custom = {"units": [unit.canonical for unit in reference.units]}
        elif options.unit == "bpe":
            words = spelt_words(utterance.text)
            check_words(utterance, words)
            reference = word_reference(utterance, words)
            custom = {"words": words}
        else:
            read = lexicon.read(utterance.text)
            check_phones(utterance, [pronunciations for _, pronunciations in read])
            reference = phone_reference(utterance, read)
            custom = fields_of(read)
    except UnknownWords as error:
        made.unknown.update(error.words)
        raise UtteranceError(str(error), files.transcript) from None
    except ValueError as error:
        raise UtteranceError(str(error), files.annotation) from None
    split = options.split_of(files.speaker)
    made.cuts[split].append(_cut(utterance, custom))
    made.reference.append(reference.supervision(utterance, split))
    made.repairs += [
        {"id": files.id, "source": str(files.annotation), **asdict(repair)}
        for repair in utterance.repairs
    ]
    _count(made.counts, utterance, reference)


def _cut(utterance: Utterance, custom: dict) -> MonoCut:
    files = utterance.files
    size = utterance.num_samples, utterance.sampling_rate
    recording = file_recording(files.id, files.wav.resolve(), *size, SAMPLING_RATE)
    spoken = utterance.text or " ".join(word.label for word in utterance.tier_words)
    known = SPEAKERS[files.speaker]
    return recording_cut(
        recording,
        {**custom, "accent": known["accent"]},
        text=spoken,
        language="English",
        speaker=files.speaker,
        gender=known["gender"],
    )


_NAMES = {"": "correct", "s": "substitutions", "d": "deletions", "a": "insertions"}


def _count(counts: dict[str, Counter], utterance: Utterance, reference: UtteranceReference) -> None:
    for segment in utterance.segments:
        silent = segment.canonical == segment.perceived == "sil"
        kind = "silence" if silent else _NAMES[segment.tag]
        counts["labels"][kind] += 1
        if segment.canonical == segment.perceived:
            kind = "silence" if silent else "correct"
        counts["folded"][kind] += 1
    counts["units"].update(_NAMES[unit.error] for unit in reference.units)
    counts["units"]["not annotated"] += sum(not unit.annotated for unit in reference.units)
    for name in ("insertions", "unplaced"):
        counts["units"][f"{name} apart"] += len(getattr(reference, name))
    counts["units"]["words excused"] += len(reference.excused)
    counts["repairs"].update(repair.kind for repair in utterance.repairs)


def _counts(made: _Corpus) -> dict[str, dict[str, float]]:
    units = Counter()
    for item in made.reference:
        units[item.custom["split"]] += len(item.alignment["canonical"])
    return {split: counts_of(cuts, units[split]) for split, cuts in made.cuts.items()}


def _write(
    data_dir: Path, made: _Corpus, options: CorpusOptions, counts: dict[str, dict[str, float]]
) -> None:
    """``corpus.json`` comes last: a run that is killed leaves no corpus that looks whole."""
    for path in reversed(written_files(data_dir)):
        remove_made(path)
    forget_unknown_words(data_dir)
    repairs_path, annotation_path = (data_dir / name for name in OWN_FILES)
    with atomic_path(repairs_path) as temporary:
        lines = [json.dumps(repair, ensure_ascii=False) + "\n" for repair in made.repairs]
        temporary.write_text("".join(lines), encoding="utf-8")
    annotation = {name: dict(sorted(counter.items())) for name, counter in made.counts.items()}
    write_json(annotation_path, annotation)
    about = {
        "corpus": "l2arctic",
        **asdict(options),
        "num_utterances": len(made.reference),
        "sampling_rate": SAMPLING_RATE,
        "counts": counts,
    }
    write_corpus(data_dir, made.cuts, about, made.reference)

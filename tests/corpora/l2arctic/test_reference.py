from __future__ import annotations

import random
from pathlib import Path

import pytest

from mlvae.corpora.l2arctic.files import Segment, Utterance, UtteranceFiles
from mlvae.corpora.l2arctic.labels import read_label
from mlvae.corpora.l2arctic.reference import annotation_reference, phone_reference, word_reference
from mlvae.data.lexicon import Lexicon
from mlvae.data.textgrid import Interval
from mlvae.score.reference import reference_of
from tests.corpora.l2arctic.tree import DOG_WORDS, dog, tiers

LEXICON = Lexicon(
    {
        "she": [["SH", "IY"]],
        "had": [["HH", "AE", "D"]],
        "a": [["AH"], ["EY"]],
        "dog": [["D", "AO", "G"]],
        "every": [["EH", "V", "ER", "IY"], ["EH", "V", "R", "IY"]],
        "to": [["T", "UW"], ["T", "AH"]],
    }
)


def utterance(words, spoken=True) -> Utterance:
    content = tiers(words)
    named = [Interval(*interval) for interval in content["words"] if interval[2]]
    segments = []
    for start, end, label in content["phones"]:
        read = read_label(label)
        middle = (start + end) / 2
        word = [i for i, w in enumerate(named) if w.start <= middle < w.end]
        segments.append(
            Segment(read.canonical, read.perceived, read.tag, start, end, (word or [None])[0])
        )
    files = UtteranceFiles("aba-arctic_a0001", "ABA", Path("x"), None, None)
    return Utterance(files, 1000, 1000, "", tuple(segments), tuple(named if spoken else ()), ())


def mapped(words, spoken=True):
    names = [word for word, _ in words]
    return phone_reference(utterance(words, spoken), [(w, LEXICON.find(w)) for w in names])


def seen(reference):
    return [
        (u.canonical, u.perceived, u.error, round(u.start, 2), round(u.end, 2))
        for u in reference.units
    ]


def test_units_are_of_the_text_with_the_annotators_times():
    reference = mapped(dog(SH="SH,S,s", G="G,sil,d"))
    assert seen(reference) == [
        ("sh", "s", "s", 0.1, 0.2),
        ("iy", "iy", "", 0.2, 0.3),
        ("hh", "hh", "", 0.3, 0.4),
        ("ae", "ae", "", 0.4, 0.5),
        ("d", "d", "", 0.5, 0.6),
        ("ah", "ah", "", 0.6, 0.7),
        ("d", "d", "", 0.7, 0.8),
        ("aa", "aa", "", 0.8, 0.9),
        ("g", "-", "d", 0.9, 1.0),
    ]
    assert [unit.word for unit in reference.units] == [0, 0, 1, 1, 1, 2, 3, 3, 3]
    assert [word["wrong"] for word in reference.words] == [True, False, False, True]
    assert [(w["word"], w["start"], w["duration"]) for w in reference.words][1] == ("had", 0.3, 0.3)


def test_insertions_are_no_units():
    reference = mapped((*DOG_WORDS[:3], ("dog", ("D", "AO1", "G", "sil,K,a"))))
    assert len(reference.units) == 9
    assert not any(unit.error for unit in reference.units)
    assert reference.insertions == [{"symbol": "k", "start": 1.0, "duration": 0.1, "word": 3}]
    assert [word["insertions"] for word in reference.words] == [0, 0, 0, 1]
    assert not reference.words[3]["wrong"]


def test_what_differs_in_unfolded_spelling_only_is_correct():
    reference = mapped(dog(AH="AH0,AX,s", AO="AO1,AA,s"))
    assert not any(unit.error for unit in reference.units)


def test_another_pronunciation_that_the_annotators_had_in_mind_is_correct():
    """They expected EY and perceived it; the usual pronunciation in the lexicon is AH."""
    reference = mapped(dog(AH="EY1"))
    assert seen(reference)[5] == ("ah", "ah", "", 0.6, 0.7)
    wrong = mapped(dog(AH="EY1,IY,s"))
    assert seen(wrong)[5] == ("ah", "iy", "s", 0.6, 0.7)


def test_a_word_said_as_another_of_its_pronunciations_is_excused_not_forgotten():
    reference = mapped(dog(AH="AH0,EY,s"))
    assert seen(reference)[5] == ("ah", "ah", "", 0.6, 0.7)
    assert reference.excused == [2]
    assert (reference.words[2]["wrong"], reference.words[2]["marked"]) == (False, True)


def test_a_longer_pronunciation_leaves_a_unit_without_an_interval():
    reference = mapped((("every", ("EH1", "V", "R", "IY0")), *DOG_WORDS))
    units = seen(reference)[:4]
    assert [unit[0] for unit in units] == ["eh", "v", "er", "iy"]
    assert not any(unit[2] for unit in units)
    assert sum(unit.annotated for unit in reference.units) == len(reference.units)
    longer = mapped((("to", ("T", "UW1")), ("every", ("EH1", "V", "IY0"))))
    (missing,) = [unit for unit in longer.units if not unit.annotated]
    assert (missing.canonical, missing.error, missing.start) == ("er", "", missing.end)


def test_an_error_on_a_phone_that_the_text_lacks_is_kept_apart():
    reference = mapped((("dog", ("D", "AO1", "R,L,s", "G")), ("a", ("AH0",))))
    assert not any(unit.error for unit in reference.units)
    assert [(item["canonical"], item["symbol"], item["word"]) for item in reference.unplaced] == [
        ("r", "l", 0)
    ]


def test_a_word_that_the_speaker_replaced_does_not_shift_the_others():
    spoken = (*DOG_WORDS[:3], ("caterpillar", ["K", "AE1", "T", "ER0", "P", "IH2", "L", "ER0"]))
    names = ["she", "had", "a", "dog"]
    reference = phone_reference(utterance(spoken), [(w, LEXICON.find(w)) for w in names])
    assert [unit[3] for unit in seen(reference)[:6]] == pytest.approx(
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    )
    assert all(unit.start >= 0.7 for unit in reference.units[6:])


@pytest.mark.parametrize("spoken", [True, False])
def test_any_errors_on_any_pronunciations_are_found_where_they_are(spoken):
    """Random sentences, pronunciations and errors; the tier of words is not needed."""
    rng = random.Random(0)
    for _ in range(200):
        words, expected = [], []
        for name in rng.choices(["she", "had", "a", "dog", "to", "every"], k=rng.randint(1, 8)):
            usual = LEXICON.find(name)[0]
            labels = []
            for phone in usual:
                kind = rng.choice(["c"] * 6 + ["s", "d", "a"])
                if kind == "a":
                    labels.append("sil,Z,a")
                labels.append({"s": f"{phone},th,s", "d": f"{phone},sil,d"}.get(kind, phone))
                expected.append((phone, {"s": "th", "d": "-"}.get(kind, phone)))
            words.append((name, labels))
        reference = mapped(words, spoken)
        assert [(unit.canonical, unit.perceived) for unit in reference.units] == expected
        assert len(reference.insertions) == sum(
            label == "sil,Z,a" for _, ls in words for label in ls
        )
        starts = [unit.start for unit in reference.units]
        assert starts == sorted(starts)


def test_the_annotators_own_units_hold_silence_and_insertions():
    words = (*DOG_WORDS[:3], ("dog", ("D", "sil,K,a", "AO1,sil,d", "G")))
    reference = annotation_reference(utterance(words))
    assert [unit.canonical for unit in reference.units] == (
        ["sil", "sh", "iy", "hh", "ae", "d", "ah", "d", "sil", "aa", "g", "sil"]
    )
    assert [(u.canonical, u.perceived, u.error) for u in reference.units if u.error] == [
        ("sil", "k", "a"),
        ("aa", "-", "d"),
    ]
    assert reference.units[0].word is None
    assert reference.units[-1].word is None
    assert reference.insertions == []
    assert [word["wrong"] for word in reference.words] == [False, False, False, True]


def test_silence_in_pieces_is_one_unit():
    content = utterance(DOG_WORDS)
    first = content.segments[0]
    halves = (
        Segment("sil", "sil", "", 0.0, 0.05),
        Segment("sil", "sil", "", 0.05, first.end),
    )
    cut = Utterance(
        content.files, 1000, 1000, "", (*halves, *content.segments[1:]), content.tier_words, ()
    )
    assert annotation_reference(cut).units == annotation_reference(content).units


def test_words_are_wrong_if_any_of_their_phones_is():
    words = dog(SH="SH,S,s", AH="AH0,AX,s", G="G,sil,d")
    reference = word_reference(utterance(words), ["she", "had", "a", "dog"])
    assert seen(reference) == [
        ("she", "*", "s", 0.1, 0.3),
        ("had", "had", "", 0.3, 0.6),
        ("a", "a", "", 0.6, 0.7),
        ("dog", "*", "s", 0.7, 1.0),
    ]
    by_phones = mapped(words)
    assert [(w["start"], w["marked"]) for w in reference.words] == (
        [(w["start"], w["marked"]) for w in by_phones.words]
    )


def test_a_word_without_phones_is_named():
    with pytest.raises(ValueError, match="no phones for the word 'old'"):
        word_reference(utterance(DOG_WORDS), ["she", "had", "a", "old", "dog"])


def test_scoring_reads_what_is_written():
    words = dog(SH="SH,S,s", G="G,sil,d")
    content = utterance(words)
    reference = reference_of([mapped(words).supervision(content, "test")])
    assert reference.canonical == ["sh", "iy", "hh", "ae", "d", "ah", "d", "aa", "g"]
    assert reference.perceived == ["s", "iy", "hh", "ae", "d", "ah", "d", "aa", "-"]
    assert reference.positive.nonzero()[0].tolist() == [0, 8]
    assert reference.starts[8] == pytest.approx(0.9)
    assert reference.ends[8] == pytest.approx(1.0)

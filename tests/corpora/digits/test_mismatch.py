from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lhotse import SupervisionSet

from mlvae.corpora.digits.clips import DIGIT_WORDS, SourceClip
from mlvae.corpora.digits.mismatch import (
    MISMATCH_RATE,
    build_mismatch_corpus,
    canonical_label,
    plan_utterances,
    source_id,
)
from mlvae.data.audio import file_recording, read_audio, write_wav
from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import SPLITS
from mlvae.made import RECORD
from tests.data.conftest import load_script, options, sine


def pretend_clips(num_speakers: int, num_recordings: int, num_digits: int = 10):
    """Clips without audio; a third of the recordings for each split."""
    return [
        SourceClip(
            recording=file_recording(f"{digit}_s{speaker}_{index}", "none.wav", 4000, 8000),
            speaker=f"s{speaker}",
            digit=str(digit),
            split=SPLITS[index % 3],
        )
        for speaker in range(num_speakers)
        for digit in range(num_digits)
        for index in range(num_recordings)
    ]


@settings(deadline=None, max_examples=40)
@given(
    num_speakers=st.integers(1, 4),
    num_recordings=st.integers(3, 9),
    num_digits=st.integers(1, 10),
    num_utterances=st.integers(5, 120),
    seed=st.integers(0, 1000),
)
def test_plan(num_speakers, num_recordings, num_digits, num_utterances, seed):
    clips = pretend_clips(num_speakers, num_recordings, num_digits)
    plan = plan_utterances(clips, num_utterances, seed)

    assert len(plan) == num_utterances == len({utterance.id for utterance in plan})
    per_split = Counter(utterance.split for utterance in plan)
    assert per_split["train"] == round(0.6 * num_utterances)
    assert per_split["valid"] == round(0.2 * num_utterances)

    labels, splits, used = defaultdict(set), defaultdict(set), Counter()
    for utterance in plan:
        assert 3 <= len(utterance.clips) <= 7
        assert {clip.speaker for clip in utterance.clips} == {utterance.speaker}
        for clip, label in zip(utterance.clips, utterance.canonical):
            labels[clip.recording.id].add(label)
            splits[clip.recording.id].add(utterance.split)
            used[clip.recording.id] += 1
    assert all(len(found) == 1 for found in labels.values())  # the label belongs to the recording
    assert all(len(found) == 1 for found in splits.values())  # the splits share no recording

    for split in SPLITS:
        turns = Counter(utterance.speaker for utterance in plan if utterance.split == split)
        assert max(turns.values()) - min(turns[f"s{n}"] for n in range(num_speakers)) <= 1
        for speaker in turns:
            own = [c.recording.id for c in clips if (c.speaker, c.split) == (speaker, split)]
            counts = [used[name] for name in own]
            assert max(counts) - min(counts) <= 1  # dealt evenly
            for utterance in plan:
                if (utterance.speaker, utterance.split) == (speaker, split) and len(own) >= 7:
                    ids = [clip.recording.id for clip in utterance.clips]
                    assert len(set(ids)) == len(ids)

    assert plan_utterances(clips, num_utterances, seed) == plan
    assert plan_utterances(clips[::-1], num_utterances, seed) == plan


def test_units_of_one_recording_have_one_source_id_that_tells_nothing():
    clips = pretend_clips(num_speakers=6, num_recordings=30)
    ids = [source_id(clip, 0) for clip in clips]
    assert len(set(ids)) == len(clips)
    assert all(len(name) == 16 and int(name, 16) >= 0 for name in ids)
    assert set(ids).isdisjoint(source_id(clip, 1) for clip in clips)
    # Whether an id is even or large has nothing to do with the digit.
    digits = np.array([int(clip.digit) for clip in clips], dtype=float)
    numbers = np.array([int(name, 16) / 16**16 for name in ids])
    assert abs(np.corrcoef(digits, numbers)[0, 1]) < 0.1


def test_about_a_fifth_of_the_recordings_is_labelled_wrong_and_with_every_other_digit():
    clips = pretend_clips(num_speakers=20, num_recordings=60)
    wrong = [
        (clip.digit, label) for clip in clips if (label := canonical_label(clip, 0)) != clip.digit
    ]
    spread = np.sqrt(MISMATCH_RATE * (1 - MISMATCH_RATE) / len(clips))
    assert abs(len(wrong) / len(clips) - MISMATCH_RATE) < 3 * spread
    assert len(set(wrong)) == 90
    assert max(Counter(wrong).values()) < 3 * min(Counter(wrong).values())
    assert wrong != [(c.digit, label) for c in clips if (label := canonical_label(c, 1)) != c.digit]


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_other_rates(rate):
    clips = pretend_clips(2, 3)
    assert {canonical_label(clip, 0, rate) != clip.digit for clip in clips} == {bool(rate)}


def test_impossible_requests_are_refused():
    clips = pretend_clips(2, 3)
    with pytest.raises(ValueError, match="at least 5"):
        options(4)
    with pytest.raises(ValueError, match="probability|within 0 and 1"):
        options(mismatch_rate=1.5)
    with pytest.raises(ValueError, match="split valid has no usable clip"):
        plan_utterances([clip for clip in clips if clip.split != "valid"], 100)
    with pytest.raises(ValueError, match="same id"):
        plan_utterances(clips + clips[:1], 100)


def test_the_corpus_is_what_the_reference_says(corpus, digits):
    reference = {item.id: item for item in SupervisionSet.from_file(corpus / "reference.jsonl.gz")}
    counts = json.loads((corpus / "corpus.json").read_text())["counts"]
    seen, pairs = set(), set()
    for split in SPLITS:
        cuts = load_cuts(corpus / "manifests" / f"cuts_{split}.jsonl.gz")
        assert len(cuts) == counts[split]["utterances"]
        assert sum(cut.duration for cut in cuts) == pytest.approx(
            counts[split]["seconds"], abs=1e-3
        )
        for cut in cuts:
            (supervision,) = cut.supervisions
            said = reference[cut.id]
            assert cut.id == supervision.id == cut.recording_id == said.recording_id
            assert said.custom["split"] == split
            assert cut.recording.sources[0].source == str(
                corpus / "wav" / supervision.speaker / f"{cut.id}.wav"
            )

            canonical, perceived = said.alignment["canonical"], said.alignment["perceived"]
            units = supervision.custom["units"]
            assert units == [item.symbol for item in canonical]
            assert supervision.custom["words"] == [DIGIT_WORDS[unit] for unit in units]
            assert supervision.text == " ".join(supervision.custom["words"])
            sources = supervision.custom["sources"]
            assert len(sources) == len(units)
            pairs.update(zip(sources, said.custom["units_from"]))

            samples, sampling_rate = read_audio(cut.recording.sources[0].source)
            assert len(samples) == cut.num_samples == cut.recording.num_samples
            edge = 0
            for other, told, source in zip(perceived, canonical, said.custom["units_from"]):
                assert (other.start, other.duration) == (told.start, told.duration)
                assert other.start == edge / sampling_rate  # tiles, to the sample
                clip, _ = read_audio(digits / f"{source}.wav")
                assert other.duration == len(clip) / sampling_rate
                assert other.symbol == source[0]
                np.testing.assert_array_equal(samples[edge : edge + len(clip)], clip)
                edge += len(clip)
            assert edge == len(samples)
            seen.add(cut.id)
    assert seen == set(reference)
    assert len({source for source, _ in pairs}) == len({clip for _, clip in pairs}) == len(pairs)


def test_building_again_gives_the_same_bytes_and_leaves_nothing_of_the_earlier(digit_clips, corpus):
    def content():
        files = [path for path in sorted(corpus.rglob("*")) if path.is_file()]
        files.remove(corpus / RECORD)  # which remembers all that was made
        return {path.relative_to(corpus): path.read_bytes() for path in files}

    first = content()
    build_mismatch_corpus(digit_clips, corpus, options(20, seed=5))
    assert len(list(corpus.glob("wav/*/*.wav"))) == 20
    assert content() != first
    build_mismatch_corpus(digit_clips, corpus, options())
    assert content() == first


def test_a_build_that_is_killed_leaves_the_earlier_corpus(digit_clips, corpus, monkeypatch):
    before = (corpus / "manifests" / "cuts_test.jsonl.gz").read_bytes()
    written = []

    def dies(path, *args):
        written.append(path)
        if len(written) > 10:
            raise KeyboardInterrupt
        write_wav(path, *args)

    monkeypatch.setattr("mlvae.corpora.digits.mismatch.write_wav", dies)
    with pytest.raises(KeyboardInterrupt):
        build_mismatch_corpus(digit_clips, corpus, options(40, seed=3))
    assert (corpus / "manifests" / "cuts_test.jsonl.gz").read_bytes() == before
    for cut in load_cuts(corpus / "manifests" / "cuts_test.jsonl.gz"):
        assert cut.load_audio().shape == (1, cut.num_samples)
    monkeypatch.undo()
    build_mismatch_corpus(digit_clips, corpus, options())
    assert (corpus / "manifests" / "cuts_test.jsonl.gz").read_bytes() == before
    assert {path.name for path in corpus.rglob(".*")} == {RECORD}


def test_clips_of_other_rates_are_resampled(tmp_path):
    clips = []
    for clip, rate in zip(pretend_clips(1, 3), [48000, 22050, 16000] * 10):
        path = tmp_path / f"{clip.recording.id}.wav"
        write_wav(path, sine(0.25, rate, 440.0), rate)
        recording = file_recording(clip.recording.id, path, round(0.25 * rate), rate)
        clips.append(SourceClip(recording, clip.speaker, clip.digit, clip.split))
    build_mismatch_corpus(clips, tmp_path / "out", options(10, sampling_rate=16000))
    reference = list(SupervisionSet.from_file(tmp_path / "out" / "reference.jsonl.gz"))
    for split in SPLITS:
        for cut in load_cuts(tmp_path / "out" / "manifests" / f"cuts_{split}.jsonl.gz"):
            samples, rate = read_audio(cut.recording.sources[0].source)
            assert rate == 16000
            assert len(samples) == cut.num_samples
            spectrum = np.abs(np.fft.rfft(samples))
            loudest = np.fft.rfftfreq(len(samples), 1 / rate)[spectrum.argmax()]
            assert loudest == pytest.approx(440, abs=5)
    for said in reference:
        items = said.alignment["perceived"]
        for item, after in zip(items, items[1:]):
            assert item.duration == pytest.approx(0.25, abs=1.01 / 16000)
            assert after.start == pytest.approx(item.start + item.duration, abs=1e-9)


def all_keys(content) -> set[str]:
    if isinstance(content, dict):
        return set(content).union(*map(all_keys, content.values()))
    if isinstance(content, list):
        return set().union(*map(all_keys, content))
    return set()


def test_training_gets_nothing_of_the_reference(corpus, digits):
    lines = []
    for split in SPLITS:
        path = corpus / "manifests" / f"cuts_{split}.jsonl.gz"
        lines += gzip.decompress(path.read_bytes()).decode().splitlines()
    cut_keys = {"id", "start", "duration", "channel", "supervisions", "recording", "type"}
    custom_keys = {"units", "words", "sources"}
    supervision_keys = {"recording_id", "text", "language", "speaker", "custom"} | custom_keys
    recording_keys = {
        "sources",
        "source",
        "channels",
        "channel_ids",
        "sampling_rate",
        "num_samples",
    }
    allowed = cut_keys | supervision_keys | recording_keys
    sources = {path.stem for path in digits.glob("*.wav")}
    for line in lines:
        cut = json.loads(line)
        assert all_keys(cut) <= allowed
        assert set(cut["supervisions"][0]["custom"]) == custom_keys
        assert not any(source in line for source in sources)  # a source's name tells its digit
    counts = json.loads((corpus / "corpus.json").read_text())["counts"]
    assert all(
        set(count) == {"utterances", "units", "recordings", "seconds"} for count in counts.values()
    )

    # Stages 1 and 2 do without the reference, and do the same.
    results = []
    for name in ("with", "without"):
        if name == "without":
            (corpus / "reference.jsonl.gz").unlink()
        assert load_script("local/fbank.py")(["--data-dir", str(corpus)]) == 0
        assert load_script("local/units.py")(["--data-dir", str(corpus)]) == 0
        made = [*(corpus / "fbank").iterdir(), *(corpus / "units").iterdir()]
        results.append({path.name: path.read_bytes() for path in made})
        shutil.rmtree(corpus / "fbank")
    assert results[0] == results[1]

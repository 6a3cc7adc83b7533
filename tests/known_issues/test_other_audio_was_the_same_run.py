"""Every wav was replaced by another of the same length: training "went on" from the checkpoint of
the former ones and did nothing.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import soundfile
from lhotse import CutSet
from safetensors.torch import load_file

from mlvae.data.audio import write_wav
from mlvae.data.checks import with_audio_digest
from mlvae.data.dataset import load_cuts
from mlvae.systems.w2v_ctc import FineTuner
from mlvae.train import Trainer
from mlvae.train.loop import run_identity
from tests.data.small import noise, small_cuts, stage_1, write_corpus
from tests.systems.sounds import RATE, tone_cuts, write_checkpoint
from tests.systems.test_w2v_ctc import CONFIG as W2V
from tests.systems.test_w2v_ctc import train
from tests.train.tiny import spoken_cuts
from tests.train.trainers import CONFIG, kill_at, make_trainer

ONE = replace(CONFIG, iterations=1)


def identity(corpus) -> str:
    cuts = [load_cuts(corpus / "fbank" / f"cuts_{split}.jsonl.gz") for split in ("train", "valid")]
    return run_identity({}, 0, None, cuts)


def test_stage_1_again_makes_another_run_of_other_audio_alone(tmp_path, capsys):
    corpus = write_corpus(tmp_path / "corpus", small_cuts(tmp_path / "wav"))
    stage_1(corpus)
    first = identity(corpus)
    stage_1(corpus)
    assert identity(corpus) == first
    assert capsys.readouterr().out == ""
    write_wav(tmp_path / "wav" / "train1.wav", noise("another"), 8000)
    stage_1(corpus)
    assert identity(corpus) != first
    said = capsys.readouterr().out
    assert "not the audio of the last run: train1: " in said


def cuts_with(audio: str):
    sets = spoken_cuts(12)[0], spoken_cuts(4, seed=1)[0]
    return [CutSet.from_cuts(with_audio_digest(c, f"{audio} {c.id}") for c in own) for own in sets]


def test_training_starts_afresh_on_other_audio(tmp_path, monkeypatch, capsys):
    make_trainer(cuts_with("one"), tmp_path, ONE).fit()
    make_trainer(cuts_with("other"), tmp_path, ONE).fit()
    assert "is of another seed, configuration or corpus" in capsys.readouterr().out
    kill_at(monkeypatch, Trainer, "_iterate", 1)
    make_trainer(cuts_with("other"), tmp_path, ONE).fit()


@pytest.fixture
def tones(tmp_path):
    write_checkpoint(tmp_path / "tiny.pth")
    return tone_cuts(tmp_path / "wav", 2), tone_cuts(tmp_path / "wav", 1, seed=1)


def replace_audio(tones):
    for cut in tones[0]:
        path = cut.recording.sources[0].source
        samples, _ = soundfile.read(path)
        write_wav(path, samples[::-1], RATE)


def test_wav2vec_starts_afresh_on_other_audio(tmp_path, tones, monkeypatch, capsys):
    config = replace(W2V, epochs=1)
    train(config, tones, tmp_path / "run", tmp_path)
    before = load_file(tmp_path / "run" / "model.safetensors")
    replace_audio(tones)
    train(config, tones, tmp_path / "run", tmp_path)
    assert "is of another seed, configuration or corpus" in capsys.readouterr().out
    after = load_file(tmp_path / "run" / "model.safetensors")
    assert any((before[name] != value).any() for name, value in after.items())
    monkeypatch.setattr(FineTuner, "_train_epoch", lambda *_: pytest.fail("trained once more"))
    train(config, tones, tmp_path / "run", tmp_path)


def test_wav2vec_reads_no_other_audio_than_stage_1(tmp_path, tones, capsys):
    stale = [CutSet.from_cuts(with_audio_digest(c, "of stage 1") for c in own) for own in tones]
    with pytest.raises(ValueError, match="no usable training cut"):
        train(replace(W2V, epochs=1), stale, tmp_path / "run", tmp_path)
    assert "tones0-000.wav: not the audio that stage 1 read" in capsys.readouterr().out

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

from mlvae.corpora.digits.clips import source_clips, split_function
from mlvae.corpora.digits.fsdd import prepare_fsdd
from mlvae.corpora.digits.mismatch import CorpusOptions, build_mismatch_corpus
from mlvae.data.audio import write_wav
from mlvae.stage import StageReport

ROOT = Path(__file__).resolve().parents[2]
INDEXES = (0, 1, 10, 11, 20, 21, 22)  # of 50 recordings: two test, two valid, three train


def sine(seconds: float, sampling_rate: int = 8000, pitch: float = 300.0) -> np.ndarray:
    times = np.arange(round(seconds * sampling_rate)) / sampling_rate
    return (0.3 * np.sin(2 * np.pi * pitch * times)).astype(np.float32)


def write_digits(folder: Path, speakers=("ann", "bob"), indexes=INDEXES, sampling_rate=8000):
    """A small corpus in FSDD's layout: each digit has its own pitch, each clip its own length."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for speaker in speakers:
        for digit in range(10):
            for index in indexes:
                samples = sine(rng.uniform(0.12, 0.4), sampling_rate, 200 + 100 * digit)
                write_wav(folder / f"{digit}_{speaker}_{index}.wav", samples, sampling_rate)
    return folder


def load_script(path: str):
    """The main function of a stage's script."""
    spec = importlib.util.spec_from_file_location(Path(path).stem + "_script", ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("digits") / "recordings")


@pytest.fixture(scope="session")
def digit_clips(digits):
    pair = prepare_fsdd(digits, StageReport("test", digits.parent))
    return source_clips(pair["recordings"], split_function("recordings", {"ann", "bob"}, 50))


def options(num_utterances=60, **changes):
    return CorpusOptions(
        **{
            "corpus": "tiny",
            "title": "Mismatch-tiny",
            "split": "recordings",
            "num_utterances": num_utterances,
            "sampling_rate": 8000,
            **changes,
        }
    )


@pytest.fixture
def corpus(digit_clips, tmp_path):
    """A mismatch corpus of 60 utterances, as stage 0 leaves it."""
    build_mismatch_corpus(digit_clips, tmp_path / "tiny", options())
    return tmp_path / "tiny"


@pytest.fixture(scope="session")
def featured_corpus(digit_clips, tmp_path_factory):
    """The same after stages 1 and 2; not to be changed."""
    folder = tmp_path_factory.mktemp("featured") / "tiny"
    build_mismatch_corpus(digit_clips, folder, options())
    assert load_script("local/fbank.py")(["--data-dir", str(folder)]) == 0
    assert load_script("local/units.py")(["--data-dir", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def real_fsdd():
    """The Free Spoken Digit Dataset, where it is present."""
    named = os.environ.get("MLVAE_FSDD")
    folder = Path(named) if named else ROOT.parent / "shared" / "data" / "fsdd"
    if not folder.is_dir():
        pytest.skip("FSDD is not here: set MLVAE_FSDD to its folder of recordings")
    return folder

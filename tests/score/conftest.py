import json

import pytest
from lhotse import LilcomChunkyWriter, MonoCut, Recording, SupervisionSegment, SupervisionSet
from lhotse.audio import AudioSource
from lhotse.supervision import AlignmentItem

from tests.score.experiments import PERCEIVED, SAID, TEXTS, UNIT, make_experiment, with_features


@pytest.fixture
def make_reference():
    """Build the reference of one utterance from units of equal length."""

    def make(name, canonical, perceived, seconds=0.5, split="test", speaker="anna", sources=None):
        def items(symbols):
            return [
                AlignmentItem(symbol, index * seconds, seconds)
                for index, symbol in enumerate(symbols)
            ]

        return SupervisionSegment(
            id=name,
            recording_id=name,
            start=0.0,
            duration=seconds * len(canonical),
            speaker=speaker,
            custom={
                "split": split,
                "units_from": sources or [f"{name}-{i}" for i in range(len(canonical))],
            },
            alignment={"canonical": items(canonical), "perceived": items(perceived)},
        )

    return make


@pytest.fixture
def corpus(tmp_path, make_reference):
    """A corpus folder of four test utterances, and their cuts."""
    data = tmp_path / "data"
    data.mkdir()
    corpus = {"corpus": "tiny", "title": "Mismatch-tiny", "synthetic": True, "mismatch_rate": 0.2}
    (data / "corpus.json").write_text(json.dumps(corpus))
    reference = [make_reference(name, TEXTS[name], SAID[name], seconds=UNIT) for name in TEXTS]
    reference.append(make_reference("v0", "12", "12", split="valid"))
    SupervisionSet.from_segments(reference).to_file(data / "reference.jsonl.gz")
    cuts = []
    with LilcomChunkyWriter(tmp_path / "feats") as writer:
        for name, text in TEXTS.items():
            seconds = UNIT * len(text)
            cut = MonoCut(
                name,
                0.0,
                seconds,
                0,
                supervisions=[SupervisionSegment(name, name, 0.0, seconds)],
                recording=Recording(
                    name, [AudioSource("file", [0], "none.wav")], 8000, int(8000 * seconds), seconds
                ),
            )
            cuts.append(with_features(cut, writer))
    return data, cuts


@pytest.fixture
def folders(corpus, tmp_path):
    """The folders of the corpus and of an experiment with forced alignment and ML-VAE."""
    data, cuts = corpus
    make_experiment(tmp_path / "exp", cuts, ["fa", "ml-vae"])
    return data, tmp_path / "exp"


@pytest.fixture
def all_folders(corpus, tmp_path):
    """The folders of the corpus and of an experiment with every system."""
    data, cuts = corpus
    make_experiment(tmp_path / "exp", cuts, list(PERCEIVED))
    return data, tmp_path / "exp"

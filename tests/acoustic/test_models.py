"""Tiny models in every format that is read, and files that are none."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers
from lhotse import Fbank, FbankConfig
from lhotse.array import Array, TemporalArray
from lhotse.features.io import LilcomChunkyWriter, NumpyFilesWriter
from safetensors.torch import load_file, save_file

from mlvae.acoustic.models import (
    AcousticModel,
    Onnx,
    StoredPosteriors,
    Transformers,
    Wav2Vec,
)
from tests.onnx_export import export_onnx
from tests.recipes.somebodys_model import tiny_config, write_transformers
from tests.systems.sounds import tiny_model, tone_cut
from tests.train.tiny import CPU

SYMBOLS = ("<blk>", "low", "mid", "high")
SAMPLES = 0.1 * torch.randn(8000, generator=torch.Generator().manual_seed(1))


def answer(model, samples=SAMPLES) -> torch.Tensor:
    """Of one recording; a shorter one beside it changes nothing."""
    batch = torch.stack([samples, samples])
    found, lengths = model(batch, torch.tensor([len(samples), 4000]))
    assert found.shape == (2, int(lengths[0]), len(model.symbols)) and lengths[1] < lengths[0]
    total = found[0].exp().sum(1)
    torch.testing.assert_close(total, torch.ones_like(total))
    return found[0]


# ---- torchaudio


@pytest.mark.parametrize("mode", ["group_norm", "layer_norm"])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_wav2vec(tmp_path, mode, suffix):
    network, path = tiny_model(mode, num_out=4), tmp_path / f"model{suffix}"
    (torch.save if suffix == ".pth" else save_file)(network.state_dict(), path)
    model = Wav2Vec(path, SYMBOLS, CPU)
    assert model.frame_shift == 0.02 and model.blank == 0
    given = SAMPLES if mode == "group_norm" else torch.nn.functional.layer_norm(SAMPLES, (8000,))
    with torch.no_grad():
        expected = network(given[None])[0][0].log_softmax(-1)
    torch.testing.assert_close(answer(model), expected)
    assert model(SAMPLES[None, :100], torch.tensor([100]))[1].tolist() == [0]
    with pytest.raises(ValueError, match="model.* has 4 outputs, its table 3 symbols"):
        Wav2Vec(path, SYMBOLS[:3], CPU)


def test_a_model_that_was_pretrained_alone_has_no_symbols(tmp_path):
    save_file(tiny_model().state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="no output for symbols: it was pretrained, and not"):
        Wav2Vec(tmp_path / "model.safetensors", SYMBOLS, CPU)
    weights = tiny_model(num_out=4).state_dict()
    del weights["aux.bias"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="no output for symbols"):
        Wav2Vec(tmp_path / "model.safetensors", SYMBOLS, CPU)
    with pytest.raises(ValueError, match="cannot be read as weights"):
        (tmp_path / "model.pth").write_bytes(pickle.dumps(Path("x")))
        Wav2Vec(tmp_path / "model.pth", SYMBOLS, CPU)


@pytest.mark.parametrize("shift", [0.01, 0.0125, 0.015, 0.016, 0.02, 0.03, 0.04, 0.06, 0.08])
def test_frame_shifts_are_measured_exactly(shift):
    class EverySo(AcousticModel):
        symbols = SYMBOLS

        def _log_posteriors(self, samples):
            frames = (len(samples) - 400) // round(shift * 16000) + 1
            return torch.zeros(frames, len(SYMBOLS)).log_softmax(-1)

    model = EverySo()
    model._measure(Path("model"))
    assert model.frame_shift == shift


# ---- transformers


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """Folders as ``save_pretrained`` makes them: samples, and features, as inputs."""
    folder = tmp_path_factory.mktemp("transformers")
    torch.manual_seed(0)
    model = transformers.Wav2Vec2ForCTC(tiny_config(5))
    write_transformers(folder / "samples", model, SYMBOLS, rate=16000)
    config = transformers.Wav2Vec2BertConfig(
        feature_projection_input_dim=160,
        add_adapter=False,
        vocab_size=5,
        pad_token_id=0,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
    )
    transformers.Wav2Vec2BertForCTC(config).save_pretrained(folder / "features")
    transformers.SeamlessM4TFeatureExtractor().save_pretrained(folder / "features")
    shutil.copy(folder / "samples" / "vocab.json", folder / "features")
    return folder


@pytest.mark.parametrize("kind, shift", [("samples", 0.01), ("features", 0.02)])
def test_transformers(folders, kind, shift):
    model = Transformers(folders / kind, CPU)
    assert model.symbols == (*SYMBOLS, "<4>") and model.blank == 0
    assert model.frame_shift == shift and model.sampling_rate == 16000 and model.num_params > 0
    network = transformers.AutoModelForCTC.from_pretrained(folders / kind).eval()
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folders / kind)
    inputs = extractor(SAMPLES.numpy(), sampling_rate=16000, return_tensors="pt")
    with torch.no_grad():
        expected = network(**inputs).logits[0].log_softmax(-1)
    torch.testing.assert_close(answer(model), expected)


def test_weights_in_parts(folders, tmp_path):
    folder = Path(shutil.copytree(folders / "samples", tmp_path / "parts"))
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    parts = {name: names[place % 2] for place, name in enumerate(weights)}
    for part in names:
        own = {name: value for name, value in weights.items() if parts[name] == part}
        save_file(own, folder / part, {"format": "pt"})
    index = {"metadata": {}, "weight_map": parts}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    whole = answer(Transformers(folders / "samples", CPU))
    assert torch.equal(answer(Transformers(folder, CPU)), whole)
    index["weight_map"][next(iter(parts))] = "../samples/model.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="weight_map must name safetensors of its folder"):
        Transformers(folder, CPU)


def _without(name: str):
    return lambda folder: (folder / name).unlink()


def _pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def _with_code(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config.update(model_type="own", auto_map={"AutoModelForCTC": "own.Model"})
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text("raise SystemExit('run')\n")


def _without_output(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.pop("lm_head.weight")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def _extracting(**settings: object):
    def change(folder: Path) -> None:
        path = folder / "preprocessor_config.json"
        content = {**json.loads(path.read_text()), **settings}
        path.write_text(json.dumps(content))

    return change


def _cut_off(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-10])


@pytest.mark.parametrize(
    "break_it, match",
    [
        (_without("vocab.json"), "vocab.json is missing"),
        (_without("preprocessor_config.json"), "preprocessor_config.json is missing"),
        (_pickled, "has no model.safetensors: other weights are not read"),
        (_with_code, "cannot be read as a CTC model"),
        (_without_output, "weights are missing, or of other shapes: .*lm_head.weight"),
        (_cut_off, "cannot be read as a CTC model"),
        (lambda folder: (folder / "vocab.json").write_text('{"a": 9}'), "numbers from 0 to 4"),
        (lambda folder: (folder / "vocab.json").write_text("["), "vocab.json cannot be read"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "leads to another"),
        (_extracting(sampling_rate="16 kHz"), "sampling_rate is '16 kHz', not a whole number"),
        (_extracting(sampling_rate=10), "sampling_rate is 10"),
        (_extracting(feature_size=10**9), "feature_size is 1000000000, .* up to 512"),
        (lambda folder: (folder / "config.json").write_text("{}"), "cannot be read as a CTC"),
    ],
)
def test_folders_that_are_none(folders, tmp_path, break_it, match):
    folder = Path(shutil.copytree(folders / "samples", tmp_path / "broken"))
    break_it(folder)
    with pytest.raises(ValueError, match=match) as caught:
        Transformers(folder, CPU)
    assert "\n" not in str(caught.value) and "broken" in str(caught.value)


# ---- ONNX


class OfFeatures(torch.nn.Module):
    """In the form of icefall's exports: features and lengths in, every fourth frame out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv1d(80, 4, 7, stride=4)

    def forward(self, x, x_lens):
        found = self.conv(x.transpose(1, 2)).transpose(1, 2).log_softmax(-1)
        return found, torch.div(x_lens - 7, 4, rounding_mode="floor") + 1


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    return export_onnx(path, OfFeatures(), torch.randn(1, 50, 80), torch.tensor([50]))


def test_onnx_from_features(exported):
    model = Onnx(exported, SYMBOLS)
    assert model.frame_shift == 0.04 and model.blank == 0
    assert model.num_params == 80 * 4 * 7 + 4
    features = Fbank(FbankConfig(num_filters=80)).extract(SAMPLES.numpy(), 16000)
    with torch.no_grad():
        expected = OfFeatures()(torch.from_numpy(features)[None], torch.tensor([50]))[0][0]
    torch.testing.assert_close(answer(model), expected, atol=1e-4, rtol=1e-4)


def test_onnx_from_samples(tmp_path):
    class OfSamples(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv1d(1, 4, 160, stride=80)

        def forward(self, x):
            return self.conv(x[:, None]).transpose(1, 2)  # logits, and no lengths

    network = OfSamples()
    path = export_onnx(tmp_path / "model.onnx", network, torch.randn(1, 4000))
    model = Onnx(path, SYMBOLS, sampling_rate=8000)
    assert model.frame_shift == 0.01
    with torch.no_grad():
        expected = network(SAMPLES[None])[0].log_softmax(-1)
    torch.testing.assert_close(answer(model), expected, atol=1e-4, rtol=1e-4)


def test_files_that_are_no_onnx_model(exported, tmp_path):
    broken = tmp_path / "broken.onnx"
    with pytest.raises(ValueError, match="there is no model .*broken.onnx"):
        Onnx(broken, SYMBOLS)
    broken.write_bytes(b"\x80\x04nothing")
    with pytest.raises(ValueError, match="broken.onnx cannot be read as ONNX"):
        Onnx(broken, SYMBOLS)
    with pytest.raises(ValueError, match="has 4 outputs, its table 3 symbols"):
        Onnx(exported, SYMBOLS[:3])
    model = onnx.load(str(exported))
    onnx.save(model, str(broken), save_as_external_data=True, location="beside", size_threshold=0)
    with pytest.raises(ValueError, match="the weights .* lie in another file"):
        Onnx(broken, SYMBOLS)
    export_onnx(broken, torch.nn.Identity(), torch.randn(1, 2, 100_000))
    with pytest.raises(ValueError, match="wants features of 100000 bins, at most 512"):
        Onnx(broken, SYMBOLS)
    export_onnx(broken, torch.nn.Flatten(2), torch.randn(1, 2, 3, 4))
    with pytest.raises(ValueError, match=r"samples \(N, S\) or features .* are wanted"):
        Onnx(broken, SYMBOLS)


# ---- Posteriors with the cuts


@pytest.fixture
def stored(tmp_path):
    """A cut, and how an array is stored with it."""
    cut = tone_cut(tmp_path / "wav", "tones", ["low", "high"], ["low", "high"], 0)

    def store(values: np.ndarray, shift: float = 0.04, writer=NumpyFilesWriter):
        with writer(tmp_path / "posteriors") as storage:
            array = storage.store_array(cut.id, values, shift, 0, 0.0)
        cut.posteriors = array
        return cut

    return store


@pytest.mark.parametrize("writer", [NumpyFilesWriter, LilcomChunkyWriter])
@pytest.mark.parametrize("logs", [False, True])
def test_stored_posteriors(stored, writer, logs):
    values = torch.randn(10, 4).softmax(-1).numpy()
    cut = stored(np.log(values) if logs else values, writer=writer)
    found, shift = StoredPosteriors("posteriors", SYMBOLS).of_cut(cut)
    assert shift == 0.04
    assert np.abs(found.numpy() - values).max() < 0.03


@pytest.mark.parametrize(
    "values, match",
    [
        (np.full((10, 3), 1 / 3), r"has shape \(10, 3\), \(T, 4\) is wanted"),
        (np.full((40, 4), 0.25), "40 frames of 0.04 s for 0.4 s of audio"),
        (np.full((10, 4), 0.5), "no probabilities that sum to 1"),
        (np.full((10, 4), np.nan), "no probabilities that sum to 1"),
    ],
)
def test_stored_posteriors_that_are_none(stored, values, match):
    cut = stored(values.astype(np.float32))
    with pytest.raises(ValueError, match=f"^tones: posteriors.*{match}"):
        StoredPosteriors("posteriors", SYMBOLS).of_cut(cut)


def test_stored_elsewhere_than_in_a_file(stored):
    cut = stored(np.full((10, 4), 0.25, dtype=np.float32))
    array = cut.custom["posteriors"]
    for kind in ("kaldiio", "numpy_url"):
        cut.posteriors = TemporalArray(
            Array(kind, "touch mark |", "x", [10, 4]), array.temporal_dim, 0.04, 0.0
        )
        with pytest.raises(ValueError, match=f"its storage is '{kind}', not one of numpy_files"):
            StoredPosteriors("posteriors", SYMBOLS).of_cut(cut)
    with pytest.raises(ValueError, match="tones: no temporal array 'others' in its custom fields"):
        StoredPosteriors("others", SYMBOLS).of_cut(cut)

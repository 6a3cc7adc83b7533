"""Weights of wav2vec 2.0 in the layouts that are around."""

from __future__ import annotations

import pickle

import pytest
import torch
import torch.nn.functional as F
import torchaudio.pipelines
from safetensors.torch import save_file

from mlvae.nn import wav2vec
from mlvae.nn.wav2vec import Wav2VecCtc, architecture, find_weights, pretrained, read_weights
from mlvae.systems.w2v_ctc import W2vCtcConfig
from tests.systems.sounds import tiny_model, tiny_shape, tiny_weights, write_checkpoint


@pytest.mark.parametrize("mode", ["group_norm", "layer_norm"])
def test_a_checkpoint_of_torchaudio_gives_the_features_of_its_model(tmp_path, mode):
    path = write_checkpoint(tmp_path / "tiny.pth", mode)
    model = pretrained(path, num_units=3, dropout=0.1, layer_drop=0.1).eval()
    waveform = torch.randn(4000)
    expected = waveform if mode == "group_norm" else F.layer_norm(waveform, waveform.shape)
    features, _ = tiny_model(mode)(expected.unsqueeze(0))
    with torch.no_grad():
        log_probs = model(waveform)
        found = model.network.aux(features[0]).log_softmax(1)
    torch.testing.assert_close(log_probs, found)
    assert log_probs.shape == (model.num_frames(4000), 4)
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(len(log_probs)))


@pytest.mark.parametrize("num_samples", [0, 399, 400, 719, 720, 8000])
def test_frames_are_those_of_the_convolutions(tmp_path, num_samples):
    model = pretrained(write_checkpoint(tmp_path / "tiny.pth"), 2, 0.0, 0.0)
    assert model.num_frames(num_samples) == max((num_samples - 400) // 320 + 1, 0)
    if num_samples >= 400:
        assert len(model(torch.randn(num_samples))) == model.num_frames(num_samples)


@pytest.mark.parametrize("mode", ["group_norm", "layer_norm"])
def test_shapes_tell_the_architecture(mode):
    assert architecture(tiny_weights(mode)) == tiny_shape(mode)


def test_what_shapes_do_not_tell_holds_for_all_bundles_of_torchaudio():
    bundles = [getattr(torchaudio.pipelines, name) for name in dir(torchaudio.pipelines)]
    shapes = [
        bundle._params
        for bundle in bundles
        if "encoder_num_heads" in getattr(bundle, "_params", {})
    ]
    assert len(shapes) > 10
    for shape in shapes:
        strides = [stride for _, _, stride in shape["extractor_conv_layer_config"]]
        assert strides == [wav2vec.FIRST_STRIDE] + [wav2vec.STRIDE] * (len(strides) - 1)
        heads = min(wav2vec.MOST_HEADS, shape["encoder_embed_dim"] // wav2vec.HEAD_WIDTH)
        assert shape["encoder_num_heads"] == heads
        layer_norm = shape["extractor_mode"] == "layer_norm"
        assert shape["encoder_layer_norm_first"] == layer_norm


def test_the_default_is_a_bundle_of_torchaudio_that_was_not_fine_tuned():
    assert W2vCtcConfig().hub_file == torchaudio.pipelines.WAV2VEC2_BASE._path


def same_weights(path) -> bool:
    found, expected = read_weights(path), tiny_weights()
    return set(found) == set(expected) and all(
        torch.equal(value, expected[name]) for name, value in found.items()
    )


def hugging_face_name(name: str) -> str:
    for theirs in ("encoder.feature_projection", "encoder.transformer"):
        if name.startswith(theirs):
            name = name.replace("encoder.", "", 1).replace("transformer.", "encoder.", 1)
    return "wav2vec2." + name


def test_other_layouts_hold_the_same_weights(tmp_path):
    state = tiny_weights()
    path = tmp_path / "other"

    torch.save({hugging_face_name(name): value for name, value in state.items()}, path)
    assert same_weights(path)

    newer = {
        name.replace("weight_g", "parametrizations.weight.original0").replace(
            "weight_v", "parametrizations.weight.original1"
        ): value
        for name, value in state.items()
    }
    assert "encoder.transformer.pos_conv_embed.conv.weight_v" not in newer
    torch.save(newer, path)
    assert same_weights(path)

    save_file(state, tmp_path / "model.safetensors")
    assert same_weights(tmp_path / "model.safetensors")


def test_weights_of_this_torch_are_read_by_names_that_every_torch_knows(tmp_path):
    model = Wav2VecCtc(tiny_shape(), num_units=3)
    torch.save(model.network.state_dict(), tmp_path / "here.pth")
    weights = read_weights(tmp_path / "here.pth")
    assert "encoder.transformer.pos_conv_embed.conv.weight_g" in weights
    other = pretrained(tmp_path / "here.pth", 3, dropout=0.0, layer_drop=0.0)
    for name, value in other.network.encoder.state_dict().items():
        assert torch.equal(value, model.network.encoder.state_dict()[name]), name


def test_heads_of_other_trainings_are_omitted(tmp_path):
    state = tiny_weights(num_out=29)
    assert "aux.weight" in state
    extra = ("quantizer.codevectors", "project_q.bias", "lm_head.weight", "masked_spec_embed")
    state.update({name: torch.zeros(2) for name in extra})
    torch.save(state, tmp_path / "asr.pth")
    assert same_weights(tmp_path / "asr.pth")


def test_half_precision_becomes_single(tmp_path):
    state = {name: value.half() for name, value in tiny_weights().items()}
    torch.save(state, tmp_path / "half.pth")
    assert {value.dtype for value in read_weights(tmp_path / "half.pth").values()} == {
        torch.float32
    }


def test_weights_are_found_where_torch_hub_keeps_them(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    assert find_weights("", "tiny.pth") is None
    path = write_checkpoint(tmp_path / "checkpoints" / "tiny.pth")
    assert find_weights("", "tiny.pth") == path
    assert find_weights("", "other.pth") is None
    named = write_checkpoint(tmp_path / "named.pth")
    assert find_weights(str(named), "tiny.pth") == named
    with pytest.raises(ValueError, match="there are no weights of wav2vec 2.0 in .*nowhere.pth"):
        find_weights(str(tmp_path / "nowhere.pth"), "tiny.pth")


class Dangerous:
    def __reduce__(self):
        return (pytest.fail, ("the file was executed",))


@pytest.mark.parametrize(
    ("name", "write", "reason"),
    [
        ("x.pth", lambda path: path.write_bytes(b"not weights"), "cannot be read as weights"),
        ("x.pth", lambda path: torch.save({"a": Dangerous()}, path), "cannot be read as weights"),
        ("x.pth", lambda path: path.write_bytes(pickle.dumps(Dangerous())), "cannot be read"),
        ("x.pth", lambda path: torch.save({"a": {}}, path), "holds no plain state of a model"),
        ("x.safetensors", lambda path: path.write_bytes(b"nothing"), "cannot be read as weights"),
    ],
)
def test_files_that_are_no_weights_are_named(tmp_path, name, write, reason):
    write(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name} {reason}"):
        read_weights(tmp_path / name)


KEY = "encoder.transformer.layers.1.attention.k_proj.bias"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda state: {"weight": torch.zeros(2, 2)}, "model of wav2vec 2.0: no 'encoder.feat"),
        (lambda state: {k: v for k, v in state.items() if k != KEY}, "model .* missing .*k_proj"),
        (lambda state: {**state, "decoder.weight": torch.zeros(1)}, "model .* left over .*decoder"),
    ],
)
def test_models_that_are_no_wav2vec_are_named(tmp_path, change, reason):
    torch.save(change(tiny_weights()), tmp_path / "x.pth")
    with pytest.raises(ValueError, match=f"x.pth is not a {reason}"):
        pretrained(tmp_path / "x.pth", 3, 0.0, 0.0)

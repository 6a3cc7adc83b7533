"""Tones as units, and tiny checkpoints of wav2vec 2.0, for the tests of w2v-CTC."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from lhotse import CutSet, MonoCut, Recording
from lhotse.utils import fastcopy
from torchaudio.models import wav2vec2_model

from mlvae.data.audio import write_wav
from mlvae.data.units import UnitTable
from mlvae.systems.w2v_ctc import torchaudio_name
from tests.train.tiny import make_cut

RATE = 8000
TONES = UnitTable(("high", "low", "mid"))
HERTZ = {"high": 2400.0, "low": 300.0, "mid": 900.0}
SECONDS = 0.2


def tone_cut(folder: Path, name: str, said: list[str], written: list[str], seed: int) -> MonoCut:
    """A cut at 8 kHz in which each unit is a tone of 0.2 s."""
    rng = np.random.default_rng(seed)
    time = np.arange(int(SECONDS * RATE)) / RATE
    # Louder in the middle: neighbours of one sound have a dip between them.
    shape = 0.4 * np.sin(np.pi * time / SECONDS)
    samples = np.concatenate([shape * np.sin(2 * np.pi * HERTZ[unit] * time) for unit in said])
    path = folder / f"{name}.wav"
    folder.mkdir(parents=True, exist_ok=True)
    write_wav(path, samples + 0.01 * rng.standard_normal(len(samples)), RATE)
    frames = round(100 * len(samples) / RATE)
    cut = make_cut(name, np.zeros((frames, 2)), written)
    return fastcopy(cut, recording=Recording.from_file(path, recording_id=name))


def tone_cuts(folder: Path, count: int, seed: int = 0, wrong: float = 0.0) -> CutSet:
    """Cuts of 2 to 4 tones; of the written ones a share ``wrong`` is another tone."""
    rng = np.random.default_rng(seed)
    cuts = []
    for number in range(count):
        said = rng.integers(0, len(TONES), rng.integers(2, 5))
        shift = np.where(rng.random(len(said)) < wrong, 1, 0)
        written = TONES.units(((said + shift) % len(TONES)).tolist())
        name = f"tones{seed}-{number:03d}"
        cuts.append(
            tone_cut(folder, name, TONES.units(said.tolist()), written, 100 * seed + number)
        )
    return CutSet.from_cuts(cuts)


def tiny_shape(mode: str = "group_norm") -> dict:
    """Arguments of ``wav2vec2_model`` for a model of published strides and tiny widths."""
    widths = [(10, 5), *[(3, 2)] * 4, *[(2, 2)] * 2]
    return {
        "extractor_mode": mode,
        "extractor_conv_layer_config": [(24, kernel, stride) for kernel, stride in widths],
        "extractor_conv_bias": mode == "layer_norm",
        "encoder_embed_dim": 64,
        "encoder_pos_conv_kernel": 8,
        "encoder_pos_conv_groups": 4,
        "encoder_num_layers": 2,
        "encoder_num_heads": 1,
        "encoder_ff_interm_features": 96,
        "encoder_layer_norm_first": mode == "layer_norm",
    }


def tiny_model(mode: str = "group_norm", num_out: int | None = None, seed: int = 0):
    """torchaudio's model with random weights."""
    torch.manual_seed(seed)
    dropout = {
        f"encoder_{name}": 0.0
        for name in ("projection_dropout", "attention_dropout", "ff_interm_dropout", "dropout")
    }
    return wav2vec2_model(
        **tiny_shape(mode), **dropout, encoder_layer_drop=0.0, aux_num_out=num_out
    ).eval()


def tiny_weights(mode: str = "group_norm", **options) -> dict[str, torch.Tensor]:
    """What :func:`tiny_model` holds, by the same names under every version of torch."""
    state = tiny_model(mode, **options).state_dict()
    return {torchaudio_name(name): value for name, value in state.items()}


def write_checkpoint(path: Path, mode: str = "group_norm", seed: int = 0) -> Path:
    """A checkpoint in the layout of torchaudio's bundles."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(tiny_weights(mode, seed=seed), path)
    return path

"""A small CTC model that the tests train as somebody else would, and export in the usual forms."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import soundfile
import torch
import torch.nn.functional as F

from tests.onnx_export import export_onnx

#: Symbols of its outputs; the digits are called otherwise than in the recipe.
BLANK = "<blk>"
SYMBOLS = [BLANK, *(f"D{digit}" for digit in range(10)), "|"]
RATE = 8000
#: Samples of a frame, 20 ms, and the convolutions that make frames.
FRAME = 160
STRIDES, KERNELS = (20, 2, 2, 2), (80, 4, 4, 4)


def tiny_config(num_symbols: int):
    """Of wav2vec 2.0, without anything that is random in training."""
    from transformers import Wav2Vec2Config

    return Wav2Vec2Config(
        vocab_size=num_symbols,
        pad_token_id=0,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        conv_dim=(32,) * 4,
        conv_kernel=KERNELS,
        conv_stride=STRIDES,
        num_feat_extract_layers=4,
        feat_extract_norm="layer",
        do_stable_layer_norm=True,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        feat_proj_dropout=0.0,
        final_dropout=0.0,
        layerdrop=0.0,
        apply_spec_augment=False,
    )


def train(recordings: Path, steps: int = 240, seed: int = 0):
    """A ``Wav2Vec2ForCTC`` of 40,000 parameters on strings of the training recordings."""
    from transformers import Wav2Vec2ForCTC

    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    pieces: dict[int, list[np.ndarray]] = {digit: [] for digit in range(10)}
    for path in sorted(recordings.glob("*.wav")):
        digit, number = re.fullmatch(r"(\d)_\w+?_(\d+)", path.stem).groups()
        if int(number) >= 20:
            pieces[int(digit)].append(soundfile.read(path, dtype="float32")[0])
    model = Wav2Vec2ForCTC(tiny_config(len(SYMBOLS)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.train()
    for step in range(steps):
        texts, ends, waveforms = [], [], []
        for _ in range(8):
            digits = rng.integers(0, 10, 6)
            parts = [pieces[digit][rng.integers(len(pieces[digit]))] for digit in digits]
            texts.append(digits + 1)
            ends.append(np.cumsum([len(part) for part in parts]))
            waveforms.append(np.concatenate(parts))
        longest = max(map(len, waveforms))
        batch = np.stack([np.pad(one, (0, longest - len(one))) for one in waveforms])
        batch += 1e-3 * rng.standard_normal(batch.shape)
        log_probs = model(torch.from_numpy(normalized(batch)).float()).logits.log_softmax(-1)
        if step < steps // 2:  # spikes in the middle, or CTC would say blank alone for long
            targets = np.zeros(log_probs.shape[:2], dtype=np.int64)
            for row, text, end in zip(targets, texts, ends):
                middle = (end + np.append(0, end[:-1])) // (2 * FRAME)
                row[np.minimum(middle, len(row) - 1)] = text
            weights = torch.ones(len(SYMBOLS)).index_fill(0, torch.tensor([0]), 0.1)
            loss = F.nll_loss(log_probs.flatten(0, 1), torch.from_numpy(targets).flatten(), weights)
        else:
            sizes = [torch.full((8,), size) for size in (log_probs.shape[1], 6)]
            labels = torch.from_numpy(np.stack(texts))
            loss = F.ctc_loss(log_probs.transpose(0, 1), labels, *sizes)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
    model.losses = float(loss.detach())
    return model.eval()


def normalized(samples: np.ndarray) -> np.ndarray:
    """Of mean 0 and variance 1, as the feature extractor does it."""
    mean, variance = samples.mean(-1, keepdims=True), samples.var(-1, keepdims=True)
    return (samples - mean) / np.sqrt(variance + 1e-7)


def write_transformers(folder: Path, model, symbols=SYMBOLS, rate: int = RATE) -> Path:
    """A folder as ``save_pretrained`` makes it, with the vocabulary of the tokenizer."""
    from transformers import Wav2Vec2FeatureExtractor

    model.save_pretrained(folder, safe_serialization=True)
    Wav2Vec2FeatureExtractor(sampling_rate=rate, do_normalize=True).save_pretrained(folder)
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    return folder


class _LogProbs(torch.nn.Module):
    """Samples of any scale to log-posteriors and their number, as an export has it."""

    def __init__(self, model) -> None:
        super().__init__()
        self.model = model

    def forward(self, samples, num_samples):
        centred = samples - samples.mean(1, keepdim=True)
        scaled = centred / (centred.square().mean(1, keepdim=True) + 1e-7).sqrt()
        length = num_samples
        for kernel, stride in zip(KERNELS, STRIDES):
            length = torch.div(length - kernel, stride, rounding_mode="floor") + 1
        return self.model(scaled).logits.log_softmax(-1), length


def write_onnx(folder: Path, model) -> Path:
    """``model.onnx`` and ``tokens.txt``, as icefall exports them, but from samples."""
    folder.mkdir(parents=True, exist_ok=True)
    inputs = torch.randn(1, RATE), torch.tensor([RATE])
    export_onnx(folder / "model.onnx", _LogProbs(model), *inputs)
    lines = [f"{symbol} {number}\n" for number, symbol in enumerate(SYMBOLS)]
    (folder / "tokens.txt").write_text("".join(lines) + "#0 12\n")
    return folder / "model.onnx"

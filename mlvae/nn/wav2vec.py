"""wav2vec 2.0 with an output for CTC, in the architecture that the shapes of weights tell.

Any published size can be given. What shapes do not tell holds for all of torchaudio's bundles and
their kin: the first convolution has stride 5 and the others 2; there are as many heads as make
their width 64, at most 16; models with layer normalisation in every convolution normalise before
each transformer block, and want waveforms of mean 0 and variance 1.
"""

from __future__ import annotations

import math
import pickle
import re
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torchaudio.models import Wav2Vec2Model, wav2vec2_model

from mlvae.errors import one_line

SAMPLING_RATE = 16000
#: Longest recording that a model reads whole, in seconds, as attention takes memory with the
#: square; and the sections of longer ones, with a margin on both sides.
LONGEST, SECTION, MARGIN = 60.0, 30.0, 2.0
FIRST_STRIDE, STRIDE = 5, 2
HEAD_WIDTH, MOST_HEADS = 64, 16

#: From names of Hugging Face's checkpoints, and of newer versions of torch, to torchaudio's.
_RENAMED = (
    (r"^wav2vec2\.", ""),
    (r"^lm_head\.", "aux."),
    (r"^feature_projection\.", "encoder.feature_projection."),
    (r"^encoder\.(pos_conv_embed|layer_norm|layers)\.", r"encoder.transformer.\1."),
    # torch 2 has other names for the same two tensors of weight normalisation, and reads these.
    (r"\.parametrizations\.weight\.original0$", ".weight_g"),
    (r"\.parametrizations\.weight\.original1$", ".weight_v"),
)
#: Parts of checkpoints that are of use in pretraining alone, and the output for its symbols.
_LEFT_OUT = re.compile(r"^(masked_spec_embed$|quantizer\.|project_(hid|q)\.)")
_OUTPUT = "aux."


def find_weights(checkpoint: str, hub_file: str) -> Path | None:
    """Find the weights without downloading anything.

    Args:
        checkpoint: a file that the user names; empty for none.
        hub_file: name of a file of torchaudio's bundles, looked for where torch.hub keeps what it
            has downloaded before.

    Returns:
        The file, or None where no weights are at hand.

    Raises:
        ValueError: the user named a file that is not there.
    """
    if checkpoint:
        if not Path(checkpoint).is_file():
            raise ValueError(f"there are no weights of wav2vec 2.0 in {checkpoint}: no such file")
        return Path(checkpoint)
    path = Path(torch.hub.get_dir()) / "checkpoints" / hub_file
    return path if path.is_file() else None


def read_weights(path: Path, output: bool = False) -> dict[str, torch.Tensor]:
    """Read a checkpoint: the state of torchaudio's model, or of Hugging Face's.

    ``.safetensors`` files are read as such, others by torch with pickle restricted to tensors.

    Args:
        path: of the file.
        output: whether the layer that gives symbols is wanted, too.

    Returns:
        Float32 tensors by torchaudio's names, without the parts that pretraining alone needs.

    Raises:
        ValueError: the file cannot be read, or is none of these; names the file.
    """
    try:
        if Path(path).suffix == ".safetensors":
            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        reason = one_line(error, most=200)
        raise ValueError(f"{path} cannot be read as weights: {reason}") from error
    if not isinstance(state, dict) or not all(map(torch.is_tensor, state.values())):
        raise ValueError(f"{path} holds no plain state of a model: a tensor by each name is wanted")
    named = {
        torchaudio_name(name): value.float() if value.is_floating_point() else value
        for name, value in state.items()
    }
    return {
        name: value
        for name, value in named.items()
        if not _LEFT_OUT.search(name) and (output or not name.startswith(_OUTPUT))
    }


def torchaudio_name(name: str) -> str:
    """The name that a weight has in torchaudio's model under any version of torch."""
    for pattern, replacement in _RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


def architecture(weights: dict[str, torch.Tensor]) -> dict:
    """The arguments of ``torchaudio.models.wav2vec2_model`` that weights tell; see above.

    Raises:
        KeyError: a weight is missing; its name.
    """
    convolutions = []
    while (key := f"feature_extractor.conv_layers.{len(convolutions)}.conv.weight") in weights:
        width, _, kernel = weights[key].shape
        convolutions.append((width, kernel, STRIDE if convolutions else FIRST_STRIDE))
    layers = 0
    while f"encoder.transformer.layers.{layers}.layer_norm.weight" in weights:
        layers += 1
    embed_dim = len(weights["encoder.feature_projection.projection.weight"])
    position = weights["encoder.transformer.pos_conv_embed.conv.weight_v"].shape
    first_layer = "encoder.transformer.layers.0.feed_forward.intermediate_dense.weight"
    layer_norm = "feature_extractor.conv_layers.1.layer_norm.weight" in weights
    return {
        "extractor_mode": "layer_norm" if layer_norm else "group_norm",
        "extractor_conv_layer_config": convolutions,
        "extractor_conv_bias": "feature_extractor.conv_layers.0.conv.bias" in weights,
        "encoder_embed_dim": embed_dim,
        "encoder_pos_conv_kernel": position[2],
        "encoder_pos_conv_groups": embed_dim // position[1],
        "encoder_num_layers": layers,
        "encoder_num_heads": max(1, min(MOST_HEADS, embed_dim // HEAD_WIDTH)),
        "encoder_ff_interm_features": len(weights[first_layer]),
        "encoder_layer_norm_first": layer_norm,
    }


class Wav2VecCtc(nn.Module):
    """wav2vec 2.0 with a linear output for CTC, one waveform at a time.

    Waveforms are not put into batches: the convolutions of the base model normalise over time, so
    that its answer would depend on the padding.

    Args:
        shape: arguments of ``torchaudio.models.wav2vec2_model``, see :func:`architecture`.
        num_units: units N; column 0 of the output is the blank, column u + 1 is unit u.
        dropout: of the transformer's input, attention and feed-forward layers, in training.
        layer_drop: probability that a transformer layer is left out in training.
    """

    def __init__(
        self, shape: dict, num_units: int, dropout: float = 0.0, layer_drop: float = 0.0
    ) -> None:
        super().__init__()
        self.shape = shape
        self.network: Wav2Vec2Model = wav2vec2_model(
            **shape,
            encoder_projection_dropout=dropout,
            encoder_attention_dropout=dropout,
            encoder_ff_interm_dropout=dropout,
            encoder_dropout=dropout,
            encoder_layer_drop=layer_drop,
            aux_num_out=num_units + 1,
        )

    def num_frames(self, num_samples: int) -> int:
        """Number of output frames of a waveform, from 0."""
        for _, kernel, stride in self.shape["extractor_conv_layer_config"]:
            num_samples = max((num_samples - kernel) // stride + 1, 0)
        return num_samples

    def log_probs(self, waveform: torch.Tensor) -> torch.Tensor:
        """As :meth:`forward`, on CPU and without gradients, for a waveform of any length."""
        layers = self.shape["extractor_conv_layer_config"]
        step = math.prod(stride for _, _, stride in layers)
        seen, apart = 1, 1  # samples of one frame
        for _, kernel, stride in layers:
            seen += (kernel - 1) * apart
            apart *= stride
        with torch.no_grad():
            if len(waveform) <= LONGEST * SAMPLING_RATE:
                return self(waveform).cpu()
            size, margin = (int(seconds * SAMPLING_RATE) // step for seconds in (SECTION, MARGIN))
            total, found = self.num_frames(len(waveform)), []
            for begin in range(0, total, size):
                end = min(begin + size, total)
                first, last = max(begin - margin, 0), min(end + margin, total)
                part = self(waveform[first * step : (last - 1) * step + seen])
                found.append(part[begin - first : end - first].cpu())
            return torch.cat(found)

    def forward(self, waveform: torch.Tensor) -> torch.Tensor:
        """Log-posteriors of blank and units.

        Args:
            waveform: float (num_samples,) at 16 kHz, at least one frame long.

        Returns:
            float (T, N + 1), log-probabilities.
        """
        if self.shape["extractor_mode"] == "layer_norm":
            waveform = F.layer_norm(waveform, waveform.shape)
        logits, _ = self.network(waveform.unsqueeze(0))
        return logits[0].log_softmax(dim=-1)


def pretrained(path: Path, num_units: int, dropout: float, layer_drop: float) -> Wav2VecCtc:
    """A model with the weights of a checkpoint and a new output.

    Raises:
        ValueError: the file does not hold the weights of such a model; names it and the reason.
    """
    return _filled(path, read_weights(path), num_units, dropout, layer_drop)


def trained(path: Path) -> Wav2VecCtc:
    """A whole model, with its own output.

    Raises:
        ValueError: as :func:`pretrained`, and if the file has no output.
    """
    weights = read_weights(path, output=True)
    output = [weights.get(f"{_OUTPUT}{name}") for name in ("weight", "bias")]
    if any(one is None for one in output):
        raise ValueError(f"{path} has no output for symbols: it was pretrained, and not fine-tuned")
    return _filled(path, weights, len(output[0]) - 1).eval()


def _filled(
    path: Path,
    weights: dict[str, torch.Tensor],
    num_units: int,
    dropout: float = 0.0,
    layer_drop: float = 0.0,
) -> Wav2VecCtc:
    """A model of the shape of weights, with these; ValueError names the file they come from."""
    try:
        model = Wav2VecCtc(architecture(weights), num_units, dropout, layer_drop)
        missing, unexpected = model.network.load_state_dict(weights, strict=False)
        missing = [name for name in missing if not name.startswith("aux.")]  # what is new
        if missing or unexpected:
            raise ValueError(f"missing {missing[:3]}, left over {unexpected[:3]}")
    except (LookupError, ArithmeticError, ValueError, RuntimeError, AssertionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else one_line(error)
        raise ValueError(f"{path} is not a model of wav2vec 2.0: {reason}") from error
    return model

"""Acoustic models in the formats that are around: what a model has to be, and how it is read.

Each format is a class, and needs a package of its own, which is imported where it is needed.
Nothing is downloaded, and no code or pickle that comes with a model is run.
"""

from __future__ import annotations

import json
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lhotse import Fbank, FbankConfig
from lhotse.array import TemporalArray
from lhotse.cut import Cut
from torch.nn.utils.rnn import pad_sequence

from mlvae.acoustic.symbols import BLANKS
from mlvae.device import num_parameters
from mlvae.errors import one_line, with_type
from mlvae.nn import wav2vec

#: Files of a folder of ``transformers`` that are read.
FOLDER_FILES = ("config.json", "preprocessor_config.json", "vocab.json")
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
#: Ways in which lhotse stores arrays that neither run anything nor leave the machine.
STORAGES = (
    *("numpy_files", "lilcom_files", "lilcom_chunky"),
    *("memory_raw", "memory_lilcom", "memory_npy"),
)
#: Largest time, in seconds, that stored posteriors may be shorter or longer than their recording,
#: and what comes on top of it for each second.
SLACK, SLACK_RATE = 0.25, 0.02
#: Seconds of the two recordings by which the frame shift of a model is measured. In between lies a
#: whole number of all usual shifts (10 to 80 ms), so that frames are counted exactly.
PROBES = (1.0, 3.4)
#: Most bins of the FBANK that a model may want.
MOST_BINS = 512
#: Largest numbers of a ``preprocessor_config.json``, by which memory is taken.
LARGEST = {
    **{"feature_size": MOST_BINS, "num_mel_bins": MOST_BINS, "sampling_rate": 384_000},
    **{"n_fft": 65_536, "hop_length": 65_536, "chunk_length": 600, "stride": 100},
}


class AcousticModel(ABC):
    """An acoustic model: log-posteriors of symbols, frame by frame, for audio.

    It reads recordings one by one, so that the answer does not depend on padding.
    """

    symbols: tuple[str, ...]  # what its V columns stand for
    blank: int | None  # the column of the blank of CTC; None: it has none
    sampling_rate: int = 16000  # of the audio, in Hz
    frame_shift: float = 0.0  # seconds from one frame to the next
    num_params: int = 0  # how many numbers its weights have

    @abstractmethod
    def _log_posteriors(self, samples: torch.Tensor) -> torch.Tensor:
        """Of one recording (S,), float32 (T, V)."""

    def __call__(
        self, samples: torch.Tensor, num_samples: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-posteriors of a batch of recordings.

        Args:
            samples: float32 (B, S) on CPU, in [-1, 1]; zero in padding.
            num_samples: int64 (B,).

        Returns:
            float32 (B, T, V) on CPU, natural logs, rows of which sum to one, and the number of
            frames of each, int64 (B,), 0 for a recording that is too short.
        """
        with torch.no_grad():
            pairs = zip(samples, num_samples.tolist())
            found = [self._log_posteriors(row[:length]).cpu() for row, length in pairs]
        lengths = torch.tensor([len(one) for one in found])
        return pad_sequence(found, batch_first=True), lengths

    def _measure(self, place: Path) -> None:
        """Measure the frame shift, and try the model before long work; ValueError names it."""
        sizes = [round(seconds * self.sampling_rate) for seconds in PROBES]
        noise = 0.01 * torch.randn(max(sizes), generator=torch.Generator().manual_seed(0))
        try:
            found = [self(noise[None, :size], torch.tensor([size])) for size in sizes]
        except Exception as error:  # whatever a model of somebody's does
            reason = with_type(error)
            raise ValueError(f"{place} does not work as an acoustic model: {reason}") from error
        width = found[0][0].shape[-1]
        if width != len(self.symbols):
            raise ValueError(f"{place} has {width} outputs, its table {len(self.symbols)} symbols")
        frames = int(found[1][1][0] - found[0][1][0])
        if frames < 1:
            raise ValueError(f"{place}: no more frames for {PROBES[1]} s than for {PROBES[0]} s")
        # Shifts are whole numbers of half milliseconds; counting may be a little off.
        shift = (PROBES[1] - PROBES[0]) / frames
        self.frame_shift = round(2000 * shift) / 2000 or shift


def find_blank(symbols: Sequence[str]) -> int | None:
    """The column of the blank by its name; None where no symbol is called so."""
    return next((symbols.index(name) for name in BLANKS if name in symbols), None)


class Wav2Vec(AcousticModel):
    """wav2vec 2.0 of torchaudio: a state of its model, as torchaudio's bundles download it.

    Args:
        path: ``.safetensors``, or a file of torch, which is read with pickle restricted to tensors.
        symbols: of its outputs.
        device: where it runs.
    """

    def __init__(self, path: Path, symbols: Sequence[str], device: torch.device) -> None:
        self.symbols = tuple(symbols)
        self.blank = find_blank(self.symbols)
        self.sampling_rate = wav2vec.SAMPLING_RATE
        self.device = device
        self.model = wav2vec.trained(path).to(device)
        self.num_params = num_parameters(self.model)
        self._measure(path)

    def _log_posteriors(self, samples: torch.Tensor) -> torch.Tensor:
        if self.model.num_frames(len(samples)) < 1:
            return torch.zeros(0, len(self.symbols))
        return self.model(samples.to(self.device))


class Transformers(AcousticModel):
    """A model for CTC of the package ``transformers``, from a folder of this machine.

    Any architecture that the package itself has and that reads samples (``input_values``) or
    features (``input_features``).

    Args:
        path: folder with ``config.json``, ``preprocessor_config.json``, ``vocab.json`` and
            ``model.safetensors``, whole or in parts.
        device: where it runs.

    Raises:
        ValueError: the package is not installed, or the folder cannot be used; names file and
            reason.
    """

    def __init__(self, path: Path, device: torch.device) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is to be downloaded
        try:
            import transformers
        except ImportError:
            raise ValueError(
                "transformers is not installed: pip install 'mlvae[transformers]'"
            ) from None
        folder = Path(path)
        folder_files(folder)
        _check_sizes(folder / "preprocessor_config.json")
        options = {"local_files_only": True, "trust_remote_code": False}
        verbosity = transformers.logging.get_verbosity()
        transformers.logging.set_verbosity_error()
        try:
            self.extractor = transformers.AutoFeatureExtractor.from_pretrained(folder, **options)
            self.model, loading = transformers.AutoModelForCTC.from_pretrained(
                folder, use_safetensors=True, output_loading_info=True, **options
            )
        except Exception as error:  # whatever the package thinks of the files
            reason = with_type(error)
            raise ValueError(f"{folder} cannot be read as a CTC model: {reason}") from error
        finally:
            transformers.logging.set_verbosity(verbosity)
        missing = [name for name in loading["missing_keys"] if "masked_spec_embed" not in name]
        if missing or loading["mismatched_keys"]:
            raise ValueError(f"{folder}: weights are missing, or of other shapes: {missing[:3]}")
        self.model = self.model.to(device).eval()
        self.device = device
        self.num_params = num_parameters(self.model)
        self.sampling_rate = getattr(self.extractor, "sampling_rate", None)
        if type(self.sampling_rate) is not int or self.sampling_rate < 1000:
            raise ValueError(f"{folder}: sampling_rate is {self.sampling_rate!r:.60}")
        self.symbols = _vocabulary(folder / "vocab.json", self.model.config.vocab_size)
        self.blank = self.model.config.pad_token_id
        self._measure(folder)

    def _log_posteriors(self, samples: torch.Tensor) -> torch.Tensor:
        inputs = self.extractor(
            samples.numpy(), sampling_rate=self.sampling_rate, return_tensors="pt"
        )
        name = self.model.main_input_name
        logits = self.model(**{name: inputs[name].to(self.device)}).logits
        return logits[0].float().log_softmax(-1)


def folder_files(folder: Path) -> list[str]:
    """Names of the files of a folder of ``transformers`` that are read.

    Raises:
        ValueError: one is missing, or weights are in no safetensors or out of the folder.
    """
    names = list(FOLDER_FILES)
    if (folder / "adapter_config.json").exists():
        raise ValueError(f"{folder} has an adapter_config.json, which leads to another model")
    if (folder / INDEX).is_file():
        content = _json(folder / INDEX)
        parts = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(parts, dict) or not all(
            isinstance(part, str) and re.fullmatch(r"[\w.-]+\.safetensors", part)
            for part in parts.values()
        ):
            raise ValueError(f"{folder / INDEX}: weight_map must name safetensors of its folder")
        names += [INDEX, *sorted(set(parts.values()))]
    elif (folder / WEIGHTS).is_file():
        names.append(WEIGHTS)
    else:
        raise ValueError(f"{folder} has no {WEIGHTS}: other weights are not read")
    for name in names:
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name} is missing: no folder of a CTC model")
    return names


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {one_line(error, most=400)}") from None


def _check_sizes(path: Path) -> None:
    """Raise ValueError, which names file and setting, where a feature extractor would be huge."""
    content = _json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no settings by name")
    for name, most in LARGEST.items():
        value = content.get(name, 1)
        if type(value) is not int or not 1 <= value <= most:
            raise ValueError(f"{path}: {name} is {value!r:.60}, not a whole number up to {most}")


def _vocabulary(path: Path, size: int) -> tuple[str, ...]:
    """Symbols of a ``vocab.json``; outputs that it does not name are called by their number."""
    content = _json(path)
    if not isinstance(content, dict) or not all(
        type(number) is int and 0 <= number < size for number in content.values()
    ):
        raise ValueError(f"{path}: symbols with numbers from 0 to {size - 1} are wanted")
    names = {number: symbol for symbol, number in content.items()}
    return tuple(names.get(number, f"<{number}>") for number in range(size))


class Onnx(AcousticModel):
    """A model in the form of ONNX, as icefall exports those for CTC.

    The first input is either samples (N, S), or features (N, T, C): the FBANK of lhotse and icefall
    with C bins. A second one, where there is one, is their number. The first output is
    log-posteriors or logits, (N, T', V); a second one, where there is one, is T'.

    Args:
        path: ``.onnx`` file with all its weights in it.
        symbols: of its outputs.
        sampling_rate: of the audio that it was trained on, in Hz.

    Raises:
        ValueError: a package is not installed, or the file cannot be used; names file and reason.
    """

    def __init__(self, path: Path, symbols: Sequence[str], sampling_rate: int = 16000) -> None:
        try:
            import onnx
            import onnxruntime
        except ImportError:
            raise ValueError("onnxruntime or onnx is missing: pip install 'mlvae[onnx]'") from None
        self.symbols = tuple(symbols)
        self.blank = find_blank(self.symbols)
        self.sampling_rate = sampling_rate
        if not Path(path).is_file():
            raise ValueError(f"there is no model {path}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            model = onnx.load(str(path), load_external_data=False)
            for tensor in _messages(model, onnx.TensorProto):
                if tensor.data_location == onnx.TensorProto.EXTERNAL:
                    raise ValueError(
                        f"the weights {tensor.name!r:.60} lie in another file (onnx.save puts what "
                        "onnx.load has read into one)"
                    )
            self.num_params = sum(
                math.prod(one.dims)
                for one in model.graph.initializer
                if one.dims
                and one.data_type not in (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
            )  # scalars and integers are shapes, axes and the like
            self.session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # both packages raise kinds of their own
            raise ValueError(
                f"{path} cannot be read as ONNX: {one_line(error, most=400)}"
            ) from error
        inputs = self.session.get_inputs()
        rank = len(inputs[0].shape)
        if rank not in (2, 3) or len(inputs) > 2:
            shapes = ", ".join(f"{one.name} {one.shape}" for one in inputs)
            raise ValueError(
                f"{path}: samples (N, S) or features (N, T, C), and their number (N,), are wanted "
                f"as inputs, not {shapes:.200}"
            )
        self.inputs = inputs
        self.extractor = None
        if rank == 3:
            bins = inputs[0].shape[2] if isinstance(inputs[0].shape[2], int) else 80
            if not 1 <= bins <= MOST_BINS:
                raise ValueError(
                    f"{path} wants features of {bins} bins, at most {MOST_BINS} are made"
                )
            self.extractor = Fbank(FbankConfig(num_filters=bins, sampling_rate=self.sampling_rate))
        self._measure(path)

    def _log_posteriors(self, samples: torch.Tensor) -> torch.Tensor:
        given = samples.numpy()
        if self.extractor is not None:
            given = self.extractor.extract(given, self.sampling_rate)
        feeds = {self.inputs[0].name: given[None].astype(np.float32)}
        if len(self.inputs) == 2:
            kind = np.int32 if "int32" in self.inputs[1].type else np.int64
            feeds[self.inputs[1].name] = np.array([len(given)], dtype=kind)
        found, *rest = self.session.run(None, feeds)
        length = int(rest[0][0]) if rest and rest[0].ndim == 1 else found.shape[1]
        if not 0 <= length <= found.shape[1]:
            raise ValueError(f"the model says {length} of its {found.shape[1]} frames are there")
        return torch.from_numpy(found[0, :length]).float().log_softmax(-1)


def _messages(message: Any, kind: type) -> Iterator[Any]:
    """All parts of a protobuf message that are of a kind."""
    if isinstance(message, kind):
        yield message
        return
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from _messages(part, kind)


class StoredPosteriors:
    """Posteriors that lie with the cuts: a temporal array of lhotse in a custom field, (T, V).

    Args:
        field: of the cuts' ``custom``.
        symbols: of its columns.
    """

    def __init__(self, field: str, symbols: Sequence[str]) -> None:
        self.field, self.num_params = field, 0
        self.symbols = tuple(symbols)
        self.blank = find_blank(self.symbols)

    def of_cut(self, cut: Cut) -> tuple[torch.Tensor, float]:
        """Probabilities of symbols, float32 (T, V), and the frame shift in seconds.

        Arrays may hold probabilities or their natural logs.

        Raises:
            ValueError: there is no such array, it cannot be read, it is of another shape or length
                than symbols and recording, or its numbers are no probabilities; names the cut.
        """
        manifest = (cut.custom or {}).get(self.field)
        if not isinstance(manifest, TemporalArray):
            raise ValueError(f"{cut.id}: no temporal array {self.field!r} in its custom fields")
        if manifest.array.storage_type not in STORAGES:
            raise ValueError(
                f"{cut.id}: {self.field}: its storage is {manifest.array.storage_type!r:.60}, not "
                f"one of {', '.join(STORAGES)}"
            )
        try:
            found = torch.from_numpy(cut.load_custom(self.field)).float()
        except Exception as error:  # lhotse's storages raise many kinds
            reason = one_line(error, most=400)
            raise ValueError(f"{cut.id}: {self.field} cannot be read: {reason}") from error
        if found.ndim != 2 or found.shape[1] != len(self.symbols) or not len(found):
            raise ValueError(
                f"{cut.id}: {self.field} has shape {tuple(found.shape)}, (T, {len(self.symbols)}) "
                "is wanted"
            )
        missing = cut.duration - len(found) * manifest.frame_shift
        more = manifest.end - cut.recording.duration if cut.has_recording else 0.0
        if max(missing, more) > SLACK + SLACK_RATE * cut.duration:
            raise ValueError(
                f"{cut.id}: {self.field}: {manifest.num_frames} frames of {manifest.frame_shift:g} "
                f"s for {cut.duration:g} s of audio"
            )
        if float(found.max()) <= 1e-3 and float(found.min()) < 0:
            found = found.exp()
        total = found.sum(1, keepdim=True)
        if not bool((found >= 0).all()) or not float((total - 1).abs().max()) < 0.1:
            raise ValueError(f"{cut.id}: {self.field}: its rows are no probabilities that sum to 1")
        return found / total, manifest.frame_shift  # storages may round

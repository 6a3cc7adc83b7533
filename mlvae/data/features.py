"""Stage 1: log mel filter bank features (FBANK) of every cut, by lhotse.

Each cut is computed by itself: lhotse's batched extraction pads with zeros where a lone cut is
mirrored at its end, so that its last frame would depend on its neighbours in the batch.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from lhotse import CutSet, Fbank, FbankConfig, LilcomChunkyWriter, MonoCut
from lhotse.features import Features
from lhotse.utils import compute_num_frames_from_samples

from mlvae.data.audio import AudioError, audio_info
from mlvae.data.clips import SkipReport
from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import SPLITS, write_manifest
from mlvae.made import remove_made
from mlvae.stage import atomic_path, progress

NUM_MEL_BINS = 40
FRAME_LENGTH, FRAME_SHIFT = 0.025, 0.01  # seconds


def fbank_extractor(sampling_rate: int) -> Fbank:
    """40 mel bins, 25 ms window, 10 ms shift, no dither; as many frames as 10 ms steps.

    ``snip_edges=False`` mirrors the signal at its ends, so that T = round(duration / shift).
    """
    config = FbankConfig(
        sampling_rate=sampling_rate,
        num_filters=NUM_MEL_BINS,
        frame_length=FRAME_LENGTH,
        frame_shift=FRAME_SHIFT,
        snip_edges=False,
        dither=0.0,
    )
    return Fbank(config)


def extract(cut: MonoCut, extractor: Fbank) -> np.ndarray:
    """Features (num_frames, 40) float32 of one cut.

    Raises:
        AudioError: if the audio cannot be read, is not what the manifest says it is (length,
            sampling rate), or gives features that are not finite.
    """
    sampling_rate = extractor.config.sampling_rate
    if cut.sampling_rate != sampling_rate:
        raise AudioError(f"sampling rate is {cut.sampling_rate} Hz, the corpus has {sampling_rate}")
    _check_sources(cut)
    try:
        samples = cut.load_audio()
    except Exception as error:  # lhotse's backends raise many kinds; the cut is skipped with it
        raise AudioError(f"not readable as audio: {' '.join(str(error).split())}") from error
    expected = compute_num_frames_from_samples(cut.num_samples, FRAME_SHIFT, sampling_rate)
    if expected == 0:
        raise AudioError(f"{cut.num_samples} samples are too few for one frame")
    features = extractor.extract(samples, sampling_rate)
    if len(features) != expected:
        raise AudioError(f"{len(features)} frames where {expected} are expected")
    if not np.isfinite(features).all():
        raise AudioError("features that are not finite")
    return features


def _check_sources(cut: MonoCut) -> None:
    """Compare files with the manifest: lhotse itself pads or cuts small differences in silence."""
    recording = cut.recording
    if recording.transforms:
        return  # the manifest then speaks of the transformed audio, lhotse checks what it can
    for source in recording.sources:
        if source.type != "file":
            continue
        num_samples, sampling_rate = audio_info(Path(source.source))
        if sampling_rate != recording.sampling_rate:
            raise AudioError(
                f"sampling rate of the file is {sampling_rate} Hz, "
                f"the manifest says {recording.sampling_rate}"
            )
        if num_samples != recording.num_samples:
            kind = "shorter" if num_samples < recording.num_samples else "longer"
            raise AudioError(
                f"audio is {kind} than its manifest says: "
                f"{num_samples} samples, not {recording.num_samples}"
            )


_extractors: dict[int, Fbank] = {}


def _extract_or_reason(cut: MonoCut, sampling_rate: int) -> np.ndarray | str:
    if sampling_rate not in _extractors:
        _extractors[sampling_rate] = fbank_extractor(sampling_rate)
    try:
        return extract(cut, _extractors[sampling_rate])
    except AudioError as error:
        return str(error)


@contextlib.contextmanager
def _workers(num_jobs: int) -> Iterator[Callable]:
    """A ``map`` that keeps the order, over ``num_jobs`` processes if there are several."""
    if num_jobs <= 1:
        yield map
        return
    context = multiprocessing.get_context("spawn")  # a fork may inherit a held thread lock
    with ProcessPoolExecutor(
        num_jobs, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        yield partial(pool.map, chunksize=16)


def written_files(data_dir: Path) -> list[Path]:
    """What `compute_fbank` writes."""
    names = ("feats_{}.lca", "cuts_{}.jsonl.gz")
    return [Path(data_dir) / "fbank" / name.format(split) for split in SPLITS for name in names]


def compute_fbank(data_dir: Path, report: SkipReport, num_jobs: int = 1) -> dict[str, int]:
    """Features of all splits: ``fbank/feats_<split>.lca`` and ``fbank/cuts_<split>.jsonl.gz``.

    A cut that fails is skipped with its reason and is not in the new manifest. A run that is
    killed leaves no manifest that does not fit its feature file.

    Args:
        data_dir: corpus folder, with ``corpus.json`` and ``manifests``.
        report: every cut is counted there.
        num_jobs: processes; the result does not depend on it.

    Returns:
        Number of cuts with features, by split.

    Raises:
        ValueError: if the corpus folder has not been prepared, or something that was not made
            here is in the way.
        OSError: if something cannot be written; names it.
    """
    data_dir = Path(data_dir).resolve()
    corpus_path = data_dir / "corpus.json"
    if not corpus_path.is_file():
        raise ValueError(f"{data_dir} holds no corpus: stage 0 has not been run to its end")
    sampling_rate = json.loads(corpus_path.read_text(encoding="utf-8"))["sampling_rate"]
    cuts = {split: load_cuts(data_dir / "manifests" / f"cuts_{split}.jsonl.gz") for split in SPLITS}
    work = partial(_extract_or_reason, sampling_rate=sampling_rate)
    with _workers(num_jobs) as parallel_map:
        return {
            split: _write_split(
                cuts[split], parallel_map(work, cuts[split]), data_dir, split, report
            )
            for split in SPLITS
        }


def _write_split(
    cuts: CutSet,
    results: Iterable[np.ndarray | str],
    data_dir: Path,
    split: str,
    report: SkipReport,
) -> int:
    feats_path = data_dir / "fbank" / f"feats_{split}.lca"
    manifest = data_dir / "fbank" / f"cuts_{split}.jsonl.gz"
    with_features: list[MonoCut] = []
    with atomic_path(feats_path) as temporary:
        with LilcomChunkyWriter(temporary) as writer:
            for cut, result in zip(progress(cuts, f"fbank {split}", "cut"), results):
                if isinstance(result, str):
                    place = cut.recording.sources[0].source
                    report.skip(cut.id, result, place=str(place))
                    continue
                key = writer.write(cut.id, result)
                with_features.append(_attach(cut, result.shape, feats_path, key))
                report.done()
        remove_made(manifest)  # it belongs to the features that are replaced now
    write_manifest(manifest, with_features)
    return len(with_features)


def _attach(cut: MonoCut, shape: tuple[int, int], path: Path, key: str) -> MonoCut:
    features = Features(
        type=Fbank.name,
        num_frames=shape[0],
        num_features=shape[1],
        frame_shift=FRAME_SHIFT,
        sampling_rate=cut.sampling_rate,
        start=cut.start,
        duration=cut.duration,
        storage_type=LilcomChunkyWriter.name,
        storage_path=str(path),
        storage_key=key,
        recording_id=cut.recording_id,
        channels=cut.channel,
    )
    return replace(cut, features=features)

"""Stage 1: log mel filter bank features (FBANK) of every cut, by lhotse.

Each cut is computed by itself: lhotse's batched extraction pads with zeros where a lone cut is
mirrored at its end, so that its last frame would depend on its neighbours in the batch.

A cut with features has two digests in its custom fields: ``audio_digest`` of the samples that were
read, by which training knows whether it goes on with the same recordings, and ``features_digest``
of what was stored, by which later stages know damaged features.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import lilcom
import numpy as np
from lhotse import Fbank, FbankConfig, LilcomChunkyWriter, MonoCut
from lhotse.features import Features
from lhotse.features.compression import lilcom_compress_chunked
from lhotse.utils import compute_num_frames_from_samples

from mlvae.data.audio import AudioError, read_cut
from mlvae.data.checks import (
    check_audio_apart,
    check_cut,
    check_recordings_apart,
    shared_speakers,
    some,
    source_name,
    with_audio_digest,
)
from mlvae.data.dataset import FRAME_SHIFT, cut_of_line, features_digest, load_cuts, load_features
from mlvae.data.manifests import (
    SOURCE_TYPES,
    SPLITS,
    check_is_cut,
    corpus_files,
    manifest_lines,
    parts_apart,
    place_of,
    read_json,
    shown_id,
    write_json,
    write_manifest,
)
from mlvae.errors import with_type
from mlvae.made import file_digest, remove_made
from mlvae.shard import RUN, Shard, check_done, found_shards
from mlvae.stage import SKIPPED, StageReport, atomic_path, log, progress

NUM_MEL_BINS = 40
FRAME_LENGTH = 0.025  # seconds
#: Features are stored as multiples of 2 to this power.
TICK_POWER = -5


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


def extract(cut: MonoCut, extractor: Fbank, allow_commands: bool = False) -> tuple[np.ndarray, str]:
    """Compute the features of one cut.

    Returns:
        Features (num_frames, 40) float32, and the digest of the audio that was read.

    Raises:
        AudioError: if the audio cannot be read, is not what the manifest says it is, or gives
            features that are not finite; see `read_cut`.
    """
    sampling_rate = extractor.config.sampling_rate
    if cut.recording is None:
        raise AudioError("no audio")
    if cut.sampling_rate != sampling_rate:
        raise AudioError(f"sampling rate is {cut.sampling_rate} Hz, the corpus has {sampling_rate}")
    expected = compute_num_frames_from_samples(cut.num_samples, FRAME_SHIFT, sampling_rate)
    if expected == 0:
        raise AudioError(f"{cut.num_samples} samples are too few for one frame")
    samples, digest = read_cut(cut, allow_commands)
    features = extractor.extract(samples[None, :], sampling_rate)
    if len(features) != expected:
        raise AudioError(f"{len(features)} frames where {expected} are expected")
    if not np.isfinite(features).all():
        raise AudioError("features that are not finite")
    return features, digest


def with_features(cut: MonoCut, extractor: Fbank, allow_commands: bool = False) -> MonoCut:
    """A copy of a cut that carries its features itself, with the losses of what is stored in files.

    Arguments and errors are those of :func:`extract`.
    """
    features, digest = extract(cut, extractor, allow_commands)
    size = LilcomChunkyWriter.CHUNK_SIZE
    pieces = lilcom_compress_chunked(features, tick_power=TICK_POWER, chunk_size=size)
    content = io.BytesIO()
    np.save(content, np.concatenate([lilcom.decompress(piece) for piece in pieces]))
    return _attach(cut, features.shape, digest, "memory_npy", "", content.getvalue())


def written_files(data_dir: Path) -> list[Path]:
    """What `compute_fbank` writes."""
    names = ("feats_{}.lca", "cuts_{}.jsonl.gz")
    return [Path(data_dir) / "fbank" / name.format(split) for split in SPLITS for name in names]


def compute_fbank(
    data_dir: Path,
    report: StageReport,
    allow_commands: bool = False,
    allow_shared: bool = False,
    shard: Shard | None = None,
) -> dict[str, int]:
    """Features of all splits: ``fbank/feats_<split>.lca`` and ``fbank/cuts_<split>.jsonl.gz``.

    A cut that fails is skipped with its reason and is not in the new manifest. All is computed
    anew, whatever lies there: audio may have changed behind the same manifests. A run that is
    killed leaves no manifest that does not fit its feature file.

    Args:
        data_dir: corpus folder, with ``corpus.json`` and ``manifests``.
        report: every cut is counted there, once where test is everything.
        allow_commands: whether sources of audio may be shell commands, which are then run. The new
            manifests leave them out: later stages run none.
        allow_shared: whether splits may share recordings. Test may where ``corpus.json`` says that
            it is everything (``"test": "all"``).
        shard: the part to compute, of cuts by their ids, which goes to the shard's own folder;
            None: all, or what shards have left is joined, to the same files. Shards stay.

    Returns:
        Number of cuts with features, by split.

    Raises:
        ValueError: if the corpus folder has not been prepared, a manifest is damaged, splits share
            recordings, something that was not made here is in the way, or shards are not done, or
            of other manifests.
        OSError: if something cannot be written; names it.
    """
    data_dir = Path(data_dir).resolve()
    sampling_rate, units_come_later, apart = _corpus(data_dir / "corpus.json")
    reports = {split: report if split in apart else report.again() for split in SPLITS}
    cuts = _sound_cuts(
        data_dir / "manifests", reports, allow_commands, units_come_later, apart, shard
    )
    warning = shared_speakers({split: cuts[split] for split in apart})
    if warning is not None:
        log(f"stage 1 fbank: warning: {warning}")
    if not allow_shared:
        check_recordings_apart({split: cuts[split] for split in apart})
    run = {
        "allow_commands": allow_commands,
        "manifests": [file_digest(path) for path in corpus_files(data_dir, with_reference=False)],
    }
    shards = {} if shard else found_shards(data_dir)
    if shards:
        count = next(iter(shards)).count
        due = {Shard.of_id(cut.id, count) for cut in itertools.chain(*cuts.values())}
        check_done(shards, due, {RUN: run}, data_dir)
        shards = {one: shards[one] for one in sorted(due)}
    home = data_dir
    if shard is not None:
        home = shard.folder(data_dir)
        cuts = {
            split: [cut for cut in some if Shard.of_id(cut.id, shard.count) == shard]
            for split, some in cuts.items()
        }
        remove_made(home / RUN)
    folder = home / "fbank"
    extractor = fbank_extractor(sampling_rate)
    manifests = {split: folder / f"cuts_{split}.jsonl.gz" for split in SPLITS}
    before = _digests_before(manifests.values())
    made: dict[str, list[MonoCut]] = {}
    with contextlib.ExitStack() as stack:
        for split in SPLITS:
            feats_path = folder / f"feats_{split}.lca"
            temporary = stack.enter_context(atomic_path(feats_path))
            if shards:
                own = _join(cuts[split], shards, temporary, feats_path, reports[split])
            else:
                own = []
                with LilcomChunkyWriter(temporary, tick_power=TICK_POWER) as writer:
                    for cut in progress(cuts[split], f"fbank {split}", "cut"):
                        try:
                            own.append(_stored(cut, extractor, writer, allow_commands))
                        except AudioError as error:
                            reports[split].skip(cut.id, str(error), place=source_name(cut))
                # What is read back is what later stages must find.
                own = [_with_features_digest(cut) for cut in own]
            made[split] = [_at(cut, feats_path) for cut in own]
        if not allow_shared:
            check_audio_apart({split: made[split] for split in apart})
        changed = [
            cut.id
            for cut in itertools.chain(*made.values())
            if before.get(cut.id, cut.custom["audio_digest"]) != cut.custom["audio_digest"]
        ]
        if changed:
            log(
                f"stage 1 fbank: not the audio of the last run: {some(changed)}: what the stages "
                "from 3 on have made is of the former"
            )
        for manifest in manifests.values():
            remove_made(manifest)  # they belong to the features that are replaced now
    for split in SPLITS:
        write_manifest(manifests[split], made[split])
        reports[split].done(len(made[split]))
    if shard is not None:
        report.finish()  # it has reasons that are joined, too
        write_json(home / RUN, run)
    return {split: len(own) for split, own in made.items()}


def _digests_before(manifests: Iterable[Path]) -> dict[str, str]:
    """What the audio of cuts was when the stage was last run; those that cannot be read are new."""
    digests: dict[str, str] = {}
    for manifest in manifests:
        with contextlib.suppress(ValueError):
            for cut in load_cuts(manifest):
                if digest := (cut.custom or {}).get("audio_digest"):
                    digests[cut.id] = digest
    return digests


def _corpus(path: Path) -> tuple[int, bool, tuple[str, ...]]:
    """Sampling rate of a corpus, whether its units are made of words in stage 2, and its parts.

    The parts are those that have nothing in common: without test where that is everything.
    """
    if not path.is_file():
        raise ValueError(f"{path.parent} holds no corpus: stage 0 has not been run to its end")
    try:
        about = read_json(path)
        sampling_rate = about["sampling_rate"]
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path}: no JSON object with a sampling_rate: {error!r}") from error
    if isinstance(sampling_rate, bool) or not isinstance(sampling_rate, int) or sampling_rate < 1:
        raise ValueError(f"{path}: sampling_rate must be a positive number, not {sampling_rate!r}")
    return sampling_rate, about.get("unit") == "bpe", parts_apart(about)


def _sound_cuts(
    folder: Path,
    reports: Mapping[str, StageReport],
    allow_commands: bool,
    units_come_later: bool,
    apart: Sequence[str],
    shard: Shard | None,
) -> dict[str, list[MonoCut]]:
    """The cuts that make sense, by split; the others, of a shard its own, are skipped by place.

    Ids differ within a split, and between those that are to be apart.
    """
    cuts: dict[str, list[MonoCut]] = {split: [] for split in SPLITS}
    taken: dict[str, tuple[str, str]] = {}
    for split in SPLITS:
        if split not in apart:
            taken = {}
        path = folder / f"cuts_{split}.jsonl.gz"
        if not path.is_file():
            raise ValueError(f"no manifest {path}: run the stage before this one")
        for number, content in manifest_lines(path):
            place = place_of(path, number)
            check_is_cut(content, place)
            name = shown_id(content)
            try:
                cut = cut_of_line(content, place, allow_commands)
                check_cut(cut, units_come_later)
                if cut.id in taken:
                    other, first = taken[cut.id]
                    raise ValueError(
                        f"its id is that of another cut ({first}): this one is of "
                        f"{source_name(cut)}, that one of {other}"
                    )
            except ValueError as error:
                if shard is None or Shard.of_id(name, shard.count) == shard:
                    reason = str(error).removeprefix(f"{place}: {name}: ")
                    reports[split].skip(name, reason, place=place)
            else:
                taken[cut.id] = (source_name(cut), place)
                cuts[split].append(cut)
    return cuts


def _stored(
    cut: MonoCut, extractor: Fbank, writer: LilcomChunkyWriter, allow_commands: bool
) -> MonoCut:
    """A cut whose features are in a file, with the digest of its audio."""
    try:
        features, digest = extract(cut, extractor, allow_commands)
    except AudioError:
        raise
    except Exception as error:  # whatever is wrong with one cut, the others go on
        raise AudioError(f"not readable as audio: {with_type(error)}") from error
    key = writer.write(cut.id, features)
    return _attach(cut, features.shape, digest, writer.name, str(writer.storage_path), key)


def _with_features_digest(cut: MonoCut) -> MonoCut:
    digest = features_digest(load_features(cut))
    return replace(cut, custom={**cut.custom, "features_digest": digest})


def _join(
    cuts: list[MonoCut],
    shards: Mapping[Shard, Path],
    path: Path,
    feats_path: Path,
    report: StageReport,
) -> list[MonoCut]:
    """Write a feature file of those of shards, as they are stored; the cuts, as if made here."""
    found: dict[str, MonoCut] = {}
    reasons: dict[tuple[str, str], str] = {}
    for home in shards.values():
        name = feats_path.name.replace("feats_", "cuts_").replace(".lca", ".jsonl.gz")
        found.update((cut.id, cut) for cut in load_cuts(home / "fbank" / name))
        for _, line in manifest_lines(home / SKIPPED):
            reasons[line["id"], line.get("source", "")] = line["reason"]
    made = []
    with path.open("wb") as file:
        for cut in cuts:
            if cut.id not in found:
                place = source_name(cut)
                report.skip(cut.id, reasons.get((cut.id, place), "no features"), place=place)
                continue
            stored = found[cut.id].features
            offset, *sizes = map(int, stored.storage_key.split(","))
            key = ",".join(map(str, (file.tell(), *sizes)))
            with open(stored.storage_path, "rb") as part:
                part.seek(offset)
                content = part.read(sum(sizes))
            if len(content) < sum(sizes):
                raise ValueError(f"{stored.storage_path} ends before the features of {cut.id} do")
            file.write(content)
            stored = replace(stored, storage_path=str(path), storage_key=key)
            made.append(replace(found[cut.id], features=stored, recording=cut.recording))
    return made


def _at(cut: MonoCut, path: Path) -> MonoCut:
    """A cut whose features lie in a file of another name, without commands."""
    features = replace(cut.features, storage_path=str(path))
    is_file = all(source.type in SOURCE_TYPES for source in cut.recording.sources)
    return replace(cut, features=features, recording=cut.recording if is_file else None)


def _attach(
    cut: MonoCut, shape: tuple[int, int], digest: str, kind: str, path: str, key: str | bytes
) -> MonoCut:
    """A cut with features that are stored somewhere, and with the digest of its audio."""
    features = Features(
        type=Fbank.name,
        num_frames=shape[0],
        num_features=shape[1],
        frame_shift=FRAME_SHIFT,
        sampling_rate=cut.sampling_rate,
        start=cut.start,
        duration=cut.duration,
        storage_type=kind,
        storage_path=path,
        storage_key=key,
        recording_id=cut.recording_id,
        channels=cut.channel,
    )
    return with_audio_digest(replace(cut, features=features), digest)

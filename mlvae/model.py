"""A trained model that is ready to answer: :func:`load` reads one from a model folder.

Recordings are worked on in portions of bounded length, so that any number of them takes no more
memory than the largest portion.
"""

from __future__ import annotations

import contextlib
import math
import random
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lhotse import CutSet, Fbank, MonoCut
from lhotse.utils import fastcopy
from torch.overrides import TorchFunctionMode

from mlvae.answers import Answer, answer_of
from mlvae.config import CONFIG, RecipeConfig, load_config
from mlvae.data.audio import memory_recording
from mlvae.data.bpe import with_tokens
from mlvae.data.checks import check_cut, check_unit
from mlvae.data.dataset import UnitDataset
from mlvae.data.features import with_features
from mlvae.data.g2p import g2p_of
from mlvae.data.lexicon import Lexicon, read_lexicon, read_words
from mlvae.data.manifests import check_sources, recording_cut
from mlvae.data.text import spelt_words
from mlvae.data.units import UnitTable, canonical_units
from mlvae.device import denormals_flushed, select_device
from mlvae.errors import one_line, with_type
from mlvae.model_folder import (
    ABOUT,
    ALIGNER,
    BPE,
    LEXICON,
    TOKENS,
    bpe_processor,
    check_files,
    extractor_of,
    other_versions,
    read_about,
    tensors_in,
)
from mlvae.portions import portions, speaker_of
from mlvae.program import LONG_CUT
from mlvae.systems import KINDS, Setup, TrainedSystem
from mlvae.systems.align import Aligner
from mlvae.systems.localize import BATCH_FRAMES


class OtherVersions(UserWarning):
    """A model was packed with other versions of what answers depend on."""


def load(
    folder: Path | str, device: str = "cpu", lexicon: Path | None = None, g2p: bool = False
) -> Model:
    """Read a model folder; a warning names packages of other versions than it was packed with.

    Args:
        folder: what :func:`pack` wrote; it may come from anybody.
        device: ``auto``, ``cpu`` or ``cuda``.
        lexicon: pronunciations that replace those of the folder, or are added to them.
        g2p: whether words that are in no lexicon are read by rules, see :mod:`mlvae.data.g2p`, in
            the language that the folder says.

    Raises:
        ValueError: it is no model folder, is damaged, of another form, or does not fit what is
            installed; one line that names file and reason.
        OSError: a file cannot be read.

    Example::

        model = mlvae.load("models/digits")
        answer = model.localize_recording(samples, 16000, "one two three")
        [(unit.symbol, unit.perceived, unit.p_mispronounced) for unit in answer.units]
    """
    folder = Path(folder)
    try:
        about = read_about(folder)
        check_files(folder, about)
        if others := other_versions(about["versions"]):
            warnings.warn(f"{folder}: {others}", OtherVersions, stacklevel=3)
        return _load(folder, about, select_device(device), lexicon, g2p)
    except (ValueError, OSError):
        raise
    except Exception as error:  # whatever somebody has put there
        reason = with_type(error)
        raise ValueError(f"{folder} cannot be read as a model: {reason}") from error


def _load(
    folder: Path,
    about: dict[str, Any],
    device: torch.device,
    lexicon: Path | None,
    with_g2p: bool,
) -> Model:
    name = about["system"]
    config = load_config(folder / CONFIG, [name], with_bases=False)
    if config.system(name).kind != about["kind"]:
        raise ValueError(
            f"{folder / CONFIG}: {name} is of kind {config.system(name).kind}, {ABOUT} says "
            f"{about['kind']}"
        )
    for setting in KINDS[about["kind"]].files:
        if getattr(config.system(name).settings, setting):
            raise ValueError(f"{folder / CONFIG}: systems.{name}.{setting} leads out of the folder")
    # Whatever aligners were trained with, of which memory needs less.
    config.align.search_frames = min(config.align.search_frames, BATCH_FRAMES)
    table = UnitTable.load(folder / TOKENS)
    for symbol in table.symbols:
        check_unit(symbol)
    extractor = extractor_of(folder, about)
    numbers = sum(tensors_in(folder / file) for file in about["files"] if file.endswith("tensors"))
    blank = CutSet.from_cuts([_blank_cut(extractor)])
    dataset = UnitDataset(table, deltas=config.deltas)
    with _random_numbers_kept(), _Budget(folder / CONFIG, 4 * numbers + 2**20):
        num_features = extractor.feature_dim(about["sampling_rate"])
        aligner = Aligner(num_features, len(table), config.silence, config.align, device)
        aligner.load(folder / ALIGNER)
        setup = Setup(name, config, dataset, device, about["seed"], folder / name, aligner=aligner)
        system = KINDS[about["kind"]].load(setup, blank)
    if system is None:
        raise ValueError(f"{folder} holds no trained system")
    texts = Texts(folder, about["text"], table, lexicon, with_g2p)
    return Model(folder, about, config, table, extractor, aligner, system, texts)


class _Budget(TorchFunctionMode):
    """Refuses to make more numbers than a model's files can have, before memory is taken.

    Sizes of networks stand in the configuration, and a wrong one may ask for anything.
    """

    def __init__(self, path: Path, numbers: int) -> None:
        super().__init__()
        self.path, self.left = path, numbers

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn):
            size = kwargs.get("size", args[0] if args else ())
            sizes = size if isinstance(size, (tuple, list)) else args
            self.left -= math.prod(n for n in sizes if isinstance(n, int))
            if self.left < 0:
                raise ValueError(
                    f"{self.path}: the networks that it describes are larger than the weights in "
                    "the folder"
                )
        return func(*args, **kwargs)


@contextlib.contextmanager
def _random_numbers_kept() -> Iterator[None]:
    """Loading seeds the generators of Python, numpy and torch, which are the caller's."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])


def _blank_cut(extractor: Fbank) -> MonoCut:
    """A cut of a tenth of a second, as loading looks at the dimension of features."""
    samples = np.zeros(extractor.config.sampling_rate // 10, np.float32)
    samples[0] = 0.1  # silence is refused
    cut = recording_cut(memory_recording("blank", samples, extractor.config.sampling_rate), {})
    return with_features(cut, extractor)


class Texts:
    """How the texts of a model become units, see :data:`TEXTS`."""

    def __init__(
        self,
        folder: Path,
        said: Mapping[str, Any],
        table: UnitTable,
        lexicon: Path | None,
        with_g2p: bool = False,
    ) -> None:
        self.table = table
        self.kind = said["units"]
        self.several = said.get("all_pronunciations") is True
        if lexicon is not None and self.kind != "lexicon":
            raise ValueError(f"{folder}: a lexicon is of no use, its texts are {self.kind}")
        g2p = said.get("g2p")
        if with_g2p and not isinstance(g2p, dict):
            raise ValueError(
                f"{folder} does not say how unknown words are read: no g2p (`mlvae pack --g2p`)"
            )
        if self.kind == "lexicon":
            arpabet = said.get("arpabet") is True
            entries = read_words(folder / LEXICON)
            if lexicon is not None:
                entries.update(read_lexicon(lexicon) if arpabet else read_words(lexicon))
            self.lexicon = Lexicon(
                entries,
                None if arpabet else table.symbols,
                g2p_of(g2p, arpabet, table.symbols) if with_g2p else None,
            )
        if self.kind == "bpe":
            self.processor = bpe_processor(folder / BPE)

    def with_units(self, cut: MonoCut) -> MonoCut:
        """A copy of a cut with one supervision that has the canonical units of its text.

        Raises:
            ValueError: the text is missing or empty, or has words that are not known.
        """
        (supervision,) = cut.supervisions
        text = supervision.text
        if not isinstance(text, str) or not text.strip():
            raise ValueError("no text")
        custom = dict(supervision.custom or {})
        if self.kind == "units":
            custom["units"] = text.split()
        elif self.kind == "lexicon":
            custom.update(self._by_lexicon(text))
        else:
            custom["words"] = spelt_words(text)
        cut = fastcopy(cut, supervisions=[fastcopy(supervision, custom=custom)])
        return with_tokens(cut, self.processor) if self.kind == "bpe" else cut

    def _by_lexicon(self, text: str) -> dict[str, Any]:
        custom = self.lexicon.fields(text)
        found = custom.pop("pronunciations")
        if self.several:
            custom["pronunciations"] = [
                [units for units in some if all(unit in self.table for unit in units)]
                for some in found
            ]
        return custom


@dataclass(frozen=True)
class Localized:
    """What :meth:`Model.localize` returns."""

    answers: list[Answer]  # of the cuts that could be used, in their order
    skipped: dict[str, str]  # by id of each other cut the reason


@dataclass(frozen=True)
class Model:
    """A trained model that is ready to answer; :func:`load` makes one."""

    folder: Path  # where it was read
    about: dict[str, Any]  # the content of ``model.json``
    config: RecipeConfig  # of the system
    table: UnitTable  # symbols and ids of its units
    extractor: Fbank  # of its features
    aligner: Aligner  # forced alignment
    system: TrainedSystem  # what localises
    texts: Texts  # how texts become units

    @property
    def sampling_rate(self) -> int:
        """Hz, of the audio that features are made of; other audio is resampled."""
        return self.about["sampling_rate"]

    def localize(self, cuts: Iterable[MonoCut], allow_commands: bool = False) -> Localized:
        """Find what does not match the text.

        Cuts are worked on in portions, so that besides the answers little is in memory; within a
        portion a judge takes what a speaker's cuts say together. See :func:`portions`.

        Args:
            cuts: with audio and one supervision each, which has a text, or canonical units in
                ``custom["units"]``; of any sampling rate. Ids differ.
            allow_commands: whether audio may be the output of shell commands that cuts name.
        """
        answers: list[Answer] = []
        skipped: dict[str, str] = {}

        def prepared() -> Iterator[MonoCut]:
            for cut in cuts:
                try:
                    yield self._prepared(cut, allow_commands)
                except (ValueError, OSError) as error:
                    skipped[cut.id] = one_line(error).removeprefix(f"{cut.id}: ")
                except Exception as error:  # whatever is wrong with one cut, the others go on
                    skipped[cut.id] = with_type(error)

        for portion in portions(prepared(), lambda cut: cut.duration, speaker_of):
            self._answer_each(portion, answers, skipped)
        return Localized(answers, skipped)

    def localize_recording(self, audio: np.ndarray, sampling_rate: int, text: str) -> Answer:
        """Find what does not match the text in a recording that is in memory.

        Args:
            audio: samples (num_samples,) of one channel, floats in [-1, 1].
            sampling_rate: of the audio in Hz.
            text: what should be said.

        Raises:
            ValueError: audio or text cannot be used; says why.
        """
        samples = np.asarray(audio, dtype=np.float32)
        if samples.ndim != 1 or not len(samples):
            raise ValueError(f"audio of shape {samples.shape} where (num_samples,) is expected")
        recording = memory_recording("recording", samples, sampling_rate)
        found = self.localize([recording_cut(recording, {}, text=text)])
        for reason in found.skipped.values():
            raise ValueError(reason)
        return found.answers[0]

    def _prepared(self, cut: MonoCut, allow_commands: bool) -> MonoCut:
        """A cut with canonical units of the table and features; ValueError says why not."""
        if not isinstance(cut, MonoCut):
            raise ValueError(f"a {type(cut).__name__}, where a MonoCut is expected")
        if len(cut.supervisions) != 1:
            raise ValueError(f"{len(cut.supervisions)} supervisions where one is expected")
        check_sources(cut.recording.to_dict() if cut.recording else {}, allow_commands)
        cut = fastcopy(cut, features=None)
        if not (cut.supervisions[0].custom or {}).get("units"):
            cut = self.texts.with_units(cut)
        check_cut(cut)
        units = self.table.ids(canonical_units(cut), cut.id)
        if cut.recording is not None and cut.sampling_rate != self.sampling_rate:
            cut = cut.resample(self.sampling_rate)
        cut = with_features(cut, self.extractor, allow_commands)
        if cut.num_frames < len(units):
            raise ValueError(f"{cut.num_frames} frames for {len(units)} units")
        if hasattr(self.system, "check"):
            self.system.check(cut)
        return cut

    def _answer_each(
        self, cuts: Sequence[MonoCut], answers: list[Answer], skipped: dict[str, str]
    ) -> None:
        """Answer cuts together; where that fails, without those of them that fail alone."""
        try:
            found, short = self._answered(cuts)
        except Exception as error:  # whatever is wrong with one of them
            if len(cuts) == 1:
                skipped[cuts[0].id] = with_type(error)
                return
            half = len(cuts) // 2
            parts = [cuts[:half], cuts[half:]]
            failing = {name: reason for part in parts for name, reason in self._failing(part)}
            if failing:  # otherwise all of them are too many, for the memory perhaps
                skipped.update(failing)
                parts = [[cut for cut in cuts if cut.id not in failing]]
            for part in filter(None, parts):
                self._answer_each(part, answers, skipped)
            return
        answers += found
        skipped.update(short)

    def _failing(self, cuts: Sequence[MonoCut]) -> Iterator[tuple[str, str]]:
        """Ids of the cuts that fail, with reasons, found by halves."""
        try:
            self._answered(cuts)
        except Exception as error:
            if len(cuts) == 1:
                yield cuts[0].id, with_type(error)
                return
            half = len(cuts) // 2
            yield from self._failing(cuts[:half])
            yield from self._failing(cuts[half:])

    def _answered(self, cuts: Sequence[MonoCut]) -> tuple[list[Answer], dict[str, str]]:
        """Align and localise cuts; also the ids of those without an answer, with reasons."""
        answers: list[Answer] = []
        skipped: dict[str, str] = {}
        with contextlib.ExitStack() as stack:
            if hasattr(self.system, "dataset"):  # ids may come again, and memory is not to grow
                stack.callback(self.system.dataset.forget)
            stack.enter_context(denormals_flushed())
            stack.enter_context(self.aligner.keeping())
            stack.enter_context(warnings.catch_warnings())
            # A recording that is longer than a batch is a batch of its own.
            warnings.filterwarnings("ignore", message=LONG_CUT)
            features = UnitDataset(self.table)
            aligned, short = self.aligner.align(CutSet.from_cuts(cuts), features)
            for cut_id in short:
                skipped[cut_id] = "too short for its units, or they find no place in its speech"
            aligned = CutSet.from_cuts(self.aligner.with_fit(cut, features) for cut in aligned)
            localized, short = self.system.localize(aligned) if len(aligned) else ((), ())
            for cut_id in short:
                skipped[cut_id] = "too short for its units"
            for cut in localized:
                custom = {k: v for k, v in cut.custom.items() if k != "dataloading_info"}
                answers.append(answer_of(fastcopy(cut, features=None, custom=custom)))
        return answers, skipped

"""A trained model as a folder that is whole: written by :func:`pack`, read by :mod:`mlvae.model`.

The folder holds safetensors, YAML, JSON and text, and no path of a machine; see docs/formats.md. It
may come from anybody: nothing in it is executed, nothing outside of it is read, and what would take
more memory than its files have bytes is refused before it is made.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lhotse import CutSet, Fbank, MonoCut

import mlvae
from mlvae.config import CONFIG, load_config, write_config
from mlvae.data.dataset import load_cuts
from mlvae.data.features import fbank_extractor
from mlvae.data.g2p import check_g2p, g2p_fields
from mlvae.data.lexicon import PHONES, Lexicon, Pronunciation, read_lexicon, read_words
from mlvae.data.manifests import read_json, write_json
from mlvae.data.text import normalized
from mlvae.data.units import UnitTable, canonical_units
from mlvae.environment import versions
from mlvae.errors import with_type
from mlvae.made import file_digest
from mlvae.stage import log, made_tree
from mlvae.systems import KINDS, MADE_BY_SYSTEMS
from mlvae.tiers import units_of_words

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

#: The file that says what a folder is; it is written last.
ABOUT = "model.json"
TOKENS, LEXICON, BPE = "tokens.txt", "lexicon.txt", "bpe.model"
ALIGNER = "fa/model.safetensors"
#: Of the form of the folder. Another number is another form, which is not guessed at.
FORMAT = 1

#: Largest files in bytes, by the end of the name; headers of safetensors have a limit of their own.
LARGEST = {
    ".json": 2**20,
    ".yaml": 2**20,
    ".txt": 2**25,
    ".model": 2**24,
    ".safetensors": 2**33,
    ".onnx": 2**31,
}
LARGEST_HEADER = 2**20
#: What pickles are named; of a name like these no file may lie in the folder.
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin", ".joblib")
#: Packages that read acoustic models of other people.
READERS = ("transformers", "onnxruntime")
#: How texts become units: pronunciations of words, BPE tokens of words, or units as they are.
TEXTS = ("lexicon", "bpe", "units")


# ---- Writing


def pack(
    system_folder: Path,
    folder: Path,
    data_dir: Path | None = None,
    config: Path | None = None,
    lexicon: Path | None = None,
    licence: str | None = None,
    g2p: str | None = None,
    g2p_table: Path | None = None,
) -> dict[str, Any]:
    """Write a model folder from what the stages 0 to 4 (and 6) have left.

    Args:
        system_folder: of a trained system, ``EXP_DIR/RECIPE/CORPUS/CONFIG/SYSTEM``.
        folder: to write; what an earlier run wrote there is replaced.
        data_dir: ``DATA_DIR/CORPUS``; None: where the features of the training cuts lie.
        config: configuration of the training; None: ``config.yaml``, which stage 4 leaves in the
            system's folder.
        lexicon: pronunciations besides those of the training text, see
            :func:`mlvae.data.lexicon.read_lexicon`.
        licence: of the data, in words; None: as ``corpus.json`` has it.
        g2p: language in which :func:`mlvae.model.load` may read words that are in no lexicon; None:
            that of stage 0, or American English where units are ARPAbet.
        g2p_table: by IPA symbol of espeak-ng the units that it is, lines ``symbol unit unit ...``.

    Returns:
        The content of ``model.json``.

    Raises:
        ValueError: the system is not trained to its end, or files are missing or do not fit.
        OSError: something cannot be read or written.
    """
    system_folder = Path(os.path.abspath(system_folder))
    name, experiment = system_folder.name, system_folder.parent
    if not (system_folder / "training.json").is_file():
        raise ValueError(f"{system_folder} holds no system that is trained to its end: stage 4")
    training = read_json(system_folder / "training.json")
    if "unavailable" in training:
        raise ValueError(f"{system_folder} was not trained: {training['unavailable']}")
    if config is None and not (system_folder / CONFIG).is_file():
        raise ValueError(
            f"{system_folder} has no {CONFIG}, as it was trained by an earlier version: say the "
            "configuration of the training with --config"
        )
    settings = load_config(config or system_folder / CONFIG, [name])
    if KINDS[settings.system(name).kind].load is None:
        raise ValueError(f"{name} flags nothing: there is no model of it to pack")
    kind, packed = KINDS[settings.system(name).kind], copy.copy(settings.system(name).settings)
    cuts = {s: load_cuts(experiment / "fa" / f"cuts_{s}.jsonl.gz") for s in ("train", "valid")}
    data_dir = data_dir or _data_dir_of(cuts["train"])
    table = UnitTable.load(data_dir / "units" / TOKENS)
    corpus = read_json(data_dir / "corpus.json")
    if g2p is not None:
        corpus["g2p"] = g2p_fields(g2p, g2p_table)
        check_g2p(corpus["g2p"], arpabet=False)  # before anything is written
    with made_tree(folder, "pack", ABOUT) as fresh:
        (fresh / name).mkdir()
        (fresh / "fa").mkdir()
        own = kind.pack(packed, fresh / name) if kind.pack else {}
        for file in kind.files:
            setattr(settings.system(name).settings, file, "")
        write_config(fresh / CONFIG, settings, name)
        if load_config(fresh / CONFIG, [name]).system(name).settings != (
            settings.system(name).settings
        ):
            raise ValueError(f"the settings of {name} cannot be written as YAML")
        table.save(fresh / TOKENS)
        _copy(experiment / ALIGNER, fresh / ALIGNER)
        for file in (*MADE_BY_SYSTEMS, "training.json"):
            if "checkpoint" not in file and (system_folder / file).is_file():
                _copy(system_folder / file, fresh / name / file)
        text = _pack_text(fresh, cuts, table, corpus, data_dir, lexicon)
        if text["units"] != "lexicon" and (lexicon is not None or g2p is not None):
            raise ValueError(f"texts of {name} are {text['units']}: no lexicon, and no g2p")
        if text["units"] == "lexicon" and (text["arpabet"] or "g2p" in corpus):
            text["g2p"] = corpus.get("g2p", {"language": "en-us"})
            check_g2p(text["g2p"], text["arpabet"])
        features = asdict(fbank_extractor(corpus["sampling_rate"]).config)
        about = {
            "format": FORMAT,
            "system": name,
            "label": settings.system(name).label,
            "kind": settings.system(name).kind,
            **({settings.system(name).kind: own} if own else {}),
            "sampling_rate": corpus["sampling_rate"],
            "features": {key: value for key, value in features.items() if key != "device"},
            "text": text,
            "seed": training["seed"],
            "trained_on": _trained_on(cuts["train"], corpus, licence),
            "commit": _commit(),
            "versions": versions([own["package"]] if own.get("package") else []),
            "figures": _figures(experiment / "results.json", settings.system(name).label),
            "files": {
                str(path.relative_to(fresh)): {
                    "size": path.stat().st_size,
                    "sha256": file_digest(path),
                }
                for path in sorted(fresh.rglob("*"))
                if path.is_file()
            },
        }
        write_json(fresh / ABOUT, about)
    return about


def _data_dir_of(cuts: CutSet) -> Path:
    """Where stages 0 to 2 have written what cuts with features are made of."""
    path = next((Path(cut.features.storage_path) for cut in cuts if cut.has_features), None)
    if path is None or not (path.parents[1] / "corpus.json").is_file():
        raise ValueError(
            "the data folder is not where the features of the training cuts lie: say --data-dir"
        )
    return path.parents[1]


def _pack_text(
    fresh: Path,
    cuts: Mapping[str, CutSet],
    table: UnitTable,
    corpus: Mapping[str, Any],
    data_dir: Path,
    lexicon: Path | None,
) -> dict[str, Any]:
    """Write what texts become units by; says which of :data:`TEXTS` it is."""
    if corpus.get("unit") == "bpe":
        _copy(data_dir / "units" / BPE, fresh / BPE)
        return {"units": "bpe"}
    known = words_of_cuts([*cuts["train"], *cuts["valid"]])
    trained = words_of_cuts(cuts["train"])
    for cut in cuts["valid"]:
        for word in cut.supervisions[0].custom.get("g2p", ()):
            if word not in trained:
                known.pop(word, None)
    languages = {str(s.language).lower() for cut in cuts["train"] for s in cut.supervisions}
    # Units of a lexicon of one's own may look like phones, and are its own all the same.
    arpabet = corpus.get("unit") != "lexicon" and set(table.symbols) <= set(PHONES)
    if arpabet and all(language in ("none", "en", "eng", "english") for language in languages):
        entries = {**Lexicon.load().entries(), **known}
    elif known:
        entries = dict(known)
    else:
        return {"units": "units"}
    if lexicon is not None:
        entries.update(read_lexicon(lexicon) if arpabet else read_words(lexicon))
    lines = [
        f"{word}\t{' '.join(units)}\n"
        for word, pronunciations in sorted(entries.items())
        for units in pronunciations
        if set(units) <= set(table.symbols)
    ]
    (fresh / LEXICON).write_text("".join(lines), encoding="utf-8")
    several = any("pronunciations" in cut.supervisions[0].custom for cut in cuts["train"])
    return {"units": "lexicon", "arpabet": arpabet, "all_pronunciations": several}


def words_of_cuts(cuts: Iterable[MonoCut]) -> dict[str, tuple[Pronunciation, ...]]:
    """The words of cuts with their units, those that are most frequent first.

    Words are spelt as texts are compared (:func:`mlvae.data.text.normalized`); what has a blank in
    it is no word of a text.
    """
    counts: dict[str, Counter[Pronunciation]] = {}
    for cut in cuts:
        word_of, custom = units_of_words(cut), cut.supervisions[0].custom
        if word_of is None:
            continue
        units = canonical_units(cut)
        others = custom.get("pronunciations") or [()] * len(custom["words"])
        for place, (word, also) in enumerate(zip(custom["words"], others)):
            own = tuple(unit for unit, of in zip(units, word_of) if of == place)
            found = counts.setdefault(normalized(word), Counter())
            found[own] += 1
            found.update({tuple(pronunciation): 0 for pronunciation in also})
    return {
        word: tuple(units for units, _ in found.most_common())
        for word, found in counts.items()
        if len(word.split()) == 1
    }


def _trained_on(cuts: CutSet, corpus: Mapping[str, Any], licence: str | None) -> dict[str, Any]:
    speakers = {s.speaker for cut in cuts for s in cut.supervisions if s.speaker}
    languages = {str(s.language) for cut in cuts for s in cut.supervisions if s.language}
    return {
        "title": corpus.get("title"),
        "corpus": corpus.get("corpus"),
        "synthetic": corpus.get("synthetic", False),
        "hours": round(sum(cut.duration for cut in cuts) / 3600, 3),
        "utterances": len(cuts),
        "speakers": len(speakers) or None,
        "languages": sorted(languages),
        "licence": licence or corpus.get("licence"),
    }


def _figures(path: Path, label: str) -> dict[str, Any] | None:
    """The row of a system in the results of stage 6; None where it has not been scored."""
    if not path.is_file():
        return None
    return read_json(path).get("systems", {}).get(label)


def _commit() -> str | None:
    """The commit of the checkout that this runs from; None outside of one."""
    root = Path(mlvae.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    with contextlib.suppress(OSError):
        found = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, encoding="utf-8"
        )
        return found.stdout.strip() or None
    return None


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise ValueError(f"{source} is missing: run the stage that makes it")
    target.write_bytes(source.read_bytes())


# ---- Reading


#: What model.json must have, and of which type.
_ABOUT = {
    "system": str,
    "kind": str,
    "sampling_rate": int,
    "features": dict,
    "text": dict,
    "seed": int,
    "trained_on": dict,
    "versions": dict,
    "files": dict,
}


def other_versions(packed: Mapping[str, Any]) -> str:
    """One line about packages that are here in other versions than a model was packed with.

    Empty where there is none. A model is read all the same; its answers may differ in the last
    digits, and more where features or the search are computed otherwise.
    """
    others = [name for name in READERS if name in packed]
    here = versions(others)
    named = ("mlvae", "torch", "k2", "lhotse", *others)
    wrong = [
        f"{name} {packed.get(name)!s:.40}, here {here[name]}"
        for name in named
        if packed.get(name) != here[name]
    ]
    return f"packed with {'; '.join(wrong)}: answers may differ" if wrong else ""


def read_about(folder: Path) -> dict[str, Any]:
    """The content of ``model.json``, checked.

    Raises:
        ValueError: it is not there, or not what :func:`pack` writes; names the file.
        OSError: it cannot be read.
    """
    path = Path(folder) / ABOUT
    if not path.is_file():
        raise ValueError(f"{folder} is no model folder: it has no {ABOUT}; `mlvae pack` makes one")
    _check_size(path)
    about = read_json(path)
    if about.get("format") != FORMAT:
        raise ValueError(
            f"{path}: format {about.get('format')!r:.60}, this is mlvae {mlvae.__version__}, which "
            f"reads format {FORMAT}"
        )
    for key, kind in _ABOUT.items():
        if not isinstance(about.get(key), kind) or isinstance(about[key], bool):
            raise ValueError(f"{path}: {key} must be a {kind.__name__}")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", about["system"]):
        raise ValueError(f"{path}: {about['system']!r:.60} cannot be the name of a system")
    if about["kind"] not in KINDS or KINDS[about["kind"]].load is None:
        raise ValueError(f"{path}: there is no kind {about['kind']!r:.60} of systems")
    if not 1000 <= about["sampling_rate"] <= 384_000:
        raise ValueError(f"{path}: sampling_rate is {about['sampling_rate']}")
    if about["text"].get("units") not in TEXTS:
        raise ValueError(f"{path}: text.units must be one of {', '.join(TEXTS)}")
    return about


def check_files(folder: Path, about: Mapping[str, Any]) -> None:
    """Check that the files of a folder are those that ``model.json`` lists, and none is a pickle.

    Links are refused. Files of kinds that are never read (notes, pictures) may lie there, too.

    Raises:
        ValueError: names the first file that is wrong.
    """
    listed = about["files"]
    for name, said in listed.items():
        parts = Path(name).parts
        if not parts or Path(name).is_absolute() or ".." in parts or "\0" in name:
            raise ValueError(f"{folder / ABOUT}: files: {name!r:.100} leads out of the folder")
        if Path(name).suffix not in LARGEST:
            raise ValueError(f"{folder / ABOUT}: files: {name!r:.100} is of no kind that is read")
        if not isinstance(said, dict):
            raise ValueError(f"{folder / ABOUT}: files: {name!r:.100} has no size and sha256")
    for root, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(root) / name
            if path.is_symlink():
                raise ValueError(f"{path} is a link: a model folder holds its files itself")
            if path.suffix.lower() in PICKLES:
                raise ValueError(
                    f"{path} is named as a pickle, which can run anything: weights are safetensors "
                    "here, and nothing else is read"
                )
            relative = path.relative_to(folder).as_posix()
            if path.suffix in LARGEST and not path.is_dir() and relative not in {ABOUT, *listed}:
                raise ValueError(f"{path} is not among the files that {ABOUT} lists")
    needed = [CONFIG, TOKENS, ALIGNER]
    needed += {"lexicon": [LEXICON], "bpe": [BPE], "units": []}[about["text"]["units"]]
    for name in needed:
        if name not in listed:
            raise ValueError(f"{folder / ABOUT}: files: {name} is not among them")
    for name, said in listed.items():
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{path} is missing")
        _check_size(path)
        if path.suffix == ".safetensors":
            tensors_in(path)
        if path.stat().st_size != said.get("size") or file_digest(path) != said.get("sha256"):
            raise ValueError(f"{path} is damaged, or was changed: its content is not {ABOUT}'s")


def _check_size(path: Path) -> None:
    size, most = path.stat().st_size, LARGEST[path.suffix]
    if size > most:
        raise ValueError(f"{path} has {size:,} bytes, which is more than {most:,}: not read")


_ITEM_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}


def tensors_in(path: Path) -> int:
    """How many numbers the tensors of a safetensors file have, by a header that has been checked.

    Nothing but the header is read.

    Raises:
        ValueError: the header is no header, is too large, or does not fit the file; names it.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 10 or length > min(LARGEST_HEADER, size - 8):
            raise ValueError(
                f"{path} is damaged or no safetensors file: its header would have {length:,} bytes "
                f"of {size:,}, at most {LARGEST_HEADER:,} are read"
            )
        header = file.read(length)
    try:
        content = json.loads(header)
        content.pop("__metadata__", None)
        total = 0
        for name, said in content.items():
            shape, (begin, end) = said["shape"], said["data_offsets"]
            if not all(isinstance(n, int) and n >= 0 for n in (*shape, begin, end)):
                raise ValueError(f"{name} has a size that is no number")
            numbers = math.prod(shape)
            if end - begin != numbers * _ITEM_SIZES[said["dtype"]] or end > size - 8 - length:
                raise ValueError(f"{name} of shape {shape} has other bytes than it needs")
            total += numbers
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = with_type(error)
        raise ValueError(f"{path} is damaged or no safetensors file: {reason}") from None
    return total


def extractor_of(folder: Path, about: dict[str, Any]) -> Fbank:
    """What computes the features that a model was trained on."""
    extractor = fbank_extractor(about["sampling_rate"])
    here = {k: v for k, v in asdict(extractor.config).items() if k in about["features"]}
    if here != about["features"]:
        wrong = [k for k, v in about["features"].items() if here.get(k, ...) != v]
        raise ValueError(
            f"{folder / ABOUT}: features: {', '.join(wrong)[:200]}: not as this mlvae "
            f"({mlvae.__version__}) and lhotse compute them"
        )
    return extractor


@dataclass(frozen=True)
class Beginning:
    """A model folder that training begins from (``--init``)."""

    folder: Path  # where it is
    about: dict[str, Any]  # the content of its ``model.json``

    @classmethod
    def of(cls, folder: Path) -> Beginning:
        """The folder after all checks of :func:`mlvae.model.load` that need no configuration.

        Raises:
            ValueError: it is no model folder, damaged, or has other features; names the file.
            OSError: a file cannot be read.
        """
        about = read_about(folder)
        check_files(folder, about)
        extractor_of(folder, about)
        return cls(Path(folder), about)

    @property
    def unit(self) -> str:
        """The ``--unit`` of recipe own: ``phone``, ``lexicon`` or ``bpe``; or ``units``."""
        text = self.about["text"]
        return "phone" if text.get("arpabet") is True else text["units"]

    @property
    def aligner(self) -> Path:
        """Weights of the aligner."""
        return self.folder / ALIGNER

    def table(self) -> UnitTable:
        """Symbols and ids of its units."""
        return UnitTable.load(self.folder / TOKENS)

    def bpe(self) -> SentencePieceProcessor:
        """Its BPE model."""
        if self.unit != "bpe":
            raise ValueError(f"units of {self.folder} are no BPE tokens")
        return bpe_processor(self.folder / BPE)

    def check_table(self, table: UnitTable) -> None:
        """ValueError where units are others, so that no weight would mean the same."""
        if table.symbols != self.table().symbols:
            raise ValueError(f"units are not those of {self.folder}: run stage 2 with --init")

    def system(self, name: str) -> Path | None:
        """The folder of a system's weights; None where it cannot begin from them, says the log."""
        if name != self.about["system"]:
            log(f"{name} does not begin from {self.folder}, which is of {self.about['system']}")
            return None
        if self.about["kind"] != "ml_vae":
            log(f"{name} does not begin from {self.folder}: no kind {self.about['kind']} does")
            return None
        return self.folder / name


def bpe_processor(path: Path) -> SentencePieceProcessor:
    """A BPE model as sentencepiece reads it."""
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())

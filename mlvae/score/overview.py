"""Stage 6 without a reference: what can be said of answers that nobody has checked.

How many units are flagged, of which units and speakers; how well units are found that were replaced
on purpose in the validation part; and what speaks against relying on it. None of this says how
often a flag is right.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lhotse import MonoCut

from mlvae.config import System
from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import about_corpus, read_json, write_json
from mlvae.environment import versions
from mlvae.plausibility import FlaggedUnits, training_data_warnings
from mlvae.score.experiment import (
    STAGE,
    find_systems,
    finish,
    flagged_units,
    made_files,
    read_cuts,
    training_path,
    warnings_of,
    write_and_print,
)
from mlvae.stage import StageReport, stage_folder
from mlvae.systems import KINDS
from mlvae.tiers import DELETED, has_tier, tier

#: What is written to the folder of an experiment.
MADE = ("overview.json", "overview.txt")
#: Rows of a table; ``overview.json`` has all.
MAX_ROWS = 20
NOBODY = "(not named)"


def _detection(training: Mapping[str, Any]) -> dict[str, float | None]:
    """What training found out of a system, without a reference; None where it says nothing."""
    best, history = training.get("best_iteration"), training.get("history") or []
    kept = history[best - 1] if best and best <= len(history) else {}
    if best == 0:  # a model that was begun from, as it was
        kept = training.get("before_adaptation") or {}
    scale = training.get("acoustic_scale")
    losses = {float(name): loss for name, loss in training.get("scale_log_loss", {}).items()}
    judge = training.get("judge", {})
    return {
        # F1 of finding units that were replaced in validation, of the iteration kept
        "replaced_f1": kept.get("corrupted_f1"),
        "best_iteration": best,  # from 1
        "acoustic_scale": scale,  # in use
        "log_loss": losses.get(scale),  # of P(mispronounced) of replaced units, with that scale
        # fraction of mispronounced units that the judge expected, and what it made of it: posterior
        # mean on validation
        "expected_rate": judge.get("expected_rate"),
        "rate": judge.get("rate"),
    }


def _detection_lines(found: Mapping[str, Any]) -> list[str]:
    """The same in words, a line for each thing that is known."""
    lines = []
    if found["replaced_f1"] is not None:
        lines.append(
            "units that were replaced on purpose in the validation part are found with "
            f"F1 {100 * found['replaced_f1']:.1f} (iteration {found['best_iteration']})"
        )
    if found["log_loss"] is not None:
        lines.append(
            f"log loss of P(mispronounced) there {found['log_loss']:.3f}, with acoustic scale "
            f"{found['acoustic_scale']:g}"
        )
    if found["rate"] is not None and found["expected_rate"] is not None:
        lines.append(
            f"the judge holds {100 * found['rate']:.1f} % of the units of the validation part for "
            f"mispronounced, where {100 * found['expected_rate']:.1f} % were expected"
        )
    return lines


def has_reference(data_dir: Path) -> bool:
    """Whether a corpus has a reference, which ``corpus.json`` denies with ``"reference": false``.

    Where that file cannot be read it is for whoever scores to say so, when nobody else writes it.
    """
    with contextlib.suppress(ValueError, OSError):
        return about_corpus(data_dir).get("reference") is not False
    return True


def write_overview(data_dir: Path, exp_dir: Path, declared: Sequence[System], seed: int = 0) -> int:
    """Write ``overview.json`` and ``overview.txt`` of an experiment, and print the latter.

    Arguments and exit status are those of `mlvae.score.experiment.score_experiment`.

    Raises:
        FileNotFoundError: an input is missing; names the stage that makes it.
        ValueError: no system that flags has answered, a manifest is damaged, somebody else uses the
            folder, or something that was not made here is in the way.
        OSError: something cannot be written; names it.
    """
    found = find_systems(declared, exp_dir)
    # Goodness of pronunciation has no model of its own, and its flags are uncalibrated.
    systems = [s for s in found if KINDS[s.kind].perceived is not None and not s.model_of]
    if not systems:
        raise ValueError(
            f"no system that flags units has answers in {exp_dir}: stages 4 (train) and 5 "
            "(localize) make them"
        )
    with stage_folder(STAGE, exp_dir, made_files(MADE, systems, exp_dir), reads=[data_dir]):
        return _write(data_dir, exp_dir, systems, seed)


def _write(data_dir: Path, exp_dir: Path, systems: Sequence[System], seed: int) -> int:
    corpus = read_json(data_dir / "corpus.json")
    due = [cut.id for cut in load_cuts(data_dir / "fbank" / "cuts_test.jsonl.gz")]
    training = _training_part(load_cuts(data_dir / "fbank" / "cuts_train.jsonl.gz"))
    cuts = read_cuts(systems, exp_dir)
    flagged = flagged_units(systems, cuts)
    content = {
        "seed": seed,
        "versions": versions(),
        "corpus": corpus,
        "num_utterances": len(due),
        "training": training,
        "systems": {
            system.label: _about(system, cuts[system.label], exp_dir) for system in systems
        },
        "flagged": {name: counts.as_dict() for name, counts in flagged.items()},
        "warnings": warnings_of(systems, flagged, exp_dir),
    }
    write_json(exp_dir / "overview.json", content)
    write_and_print(exp_dir, {"overview.txt": format_overview(content)})

    report = StageReport(stage=STAGE, folder=exp_dir)
    answered = {
        system.label: {cut.id for cut in cuts[system.label] if _is_answered(cut, system)}
        for system in systems
    }
    for name in due:
        lacking = [label for label, ids in answered.items() if name not in ids]
        report.count(name, f"no answer of {'; '.join(lacking)}" if lacking else None)
    finish(systems, flagged, content["warnings"], list(MADE), exp_dir)
    return report.finish()


def _is_answered(cut: MonoCut, system: System) -> bool:
    kind = KINDS[system.kind]
    return has_tier(cut, kind.spans) and has_tier(cut, kind.perceived)


def _training_part(cuts: Iterable[MonoCut]) -> dict[str, Any]:
    count, seconds, speakers = 0, 0.0, set()
    for cut in cuts:
        count, seconds = count + 1, seconds + cut.duration
        speakers |= {one.speaker for one in cut.supervisions if one.speaker}
    return {
        "num_utterances": count,
        "num_speakers": len(speakers),
        "seconds": round(seconds, 3),
        "warnings": training_data_warnings(count, seconds),
    }


def _about(system: System, cuts: Sequence[MonoCut], exp_dir: Path) -> dict[str, Any]:
    training = read_json(training_path(system, exp_dir))
    units, speakers = flagged_by(cuts, system)
    return {
        "num_params": training.get("num_params"),
        "training_seconds": training.get("training_seconds"),
        **_detection(training),
        "units": {name: counts.as_dict() for name, counts in units.items()},
        "speakers": {name: counts.as_dict() for name, counts in speakers.items()},
    }


def flagged_by(
    cuts: Iterable[MonoCut], system: System
) -> tuple[dict[str, FlaggedUnits], dict[str, FlaggedUnits]]:
    """How many units are flagged by canonical unit and by speaker, the largest fractions first.

    Of equal fractions the one of more units comes first. Cuts without an answer do not count. Where
    no cut names a speaker there is nothing by speaker.
    """
    kind = KINDS[system.kind]
    units: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    speakers: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for cut in cuts:
        if not _is_answered(cut, system):
            continue
        speaker = cut.supervisions[0].speaker or NOBODY
        for unit, other in zip(tier(cut, kind.spans), tier(cut, kind.perceived)):
            for counts in (units[unit.symbol], speakers[speaker]):
                counts[0] += 1
                counts[1] += other.symbol != unit.symbol
                counts[2] += other.symbol == DELETED
    return _ranked(units), {} if set(speakers) == {NOBODY} else _ranked(speakers)


def _ranked(counts: Mapping[str, Sequence[int]]) -> dict[str, FlaggedUnits]:
    found = {name: FlaggedUnits(*numbers) for name, numbers in counts.items()}
    names = sorted(found, key=lambda name: (-found[name].flagged, -found[name].num_units, name))
    return {name: found[name] for name in names}


def format_overview(content: Mapping[str, Any]) -> str:
    """The content of ``overview.json`` as text."""
    training = content["training"]
    lines = [
        f"{content['corpus']['title']}: {content['num_utterances']:,} recordings; no reference, so "
        "that nothing here says how often a flag is right",
        f"learned from {training['num_utterances']:,} utterances "
        f"({training['seconds'] / 60:.1f} minutes, speakers named: {training['num_speakers']:,})",
        *(f"warning: {warning}" for warning in training["warnings"]),
    ]
    for label, about in content["systems"].items():
        counts = content["flagged"][label]
        lines += ["", label, f"  {FlaggedUnits(*_numbers(counts)).line()}"]
        lines += [f"  {line}" for line in _detection_lines(about)]
        lines += [f"  warning: {warning}" for warning in content["warnings"].get(label, [])]
        for what in ("units", "speakers"):
            if about[what]:
                lines += ["", *_table(what.removesuffix("s"), about[what])]
    return "\n".join(lines) + "\n"


def _numbers(counts: Mapping[str, Any]) -> list[int]:
    return [counts[name] for name in ("num_units", "num_flagged", "num_deleted")]


def _table(what: str, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    shown = list(rows.items())[:MAX_ROWS]
    width = max(len(what), *(len(name) for name, _ in shown))
    lines = [f"  {what:{width}}  {'flagged':>8}  {'of':>8}  {'deleted':>8}  {'flagged %':>9}"]
    for name, counts in shown:
        num_units, num_flagged, num_deleted = _numbers(counts)
        lines.append(
            f"  {name:{width}}  {num_flagged:8,}  {num_units:8,}  {num_deleted:8,}  "
            f"{100 * counts['flagged']:9.1f}"
        )
    if len(rows) > MAX_ROWS:
        lines.append(f"  and {len(rows) - MAX_ROWS} more in overview.json")
    return lines

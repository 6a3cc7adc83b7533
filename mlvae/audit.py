"""`mlvae audit`: utterances whose text does not belong to their audio, the worst first.

It reads the answers of a model and nothing else: no label, no audio. An utterance is as suspicious
as two things say, each in standard deviations of what is usual:

* **Evidence in one place.** P of unit i, against the mean rate ``r`` of P over all units of all
  utterances, is a log likelihood ratio of "another sound than the text says" to "this one"::

      l_i = log(P_i / (1 - P_i)) - log(r / (1 - r))

  The best stretch of the n units is the one with the largest sum, and as there are about n places
  for it to be found by chance, ::

      evidence = max(0, max over stretches of sum(l_i) - log n)        (natural logarithm)

  A wrong word is a short stretch, another recording's text is one over everything. ``sqrt(2
  evidence)`` is in standard deviations (Wilks).
* **Fit as a whole.** ``loop_gain``, the log likelihood ratio per frame of a free loop over all
  units to the text, by its distribution in the corpus: utterances are sorted by number of units and
  parted into groups of like length, and ::

      fit = (loop_gain - median) / (1.4826 median |loop_gain - median|)        (of its group)

  Most utterances of a corpus have the right text, and median and median deviation are theirs.

The first is of the system's model, the second of the aligner's. They are added as independent
measures are (Stouffer), so that neither alone decides::

    score = (sqrt(2 evidence) + fit) / sqrt(2)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from scipy.special import logit

from mlvae.answers import Answer, Unit, read_answers, read_skipped
from mlvae.report.exports import source_of
from mlvae.stage import log, made_table, write_csv
from mlvae.tiers import DELETED, UNKNOWN

COMMAND = "audit"
#: P is trusted up to here.
LEAST_P = 1e-4
#: What a flag is worth of systems that give no P, and that there is none.
P_OF_FLAG = {True: 0.95, False: 0.01}
#: Utterances of a group of like length, at least.
GROUP = 100
#: Reasons for which there is no answer that say that the audio does not have the text.
UNFIT = ("too short", "no place in its speech", "silence", "zeros")
#: From here on a fit is unusual, in standard deviations.
UNUSUAL_FIT = 4.0


@dataclass(frozen=True)
class Stretch:
    """Units of an utterance, in a row, that do not seem to match."""

    first: int  # index of the first unit
    last: int  # index behind the last one
    evidence: float  # natural log likelihood ratio, see the head of this module; above 0


@dataclass(frozen=True)
class Finding:
    """What the audit says of an utterance: a row of the table, without its rank."""

    utterance: str
    speaker: str | None = None
    recording: str | None = None  # the audio file
    # standard deviations, high where the text does not belong to the audio; None: no answer
    score: float | None = None
    reason: str = ""
    start: float | None = None  # seconds, of the place that does not match, where there is one
    end: float | None = None
    words: str = ""  # of the place; its units where nothing is known of words
    perceived: str = ""  # there, with blanks between
    text: str | None = None  # as it was given
    duration: float | None = None  # seconds
    units: int = 0  # of the text
    units_flagged: int = 0
    evidence: float | None = None  # in one place, natural logarithm
    fit: float | None = None  # as a whole, standard deviations; high is worse


COLUMNS = ("rank", *(field.name for field in fields(Finding)))


def ranked(answers: Callable[[], Iterable[Answer]]) -> list[Finding]:
    """What the audit says of utterances, the worst first; ``answers`` is called twice.

    A few hundred bytes of each utterance are held, and no answer.
    """
    gains, sizes, total = [], [], 0.0
    for answer in answers():
        gains.append(answer.loop_gain)
        sizes.append(len(answer.units))
        total += sum(map(_p_of, answer.units))
    if not gains:
        return []
    rate = total / sum(sizes)
    fits = fit_of(np.array(gains), np.array(sizes))
    findings = [finding_of(answer, rate, fit) for answer, fit in zip(answers(), fits.tolist())]
    return sorted(findings, key=lambda finding: (-finding.score, finding.utterance))


def fit_of(gains: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """By how many standard deviations each gain is above what is usual at its length.

    ``gains`` (U,) float64 are the ``loop_gain`` of utterances of ``sizes`` (U,) units; (U,)
    float64, 0 where all of a group are equal.
    """
    fit = np.zeros(len(gains))
    order = np.argsort(sizes, kind="stable")
    for group in np.array_split(order, max(1, len(order) // GROUP)):
        off = gains[group] - np.median(gains[group])
        spread = 1.4826 * np.median(np.abs(off))
        if spread > 0:
            fit[group] = off / spread
    return fit


def log_ratios(p: np.ndarray, rate: float) -> np.ndarray:
    """The ``l_i`` at the head of this module, of "another sound than the text says".

    Args:
        p: float64 (n,), P(mispronounced) of units.
        rate: their usual mean.

    Example:
        >>> log_ratios(np.array([0.1, 0.5]), 0.1).round(2).tolist()
        [0.0, 2.2]
    """
    return logit(np.clip(p, LEAST_P, 1 - LEAST_P)) - logit(np.clip(rate, LEAST_P, 1 - LEAST_P))


def worst_stretch(units: Sequence[Unit], rate: float) -> Stretch | None:
    """The units in a row that match least; None where none is worse than chance makes one.

    ``rate`` is the mean P(mispronounced) of the corpus.
    """
    ratios = log_ratios(np.array([_p_of(unit) for unit in units]), rate)
    total = best = 0.0
    begin = 0
    found = (0, 0)
    for index, ratio in enumerate(ratios.tolist()):
        if total <= 0:
            total, begin = 0.0, index
        total += ratio
        if total > best:
            best, found = total, (begin, index + 1)
    evidence = best - math.log(max(len(units), 1))
    return Stretch(*found, evidence) if evidence > 0 else None


def finding_of(answer: Answer, rate: float, fit: float) -> Finding:
    """What the audit says of one utterance; see :func:`worst_stretch` and :func:`fit_of`."""
    stretch = worst_stretch(answer.units, rate)
    evidence = 0.0 if stretch is None else stretch.evidence
    place: dict = {}
    if stretch is not None:
        units = answer.units[stretch.first : stretch.last]
        place = {
            "start": units[0].start,
            "end": max(unit.end for unit in units),
            "words": " ".join(_words(answer, units)),
            "perceived": " ".join(unit.perceived for unit in units),
        }
    return Finding(
        utterance=answer.id,
        score=(math.sqrt(2 * evidence) + fit) / math.sqrt(2),
        reason=_reason(answer, stretch, fit),
        speaker=answer.speaker,
        recording=source_of(answer.cut),
        text=answer.text,
        duration=answer.duration,
        units=len(answer.units),
        units_flagged=answer.num_flagged,
        evidence=evidence,
        fit=fit,
        **place,
    )


def _p_of(unit: Unit) -> float:
    return P_OF_FLAG[unit.flagged] if unit.p_mispronounced is None else unit.p_mispronounced


def _words(answer: Answer, units: Sequence[Unit]) -> list[str]:
    """The words that units are of, or the units where nothing is known of words."""
    if not answer.words:
        return [unit.symbol for unit in units]
    return [answer.words[word].symbol for word in dict.fromkeys(unit.word for unit in units)]


def _reason(answer: Answer, stretch: Stretch | None, fit: float) -> str:
    if stretch is None:
        if fit >= UNUSUAL_FIT:
            return (
                "the text fits the recording worse than others of its length, without a place that "
                "stands out: more is said than the text has, noise, or an unusual voice"
            )
        return "nothing stands out"
    units = answer.units[stretch.first : stretch.last]
    size, count = len(units), len(answer.units)
    if 2 * size > count and size > 3 and fit >= UNUSUAL_FIT:
        return (
            f"the text does not fit the recording: {size} of {count} units in a row do not match; "
            "the text of another recording, another language, or no speech"
        )
    if 5 * size > 4 * count and size > 3:
        return (
            f"most of the text does not match what is said, {size} of {count} units: another text, "
            "little speech, or an unusual voice"
        )
    words = " ".join(_words(answer, units))
    words = f"{words[:57]}..." if len(words) > 60 else words
    missing = sum(unit.perceived == DELETED for unit in units)
    if 3 * missing > size:
        where = ""
        if stretch.last == count:
            where = " at the end: the recording may be cut off there"
        elif not stretch.first:
            where = (
                " at the beginning: the recording may be cut off there, or the text begins early"
            )
        return f"'{words}' does not seem to be said{where}"
    perceived = " ".join(unit.perceived for unit in units if unit.perceived != DELETED)
    changed = any(unit.flagged for unit in units)
    if not changed or UNKNOWN in perceived or len(perceived) > 60:
        return f"'{words}' does not match what is said there"
    return f"'{words}' does not match: perceived as '{perceived}'"


# ---- The command


def audit(folder: Path, out: Path) -> int:
    """Write the ranking of a folder of answers to a CSV file, see docs/formats.md.

    Utterances without an answer have the reason why there is none. They come first where it is
    that the recording is silent or too short for its text, and last otherwise.

    Returns:
        The exit status: 0, 1 where some answers could not be read, 2 where none could.

    Raises:
        ValueError: there are no answers, their file is damaged, or something is in the way.
        OSError: something cannot be read or written.
    """
    unread: dict[str, str] = {}

    def skip(name: str, reason: str, place: str) -> None:
        if name not in unread:
            unread[name] = reason
            log(f"{COMMAND}: skipped {name} ({place}): {reason}")

    out = Path(out)
    with made_table(out, COMMAND, COLUMNS) as record:
        findings = ranked(lambda: read_answers(folder, skip, with_fit=True))
        known = {finding.utterance for finding in findings} | unread.keys()
        without = {**dict(read_skipped(folder)), **unread}
        without = {n: r for n, r in without.items() if n not in known or n in unread}
        lost = [Finding(name, reason=f"no answer: {why}") for name, why in without.items()]
        if unread and not findings:  # an earlier table says more
            raise ValueError(f"{folder}: none of its answers can be used")
        unfit = [one for one in lost if _is_unfit(one)]
        others = [one for one in lost if not _is_unfit(one)]
        write_csv(out, COLUMNS, _rows([*unfit, *findings, *others]), record)
    log(
        f"{COMMAND}: {len(findings) + len(lost)} in = {len(findings)} done + {len(lost)} without "
        f"an answer; {out}"
    )
    if not findings:
        return 2
    return 1 if unread else 0


def _is_unfit(finding: Finding) -> bool:
    return any(sign in finding.reason for sign in UNFIT)


def _rows(findings: Iterable[Finding]) -> Iterator[Sequence[object]]:
    for rank, finding in enumerate(findings, 1):
        values = (getattr(finding, field.name) for field in fields(Finding))
        yield rank, *map(_cell, values)


def _cell(value: object) -> object:
    return "" if value is None else round(value, 3) if isinstance(value, float) else value

r"""Builds one mismatch-localisation acceptor (ML-FSA) an utterance.

The paper (Sec. "Mismatch Localization Finite-State Acceptor") draws a unit with six states and the
symbols R and W (said right or wrong), c and c* (what is emitted), H (hold) and S (leave);
:mod:`mlvae.fsa.draw` shows it, with n for c.

Six symbols a unit, of which only c and c* consume a frame, do not suit k2: its intersection with a
matrix of emissions takes one frame an arc and knows no epsilon. What is built here is the
frame-synchronous form of the same acceptor. An arc consumes one frame, and its label is an emission
column that holds the product of the paper's weights for that frame. Units meet in junctions::

         start(c)          hold(c)        hold(c)   = q(y=c)/p(c)   * q(b=0)
       .--------->(correct)--------.      start(c)  = q(y=c)/p(c)   * q(b=1) * q(pi=0)
      (J)    (self-loop: hold)    (J')
       '--------->(mismatch)-------'      hold(c*)  = q(y!=c)/p(!c) * q(b=0)
         start(c*)         hold(c*)       start(c*) = q(y!=c)/p(!c) * q(b=1) * q(pi=1)

A unit of one frame is an arc start(c) or start(c*) from J to J'. Topology ``substitution`` has one
branch for each unit k that may be spoken instead, with the states and hold(k) of that unit and
start(k) with q(pi=1), and log p(perceived k | canonical c, mispronounced) as score of its start
arcs.

From one form to the other: a stretch of n frames of unit c, read along the arcs
``start hold ... hold``, is the paper's ``R c (H c)^(n-1) S`` (or ``W c* (H c*)^(n-1) S``). The
paper lets S leave at the last frame of a unit, while its definition of b has b_t = 1 at the first;
here q(b=1) is charged at the first frame, and q(pi) once a unit with it. :mod:`mlvae.fsa.draw`
has the six-state form as a k2.Fsa, and the tests show that both accept the same sequences.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import k2
import numpy as np
import torch

from .checks import (
    UINT16_MAX,
    checked_bool,
    checked_device,
    checked_int,
    checked_number,
    checked_rate,
    shown,
)
from .emissions import Emissions, make_emissions
from .graph import build_arcs, fsa_vec, read_utterances
from .layout import KIND_SILENCE, KIND_UNIT, ColumnLayout
from .topology import NONE, Topology, competitors_refused, read_competitors

#: Far beyond any use, and far from infinity when it is added up.
MAX_INSERTION_SCORE = 1e6


class MlFsaCompiler:
    """Compiles unit sequences into acceptors, and network posteriors into their scores.

    Args:
        num_units: number of units N; units are integers 0 .. N - 1.
        topology: ``single`` (the paper's one-path acceptor: forced alignment), ``ml`` (the paper's
            figure: a correct and a mispronounced branch per unit) or ``substitution`` (a correct
            branch and one per competitor, which says what was spoken instead); or a
            :class:`.topology.Topology` of one's own.
        states_per_unit: left-to-right states S of a unit, each of at least one frame. The
            mispronounced branch of ``ml`` always has one state.
        silence: whether optional silence is allowed at both edges and between words. The
            posteriors then have one more column, the last. In a plain unit list every unit counts
            as a word, so silence may stand between any two. With ``everywhere`` it may do so inside
            words, too: that is where a CTC model's blank belongs.
        deletions: whether units may be deleted, at most two in a row; a silence behind the last
            units of a word begins a new row. Silence and insertions beside deleted units stand
            before them, for counting once, unless only the end of a word has room for silence.
        insertions: whether sounds that belong to no unit may stand between units, also
            inside words, and at the edges; any number of them.
        competitors: for ``substitution``, what may be spoken in place of each unit: None for every
            other unit alike, N lists of units, or an (N, N) table of log p(perceived | canonical,
            mispronounced) with -inf where it cannot be, whose diagonal is not read. It is the score
            of entering a branch. A unit without competitors cannot be mispronounced.
        deletion_rate: P(a unit is deleted); its log-odds are the score of a deletion.
        insertion_rate: P(an insertion at a point between units); its log-odds are the score of one.

    Raises:
        ValueError: an argument is of the wrong type or out of range, does not go with the topology,
            or asks for more columns of emissions than k2 can number, 65535.

    Example:
        >>> compiler = MlFsaCompiler(num_units=40, topology="ml")
        >>> graphs = compiler.compile([[3, 5, 2], [1, 1]])
        >>> graphs.shape
        (2, None, None)
    """

    def __init__(
        self,
        num_units: int,
        topology: str | Topology = "ml",
        states_per_unit: int = 1,
        silence: bool | str = False,
        deletions: bool = False,
        insertions: bool = False,
        competitors: Sequence[Sequence[int]] | torch.Tensor | None = None,
        deletion_rate: float = 0.03,
        insertion_rate: float = 0.03,
    ) -> None:
        self.layout = ColumnLayout(num_units, states_per_unit, topology, silence, insertions)
        table, topology = None, self.layout.topology
        if topology.takes_competitors:
            table = read_competitors(competitors, self.layout.num_units)
        elif competitors is not None:
            raise ValueError(competitors_refused(topology))
        deletion_score = _log_odds(checked_rate(deletion_rate, "deletion_rate"))
        insertion_score = _log_odds(checked_rate(insertion_rate, "insertion_rate"))
        self._deletion_score = deletion_score if checked_bool(deletions, "deletions") else None
        self._insertion_score = insertion_score if self.layout.insertions else None
        self._branches = topology.branches(self.layout, table)

    def compile(
        self,
        utterances: Iterable,
        device: torch.device | str = "cpu",
        names: Sequence[str] | None = None,
    ) -> k2.Fsa:
        """Build the acceptors of a batch.

        Args:
            utterances: per utterance either a list of units, ``[3, 5, 2]``, or a list of words,
                each a list of its correct pronunciations, each a list of units,
                ``[[[3, 5, 2]], [[1], [1, 4]]]``. Repeated pronunciations of a word count once.
            device: where the graphs are wanted.
            names: (B,), what messages call the utterances; by default their index.

        Returns:
            An FsaVec with one FSA an utterance. Arc scores are 0 but for priors of competitors,
            deletions and insertions. It has the int32 arc attributes

            * unit_pos: the unit's slot, counted over words, pronunciations and units;
            * word_pos: the word (for a plain list, the unit);
            * unit: the canonical unit; perceived: the same where correct, -1 where unknown;
            * kind: 0 unit, 1 silence, 2 insertion;
            * is_start: 1 on the first frame of a unit; is_mispronounced: 1 on its wrong branch;
            * num_deleted: units deleted before this arc; deleted_pos: the slot of the last of
              them, deleted_before_pos: that of the one before it;
            * min_frames (the same on all arcs of an utterance): its fewest frames;
            * layout_id (the same on all arcs): fingerprint of the column layout.

            Where an attribute does not apply it is -1, as on silence, insertion and final arcs. The
            graphs depend on the units alone: keep them, select from them with ``k2.index_fsa``,
            join them with ``k2.cat``.

        Raises:
            ValueError: no utterance, an utterance, word or pronunciation without units, or a unit
                out of range; the message names the utterance (and the unit and the limit). Or
                there is no such device, or names are not as many as utterances.
        """
        device = checked_device(device)
        slots = read_utterances(utterances, self.layout.num_units, names)
        graphs = build_arcs(
            slots, self.layout, self._branches, self._deletion_score, self._insertion_score
        )
        return graphs.to(device) if device.type != "cpu" else graphs

    def emissions(
        self,
        log_posteriors: torch.Tensor,
        num_frames: torch.Tensor,
        log_prior: torch.Tensor | None = None,
        log_boundary: torch.Tensor | None = None,
        log_correctness: torch.Tensor | None = None,
        acoustic_scale: float = 1.0,
        blank: int | None = None,
        names: Sequence[str] | None = None,
    ) -> Emissions:
        """Turn network posteriors into scores for the graphs of this compiler.

        See :func:`mlvae.fsa.emissions.make_emissions`, which has the arguments and equations.
        """
        return make_emissions(
            self.layout,
            log_posteriors,
            num_frames,
            log_prior=log_prior,
            log_boundary=log_boundary,
            log_correctness=log_correctness,
            acoustic_scale=acoustic_scale,
            blank=blank,
            names=names,
        )


def unit_loop(layout: ColumnLayout, num_utterances: int, insertion_score: float = 0.0) -> k2.Fsa:
    """Build the unit loop for a batch: an acceptor of any sequence of units.

    It reads the emission columns of topology ``single``, so that the acoustic model of forced
    alignment recognises freely by exchanging the graph alone. For units of two states, one of N::

              start(u)        hold(u, 1)
         (J) ---------> (u,0) ---------> (u,1)        (u,s): self-loop hold(u, s)
          ^  |           | hold(u, 1)     |           J:     self-loop silence, if there is silence
          |  | final     |  (the last     | hold(u, 1)
          |  v           |   frame of u)  v
          | (end)        '---------> (J) <'

    A unit of one state and one frame is an arc start(u) from J to J. Every path reads each unit's
    states in order, each for at least one frame, as forced alignment does.

    :func:`.best_path` with it and the emissions of the same layout's compiler gives the recognised
    units as spans: ``unit`` and ``perceived`` are what was recognised, ``position`` counts it, and
    ``slot`` and ``word``, which belong to a canonical sequence, are -1.

    Args:
        layout: of a compiler of topology ``single`` without insertions.
        num_utterances: number of utterances B of the batch.
        insertion_score: natural-log score of starting a unit, on top of q(b_t = 1). The number of
            units on the best path never falls as it rises.

    Returns:
        An FsaVec of B equal FSAs with the arc attributes of ``MlFsaCompiler.compile``. The fewest
        frames are those of one unit, or one frame of silence.

    Raises:
        ValueError: the layout is of another topology or has insertions, B is below 1 or above
            65535, or the score is no number between -1e6 and 1e6.
    """
    if not isinstance(layout, ColumnLayout):
        raise ValueError(f"layout must be that of a compiler, not {shown(layout)}")
    if layout.has_mismatch:
        raise ValueError(f"a unit loop goes with topology single without insertions, not {layout}")
    num_utterances = checked_int(num_utterances, "num_utterances", 1)
    if num_utterances > UINT16_MAX:
        raise ValueError(f"num_utterances must be at most {UINT16_MAX}, as many as k2 can number")
    insertion_score = checked_number(insertion_score, "insertion_score")
    if not np.isfinite(insertion_score):
        raise ValueError(f"insertion_score must be finite, not {insertion_score}")
    if abs(insertion_score) > MAX_INSERTION_SCORE:
        raise ValueError(
            f"insertion_score must be at most {MAX_INSERTION_SCORE:g} either way, "
            f"not {insertion_score}"
        )
    arcs, unit, is_start = _arcs_of_loop(layout, insertion_score)
    emitting = arcs[:, 2] >= 0
    kind = np.where(unit >= 0, KIND_UNIT, np.where(emitting, KIND_SILENCE, NONE))
    zero, none = np.zeros_like(unit), np.full_like(unit, NONE)
    attributes = {
        "unit_pos": none,
        "word_pos": none,
        "unit": unit,
        "perceived": unit,
        "kind": kind,
        "is_start": is_start,
        "is_mispronounced": zero,
        "num_deleted": zero,
        "deleted_pos": none,
        "deleted_before_pos": none,
        "min_frames": np.full_like(unit, 1 if layout.silence else layout.states_per_unit),
        "layout_id": np.full_like(unit, layout.fingerprint),
    }
    states = np.array([2 + layout.num_states])  # with the junction and the final state
    loop = fsa_vec(arcs, states, np.array([len(arcs)]), attributes)
    return k2.index_fsa(loop, torch.zeros(num_utterances, dtype=torch.int32))


def _arcs_of_loop(
    layout: ColumnLayout, insertion_score: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arcs of one loop, sorted by source.

    Returns:
        (n, 4) int32, source, target, label and bits of the score; (n,) the unit of each arc, -1 on
        silence and final arcs; (n,) 1 where the arc starts a unit.
    """
    states = layout.states_per_unit
    junction, final = 0, 1 + layout.num_states
    rows: list[tuple[int, int, int, int, float, int]] = []
    if layout.silence:
        rows.append((junction, junction, 0, NONE, 0.0, 0))
    for unit in range(layout.num_units):
        first = 1 + unit * states
        last = first + states - 1
        rows.append((junction, first, layout.start(unit), unit, insertion_score, 1))
        if states == 1:
            rows.append((junction, junction, layout.start(unit), unit, insertion_score, 1))
        for state in range(states):
            here = first + state
            rows.append((here, here, layout.hold(unit, state), unit, 0.0, 0))
            if here < last:
                rows.append((here, here + 1, layout.hold(unit, state + 1), unit, 0.0, 0))
            if here >= last - 1:
                # The unit's last frame: a further one of its last state, or the only one of it.
                rows.append((here, junction, layout.hold(unit, states - 1), unit, 0.0, 0))
    rows.append((junction, final, -1, NONE, 0.0, 0))
    rows.sort(key=lambda row: row[0])  # stable
    columns = [np.array(column) for column in zip(*rows)]
    score = columns[4].astype(np.float32).view(np.int32)
    arcs = np.stack([*columns[:3], score], axis=1).astype(np.int32)
    return arcs, columns[3], columns[5]


def _log_odds(rate: float) -> float:
    return math.log(rate) - math.log1p(-rate)

r"""Builds one mismatch-localisation acceptor (ML-FSA) an utterance.

The paper (Sec. "Mismatch Localization Finite-State Acceptor") draws a unit with six states and the
symbols R and W (said right or wrong), c and c* (what is emitted), H (hold) and S (leave)::

            R        c        S
       (0) ---> (1) ---> (2) ---> (5)
        |        ^---H---/         ^
        |  W        c*        S    |
        +-----> (3) ---> (4) ------+
                 ^---H---/

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
start(k) with q(pi=1), and log p(heard k | canonical c, mispronounced) as score of its start arcs.

From one form to the other: a stretch of n frames of unit c, read along the arcs
``start hold ... hold``, is the paper's ``R c (H c)^(n-1) S`` (or ``W c* (H c*)^(n-1) S``). The
paper lets S leave at the last frame of a unit, while its definition of b has b_t = 1 at the first;
here q(b=1) is charged at the first frame, and q(pi) once a unit with it. :mod:`mlvae.fsa.figure`
has the six-state form as a k2.Fsa, and the tests show that both accept the same sequences.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import k2
import numpy as np
import torch

from .arcs import build_arcs
from .branches import (
    ml_branches,
    read_competitors,
    single_branches,
    substitution_branches,
)
from .checks import checked_bool, checked_device, checked_rate
from .detours import Detours
from .emissions import Emissions, make_emissions
from .layout import ColumnLayout
from .slots import read_utterances


class MlFsaCompiler:
    """Compiles unit sequences into acceptors, and network posteriors into their scores.

    Args:
        num_units: number of units N; units are integers 0 .. N - 1.
        topology: ``single`` (the paper's one-path acceptor: forced alignment), ``ml`` (the paper's
            figure: a correct and a mispronounced branch per unit) or ``substitution`` (a correct
            branch and one per competitor, which says what was spoken instead).
        states_per_unit: left-to-right states S of a unit, each of at least one frame. The
            mispronounced branch of ``ml`` always has one state.
        silence: whether optional silence is allowed at both edges and between words. The
            posteriors then have one more column, the last. In a plain unit list every unit counts
            as a word, so silence may stand between any two.
        skip: whether units may be left out (deletions), at most two in a row; a silence behind the
            last units of a word begins a new row. Silence and fillers beside units left out stand
            before them, for counting once, unless only the end of a word has room for silence.
        filler: whether sounds that belong to no unit (additions) may stand between units, also
            inside words, and at the edges; any number of them.
        competitors: for ``substitution``, what may be spoken in place of each unit: None for every
            other unit alike, N lists of units, or an (N, N) table of log p(heard | canonical,
            mispronounced) with -inf where it cannot be, whose diagonal is not read. It is the score
            of entering a branch. A unit without competitors cannot be mispronounced.
        skip_rate: P(a unit is left out); its log-odds are the score of leaving it out.
        filler_rate: P(a filler at a point between units); its log-odds are the score of one.

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
        topology: str = "ml",
        states_per_unit: int = 1,
        silence: bool = False,
        skip: bool = False,
        filler: bool = False,
        competitors: Sequence[Sequence[int]] | torch.Tensor | None = None,
        skip_rate: float = 0.03,
        filler_rate: float = 0.03,
    ) -> None:
        self.layout = ColumnLayout(num_units, states_per_unit, topology, silence, filler)
        num_units, states_per_unit = self.layout.num_units, self.layout.states_per_unit
        if competitors is not None and topology != "substitution":
            raise ValueError(f"competitors go with topology 'substitution', not {topology!r}")
        skip_score = _log_odds(checked_rate(skip_rate, "skip_rate"))
        filler_score = _log_odds(checked_rate(filler_rate, "filler_rate"))
        self._detours = Detours(
            skip_score=skip_score if checked_bool(skip, "skip") else None,
            filler_score=filler_score if self.layout.filler else None,
        )
        if topology == "single":
            self._branches = single_branches(num_units, states_per_unit)
        elif topology == "ml":
            self._branches = ml_branches(num_units, states_per_unit)
        else:
            table = read_competitors(competitors, num_units)
            self._branches = substitution_branches(num_units, states_per_unit, table)

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
            skips and fillers. It has the int32 arc attributes

            * unit_pos: the unit's slot, counted over words, pronunciations and units;
            * word_pos: the word (for a plain list, the unit);
            * unit: the canonical unit; heard: the same where correct, -1 where unknown;
            * kind: 0 unit, 1 silence, 2 filler;
            * is_start: 1 on the first frame of a unit; is_mispronounced: 1 on its wrong branch;
            * num_skipped: units left out before this arc; skipped_pos: the slot of the last of
              them, skipped_before_pos: that of the one before it;
            * min_frames (the same on all arcs of an utterance): its fewest frames;
            * layout_id (the same on all arcs): fingerprint of the column layout.

            Where an attribute does not apply it is -1, as on silence, filler and final arcs. The
            graphs depend on the units alone: keep them, select from them with ``k2.index_fsa``,
            join them with ``k2.cat``.

        Raises:
            ValueError: no utterance, an utterance, word or pronunciation without units, or a unit
                out of range; the message names the utterance (and the unit and the limit). Or
                there is no such device, or names are not as many as utterances.
        """
        device = checked_device(device)
        slots = read_utterances(utterances, self.layout.num_units, names)
        arcs = build_arcs(slots, self.layout, self._branches, self._detours)
        graphs = k2.Fsa(_fsa_vec_tensor(arcs.arcs, arcs.states_per_fsa, arcs.arcs_per_fsa))
        for name, values in arcs.attributes.items():
            setattr(graphs, name, torch.from_numpy(values))
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


def _log_odds(rate: float) -> float:
    return math.log(rate) - math.log1p(-rate)


def _fsa_vec_tensor(
    arcs: np.ndarray, states_per_fsa: np.ndarray, arcs_per_fsa: np.ndarray
) -> torch.Tensor:
    """Lay out an FsaVec as the one int32 tensor that k2 reads and writes FsaVecs as.

    This is the format of ``k2.Fsa.as_dict()["arcs"]``: number of FSAs, 0, row splits of states, row
    splits of arcs, then four numbers an arc. It avoids making one k2.Fsa an utterance.
    """
    num_fsas = len(states_per_fsa)
    head = np.array([num_fsas, 0])
    state_splits = np.concatenate([[0], np.cumsum(states_per_fsa)])
    arc_splits = np.concatenate([[0], np.cumsum(arcs_per_fsa)])
    flat = np.concatenate([head, state_splits, arc_splits, arcs.reshape(-1)])
    return torch.from_numpy(flat.astype(np.int32))

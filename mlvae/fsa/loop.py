r"""The unit loop: an acceptor of any sequence of units, for free recognition.

It reads the emission columns of topology ``single``, so that the acoustic model of forced alignment
recognises freely by exchanging the graph alone. Drawn for units of two states, one of N units::

          start(u)        hold(u, 1)
     (J) ---------> (u,0) ---------> (u,1)        (u,s): self-loop hold(u, s)
      ^  |           | hold(u, 1)     |           J:     self-loop silence, if there is silence
      |  | final     |  (the last     | hold(u, 1)
      |  v           |   frame of u)  v
      | (end)        '---------> (J) <'

The junction J is the state "the last frame of what came before has been read"; a unit of one state
and one frame is an arc start(u) from J to J. Every path reads each unit's states in order, each for
at least one frame, as forced alignment does.
"""

from __future__ import annotations

import k2
import numpy as np
import torch

from .checks import UINT16_MAX, checked_int, checked_number, shown
from .layout import KIND_SILENCE, KIND_UNIT, NONE, ColumnLayout

#: Far beyond any use, and far from infinity when it is added up.
MAX_INSERTION_SCORE = 1e6


def unit_loop(layout: ColumnLayout, num_utterances: int, insertion_score: float = 0.0) -> k2.Fsa:
    """Build the unit loop for a batch.

    :func:`.best_path` with it and the emissions of the same layout's compiler gives the recognised
    units as spans: ``unit`` and ``heard`` are what was recognised, ``position`` counts it, and
    ``slot`` and ``word``, which belong to a canonical sequence, are -1.

    Args:
        layout: of a compiler of topology ``single`` without fillers.
        num_utterances: number of utterances B of the batch.
        insertion_score: natural-log score of starting a unit, on top of q(b_t = 1). The number of
            units on the best path never falls as it rises.

    Returns:
        An FsaVec of B equal FSAs with the arc attributes of ``MlFsaCompiler.compile``. The fewest
        frames are those of one unit, or one frame of silence.

    Raises:
        ValueError: the layout is of another topology or has fillers, B is below 1 or above 65535,
            or the score is no number between -1e6 and 1e6.
    """
    if not isinstance(layout, ColumnLayout):
        raise ValueError(f"layout must be that of a compiler, not {shown(layout)}")
    if layout.topology != "single" or layout.filler:
        raise ValueError(f"a unit loop goes with topology single without fillers, not {layout}")
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
    arcs, unit, is_start = _arcs(layout, insertion_score)
    emitting = arcs[:, 2] >= 0
    kind = np.where(unit >= 0, KIND_UNIT, np.where(emitting, KIND_SILENCE, NONE))
    zero, none = np.zeros_like(unit), np.full_like(unit, NONE)
    attributes = {
        "unit_pos": none,
        "word_pos": none,
        "unit": unit,
        "heard": unit,
        "kind": kind,
        "is_start": is_start,
        "is_mispronounced": zero,
        "num_skipped": zero,
        "skipped_pos": none,
        "skipped_before_pos": none,
        "min_frames": np.full_like(unit, 1 if layout.silence else layout.states_per_unit),
        "layout_id": np.full_like(unit, layout.fingerprint),
    }
    loop = k2.Fsa(torch.from_numpy(arcs))
    for name, values in attributes.items():
        setattr(loop, name, torch.from_numpy(values.astype(np.int32)))
    return k2.create_fsa_vec([loop] * num_utterances)


def _arcs(
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

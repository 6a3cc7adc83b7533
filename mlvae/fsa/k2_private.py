"""What this package needs of k2's private parts, all of it in one place.

k2's public functions prepare for gradients, and make one object per utterance, which takes longer
than the search where there are none. These are the few private names that are used in their place,
and that a new version of k2 may change; ``tests/fsa/test_k2_private.py`` compares each with its
public counterpart. They are in k2 1.23.4 and in its development version of July 2025.

Graphs need not be arc-sorted here, although k2 says of ``a_fsas`` that they MUST be. The
intersection walks through arcs by index and finds their ends by a sort of its own
(``GetIncomingArcs`` in k2's intersect_dense.cu): no arc is searched for by its label, as in
intersections of two FSAs. The order of arcs has one effect, and it is wanted: among equal scores
k2 prefers the later arc, so the graphs are built with the correct branch last. A sort by label
would undo that.
"""

from __future__ import annotations

import _k2
import k2
import torch

from .checks import INT32_MAX

RaggedArc = _k2.RaggedArc


def intersect_dense(
    arcs: RaggedArc, dense: k2.DenseFsaVec, among: torch.Tensor, beam: float
) -> tuple[RaggedArc, torch.Tensor]:
    """``k2.intersect_dense`` without its preparations for gradients.

    Returns:
        Arcs of the lattice, and int32, which of ``arcs`` each is.
    """
    lattice, arc_map, _ = _k2.intersect_dense(
        a_fsas=arcs,
        b_fsas=dense.dense_fsa_vec,
        a_to_b_map=among,
        output_beam=beam,
        max_states=INT32_MAX,
        max_arcs=INT32_MAX,
    )
    return lattice, arc_map


def index_arcs(arcs: RaggedArc, chosen: torch.Tensor) -> tuple[RaggedArc, torch.Tensor]:
    """``k2.index_fsa`` for arcs alone.

    Args:
        arcs: of an FsaVec.
        chosen: int32, which of its FSAs.

    Returns:
        Their arcs, and int32, which of ``arcs`` each is.
    """
    return _k2.index(arcs, axis=0, indexes=chosen, need_value_indexes=True)


def dense_fsa_vec(scores: torch.Tensor, row_splits: torch.Tensor) -> k2.DenseFsaVec:
    """The last lines of ``k2.DenseFsaVec.__init__``, which copies scores from a padded tensor.

    Args:
        scores: float32 (R, C), the rows of all utterances with those of final arcs.
        row_splits: int32 (B + 1,), where the rows of each begin.
    """
    return k2.DenseFsaVec._from_dense_fsa_vec(_k2.DenseFsaVec(scores, row_splits), scores)

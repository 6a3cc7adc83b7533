"""Reading on in a long recording: graphs that may end early, and paths by k2's pruned intersection.

An exact search takes time and memory for each arc in each frame. The pruned one keeps in each frame
what is within a beam of the best there, so that both grow with the frames alone; what it finds is
the best path unless that was once worse than another one by more than the beam. A path that lost
the best one on its way looks like any other, and is far from it in all that follows. So what is
found is believed only where the next wider beam finds nothing better.
"""

from __future__ import annotations

import math

import k2
import numpy as np
import torch

from .emissions import Emissions
from .layout import ARC_ATTRIBUTES
from .paths import Paths
from .search import read_paths
from .spans import UnitSpan

#: Beams in natural-log scores, each tried where the one before it is not known to be wide enough.
#: A word that was said otherwise than written costs some hundred until the path goes on behind it.
SEARCH_BEAMS = (300.0, 500.0, 1000.0, 3000.0, 10000.0)
#: Most states that are kept in a frame, whatever the beam.
MOST_STATES = 30000
#: What a wider beam must gain to be of another opinion: less is rounding, or a frame at an edge.
GAIN = 1.0


def open_ended(graph: k2.Fsa) -> k2.Fsa:
    """A graph that may also end before each of its units: what follows was not spoken yet.

    Args:
        graph: FsaVec of one utterance by ``MlFsaCompiler.compile``, of a compiler without skips.

    Returns:
        An FsaVec of one FSA with the same states and attributes, and a final arc without a score
        from each state in which a unit may start. All of it may be silence, where there is any.

    Raises:
        ValueError: there is not one graph.
    """
    if len(graph.shape) != 3 or graph.shape[0] != 1:
        raise ValueError("open_ended takes an FsaVec of one graph")
    arcs = graph.arcs.values().cpu().numpy()
    attributes = {name: getattr(graph, name).cpu().numpy() for name in ARC_ATTRIBUTES}
    names = ("min_frames", "layout_id")
    attributes.update({name: getattr(graph, name).cpu().numpy() for name in names})
    is_final = arcs[:, 2] == -1
    final_state, example = arcs[is_final, 1][0], int(np.flatnonzero(is_final)[0])
    waiting = np.unique(arcs[attributes["is_start"] != 0, 0])
    waiting = np.setdiff1d(waiting, arcs[is_final, 0])
    added = np.zeros((len(waiting), 4), dtype=np.int32)
    added[:, 0], added[:, 1], added[:, 2] = waiting, final_state, -1
    arcs = np.concatenate([arcs, added])
    order = arcs[:, 0].argsort(kind="stable")
    fsa = k2.Fsa(torch.from_numpy(np.ascontiguousarray(arcs[order])))
    result = k2.create_fsa_vec([fsa])
    for name, values in attributes.items():
        if name == "min_frames":
            values = np.ones_like(values)
        values = np.concatenate([values, np.full(len(waiting), values[example])])
        setattr(result, name, torch.from_numpy(values[order].astype(np.int32)))
    return result.to(graph.device)


def pruned_path(graph: k2.Fsa, emissions: Emissions) -> list[UnitSpan]:
    """Best path of one utterance by pruned search; time and memory grow with its frames.

    Args:
        graph: FsaVec of one graph, of any number of arcs, on the device of the emissions.
        emissions: of the same compiler, for the one utterance.

    Returns:
        Spans that tile its frames; none where no path is within the widest beam, as where there are
        fewer frames than the graph needs.

    Raises:
        ValueError: there is not one utterance, or the graph is of another compiler.
    """
    if graph.shape[0] != 1 or len(emissions.order) != 1:
        raise ValueError("pruned_path takes one utterance")
    if not bool((graph.layout_id == emissions.layout.fingerprint).all()):
        raise ValueError(f"the graph is not of the emissions' compiler: {emissions.layout}")
    spans: list[UnitSpan] = []
    before = math.inf
    for beam in SEARCH_BEAMS:
        spans = _within(beam, graph, emissions)
        score = sum(span.score for span in spans) if spans else math.inf
        if score <= before + GAIN < math.inf:
            break
        before = score
    return spans


def _within(beam: float, graph: k2.Fsa, emissions: Emissions) -> list[UnitSpan]:
    """The best path that is nowhere worse than another one by more than a beam; none: no spans."""
    bare = k2.Fsa(graph.arcs)
    bare.graph_arc = torch.arange(graph.num_arcs, dtype=torch.int32, device=graph.device)
    with torch.no_grad():
        lattice = k2.intersect_dense_pruned(
            bare,
            emissions.dense,
            search_beam=beam,
            output_beam=1.0,
            min_active_states=30,
            max_active_states=MOST_STATES,
        )
        path = k2.shortest_path(lattice, use_double_scores=True)
    if path.num_arcs != int(emissions.num_frames[0]) + 1:
        return []
    arcs = torch.tensor([path.num_arcs])
    labels, scores = path.labels.cpu(), path.scores.cpu()
    return read_paths(Paths(arcs, labels, scores, path.graph_arc.cpu().long()), graph, [0])[0]

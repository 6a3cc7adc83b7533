"""Localisation: from a trained ML-VAE to tiers that say where each unit lies and if it is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem
from lhotse.utils import fastcopy

from mlvae.align import Aligner
from mlvae.data.dataset import UnitDataset
from mlvae.data.units import UnitTable
from mlvae.em.estep import Decoding, EStep, search_compiler
from mlvae.em.targets import items_of_spans
from mlvae.fsa import UnitSpan
from mlvae.nn import MlVae
from mlvae.tiers import tier, with_tiers

#: Fields of a supervision that go unit by unit with its canonical units.
OF_UNITS = ("units", "words", "word_of_unit", "sources")
#: What the tier ``mlvae_heard`` says where the topology cannot tell what was spoken, and where
#: nothing was.
UNKNOWN_HEARD = "*"
NOTHING_HEARD = "-"


def localize(
    model: MlVae,
    cuts: CutSet,
    dataset: UnitDataset,
    decoding: Decoding,
    device: torch.device,
    topology: str = "ml",
    edges: Aligner | None = None,
    max_frames: int = 8000,
) -> tuple[CutSet, list[str]]:
    """Add the tiers ``mlvae`` and ``mlvae_heard``.

    A unit of ``mlvae`` has its canonical symbol and, as score, P(mispronounced) over all paths.
    ``mlvae_heard`` has the same times; it differs where the best path says "mispronounced".

    Args:
        model: trained.
        cuts: cuts with features and canonical units.
        dataset: gives features and units.
        decoding: how posteriors become scores.
        device: where to run.
        topology: acceptor to search.
        edges: aligns the units that were heard once more, for better edges; None keeps the path's.
        max_frames: largest batch, in frames with padding.

    Returns:
        The cuts with both tiers, in their order, and the ids of those too short for their units.
    """
    search = EStep(search_compiler(model, topology), cuts, dataset, max_frames)
    found = {name: (spans, unit) for name, spans, unit in search.localize(model, decoding, device)}
    localized, short = [], []
    for cut in cuts:
        spans, unit = found[cut.id]
        if not spans:
            short.append(cut.id)
            continue
        units = [span for span in spans if span.kind == "unit"]
        # A sum over many paths may exceed 1 in the last digits.
        probability = (unit.mispronounced + unit.deleted).clamp(max=1.0)
        wrong = probability[[span.slot for span in units]].tolist()
        canonical = dataset.table.units(span.unit for span in units)
        heard = [heard_symbol(span, dataset.table) for span in units]
        tiers = {
            "mlvae": items_of_spans(cut, spans, canonical, wrong),
            "mlvae_heard": items_of_spans(cut, spans, heard, wrong),
        }
        localized.append(with_tiers(cut, tiers))
    if edges is not None:
        localized = refine_edges(localized, dataset.table, edges)
    return CutSet.from_cuts(localized), short


def refine_edges(cuts: Sequence[Cut], table: UnitTable, edges: Aligner) -> list[Cut]:
    """Give the units of ``mlvae`` the times that a forced alignment of what was heard has.

    Units that were left out, or of which it is not known what was heard, have nothing to align:
    their cuts stay as they are, as do those that are too short for the aligner.
    """
    heard = [
        with_units(cut, [item.symbol for item in tier(cut, "mlvae_heard")])
        for cut in cuts
        if all(item.symbol in table for item in tier(cut, "mlvae_heard"))
    ]
    if not heard:
        return list(cuts)
    aligned, _ = edges.align(CutSet.from_cuts(heard), UnitDataset(table))
    times = {cut.id: tier(cut, "fa") for cut in aligned}
    return [
        with_tiers(
            cut,
            {
                name: _moved(tier(cut, name), times[cut.id])
                for name in ("mlvae", "mlvae_heard")
                if cut.id in times
            },
        )
        for cut in cuts
    ]


def _moved(items: Sequence[AlignmentItem], times: Sequence[AlignmentItem]) -> list[AlignmentItem]:
    return [
        AlignmentItem(item.symbol, time.start, time.duration, item.score)
        for item, time in zip(items, times)
    ]


def heard_symbol(span: UnitSpan, table: UnitTable) -> str:
    """What was heard in a unit's span, as ``mlvae_heard`` says it."""
    if span.is_deleted:
        return NOTHING_HEARD
    return UNKNOWN_HEARD if span.heard < 0 else table.symbols[span.heard]


def with_units(cut: Cut, units: Sequence[str]) -> Cut:
    """A copy of a cut with other canonical units, without tiers and what is said of each unit."""
    supervision = cut.supervisions[0]
    kept = {key: value for key, value in (supervision.custom or {}).items() if key not in OF_UNITS}
    custom = {**kept, "units": list(units)}
    return fastcopy(cut, supervisions=[fastcopy(supervision, custom=custom, alignment=None)])

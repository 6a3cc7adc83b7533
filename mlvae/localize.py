"""Localisation: from a trained ML-VAE to tiers that say where each unit lies and if it is wrong."""

from __future__ import annotations

import torch
from lhotse import CutSet

from mlvae.data.dataset import UnitDataset
from mlvae.em.estep import Decoding, EStep
from mlvae.em.targets import items_of_spans
from mlvae.fsa import MlFsaCompiler
from mlvae.nn import MlVae
from mlvae.tiers import with_tiers

#: What the tier ``mlvae_heard`` says where the topology cannot tell what was spoken.
UNKNOWN_HEARD = "*"


def localize(
    model: MlVae,
    cuts: CutSet,
    dataset: UnitDataset,
    decoding: Decoding,
    device: torch.device,
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
        max_frames: largest batch, in frames with padding.

    Returns:
        The cuts with both tiers, in their order, and the ids of those too short for their units.
    """
    compiler = MlFsaCompiler(model.num_units, topology="ml", silence=model.silence)
    estep = EStep(compiler, cuts, dataset, max_frames)
    found = {name: (spans, unit) for name, spans, unit in estep.localize(model, decoding, device)}
    localized, short = [], []
    for cut in cuts:
        spans, unit = found[cut.id]
        if not spans:
            short.append(cut.id)
            continue
        units = [span for span in spans if span.kind == "unit"]
        canonical = dataset.table.units(span.unit for span in units)
        heard = [
            UNKNOWN_HEARD if span.mispronounced else symbol
            for span, symbol in zip(units, canonical)
        ]
        # A sum over many paths may exceed 1 in the last digits.
        wrong = unit.mispronounced.clamp(max=1.0)[[span.slot for span in units]].tolist()
        tiers = {
            "mlvae": items_of_spans(cut, spans, canonical, wrong),
            "mlvae_heard": items_of_spans(cut, spans, heard, wrong),
        }
        localized.append(with_tiers(cut, tiers))
    return CutSet.from_cuts(localized), short

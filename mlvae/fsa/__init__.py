"""The mismatch-localisation acceptor (ML-FSA) in k2, for use from any recipe.

This package imports torch, numpy and k2 and nothing else of its project: copy the folder into
another recipe, or import it. A whole use of it:

    >>> from mlvae.fsa import MlFsaCompiler, best_path
    >>> compiler = MlFsaCompiler(num_units=40, topology="ml")
    >>> graphs = compiler.compile([[3, 5, 2], [1, 1]])             # k2.FsaVec
    >>> emissions = compiler.emissions(log_posteriors, num_frames)  # (B, T, 40), (B,)
    >>> for spans in best_path(graphs, emissions):
    ...     print([(span.unit, span.start, span.end, span.mispronounced) for span in spans])

The graph is explained in :mod:`mlvae.fsa.compiler`, its scores in
:mod:`mlvae.fsa.emissions`, and how many utterances go into a batch in :func:`plan_batches`.
"""

from .compiler import MlFsaCompiler, unit_loop
from .emissions import Emissions
from .layout import ColumnLayout
from .posteriors import UnitPosteriors, expected_boundaries, posteriors, word_posteriors
from .search import (
    MAX_CELLS,
    best_columns,
    best_path,
    plan_batches,
    restrict,
    too_short,
    total_scores,
)
from .spans import UnitSpan

__all__ = [
    "MAX_CELLS",
    "ColumnLayout",
    "Emissions",
    "MlFsaCompiler",
    "UnitPosteriors",
    "UnitSpan",
    "best_columns",
    "best_path",
    "expected_boundaries",
    "plan_batches",
    "posteriors",
    "restrict",
    "too_short",
    "total_scores",
    "unit_loop",
    "word_posteriors",
]

"""The mismatch-localisation acceptor (ML-FSA) in k2, for use from any recipe.

This package imports torch, numpy and k2 and nothing else of its project: copy the folder into
another recipe, or import it. A whole use of it:

    >>> import torch
    >>> from mlvae.fsa import MlFsaCompiler, best_path, posteriors
    >>> heard = torch.tensor([[3, 3, 0, 0], [2, 2, 2, 2]])  # what each of two times 4 frames is
    >>> log_posteriors = (0.88 * torch.nn.functional.one_hot(heard, 4) + 0.03).log()
    >>> compiler = MlFsaCompiler(num_units=4, topology="substitution")
    >>> graphs = compiler.compile([[3, 1], [2]])  # what should have been said; a k2.FsaVec
    >>> emissions = compiler.emissions(log_posteriors, torch.tensor([4, 4]))
    >>> for spans in best_path(graphs, emissions):
    ...     print([(span.unit, span.start, span.end, span.perceived) for span in spans])
    [(3, 0, 2, 3), (1, 2, 4, 0)]
    [(2, 0, 4, 2)]
    >>> for found in posteriors(graphs, emissions):
    ...     print(found.mispronounced.numpy().round(2))
    [0.   0.97]
    [0.]

All paths count there; here the second unit has to be right:

    >>> from mlvae.fsa import restrict, total_scores
    >>> only_right = restrict(graphs, [[None, False], [None]])
    >>> print([span.perceived for span in best_path(only_right, emissions)[0]])
    [3, 1]
    >>> bool(total_scores(only_right, emissions)[0] < total_scores(graphs, emissions)[0])
    True

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

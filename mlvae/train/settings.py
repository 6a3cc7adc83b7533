"""How ML-VAE is trained: what a configuration file may say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mlvae.bounds import (
    Count,
    CountOrNone,
    Depth,
    Fraction,
    LearningRate,
    Part,
    Positive,
    Rate,
    Settings,
    Size,
    Weight,
)
from mlvae.fsa.topology import TOPOLOGIES

#: Topologies that ML-VAE can be trained with; ``separate`` finds boundaries first, see
#: :class:`mlvae.train.estep.SeparateCompiler`.
TopologyName = Literal[
    (*[name for name, one in TOPOLOGIES.items() if one.has_mismatch], "separate")
]
#: Those that say what was spoken in place of a unit.
COMPETING = [name for name, one in TOPOLOGIES.items() if one.takes_competitors]


@dataclass
class Decoding(Settings):
    """How posteriors become scores, and what may be perceived besides the canonical units."""

    acoustic_scale: Positive = 1.0  # factor of log q(y)/p(y)
    deletions: bool = False  # whether units may be deleted
    deletion_rate: Rate = 0.03  # P(a unit is deleted)
    #: Of topology ``substitution``: how many units may be perceived in the place of each, the
    #: likeliest of the model's confusion table; 0 for all others.
    competitors: CountOrNone = 0


@dataclass
class ReinforceConfig(Settings):
    """How q(pi) learns from the reward (the paper's section on REINFORCE)."""

    samples: Count = 5  # N_mc, samples of pi a frame
    entropy_weight: Weight = 0.05  # of the entropy of q(pi)
    baseline_size: Size = 512  # width of the two fully connected layers of the baseline b(x)


@dataclass
class JointConfig(Settings):
    """Joint optimisation."""

    temperature: Positive = 0.5  # of the relaxed samples of b and pi
    mispronunciation_rate: Rate = 0.15  # mean of p(pi)


@dataclass
class TrainConfig(Settings):
    """How ML-VAE is trained; the defaults are those of the paper-size configuration."""

    #: What an outer iteration does: ``alternating`` (the paper's Algorithm 1), ``reinforce`` (the
    #: same, where q(pi) also learns from a reward: ML-VAE-RL), or ``joint`` (all modules at every
    #: step, without an E-step: the paper's second ablation).
    algorithm: Literal["alternating", "reinforce", "joint"] = "alternating"
    iterations: Count = 50  # outer iterations
    #: Passes of the phoneme estimator an iteration; the paper has one. Where there is little data,
    #: it has the most to learn and takes the least time.
    estimator_epochs: Count = 1
    max_frames: Count = 2000  # largest batch, in frames with padding
    learning_rate: LearningRate = 1e-3  # of Adam, one optimizer a module
    #: Reached in the last iteration by equal factors; 0 keeps it constant.
    final_learning_rate: Part = 0.0
    gradient_clip: Weight = 5.0  # largest gradient norm a module; 0 for no limit
    boundary_kl_weight: Weight = 0.01  # lambda_b
    #: Alpha + beta of the boundary prior, whose mean is units per frame.
    boundary_prior_strength: Positive = 10.0
    #: Whether there is a boundary detector; without it a unit starts in each frame with one
    #: probability, which is stored with the model.
    boundary_detector: bool = True
    #: Whether there is a speech generator, whose q(pi) says how likely a frame's unit is
    #: mispronounced; without it all units have one rate, which is stored with the model.
    generator: bool = True
    generator_kl_weight: Weight = 1.0  # lambda_r
    correctness_weight: Weight = 0.001  # lambda_l
    #: Which boundaries teach the boundary detector: ``aligned`` (B-bar of the forced alignment, the
    #: paper) or ``found`` (B-hat of the E-step, its first ablation).
    boundary_target: Literal["aligned", "found"] = "aligned"
    corruption_rate: Rate = 0.2  # fraction of validation units corrupted to choose the epoch
    #: What chooses the iteration that is kept: ``corrupted_f1``, how well corrupted units are
    #: found, or ``path_score``, the best paths' mean score per frame on the validation part as it
    #: is. Units are corrupted evenly: that tells nothing of an error which many make of the same
    #: unit, such as pseudo-labelling is to find.
    selection: Literal["corrupted_f1", "path_score"] = "corrupted_f1"
    #: How posteriors become scores, in training and afterwards.
    decoding: Decoding = field(default_factory=Decoding)
    #: Of the E-step: ``ml`` (the paper), ``substitution``, or ``separate`` (boundaries by the
    #: single-path acceptor, then correctness a segment: the paper's third ablation).
    topology: TopologyName = "ml"
    states_per_unit: Depth = 1  # states that the estimator tells apart in a unit
    #: After this many iterations the estimator's targets are what the E-step perceived instead of
    #: the canonical units, and the rate of mispronunciations and the confusion table are
    #: re-estimated from it; 0 for never (the paper).
    pseudo_labels_after: CountOrNone = 0
    #: After this many iterations the rate and the table are re-estimated in every iteration, also
    #: before pseudo-labelling; 0 for when pseudo-labelling.
    estimate_after: CountOrNone = 0
    #: Least F1 of corrupted validation units after the first iteration with which a model is
    #: trusted. One that is not learns nothing from what its E-step perceives: no pseudo-labels, no
    #: estimates; what chooses the iteration is ``corrupted_f1``; and a judge is not fitted to its
    #: answers. (Of learners it would come to flag more than half.) 0: all are trusted.
    trusted_f1: Part = 0.0
    #: Of algorithm ``reinforce``.
    reinforce: ReinforceConfig = field(default_factory=ReinforceConfig)
    joint: JointConfig = field(default_factory=JointConfig)  # of algorithm ``joint``
    #: Fraction of a target's probability that is spread over all outputs.
    label_smoothing: Fraction = 0.0
    #: Largest factor, more or less than 1, by which the frequency axis of a recording is stretched
    #: where the phoneme estimator learns from it, another one in each epoch; see
    #: :func:`mlvae.train.augment.warp_frequencies`.
    frequency_warp: Fraction = 0.0
    #: Of the module that learns: ``float32``, or on a GPU also ``float16`` or ``bfloat16`` by
    #: automatic mixed precision. The E-step is in float32 always.
    precision: Literal["float32", "float16", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.algorithm != "alternating" and not self.generator:
            raise ValueError(f"algorithm {self.algorithm} trains q(pi): it needs the generator")
        if not self.boundary_detector and self.boundary_target == "found":
            raise ValueError("boundary_target found teaches a boundary detector, and there is none")
        if self.algorithm == "joint" and not self.boundary_detector:
            raise ValueError("algorithm joint trains all modules: it needs the boundary detector")
        if self.algorithm == "joint" and self.boundary_target != "aligned":
            raise ValueError("algorithm joint has no E-step: its boundary_target is aligned")
        if self.algorithm == "joint" and self.frequency_warp > 0:
            raise ValueError("algorithm joint trains all modules together: frequency_warp is 0")
        if self.algorithm == "joint" and self.estimator_epochs > 1:
            raise ValueError("algorithm joint trains all modules together: estimator_epochs is 1")
        for name in ("pseudo_labels_after", "estimate_after"):
            if getattr(self, name) and self.topology not in COMPETING:
                raise ValueError(f"{name} goes with topology {COMPETING[0]}, not {self.topology!r}")
        if self.decoding.deletions and self.topology == "separate":
            raise ValueError("topology separate has no deletions: they go with the others")
        if self.decoding.competitors and self.topology not in COMPETING:
            raise ValueError(f"competitors go with topology {COMPETING[0]}, not {self.topology!r}")
        if self.algorithm == "joint" and (self.pseudo_labels_after or self.estimate_after):
            raise ValueError("algorithm joint has no E-step: nothing can be pseudo-labelled")
        if self.algorithm == "joint" and self.decoding.competitors:
            raise ValueError("algorithm joint has no E-step to rank competitors by")


@dataclass
class CalibrationConfig(Settings):
    """How the acoustic scale is chosen."""

    #: Candidates; none leaves the scale as it is.
    scales: list[Positive] = field(default_factory=list)
    corruption_rate: Rate = 0.2  # fraction of units that are replaced
    max_cuts: Count = 200  # held-out cuts used, the first ones of a random order
    max_frames: Count = 8000  # largest batch, in frames with padding

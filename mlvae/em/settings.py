"""How ML-VAE is trained: what a configuration file may say."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlvae.em.estep import Decoding
from mlvae.em.precision import PRECISIONS


@dataclass
class CrossFitConfig:
    """Estimators beside the main one that judge what they have not learned, for relabelling.

    Attributes:
        folds: how many; 0 lets the main estimator judge.
        by: what is divided into folds: each ``recording`` or each ``speaker``.
    """

    folds: int = 0
    by: str = "recording"

    def __post_init__(self) -> None:
        if self.folds < 0 or self.folds == 1:
            raise ValueError(f"folds must be 0 or at least 2, not {self.folds}")
        if self.by not in ("recording", "speaker"):
            raise ValueError(f"by must be recording or speaker, not {self.by!r}")


@dataclass
class ReinforceConfig:
    """How q(pi) learns from the reward (the paper's section on REINFORCE).

    Attributes:
        samples: N_mc, samples of pi a frame.
        entropy_weight: of the entropy of q(pi).
        normalize: whether rewards less their baseline are divided by their standard deviation in
            the batch; log-likelihoods of speech are tens of nats, and fall as training goes on.
        baseline_size: width of the two fully connected layers of the baseline b(x).
    """

    samples: int = 5
    entropy_weight: float = 0.05
    normalize: bool = True
    baseline_size: int = 512

    def __post_init__(self) -> None:
        for name in ("samples", "baseline_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.entropy_weight < 0:
            raise ValueError(f"entropy_weight must not be below 0, but is {self.entropy_weight}")


@dataclass
class JointConfig:
    """Joint optimisation.

    Attributes:
        temperature: of the relaxed samples of b and pi.
        mispronunciation_rate: mean of p(pi).
    """

    temperature: float = 0.5
    mispronunciation_rate: float = 0.15

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, not {self.temperature}")
        if not 0 < self.mispronunciation_rate < 1:
            raise ValueError(
                f"mispronunciation_rate must lie between 0 and 1, not {self.mispronunciation_rate}"
            )


@dataclass
class TrainConfig:
    """How ML-VAE is trained; the defaults are those of the paper-size configuration.

    Attributes:
        algorithm: what an outer iteration does: ``alternating`` (the paper's Algorithm 1),
            ``reinforce`` (the same, where q(pi) also learns from a reward: ML-VAE-RL), or ``joint``
            (all modules at every step, without an E-step: the paper's second ablation).
        iterations: outer iterations.
        estimator_epochs: passes of the phoneme estimator an iteration; the paper has one. Where
            there is little data, it has the most to learn and takes the least time.
        max_frames: largest batch, in frames with padding.
        learning_rate: of Adam, one optimizer a module.
        final_learning_rate: reached in the last iteration by equal factors; 0 keeps it constant.
        gradient_clip: largest gradient norm a module; 0 for no limit.
        boundary_kl_weight: lambda_b.
        boundary_prior_strength: alpha + beta of the boundary prior, whose mean is units a frame.
        generator_kl_weight: lambda_r.
        correctness_weight: lambda_l.
        boundary_target: which boundaries teach the boundary detector: ``aligned`` (B-bar of the
            forced alignment, the paper) or ``found`` (B-hat of the E-step, its first ablation).
        component_unit: what selects the Gaussian component in training: ``estimated`` (argmax of
            the phoneme estimator, the paper) or ``canonical`` (the aligned canonical unit).
        prior: p(c) from ``frames`` of the training alignment or from ``counts`` of units.
        corruption_rate: share of validation units corrupted to choose the epoch.
        selection: what chooses the iteration that is kept: ``corrupted_f1``, how well corrupted
            units are found, or ``path_score``, the best paths' mean score a frame on the validation
            part as it is. Units are corrupted evenly: that tells nothing of an error which many
            make of the same unit, such as relabelling is to find.
        patience: stop after this many iterations without a better epoch; 0 for never.
        decoding: how posteriors become scores, in training and afterwards.
        topology: of the E-step: ``ml`` (the paper), ``substitution``, or ``separate`` (boundaries
            by the single-path acceptor, then correctness a segment: the paper's third ablation).
        states_per_unit: states that the estimator tells apart in a unit.
        relabel_after: after this many iterations the estimator's targets are what the E-step heard
            instead of the canonical units, and the rate of mispronunciations and the confusion
            table are re-estimated from it; 0 for never (the paper).
        estimate_after: after this many iterations the rate and the table are re-estimated in every
            iteration, also before relabelling; 0 for when relabelling.
        crossfit: who judges for relabelling and re-estimation.
        reinforce: of algorithm ``reinforce``.
        joint: of algorithm ``joint``.
        label_smoothing: share of a target's probability that is spread over all outputs.
        loss_exponent: of the estimator's loss, above 0 for one that minds wrong labels less (see
            :func:`mlvae.em.losses.estimator_loss`); 0 for the log-likelihood, as in the paper.
        precision: of the module that learns: ``float32``, or on a GPU also ``float16`` or
            ``bfloat16`` by automatic mixed precision. The E-step is in float32 always.
    """

    algorithm: str = "alternating"
    iterations: int = 50
    estimator_epochs: int = 1
    max_frames: int = 2000
    learning_rate: float = 1e-3
    final_learning_rate: float = 0.0
    gradient_clip: float = 5.0
    boundary_kl_weight: float = 0.01
    boundary_prior_strength: float = 10.0
    generator_kl_weight: float = 1.0
    correctness_weight: float = 0.001
    boundary_target: str = "aligned"
    component_unit: str = "estimated"
    prior: str = "frames"
    corruption_rate: float = 0.2
    selection: str = "corrupted_f1"
    patience: int = 0
    decoding: Decoding = field(default_factory=Decoding)
    topology: str = "ml"
    states_per_unit: int = 1
    relabel_after: int = 0
    estimate_after: int = 0
    crossfit: CrossFitConfig = field(default_factory=CrossFitConfig)
    reinforce: ReinforceConfig = field(default_factory=ReinforceConfig)
    joint: JointConfig = field(default_factory=JointConfig)
    label_smoothing: float = 0.0
    loss_exponent: float = 0.0
    precision: str = "float32"

    def __post_init__(self) -> None:
        if self.algorithm not in ("alternating", "reinforce", "joint"):
            raise ValueError(
                f"algorithm must be alternating, reinforce or joint, not {self.algorithm!r}"
            )
        if self.boundary_target not in ("aligned", "found"):
            raise ValueError(
                f"boundary_target must be aligned or found, not {self.boundary_target!r}"
            )
        if self.algorithm == "joint" and self.boundary_target != "aligned":
            raise ValueError("algorithm joint has no E-step: its boundary_target is aligned")
        if self.precision not in PRECISIONS:
            raise ValueError(
                f"precision must be one of {', '.join(PRECISIONS)}, not {self.precision!r}"
            )
        if self.selection not in ("corrupted_f1", "path_score"):
            raise ValueError(
                f"selection must be corrupted_f1 or path_score, not {self.selection!r}"
            )
        if self.iterations < 1:
            raise ValueError(f"iterations must be at least 1, not {self.iterations}")
        if self.estimator_epochs < 1:
            raise ValueError(f"estimator_epochs must be at least 1, not {self.estimator_epochs}")
        if self.algorithm == "joint" and self.estimator_epochs > 1:
            raise ValueError("algorithm joint trains all modules together: estimator_epochs is 1")
        if self.topology not in ("ml", "substitution", "separate"):
            raise ValueError(
                f"topology must be ml, substitution or separate, not {self.topology!r}"
            )
        for name in ("relabel_after", "estimate_after"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be below 0, but is {getattr(self, name)}")
            if getattr(self, name) and self.topology != "substitution":
                raise ValueError(f"{name} goes with topology substitution, not {self.topology!r}")
        if self.decoding.skip and self.topology == "separate":
            raise ValueError("topology separate cannot leave units out: skip goes with the others")
        if self.decoding.competitors and self.topology != "substitution":
            raise ValueError(f"competitors go with topology substitution, not {self.topology!r}")
        if self.algorithm == "joint" and (self.relabel_after or self.estimate_after):
            raise ValueError("algorithm joint has no E-step: nothing can be relabelled")
        if self.algorithm == "joint" and self.decoding.competitors:
            raise ValueError("algorithm joint has no E-step to rank competitors by")
        if self.algorithm != "alternating" and self.crossfit.folds:
            raise ValueError(f"crossfit goes with algorithm alternating, not {self.algorithm!r}")
        if self.crossfit.folds and not (self.relabel_after or self.estimate_after):
            raise ValueError("crossfit has nothing to do without relabel_after or estimate_after")
        if not 0 <= self.loss_exponent <= 1:
            raise ValueError(f"loss_exponent must be within 0 and 1, not {self.loss_exponent}")
        if self.loss_exponent and self.label_smoothing:
            raise ValueError("loss_exponent and label_smoothing do not go together")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be within 0 and 1, not {self.label_smoothing}")
        if self.component_unit not in ("estimated", "canonical"):
            raise ValueError(
                f"component_unit must be estimated or canonical, not {self.component_unit!r}"
            )
        if self.prior not in ("frames", "counts"):
            raise ValueError(f"prior must be frames or counts, not {self.prior!r}")

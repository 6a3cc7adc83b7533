"""ML-VAE-RL: q(pi) also learns which pi makes speech likely (REINFORCE, Williams 1992)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from lhotse import CutSet

from mlvae.data.dataset import UnitDataset
from mlvae.em.alternating import Alternating
from mlvae.em.batches import Means
from mlvae.em.epochs import Learner, generator_inputs
from mlvae.em.estep import EStepResult
from mlvae.em.losses import frame_losses, generator_loss, masked_mean
from mlvae.em.settings import TrainConfig
from mlvae.nn import GeneratorOutput, MlVae
from mlvae.nn.baseline import RewardBaseline


class Reinforce(Alternating):
    """Alternating training with the paper's equation grad_rl in the speech generator's epoch.

    pi_t is sampled N_mc times from q(pi). A sample's reward is R = -L_h of its frame: with +L_h, as
    printed, samples of a high loss would be favoured. A network b(x_t) learns the reward by mean
    squared error; what a sample brings beyond it moves q(pi). Losses are means over frames and over
    samples.
    """

    def __init__(
        self,
        model: MlVae,
        cuts: CutSet,
        dataset: UnitDataset,
        config: TrainConfig,
        device: torch.device,
        seed: int,
    ) -> None:
        super().__init__(model, cuts, dataset, config, device, seed)
        num_features = len(model.scale.inverse_std)
        baseline = RewardBaseline(num_features, config.reinforce.baseline_size).to(device)
        self.modules["baseline"] = baseline
        # In float32 always: it is small, and the errors it learns from would overflow float16.
        self.learners["baseline"] = Learner(baseline, config)

    def train_generator(self, epoch: int, assignments: EStepResult) -> dict[str, float]:
        """Train the speech generator, q(pi) by the reward too, and the baseline."""
        config, means = self.config, Means(self.device)
        generator, baseline = self.learners["generator"], self.learners["baseline"]
        self.model.eval()
        generator.module.train()
        baseline.module.train()
        for batch in self.batches.epoch(epoch, assignments.spans, "generator", means):
            output = generator(
                batch.features,
                batch.num_frames,
                *generator_inputs(self.model, batch),
                num_samples=config.reinforce.samples,
            )
            wrong = batch.targets.mispronounced
            weights = config.generator_kl_weight, config.correctness_weight
            loss, parts = generator_loss(output, batch.features, wrong, batch.mask, *weights)
            reward = frame_rewards(output, batch.features, wrong, *weights)
            expected = baseline(batch.features.detach())
            policy, policy_parts = policy_loss(
                output.correctness_logit,
                output.sampled,
                reward - expected.detach(),
                batch.mask,
                config.reinforce.entropy_weight,
            )
            generator.step(loss + policy)
            error = masked_mean((reward - expected).pow(2).mean(0), batch.mask)
            baseline.step(error)
            means.add(**parts, **policy_parts, baseline=error)
        generator.module.eval()
        baseline.module.eval()
        return means.result()


def frame_rewards(
    output: GeneratorOutput,
    features: torch.Tensor,
    mispronounced: torch.Tensor,
    kl_weight: float,
    correctness_weight: float,
) -> torch.Tensor:
    """R = -L_h of each sample of pi in each frame.

    Only the KL to the selected component differs between samples of a frame; the rest of L_h is
    there for the baseline to take away.

    Args:
        output: what the speech generator gave.
        features: (B, T, F), the speech to reconstruct, scaled.
        mispronounced: float (B, T), pi-hat of the E-step.
        kl_weight: lambda_r.
        correctness_weight: lambda_l.

    Returns:
        float (S, B, T), without gradient.
    """
    nll, correctness = frame_losses(output, features, mispronounced)
    loss = nll + kl_weight * output.sample_kl + correctness_weight * correctness
    return -loss.detach()


def policy_loss(
    logit: torch.Tensor,
    sampled: torch.Tensor,
    advantage: torch.Tensor,
    mask: torch.Tensor,
    entropy_weight: float,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """A loss whose gradient makes samples likelier by what they brought beyond expectation.

    The advantage is divided by its standard deviation over the batch, as log-likelihoods of speech
    are tens of nats and fall as training goes on. Its mean stays: taking it away is the baseline's
    task.

    Args:
        logit: (B, T), log-odds of q(pi_t = 1).
        sampled: (S, B, T), samples of pi_t, 0 or 1.
        advantage: (S, B, T), reward less baseline, without gradient.
        mask: bool (B, T), frames that count.
        entropy_weight: of the entropy of q(pi), which is explicit.

    Returns:
        The loss, and detached: the ``entropy`` of q(pi), nats a frame, and ``advantage_std``.
    """
    std = advantage[:, mask].std(unbiased=False)
    advantage = advantage / std.clamp(min=1e-6)
    log_q = -F.binary_cross_entropy_with_logits(logit.expand_as(sampled), sampled, reduction="none")
    # H = -(1 - q) log (1 - q) - q log q
    entropy = masked_mean(F.softplus(logit) - logit * torch.sigmoid(logit), mask)
    policy = masked_mean(-(advantage * log_q).mean(0), mask)
    parts = {"entropy": entropy.detach(), "advantage_std": std.detach()}
    return policy - entropy_weight * entropy, parts

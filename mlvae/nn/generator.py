"""Speech generator phi_h: a hierarchical Gaussian-mixture VAE over speech, with q(pi)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions.relaxed_bernoulli import RelaxedBernoulli

from mlvae.bounds import Depth, Positive, Settings, Size
from mlvae.nn.layers import PaddedLSTM, full, fully_connected
from mlvae.nn.sru import SRU


@dataclass
class SpeechGeneratorConfig(Settings):
    """Sizes of the speech generator; the defaults are the paper's."""

    encoder_fc_size: Size = 32  # width of the encoder's three fully connected layers
    encoder_lstm_layers: Depth = 4  # LSTM layers of the encoder
    encoder_lstm_size: Size = 512  # units of each, and of the fully connected layer after them
    bidirectional: bool = False  # whether the encoder's LSTM looks both ways
    latent_size: Size = 32  # dimension D_h of the speech latent h_t
    num_variants: Depth = 3  # mispronunciation variants N_m a unit
    gumbel_temperature: Positive = 0.1  # temperature tau of the Gumbel softmax that picks a variant
    variant_fc_size: Size = 128  # width of the three fully connected layers that score variants
    correctness_fc_size: Size = 128  # width of the two fully connected layers of q(pi)
    decoder_layers: Depth = 4  # bidirectional SRU layers of the decoder
    decoder_size: Size = 512  # units of each, a direction


@dataclass
class GeneratorOutput:
    """What the generator says of a batch.

    Attributes:
        mean, log_variance: (B, T, F), p(x_t | h_t) at the sampled h_t.
        correctness_logit: (B, T), log-odds of q(pi_t = 1 | x_t, y_t, b_t).
        sampled: (S, B, T), the samples of pi_t, 0 or 1, or relaxed.
        sample_kl: (S, B, T), KL(q(h_t | x_t) || N(mu_z, sigma_z)) of the component that each of
            them selects, summed over D_h.
    """

    mean: torch.Tensor
    log_variance: torch.Tensor
    correctness_logit: torch.Tensor
    sampled: torch.Tensor
    sample_kl: torch.Tensor

    @property
    def kl(self) -> torch.Tensor:
        """``sample_kl`` averaged over the samples of pi, (B, T)."""
        return self.sample_kl.mean(0)


class SpeechGenerator(nn.Module):
    """Reconstructs speech through a Gaussian mixture whose component depends on unit and pi.

    For unit j the mixture has one component for the correct pronunciation and N_m for wrong ones,
    K = N + N * N_m in all. A frame with unit y_t and pi_t = 0 selects component
    y_t * (N_m + 1), and with pi_t = 1 component y_t * (N_m + 1) + 1 + k, where the variant k is
    drawn by a straight-through Gumbel softmax over NN(x_t, y_t). The selection is a hard one-hot:
    the printed softmax(rho * eps + one-hot) is nearly flat over K and rho cancels in it.

    Under mixed precision what networks say becomes float32 before it is sampled from or compared.

    Args:
        num_features: feature dimension F.
        num_units: units N.
        config: sizes.
    """

    # Keeps exp(-log_variance) in range, for the decoder and for the mixture alike.
    LOG_VARIANCE_RANGE = (-8.0, 8.0)

    def __init__(self, num_features: int, num_units: int, config: SpeechGeneratorConfig) -> None:
        super().__init__()
        self.num_units = num_units
        self.temperature = config.gumbel_temperature
        width = config.encoder_fc_size
        self.encoder_fc = fully_connected([num_features, width, width, width])
        self.encoder_lstm = PaddedLSTM(
            width, config.encoder_lstm_size, config.encoder_lstm_layers, config.bidirectional
        )
        self.encoder_hidden = fully_connected(
            [self.encoder_lstm.output_size, config.encoder_lstm_size]
        )
        self.latent_mean = nn.Linear(config.encoder_lstm_size, config.latent_size)
        self.latent_log_variance = nn.Linear(config.encoder_lstm_size, config.latent_size)

        components = (num_units, config.num_variants + 1, config.latent_size)
        self.component_mean = nn.Parameter(torch.randn(components))
        self.component_log_variance = nn.Parameter(torch.zeros(components))
        width = config.variant_fc_size
        self.variant = nn.Sequential(
            fully_connected([num_features + num_units, width, width, width]),
            nn.Linear(width, config.num_variants),
        )
        width = config.correctness_fc_size
        self.correctness = nn.Sequential(
            fully_connected([num_features + num_units + 1, width, width]), nn.Linear(width, 1)
        )
        self.decoder = SRU(config.latent_size, config.decoder_size, config.decoder_layers)
        self.speech_mean = nn.Linear(self.decoder.output_size, num_features)
        self.speech_log_variance = nn.Linear(self.decoder.output_size, num_features)

    def correctness_logits(
        self, features: torch.Tensor, unit_posteriors: torch.Tensor, boundary_mean: torch.Tensor
    ) -> torch.Tensor:
        """Log-odds of q(pi_t = 1 | x_t, y_t, b_t).

        Args:
            features: float (B, T, F), scaled.
            unit_posteriors: float (B, T, N), probabilities from the phoneme estimator.
            boundary_mean: float (B, T), q(b_t = 1) from the boundary detector.

        Returns:
            float (B, T). No gradient reaches the other two modules.
        """
        inputs = [features, unit_posteriors.detach(), boundary_mean.detach().unsqueeze(2)]
        return full(self.correctness(torch.cat(inputs, dim=2)).squeeze(2))

    def forward(
        self,
        features: torch.Tensor,
        num_frames: torch.Tensor,
        unit: torch.Tensor,
        unit_posteriors: torch.Tensor,
        boundary_mean: torch.Tensor,
        num_samples: int = 1,
    ) -> GeneratorOutput:
        """Encode, select components, decode.

        Randomness (pi_t, the variant and h_t) comes from torch's global generator. pi_t is sampled
        from q(pi) without a gradient: in ML-VAE q(pi) learns from its own likelihood term alone.
        Speech is encoded and decoded once, whatever the number of samples of pi_t: they select the
        component, on which h_t and its decoding do not depend.

        Args:
            features: float (B, T, F), scaled.
            num_frames: int64 (B,).
            unit: int64 (B, T), the unit y_t that selects the component.
            unit_posteriors: float (B, T, N).
            boundary_mean: float (B, T).
            num_samples: S, samples of pi_t, each with a variant of its own.

        Returns:
            :class:`GeneratorOutput`; padding holds values that mean nothing.
        """
        logit = self.correctness_logits(features, unit_posteriors, boundary_mean)
        rate = torch.sigmoid(logit.detach())
        mispronounced = torch.bernoulli(rate.expand(num_samples, *rate.shape))

        mean, log_variance = self._encode(features, num_frames)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        prior_mean, prior_log_variance = self._select(features, unit, mispronounced)
        sample_kl = _gaussian_kl(mean, log_variance, prior_mean, prior_log_variance).sum(3)
        return GeneratorOutput(
            *self._decode(latent, num_frames),
            correctness_logit=logit,
            sampled=mispronounced,
            sample_kl=sample_kl,
        )

    def component_kl(
        self,
        features: torch.Tensor,
        num_frames: torch.Tensor,
        unit: torch.Tensor,
        mispronounced: torch.Tensor,
    ) -> torch.Tensor:
        """The one term of L_h that a choice of pi_t changes, besides its pseudo-label's.

        Args:
            features: float (B, T, F), scaled.
            num_frames: int64 (B,).
            unit: int64 (B, T), the unit y_t that selects the component.
            mispronounced: float (S, B, T), S choices of pi_t, 0 or 1; the variant is drawn.

        Returns:
            KL(q(h_t | x_t) || N(mu_z, sigma_z)) summed over D_h, (S, B, T), in nats.
        """
        component = self._select(features, unit, mispronounced)
        return _gaussian_kl(*self._encode(features, num_frames), *component).sum(3)

    def soft(
        self,
        features: torch.Tensor,
        num_frames: torch.Tensor,
        unit_posteriors: torch.Tensor,
        boundary: torch.Tensor,
        temperature: float,
    ) -> GeneratorOutput:
        """As :meth:`forward`, differentiable in what the other two modules say.

        The unit stands by its posterior, which weights the KL to the components of all units; pi_t
        is a relaxed sample, which weights the correct component and the variants; the variant is
        scored on the posterior.

        Args:
            features: float (B, T, F), scaled.
            num_frames: int64 (B,).
            unit_posteriors: float (B, T, N).
            boundary: float (B, T), relaxed samples of b_t.
            temperature: of the relaxed sample of pi_t.

        Returns:
            :class:`GeneratorOutput` with one sample; padding holds values that mean nothing.
        """
        inputs = torch.cat([features, unit_posteriors, boundary.unsqueeze(2)], dim=2)
        logit = full(self.correctness(inputs).squeeze(2))
        pi = RelaxedBernoulli(logit.new_tensor(temperature), logits=logit).rsample()
        mean, log_variance = self._encode(features, num_frames)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        scores = full(self.variant(torch.cat([features, unit_posteriors], dim=2)))
        variant = F.gumbel_softmax(scores, tau=self.temperature, hard=True)
        # (B, T, 1 + N_m): weights of the correct component and of the variants.
        weight = torch.cat([(1 - pi).unsqueeze(2), pi.unsqueeze(2) * variant], dim=2)
        # These products are differences of large sums, which half precision cannot hold.
        with torch.autocast(features.device.type, enabled=False):
            of_units = _kl_to_all(
                mean,
                log_variance,
                self.component_mean,
                self.component_log_variance.clamp(*self.LOG_VARIANCE_RANGE),
            )
            # The mean over q(y) comes before the sum over components.
            kl = (torch.einsum("btn,btnk->btk", unit_posteriors, of_units) * weight).sum(2)
        return GeneratorOutput(
            *self._decode(latent, num_frames),
            correctness_logit=logit,
            sampled=pi.unsqueeze(0),
            sample_kl=kl.unsqueeze(0),
        )

    def _encode(
        self, features: torch.Tensor, num_frames: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log-variance of q(h_t | x_t), (B, T, D_h)."""
        hidden = self.encoder_hidden(self.encoder_lstm(self.encoder_fc(features), num_frames))
        log_variance = full(self.latent_log_variance(hidden)).clamp(*self.LOG_VARIANCE_RANGE)
        return full(self.latent_mean(hidden)), log_variance

    def _decode(
        self, latent: torch.Tensor, num_frames: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log-variance of p(x_t | h_t), (B, T, F)."""
        decoded = self.decoder(latent, num_frames)
        log_variance = full(self.speech_log_variance(decoded)).clamp(*self.LOG_VARIANCE_RANGE)
        return full(self.speech_mean(decoded)), log_variance

    def _select(
        self, features: torch.Tensor, unit: torch.Tensor, mispronounced: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log-variance of each sample's component, (S, B, T, D_h)."""
        one_hot_unit = F.one_hot(unit, self.num_units).to(features.dtype)
        scores = full(self.variant(torch.cat([features, one_hot_unit], dim=2)))
        variant = F.gumbel_softmax(
            scores.expand(len(mispronounced), *scores.shape), tau=self.temperature, hard=True
        )
        wrong = mispronounced.unsqueeze(3)
        # (S, B, T, 1 + N_m): the correct component, or one of the variants.
        choice = torch.cat([1 - wrong, wrong * variant], dim=3).unsqueeze(4)
        mean = (choice * _rows(self.component_mean, unit)).sum(3)
        log_variance = (choice * _rows(self.component_log_variance, unit)).sum(3)
        return mean, log_variance.clamp(*self.LOG_VARIANCE_RANGE)


def _rows(table: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
    """Rows of a table (N, K, D) by unit, (B, T, K, D).

    An embedding adds its gradient up in a fixed order; that of indexing depends on the threads.
    """
    return F.embedding(unit, table.flatten(1)).unflatten(2, table.shape[1:])


def _gaussian_kl(
    mean: torch.Tensor,
    log_variance: torch.Tensor,
    prior_mean: torch.Tensor,
    prior_log_variance: torch.Tensor,
) -> torch.Tensor:
    """Elementwise KL between diagonal Gaussians."""
    ratio = (log_variance - prior_log_variance).exp()
    distance = (mean - prior_mean).pow(2) * (-prior_log_variance).exp()
    return 0.5 * (ratio + distance - 1.0 - (log_variance - prior_log_variance))


def _kl_to_all(
    mean: torch.Tensor,
    log_variance: torch.Tensor,
    component_mean: torch.Tensor,
    component_log_variance: torch.Tensor,
) -> torch.Tensor:
    """KL of each frame's Gaussian, (B, T, D), to each component, (N, K, D); (B, T, N, K).

    The squares are multiplied out, so that no tensor of all frames, components and dimensions is
    needed.
    """
    precision = (-component_log_variance).exp()
    weighted = component_mean * precision
    cross = torch.einsum("btd,nkd->btnk", log_variance.exp() + mean.pow(2), precision)
    cross = cross - 2 * torch.einsum("btd,nkd->btnk", mean, weighted)
    constant = (component_mean * weighted + component_log_variance).sum(2)
    own = (log_variance + 1.0).sum(2)
    return 0.5 * (cross + constant - own[..., None, None])


class RewardBaseline(nn.Module):
    """A fully connected network from the features of a frame to its expected reward.

    The network speaks in nats a feature dimension: a reward is a log-likelihood of tens of nats, to
    which its output would otherwise have to grow by the small steps of an optimizer.

    Args:
        num_features: feature dimension F.
        size: width of the two hidden layers.
    """

    def __init__(self, num_features: int, size: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.layers = nn.Sequential(fully_connected([num_features, size, size]), nn.Linear(size, 1))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Expected reward of each frame, float (B, T), from features (B, T, F), scaled."""
        return self.num_features * self.layers(features).squeeze(2)

"""The networks: plain torch modules that know nothing of corpora, graphs or training."""

from mlvae.nn.boundary import BoundaryDetector
from mlvae.nn.estimator import PhonemeEstimator
from mlvae.nn.generator import GeneratorOutput, SpeechGenerator, SpeechGeneratorConfig
from mlvae.nn.layers import FeatureScale
from mlvae.nn.model import MlVae, MlVaeConfig, Posteriors
from mlvae.nn.narrow import NarrowAcousticModel, NarrowAcousticModelConfig
from mlvae.nn.trunk import TrunkConfig

__all__ = [
    "BoundaryDetector",
    "FeatureScale",
    "GeneratorOutput",
    "MlVae",
    "MlVaeConfig",
    "NarrowAcousticModel",
    "NarrowAcousticModelConfig",
    "PhonemeEstimator",
    "Posteriors",
    "SpeechGenerator",
    "SpeechGeneratorConfig",
    "TrunkConfig",
]

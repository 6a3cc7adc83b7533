"""The graph in a recipe like icefall's: supervisions, a lexicon, a network that subsamples.

``Batches`` plays lhotse's K2SpeechRecognitionDataset; the rest is what a recipe needs of mlvae.fsa.
"""

import torch
from torch import nn

from mlvae.fsa import MlFsaCompiler, best_path, posteriors, total_scores

UNITS = ["b", "d", "k", "a", "i", "u"]
LEXICON = {  # by word its pronunciations; each counts as right
    "badi": ["b a d i"],
    "kudu": ["k u d u"],
    "dika": ["d i k a", "d i k u"],
    "buki": ["b u k i"],
}
SUBSAMPLING = 2  # frames of features for one of the network


class Batches:
    """Batches of made-up speech: each unit sounds like a vector of its own for six frames."""

    def __init__(self) -> None:
        self.sounds = torch.randn(len(UNITS), 16)

    def __call__(self, texts: list[str]) -> dict:
        """The batch of texts: ``inputs`` (B, T, F), and ``supervisions``."""
        said = torch.tensor([first for text in texts for first in ids(text, first=True)])
        frames = said.view(len(texts), -1).repeat_interleave(6, dim=1)
        inputs = self.sounds[frames] + 0.4 * torch.randn(*frames.shape, 16)
        num_frames = torch.full((len(texts),), frames.shape[1])
        return {"inputs": inputs, "supervisions": {"text": texts, "num_frames": num_frames}}


def ids(text: str, first: bool = False) -> list:
    """The words of a text, each with the unit ids of its pronunciations, or of the first alone."""
    words = [[[UNITS.index(u) for u in p.split()] for p in LEXICON[w]] for w in text.split()]
    return [unit for word in words for unit in word[0]] if first else words


class Model(nn.Module):
    """Log-posteriors of units (B, T / SUBSAMPLING, N)."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Conv1d(16, len(UNITS), SUBSAMPLING, SUBSAMPLING)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of features (B, T, F)."""
        return self.net(x.transpose(1, 2)).transpose(1, 2).log_softmax(-1)


def scored(compiler: MlFsaCompiler, model: Model, batch: dict) -> tuple:
    """The graphs of a batch's texts, and the scores that its network gives them."""
    graphs = compiler.compile([ids(text) for text in batch["supervisions"]["text"]])
    num_frames = batch["supervisions"]["num_frames"] // SUBSAMPLING
    return graphs, compiler.emissions(model(batch["inputs"]), num_frames)


torch.manual_seed(0)
batches, model, words = Batches(), Model(), list(LEXICON)
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
aligner = MlFsaCompiler(num_units=len(UNITS), topology="single")
for _ in range(60):  # as train_one_epoch: the loss is that of forced alignment, over all paths
    texts = [" ".join(words[i] for i in torch.randint(4, (3,)).tolist()) for _ in range(16)]
    loss = -total_scores(*scored(aligner, model, batches(texts))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

batch = batches(["badi kudu dika"])
batch["supervisions"]["text"] = ["badi buki dika"]  # not what was said
finder = MlFsaCompiler(num_units=len(UNITS), topology="substitution")
graphs, emissions = scored(finder, model, batch)
(found,), (probability,) = best_path(graphs, emissions), posteriors(graphs, emissions)
for span in found:
    p = probability.mispronounced[span.slot] / probability.used[span.slot]
    start, end = (0.01 * SUBSAMPLING * frame for frame in (span.start, span.end))
    print(UNITS[span.unit], f"{start:.2f} {end:.2f}", f"{p:.2f}", UNITS[span.perceived])

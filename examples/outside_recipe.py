"""A recipe of somebody else's: any model that gives log-posteriors, plus mlvae.fsa."""

import torch

from mlvae.fsa import MlFsaCompiler, best_path, total_scores

torch.manual_seed(0)
texts = torch.randint(10, (64, 6))  # sentences of ten units
sounds = torch.randn(10, 16)  # what each unit sounds like
speech = sounds[texts.repeat_interleave(5, dim=1)] + 0.5 * torch.randn(64, 30, 16)
num_frames = torch.full((64,), 30)

model = torch.nn.Sequential(torch.nn.Linear(16, 10), torch.nn.LogSoftmax(dim=-1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
aligner = MlFsaCompiler(num_units=10, topology="single")
graphs = aligner.compile(texts)
for _ in range(60):  # learns from sentences and speech, without times
    optimizer.zero_grad()
    (-total_scores(graphs, aligner.emissions(model(speech), num_frames)).mean()).backward()
    optimizer.step()

texts[0, 2] = (texts[0, 2] + 1) % 10  # now one text differs from its speech
finder = MlFsaCompiler(num_units=10, topology="ml")
emissions = finder.emissions(model(speech), num_frames)
for span in best_path(finder.compile(texts), emissions)[0]:
    print(span.unit, span.start, span.end, "mispronounced" if span.mispronounced else "")

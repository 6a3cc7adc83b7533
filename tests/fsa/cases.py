"""Random small batches for the tests of mlvae.fsa, and their reference answers."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch

from mlvae.fsa import MlFsaCompiler
from tests.fsa import brute_force

NUM_UNITS = 4

#: Which of the optional inputs a case has.
INPUTS = {
    "posteriors alone": {},
    "prior": {"prior": True},
    "boundary and correctness": {"boundary": True, "correctness": True},
    "everything": {
        "prior": True,
        "boundary": True,
        "correctness": True,
        "scale": 0.6,
        "blank": True,
    },
}


@dataclass
class Case:
    """A batch, as the package takes it and as the reference takes it."""

    compiler: MlFsaCompiler
    utterances: list
    log_posteriors: torch.Tensor
    num_frames: torch.Tensor
    options: dict
    confusion: list[list[float]] | None = None
    deletion_rate: float | None = None
    insertion_rate: float | None = None

    @property
    def words(self) -> list[list[list[list[int]]]]:
        """The utterances in the form of words with pronunciations."""
        return [
            [[[unit]] for unit in utterance] if isinstance(utterance[0], int) else utterance
            for utterance in self.utterances
        ]

    def graphs(self, device="cpu"):
        return self.compiler.compile(self.utterances, device=device)

    def emissions(self, device="cpu"):
        options = {
            name: value.to(device) if torch.is_tensor(value) else value
            for name, value in self.options.items()
        }
        return self.compiler.emissions(self.log_posteriors.to(device), self.num_frames, **options)

    def model(self, index: int) -> brute_force.Model:
        """The reference's model of one utterance."""
        frames = int(self.num_frames[index])

        def rows(name):
            value = self.options.get(name)
            return None if value is None else value[index, :frames].double().tolist()

        prior = self.options.get("log_prior")
        layout = self.compiler.layout
        return brute_force.Model(
            num_units=layout.num_units,
            states=layout.states_per_unit,
            posteriors=self.log_posteriors[index, :frames].double().tolist(),
            has_silence=layout.silence,
            topology=layout.topology.name,
            confusion=self.confusion,
            deletion_rate=self.deletion_rate,
            insertion_rate=self.insertion_rate,
            prior=None if prior is None else prior.double().tolist(),
            boundary=rows("log_boundary"),
            correctness=rows("log_correctness"),
            scale=self.options.get("acoustic_scale", 1.0),
            blank=self.options.get("blank"),
        )

    def hypotheses(self, index: int) -> list[brute_force.Hypothesis]:
        return brute_force.hypotheses(
            self.words[index], int(self.num_frames[index]), self.model(index)
        )

    def answer(self, index: int) -> brute_force.Answer:
        return brute_force.answer(
            self.hypotheses(index),
            self.num_slots(index),
            int(self.num_frames[index]),
            self.compiler.layout.num_units,
        )

    def num_slots(self, index: int) -> int:
        return sum(
            len(units) for word in self.words[index] for units in {tuple(p): p for p in word}
        )


def random_case(
    seed: int,
    topology: str = "ml",
    states: int = 1,
    silence: bool | str = False,
    alternatives: bool = False,
    inputs: str = "posteriors alone",
    batch: int = 3,
    max_frames: int = 6,
    max_units: int = 3,
    spread: float = 1.5,
    num_units: int = NUM_UNITS,
    deletions: bool = False,
    insertions: bool = False,
    competitors: str = "all",
) -> Case:
    """A batch of random utterances with random scores.

    Lengths are drawn apart from the units, so some utterances are too short for their units.

    Args:
        competitors: for topology substitution: ``all``, ``lists`` (of some others), or ``table``
            (of random priors, some of which are zero).
    """
    draw = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    wanted = INPUTS[inputs]

    def log_probs(*shape):
        return (spread * torch.randn(*shape, generator=generator)).log_softmax(-1)

    def unit_list(longest):
        return [draw.randrange(num_units) for _ in range(draw.randint(1, longest))]

    utterances, most_units = [], []
    for _ in range(batch):
        if alternatives:
            words = [
                [unit_list(2) for _ in range(draw.randint(1, 2))]
                for _ in range(draw.randint(1, max_units - 1))
            ]
            utterances.append(words)
            most_units.append(sum(max(len(units) for units in word) for word in words))
        else:
            utterances.append(unit_list(max_units))
            most_units.append(len(utterances[-1]))
    num_frames = [
        draw.randint(1 if deletions else min(most, max_frames), max_frames) for most in most_units
    ]

    columns = num_units * states + bool(silence) + ("blank" in wanted)
    options: dict = {}
    if "prior" in wanted:
        options["log_prior"] = log_probs(columns)
    if "boundary" in wanted:
        options["log_boundary"] = log_probs(batch, max_frames, 2)
    if "correctness" in wanted:
        options["log_correctness"] = log_probs(batch, max_frames, 2)
    if "scale" in wanted:
        options["acoustic_scale"] = wanted["scale"]
    if "blank" in wanted:
        options["blank"] = draw.randrange(columns)
    rates = {"deletion_rate": draw.uniform(0.1, 0.6), "insertion_rate": draw.uniform(0.1, 0.6)}
    given, confusion = None, None
    if topology == "substitution":
        given, confusion = random_competitors(draw, competitors, num_units)
    return Case(
        compiler=MlFsaCompiler(
            num_units,
            topology,
            states_per_unit=states,
            silence=silence,
            deletions=deletions,
            insertions=insertions,
            competitors=given,
            **rates,
        ),
        utterances=utterances,
        log_posteriors=log_probs(batch, max_frames, columns),
        num_frames=torch.tensor(num_frames),
        options=options,
        confusion=confusion,
        deletion_rate=rates["deletion_rate"] if deletions else None,
        insertion_rate=rates["insertion_rate"] if insertions else None,
    )


def random_competitors(draw: random.Random, form: str, num_units: int):
    """The compiler's argument, and the reference's table of log-probabilities."""
    everyone = [[v for v in range(num_units) if v != u] for u in range(num_units)]
    if form == "table":
        table = torch.full((num_units, num_units), -torch.inf)
        for unit, others in enumerate(everyone):
            chosen = draw.sample(others, draw.randint(0, len(others)))
            for other in chosen:
                table[unit, other] = math.log(draw.uniform(0.05, 1) / num_units)
        table.fill_diagonal_(draw.choice([0.0, -torch.inf, torch.nan]))  # not read
        return table, table.double().tolist()
    lists = everyone
    if form == "lists":
        lists = [draw.sample(others, draw.randint(0, len(others))) for others in everyone]
    log_probs = [
        [-math.log(len(others)) if v in others else -math.inf for v in range(num_units)]
        for others in lists
    ]
    return (lists if form == "lists" else None), log_probs

"""What a user may rely on: ties, order of a batch, equal neighbours, weights, padding."""

from __future__ import annotations

import math

import pytest
import torch

from mlvae.fsa import MlFsaCompiler, best_path, posteriors, total_scores
from tests.fsa.cases import NUM_UNITS, random_case


def _uniform(batch: int, frames: int, columns: int = NUM_UNITS, device="cpu") -> torch.Tensor:
    return torch.full((batch, frames, columns), -math.log(columns), device=device)


def _log_probs_of_one(rate: torch.Tensor) -> torch.Tensor:
    return torch.stack([1 - rate, rate], dim=-1).log()


@pytest.mark.parametrize("topology", ["ml", "substitution"])
@pytest.mark.parametrize("states", [1, 2])
@pytest.mark.parametrize(
    "options", [{}, {"silence": True}, {"deletions": True, "insertions": True}]
)
@pytest.mark.parametrize("boundaries", ["equal", "random"])
def test_ties_go_to_correct(topology, states, options, boundaries, device):
    """Uniform posteriors and q(pi) = 1/2: all branches of every unit score the same."""
    competitors = None
    if topology == "substitution":
        competitors = torch.zeros(NUM_UNITS, NUM_UNITS).log()
        competitors[range(NUM_UNITS), [1, 2, 3, 0]] = 0.0
    compiler = MlFsaCompiler(
        NUM_UNITS, topology, states_per_unit=states, competitors=competitors, **options
    )
    columns = compiler.layout.num_posteriors
    frames = 9
    posteriors_ = _uniform(2, frames, columns, device)
    even = torch.full((2, frames, 2), math.log(0.5), device=device)
    boundary = even
    if boundaries == "random":
        generator = torch.Generator().manual_seed(states)
        boundary = torch.randn(2, frames, 2, generator=generator).log_softmax(-1).to(device)
    emissions = compiler.emissions(
        posteriors_,
        torch.tensor([frames, frames - 1]),
        log_prior=posteriors_[0, 0],
        log_boundary=boundary,
        log_correctness=even,
    )
    graphs = compiler.compile([[0, 1, 1], [3, 2]])
    for spans in best_path(graphs, emissions):
        assert spans
        for span in spans:
            # A shorter span leaves no room for the states of a correct unit.
            assert not (span.mispronounced and span.end - span.start >= states), spans


def test_equal_neighbours_stay_two(device):
    compiler = MlFsaCompiler(NUM_UNITS, "ml")
    emissions = compiler.emissions(_uniform(2, 8, device=device), torch.tensor([8, 8]))
    for spans, units in zip(
        best_path(compiler.compile([[2, 2, 2], [1, 1]]), emissions), ([2, 2, 2], [1, 1])
    ):
        assert [span.unit for span in spans] == units
        assert [span.position for span in spans] == list(range(len(units)))


def _varied_case(seed: int, batch: int, more: bool):
    options = {"topology": "substitution", "deletions": True, "insertions": True} if more else {}
    return random_case(
        seed,
        batch=batch,
        max_frames=15,
        inputs="boundary and correctness",
        silence=True,
        **options,
    )


@pytest.mark.parametrize("more", [False, True])
def test_permuted_batch_gives_permuted_answers(more, device):
    case = _varied_case(5, 12, more)
    emissions = case.emissions(device)
    paths = best_path(case.graphs(), emissions)
    probabilities = posteriors(case.graphs(), emissions, frames=True)
    totals = total_scores(case.graphs(), emissions)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    case.utterances = [case.utterances[i] for i in order]
    case.log_posteriors = case.log_posteriors[order]
    case.num_frames = case.num_frames[order]
    case.options = {name: value[order] for name, value in case.options.items()}
    emissions = case.emissions(device)
    assert best_path(case.graphs(), emissions) == [paths[i] for i in order]
    torch.testing.assert_close(total_scores(case.graphs(), emissions), totals[order.to(device)])
    for found, i in zip(posteriors(case.graphs(), emissions, frames=True), order):
        torch.testing.assert_close(found.mispronounced, probabilities[i].mispronounced)
        torch.testing.assert_close(found.occupancy, probabilities[i].occupancy)


@pytest.mark.parametrize("more", [False, True])
def test_alone_equals_in_a_batch(more, device):
    case = _varied_case(8, 10, more)
    emissions = case.emissions(device)
    together = best_path(case.graphs(), emissions)
    probabilities = posteriors(case.graphs(), emissions)
    totals = total_scores(case.graphs(), emissions)
    for index, frames in enumerate(case.num_frames.tolist()):
        graph = case.compiler.compile([case.utterances[index]])
        alone = case.compiler.emissions(
            case.log_posteriors[index : index + 1, :frames].to(device),
            torch.tensor([frames]),
            **{
                name: value[index : index + 1, :frames].to(device)
                for name, value in case.options.items()
            },
        )
        assert best_path(graph, alone) == [together[index]]
        torch.testing.assert_close(total_scores(graph, alone)[0], totals[index])
        torch.testing.assert_close(
            posteriors(graph, alone)[0].mispronounced, probabilities[index].mispronounced
        )


def test_boundaries_are_where_the_detector_puts_them(device):
    """Fails if the weights of holding and starting are swapped."""
    rate = torch.full((1, 12), 0.1, device=device)
    rate[0, [0, 4, 9]] = 0.9
    compiler = MlFsaCompiler(NUM_UNITS, "ml")
    graphs = compiler.compile([[0, 1, 2]])

    def starts(log_boundary):
        emissions = compiler.emissions(
            _uniform(1, 12, device=device), torch.tensor([12]), log_boundary=log_boundary
        )
        return [span.start for span in best_path(graphs, emissions)[0]]

    boundary = _log_probs_of_one(rate)
    assert starts(boundary) == [0, 4, 9]
    assert starts(boundary.flip(-1)) != [0, 4, 9]


def test_start_of_the_first_frame_is_certain(device):
    """q(b) of frame 0 is not read."""
    rate = torch.rand(1, 6, generator=torch.Generator().manual_seed(0)).clamp(0.05, 0.95)
    compiler = MlFsaCompiler(NUM_UNITS, "ml")
    graphs = compiler.compile([[0, 1]])
    scores = []
    for first in (0.01, 0.99):
        rate[0, 0] = first
        emissions = compiler.emissions(
            _uniform(1, 6, device=device),
            torch.tensor([6]),
            log_boundary=_log_probs_of_one(rate).to(device),
        )
        scores.append(float(total_scores(graphs, emissions)))
    assert scores[0] == scores[1]


def test_correctness_is_charged_once_a_unit(device):
    """Holding a mispronounced unit longer costs no further q(pi)."""
    compiler = MlFsaCompiler(NUM_UNITS, "ml")
    correctness = _log_probs_of_one(torch.full((1, 9), 0.001, device=device))
    certain = _log_probs_of_one(torch.full((1, 9), 0.5, device=device))
    units = torch.full((1, 9), 3)
    perceived = torch.nn.functional.one_hot(units, NUM_UNITS).float() * 2
    emissions = compiler.emissions(
        perceived.log_softmax(-1).to(device),
        torch.tensor([9]),
        log_boundary=certain,
        log_correctness=correctness,
    )
    (span,) = best_path(compiler.compile([[0]]), emissions)[0]
    assert span.mispronounced
    assert (span.start, span.end, span.unit, span.perceived) == (0, 9, 0, -1)


@pytest.mark.parametrize("states", [1, 3])
def test_mismatch_is_exact_for_a_confident_estimator(states, device):
    """What is left for the other units is not lost in rounding, down to the floor."""
    logits = torch.zeros(1, 15, NUM_UNITS * states)
    logits[0, :, 0] = torch.arange(15.0)
    log_posteriors = logits.to(device).log_softmax(-1)
    compiler = MlFsaCompiler(NUM_UNITS, states_per_unit=states)
    columns = compiler.emissions(log_posteriors, torch.tensor([15])).dense.scores[:15, 1:]
    units = log_posteriors[0].double().unflatten(-1, (NUM_UNITS, states)).logsumexp(-1)
    for unit in range(NUM_UNITS):
        others = [other for other in range(NUM_UNITS) if other != unit]
        expected = units[1:, others].logsumexp(-1).clamp(min=math.log(1e-5))
        expected += math.log(0.9) - math.log(1 - 1 / NUM_UNITS)
        found = columns[1:, compiler.layout.column(0, 1, unit)].double()
        torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-6)
    assert float(units[-1, 1:].logsumexp(-1)) < math.log(1e-5)


def test_ctc_posteriors_with_blank(device):
    """Spikes between blanks: of a correct sentence nothing is flagged, else what is wrong."""
    compiler = MlFsaCompiler(NUM_UNITS, "ml")
    text = [0, 1, 2, 3, 1]
    frames, spikes = 40, [3, 11, 17, 26, 35]
    blank = NUM_UNITS

    def log_posteriors(perceived):
        probabilities = torch.full((frames, NUM_UNITS + 1), 0.001)
        probabilities[:, blank] = 1 - 0.001 * NUM_UNITS
        for frame, unit in zip(spikes, perceived):
            probabilities[frame] = 0.01
            probabilities[frame, unit] = 1 - 0.01 * NUM_UNITS
        return probabilities.log()

    batch = torch.stack([log_posteriors(text), log_posteriors([0, 1, 0, 3, 1])]).to(device)
    emissions = compiler.emissions(batch, torch.tensor([frames, frames]), blank=blank)
    graphs = compiler.compile([text, text])
    correct, wrong = best_path(graphs, emissions)
    assert [span.mispronounced for span in correct] == [False] * 5
    assert [span.mispronounced for span in wrong] == [False, False, True, False, False]
    for spans in (correct, wrong):
        assert all(span.start <= spike < span.end for span, spike in zip(spans, spikes))
    probabilities = posteriors(graphs, emissions)
    assert probabilities[0].mispronounced.max() < 0.1
    assert probabilities[1].mispronounced[2] > 0.5
    assert probabilities[1].mispronounced[[0, 1, 3, 4]].max() < 0.1


def test_a_unit_said_as_its_neighbour_is_found_where_the_blank_is_a_state(device):
    """The neighbour takes both spikes where blanks may stand for any unit, and else only one."""
    frames, units = 20, 3
    probabilities = torch.full((frames, units + 1), 0.001)
    probabilities[:, -1] = 1 - 0.001 * units
    for frame, unit in zip((3, 8, 14), (0, 1, 1)):  # the text has 0, 2, 1, in one word
        probabilities[frame] = 0.01
        probabilities[frame, unit] = 1 - 0.01 * units
    log_posteriors = probabilities.log()[None].to(device)
    prior = torch.tensor([0.05, 0.05, 0.05, 0.85], device=device).log()
    found = {}
    for silence in (False, "everywhere"):
        compiler = MlFsaCompiler(units, "substitution", silence=silence)
        emissions = compiler.emissions(
            log_posteriors,
            torch.tensor([frames]),
            log_prior=prior,
            blank=None if silence else units,
        )
        (spans,) = best_path(compiler.compile([[[[0, 2, 1]]]]), emissions)
        found[silence] = [span for span in spans if span.kind == "unit"]
    assert [span.mispronounced for span in found[False]] == [False, False, False]
    assert [span.mispronounced for span in found["everywhere"]] == [False, True, False]
    assert [span.perceived for span in found["everywhere"]] == [0, 1, 1]
    places = [(span.start, span.end) for span in found["everywhere"]]
    assert places == [(3, 4), (8, 9), (14, 15)]


@pytest.mark.parametrize("blank", [None, 2])
def test_content_of_padding_changes_nothing(blank, device):
    case = random_case(3, batch=4, max_frames=9, inputs="boundary and correctness")
    columns = NUM_UNITS + (blank is not None)
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "log_posteriors": torch.randn(4, 9, columns, generator=generator).log_softmax(-1),
        **case.options,
    }
    num_frames = torch.tensor([9, 4, 3, 6])
    padding = torch.arange(9) >= num_frames[:, None]

    def answers(fill):
        tensors = {
            name: torch.where(padding[..., None], torch.tensor(fill), value)
            .to(device)
            .requires_grad_()
            for name, value in inputs.items()
        }
        emissions = case.compiler.emissions(num_frames=num_frames, blank=blank, **tensors)
        totals = total_scores(case.graphs(), emissions)
        totals.sum().backward()
        return (
            best_path(case.graphs(), emissions),
            totals.detach(),
            [tensor.grad for tensor in tensors.values()],
        )

    paths, totals, gradients = answers(-1.0)
    for gradient in gradients:
        assert gradient[padding].eq(0).all()
        assert gradient[~padding].ne(0).any()
    for fill in (math.nan, -math.inf, math.inf, 1e30, -1e30):
        paths_, totals_, gradients_ = answers(fill)
        assert paths_ == paths
        assert torch.equal(totals_, totals)
        for gradient, expected in zip(gradients_, gradients):
            assert torch.equal(gradient, expected)

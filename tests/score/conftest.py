import pytest
from lhotse import SupervisionSegment
from lhotse.supervision import AlignmentItem


@pytest.fixture
def make_truth():
    """Build the truth of one utterance from units of equal length."""

    def make(name, canonical, perceived, seconds=0.5, split="test", speaker="anna", sources=None):
        def items(symbols):
            return [
                AlignmentItem(symbol, index * seconds, seconds)
                for index, symbol in enumerate(symbols)
            ]

        return SupervisionSegment(
            id=name,
            recording_id=name,
            start=0.0,
            duration=seconds * len(canonical),
            speaker=speaker,
            custom={
                "split": split,
                "units_from": sources or [f"{name}-{i}" for i in range(len(canonical))],
            },
            alignment={"canonical": items(canonical), "perceived": items(perceived)},
        )

    return make

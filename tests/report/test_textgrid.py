import pytest
from lhotse import MonoCut, SupervisionSegment
from lhotse.supervision import AlignmentItem
from praatio import textgrid

from mlvae.report.textgrid import write_textgrid


def make_cut(duration=1.0, **tiers):
    alignment = {
        name: [AlignmentItem(symbol, start, length, 0.5) for symbol, start, length in items]
        for name, items in tiers.items()
    }
    supervision = SupervisionSegment("utt", "utt", 0.0, duration, alignment=alignment)
    return MonoCut("utt", 0.0, duration, 0, supervisions=[supervision])


def read(path):
    """Tiers of a file with everything in them, empty intervals included."""
    grid = textgrid.openTextgrid(str(path), includeEmptyIntervals=True, reportingMode="error")
    return grid, {tier.name: [tuple(entry) for entry in tier.entries] for tier in grid.tiers}


def test_round_trip(tmp_path):
    fa = [("3", 0.0, 0.4), ("5", 0.4, 0.6)]
    perceived = [("3", 0.0, 0.5), ("*", 0.5, 0.5)]
    cut = make_cut(fa=fa, mlvae=fa, mlvae_perceived=perceived, not_asked_for=fa)
    path = tmp_path / "utt.TextGrid"
    write_textgrid(cut, path, tiers=["fa", "mlvae", "mlvae_perceived"])
    grid, tiers = read(path)
    assert list(tiers) == ["fa", "mlvae", "mlvae_perceived"]
    assert tiers["fa"] == [(0.0, 0.4, "3"), (0.4, 1.0, "5")]
    assert tiers["mlvae_perceived"] == [(0.0, 0.5, "3"), (0.5, 1.0, "*")]
    assert (grid.minTimestamp, grid.maxTimestamp) == (0.0, 1.0)
    assert [file.name for file in tmp_path.iterdir()] == ["utt.TextGrid"]


def test_gaps_become_empty_intervals(tmp_path):
    path = tmp_path / "utt.TextGrid"
    write_textgrid(make_cut(2.0, fa=[("a", 0.5, 0.25), ("b", 1.0, 0.5)]), path, ["fa"])
    assert read(path)[1]["fa"] == [
        (0.0, 0.5, ""),
        (0.5, 0.75, "a"),
        (0.75, 1.0, ""),
        (1.0, 1.5, "b"),
        (1.5, 2.0, ""),
    ]


def test_units_without_length_go_to_a_point_tier(tmp_path):
    path = tmp_path / "utt.TextGrid"
    units = [("z", 0.0, 0.0), ("a", 0.0, 0.5), ("y", 0.5, 0.0), ("x", 0.5, 0.0), ("b", 0.5, 0.5)]
    write_textgrid(make_cut(mlvae=[*units, ("w", 1.0, 0.0)], fa=units[1:2]), path, ["mlvae", "fa"])
    _, tiers = read(path)
    assert list(tiers) == ["mlvae", "mlvae_points", "fa"]
    assert tiers["mlvae"] == [(0.0, 0.5, "a"), (0.5, 1.0, "b")]
    assert tiers["mlvae_points"] == [(0.0, "z"), (0.5, "y x"), (1.0, "w")]


def test_a_tier_may_be_empty_or_all_deleted(tmp_path):
    path = tmp_path / "utt.TextGrid"
    write_textgrid(make_cut(fa=[], mlvae=[("a", 0.3, 0.0)]), path, ["fa", "mlvae"])
    assert read(path)[1] == {
        "fa": [(0.0, 1.0, "")],
        "mlvae": [(0.0, 1.0, "")],
        "mlvae_points": [(0.3, "a")],
    }


def test_rounding_neither_overlaps_nor_leaves_slivers(tmp_path):
    path = tmp_path / "utt.TextGrid"
    # 0.1 + 0.2 is not 0.3, thirds do not end, and frames reach past the end of the audio.
    units = [("a", 0.0, 0.1), ("b", 0.1, 0.2), ("c", 0.3, 1 / 3), ("d", 0.3 + 1 / 3, 0.4)]
    write_textgrid(make_cut(1.0306249, fa=units), path, ["fa"])
    entries = read(path)[1]["fa"]
    assert [symbol for *_, symbol in entries] == list("abcd")
    assert entries[-1][1] == 1.030625
    for before, after in zip(entries, entries[1:]):
        assert before[1] == after[0]
    write_textgrid(
        make_cut(1.0, fa=[("a", 0, 0.5000004), ("b", 0.5000006, 0.4999990)]), path, ["fa"]
    )
    assert [entry[2] for entry in read(path)[1]["fa"]] == ["a", "b"]


def test_short_units_are_kept(tmp_path):
    path = tmp_path / "utt.TextGrid"
    units = [("a", 0.0, 0.01), ("b", 0.01, 0.000125), ("c", 0.010125, 0.9)]
    write_textgrid(make_cut(0.910125, fa=units), path, ["fa"])
    assert [symbol for *_, symbol in read(path)[1]["fa"]] == ["a", "b", "c"]


@pytest.mark.parametrize("symbol", ['"', 'say "a"', "ŋ", "ʒː", "数", "a b", "'", "\\", "ts͡"])
def test_symbols(tmp_path, symbol):
    path = tmp_path / "utt.TextGrid"
    cut = make_cut(fa=[(symbol, 0.0, 0.5), (symbol, 0.5, 0.0), ("x", 0.5, 0.5)])
    write_textgrid(cut, path, ["fa"])
    _, tiers = read(path)
    assert tiers["fa"] == [(0.0, 0.5, symbol), (0.5, 1.0, "x")]
    # praatio's reader leaves the doubled quotes of points as they are in the file.
    assert tiers["fa_points"] == [(0.5, symbol.replace('"', '""'))]


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ([("a", 0.0, 0.6), ("b", 0.5, 0.5)], "cut utt, tier fa, unit 'b' at 0.5 s starts before"),
        ([("a", 0.0, 1.2)], "unit 'a' at 0.0 s lies outside the cut of 1.0 s"),
        ([("a", -0.5, 1.0)], "lies outside"),
    ],
)
def test_impossible_times(tmp_path, units, message):
    path = tmp_path / "utt.TextGrid"
    path.write_text("as before")
    with pytest.raises(ValueError, match=message):
        write_textgrid(make_cut(fa=units), path, ["fa"])
    assert path.read_text() == "as before"


def test_missing_tier(tmp_path):
    with pytest.raises(KeyError, match="cut utt has no tier 'mlvae'"):
        write_textgrid(make_cut(fa=[("a", 0.0, 1.0)]), tmp_path / "utt.TextGrid", ["fa", "mlvae"])

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lhotse import CutSet, MonoCut, SupervisionSegment

from mlvae.data.manifests import write_manifest
from mlvae.data.units import UnitTable, canonical_units, count_units
from tests.data.conftest import load_script

units_stage = load_script("local/units.py")


def cut_with(units, name="utt"):
    custom = {} if units is None else {"units": units}
    supervision = SupervisionSegment(name, name, 0.0, 1.0, custom=custom)
    return MonoCut(name, 0.0, 1.0, 0, supervisions=[supervision])


@given(st.sets(st.text(st.characters(categories=["L", "N", "P"]), min_size=1), min_size=1))
def test_a_table_is_read_back_as_it_was_written(tmp_path_factory, symbols):
    path = tmp_path_factory.mktemp("table") / "tokens.txt"
    table = UnitTable(tuple(symbols))
    table.save(path)
    again = UnitTable.load(path)
    assert again == table
    assert again.units(again.ids(table.symbols, "utt")) == list(table.symbols)


def test_an_unknown_unit_is_named_with_its_utterance():
    table = UnitTable(("aa", "n", "t"))
    assert table.ids(["n", "aa", "t"], "utt7") == [1, 0, 2]
    assert "zh" not in table
    with pytest.raises(ValueError, match="utt7: unit 'zh' is not in the unit table"):
        table.ids(["n", "zh"], "utt7")
    for bad in ([3], [-1]):
        with pytest.raises(IndexError):
            table.units(bad)


@pytest.mark.parametrize("symbols", [("a", "a"), ("",), ("a b",)])
def test_bad_symbols_are_refused(symbols):
    with pytest.raises(ValueError, match="symbol"):
        UnitTable(symbols)


@pytest.mark.parametrize(
    "content", ["a\n", "a 0\nb 2\n", "a 1\n", "a 0\na 1\n", "a x\n", "a 0 0\n"]
)
def test_bad_tables_are_refused(tmp_path, content):
    (tmp_path / "tokens.txt").write_text(content)
    with pytest.raises(ValueError, match="tokens.txt|twice"):
        UnitTable.load(tmp_path / "tokens.txt")


def test_counts_are_of_the_canonical_units():
    cuts = CutSet.from_cuts([cut_with(["3", "5", "3"], "a"), cut_with(["1"], "b")])
    counts = count_units(cuts)
    assert counts == {"3": 2, "5": 1, "1": 1}


@pytest.mark.parametrize("units", [None, []])
def test_a_cut_without_units_is_named(units):
    with pytest.raises(ValueError, match="utt: no canonical units"):
        canonical_units(cut_with(units))
    with pytest.raises(ValueError, match="empty: 0 supervisions"):
        canonical_units(MonoCut("empty", 0.0, 1.0, 0))


def test_the_stage_writes_sorted_symbols(featured_corpus):
    tokens = (featured_corpus / "units" / "tokens.txt").read_text()
    assert tokens == "".join(f"{digit} {digit}\n" for digit in range(10))


def test_units_that_only_the_test_set_has_are_reported(tmp_path, capsys):
    for split, units in (("train", "1"), ("valid", "1"), ("test", "2")):
        write_manifest(tmp_path / "fbank" / f"cuts_{split}.jsonl.gz", [cut_with([units], split)])
    units_stage(["--data-dir", str(tmp_path)])
    assert "test: unit '2' is not in the unit table" in (tmp_path / "skipped.jsonl").read_text()


def test_without_features_the_stage_says_what_to_do(tmp_path, capsys):
    assert units_stage(["--data-dir", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "run the stage before" in error
    assert error.count("\n") == 1

"""Symbols of somebody's model brought to units."""

from __future__ import annotations

import pytest
import torch

from mlvae.acoustic.symbols import IPA_TABLE, map_symbols, plain, read_map, read_tokens
from mlvae.data.lexicon import PHONES


def shares(symbols, units, table=None, blank=None) -> dict[str, dict[str, float]]:
    found = map_symbols(symbols, units, table, blank)
    rows = ({u: v for u, v in zip(units, row) if v} for row in found.matrix.tolist())
    return {symbol: row for symbol, row in zip(symbols, rows) if row}


def test_without_a_table_names_count_but_for_stress_place_and_capitals():
    symbols = ["<blk>", "AA0", "AA1", "B_B", "b_E", "|", "ˈt"]
    found = map_symbols(symbols, ["aa", "b", "t", "zh"], blank=0)
    assert found.unused == ("|",) and found.missing == ("zh",)
    rows = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0] * 4]
    assert found.matrix.tolist() == [*rows, [0, 0, 1, 0]]
    said = found.describe()
    assert "\n" not in said and "7 symbols for 4 units" in said
    assert "never flagged: zh; symbols of no unit: |" in said


def test_folded_phones_get_what_is_folded_into_them():
    assert shares(["AO1", "ZH", "B"], list(PHONES)) == {
        "AO1": {"aa": 1.0},
        "ZH": {"sh": 1.0},
        "B": {"b": 1.0},
    }
    assert shares(["AO1", "b"], ["aa", "b"]) == {"AO1": {"aa": 1.0}, "b": {"b": 1.0}}
    assert shares(["AO1", "b"], ["ao", "aa", "b"])["AO1"] == {"ao": 1.0}


def test_ipa_comes_along():
    table = read_map(IPA_TABLE)
    symbols = ["<pad>", "iː", "ˈæ", "tʃ", "t͡ʃ", "ɑːɹ", "ɚ", "ɐ", "ʒ", "n̩", "ɫ", "ø"]
    found = shares(symbols, list(PHONES), table, blank=0)
    assert found == {
        "iː": {"iy": 1.0},
        "ˈæ": {"ae": 1.0},
        "tʃ": {"ch": 1.0},
        "t͡ʃ": {"ch": 1.0},
        "ɑːɹ": {"aa": 0.5, "r": 0.5},
        "ɚ": {"er": 1.0},
        "ɐ": {"ah": 1.0},
        "ʒ": {"sh": 1.0},
        "n̩": {"n": 0.5, "ah": 0.5},
        "ɫ": {"l": 1.0},
    }
    units = {unit for row in table.values() for unit in row}
    assert units == {*PHONES, "ao", "zh"}
    assert map_symbols(list(table), list(PHONES), table).missing == ()


def test_several_symbols_sum_into_a_unit_and_none_is_said():
    table = {"D0": ("zero",), "D0x": ("zero",), "noise": (), "D1": ("elsewhere",)}
    found = map_symbols(["D0", "D0x", "noise", "D1"], ["zero", "one"], table)
    assert torch.equal(found.matrix, torch.tensor([[1.0, 0], [1, 0], [0, 0], [0, 0]]))
    assert found.unused == ("noise", "D1") and found.missing == ("one",)
    with pytest.raises(
        ValueError, match="no symbol of the model stands for a unit: .* a b; .* c d"
    ):
        map_symbols(["a", "b"], ["c", "d"])


def test_symbols_of_a_table_that_differ_only_in_marks_do_not_decide_for_another():
    table = {"ˈa": ("zero",), "aː": ("one",), "ˈb": ("one",), "bː": ("one",)}
    assert shares(["aː", "b"], ["zero", "one"], table) == {"aː": {"one": 1.0}, "b": {"one": 1.0}}
    with pytest.raises(ValueError, match="no 'a', and different units for aː ˈa, which differ"):
        map_symbols(["a"], ["zero", "one"], table)
    assert shares(["ˌa"], ["zero", "one"], {**table, "a": ("zero",)}) == {"ˌa": {"zero": 1.0}}


def test_a_symbol_of_marks_alone_is_itself():
    assert [plain(symbol) for symbol in ("ˈ", ".", "AA1", "1", "S_I", "oːɹ")] == [
        *("ˈ", ".", "aa", "1", "s", "oɹ")
    ]


def test_tokens_of_icefall(tmp_path):
    path = tmp_path / "tokens.txt"
    path.write_text("<blk> 0\nAA 1\n#0 3\n#1 4\n▁B 2\n", encoding="utf-8")
    assert read_tokens(path) == ("<blk>", "AA", "▁B")


@pytest.mark.parametrize(
    "read, text, match",
    [
        (read_tokens, "a 0\nb\n", r"x.txt:2: a symbol and its number are wanted: 'b'"),
        (read_tokens, "a 0\n\nb 0\n", "x.txt:3: the number 0 comes twice"),
        (read_tokens, "a 1\n", "x.txt: the numbers of its symbols are not 0, 1, 2"),
        (read_tokens, b"\xff\xfe", "x.txt cannot be read: .*utf-8"),
        (read_tokens, None, "x.txt cannot be read: No such file"),
        (read_map, "a\tb\na\tc\n", "x.txt:2: the symbol 'a' comes twice"),
        (read_map, "# note\na b\n", "x.txt:2: a symbol, a tab and a unit are wanted: 'a b'"),
        (read_map, "# note\n", "x.txt: holds no symbols"),
    ],
)
def test_wrong_files_are_named(tmp_path, read, text, match):
    if text is not None:
        (tmp_path / "x.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=match):
        read(tmp_path / "x.txt")

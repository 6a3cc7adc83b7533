"""Numbers that mean nothing were found out late, or by a library.

``--seed 18446744073709551616`` ended stage 3 in torch, after stages 0 to 2;
``--vocab-size -1`` and ``--num-resamples 0`` went as far as they could. Options refuse them before
any work, in a message that names the option.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.shell_project import ROOT

MODEL = ("--data-dir", "d", "--exp-dir", "e", "--config", "c.yaml")
SEEDS = ("18446744073709551616", "-1", "1.5", "nan", "")


def main_of(path: Path):
    sys.path.insert(0, str(path.parent))  # as for a program
    try:
        spec = importlib.util.spec_from_file_location(f"program_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module.main


SCORED = ("--data-dir", "d", "--exp-dir", "e", "--config", "c")


@pytest.mark.parametrize(
    ("program", "options", "name", "values"),
    [
        ("local/units.py", ("--data-dir", "d"), "vocab-size", ("0", "-1")),
        ("local/align.py", MODEL, "seed", SEEDS),
        ("local/train.py", MODEL, "seed", SEEDS),
        ("local/localize.py", MODEL, "seed", SEEDS),
        ("local/score.py", SCORED, "seed", SEEDS),
        ("local/score.py", SCORED, "num-resamples", ("0", "-1")),
        ("recipes/audiomnist/prepare.py", (), "seed", SEEDS),
        ("recipes/audiomnist/prepare.py", (), "num-utterances", ("0", "-1", "x")),
        ("recipes/l2arctic/prepare.py", (), "seed", SEEDS),
        ("recipes/l2arctic/prepare.py", (), "num-utterances", ("0", "-1", "x")),
    ],
)
def test_an_option_refuses_it_by_name(
    program, options, name, values, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    main = main_of(ROOT / program)
    for value in values:
        with pytest.raises(SystemExit) as caught:
            main([*options, f"--{name}={value}"])
        assert caught.value.code == 2
        assert f'"{name.replace("-", "_")}"' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

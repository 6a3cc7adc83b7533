"""Messages in one line were cut after 400 characters, and with a long path lost their reason."""

import pytest

from mlvae.errors import one_line, with_type
from mlvae.stage import in_one_line

PLACE = "/".join(["a folder of somebody's"] * 40)


def test_a_reason_behind_a_long_place_is_kept(capsys):
    def work() -> int:
        raise ValueError(f"{PLACE}:\n  no text")

    assert in_one_line("program", work) == 1
    assert capsys.readouterr().err == f"program: {PLACE}: no text\n"


@pytest.mark.parametrize("error", [ValueError(), ValueError("\n")])
def test_an_error_that_says_nothing_is_named(error):
    assert one_line(error) == "ValueError"


def test_what_other_libraries_say_is_cut():
    assert with_type(RuntimeError("x " * 1000)) == "RuntimeError: " + ("x " * 200)

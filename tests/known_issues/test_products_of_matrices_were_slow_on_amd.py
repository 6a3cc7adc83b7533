"""MKL of 2020 multiplied matrices without AVX2 on CPUs of AMD, a third as fast as they can."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mlvae

VARIABLE = "MKL_DEBUG_CPU_TYPE"
AMD = "processor : 0\nvendor_id : AuthenticAMD\nflags : fpu avx avx2 bmi2\n"


@pytest.mark.parametrize(
    ("cpuinfo", "before", "after"),
    [
        (AMD, None, "5"),
        (AMD, "4", "4"),
        (AMD.replace(" avx2", ""), None, None),
        (AMD.replace("AuthenticAMD", "GenuineIntel"), None, None),
        (None, None, None),
    ],
    ids=["AMD", "as the user has set it", "without AVX2", "Intel", "not Linux"],
)
def test_mkl_is_told_what_an_amd_has(cpuinfo, before, after, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if before is not None:
        monkeypatch.setenv(VARIABLE, before)
    path = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        path.write_text(cpuinfo)
    mlvae._use_vectors_of_amd(str(path))
    assert os.environ.get(VARIABLE) == after
    os.environ.pop(VARIABLE, None)  # monkeypatch puts back what was there


def test_importing_tells_it_before_torch_is_imported() -> None:
    code = (
        "import os, sys, mlvae\n"
        "assert 'torch' not in sys.modules\n"
        f"print(os.environ.get('{VARIABLE}'))"
    )
    environment = {k: v for k, v in os.environ.items() if k != VARIABLE}
    shown = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    try:
        about = Path("/proc/cpuinfo").read_text()
    except OSError:
        about = ""
    expected = "5" if "AuthenticAMD" in about and " avx2 " in about else "None"
    assert shown.stdout.strip() == expected

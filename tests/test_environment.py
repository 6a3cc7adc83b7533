from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import mlvae
from mlvae import cli, environment
from mlvae.environment import Facts, Package, describe, diagnose

ROOT = Path(__file__).resolve().parents[1]

GOOD = Facts(
    python="3.10.13",
    torch=Package("1.13.1+cu117"),
    k2=Package("1.23.4"),
    torchaudio=Package("0.13.1+cu117"),
    lhotse=Package("1.32.1"),
    numpy=Package("1.26.4"),
    cuda="11.7",
    cuda_devices=("a fast one",),
    k2_torch="1.13.1+cu117",
    k2_cuda="11.7",
    torchaudio_torch="1.13.1",
)
NO_CUDA = "no CUDA device"


def changed(**changes) -> Facts:
    return dataclasses.replace(GOOD, **changes)


CASES = {
    "everything fits": ({}, []),
    "torch 2 with what fits it": (
        dict(
            torch=Package("2.3.1+cu121"),
            k2=Package("1.24.4.dev20240606+cuda12.1.torch2.3.1"),
            torchaudio=Package("2.3.1"),
            numpy=Package("2.0.1"),
            lhotse=Package("1.33.0"),
            cuda="12.1",
            k2_torch="2.3.1+cu121",
            k2_cuda="12.1",
            torchaudio_torch="2.3.1",
        ),
        [],
    ),
    "no CUDA": (dict(cuda_devices=()), []),
    "a torch without CUDA": (
        dict(torch=Package("1.13.1+cpu"), cuda=None, cuda_devices=(), k2_cuda=""),
        [],
    ),
    "no torch: k2's own error follows from it": (
        dict(torch=Package(), k2=Package("1.23.4", "No module named 'torch'"), cuda_devices=()),
        ["no torch"],
    ),
    "a torch that does not load": (
        dict(torch=Package("1.13.1", "libcudart.so: cannot open"), cuda_devices=()),
        ["torch does not import: libcudart.so: cannot open"],
    ),
    "no k2": (dict(k2=Package(), k2_torch=None, k2_cuda=None), ["no k2"]),
    "k2 built for another torch": (
        dict(k2=Package("1.23.4", "k2 was built using PyTorch 1.12.1"), k2_torch="1.12.1+cu117"),
        ["k2 is built for torch 1.12.1, but torch is 1.13.1+cu117"],
    ),
    "k2 built for another CUDA": (
        dict(k2=Package("1.23.4", "k2 was built using CUDA 11.6"), k2_cuda="11.6"),
        ["k2 is built for CUDA 11.6, but torch 1.13.1+cu117 for CUDA 11.7"],
    ),
    "k2 for the CPU": (
        dict(k2_torch="1.13.1", k2_cuda=""),
        ["k2 is built for the CPU only, though CUDA is there"],
    ),
    "k2 for another Python": (
        dict(
            k2=Package("1.23.4", "No module named '_k2'"),
            k2_modules=("_k2.cpython-39-x86_64-linux-gnu.so",),
        ),
        [
            "the k2 wheel holds a module for another Python "
            "(_k2.cpython-39-x86_64-linux-gnu.so; this is Python 3.10.13)"
        ],
    ),
    "a k2 that does not load": (
        dict(k2=Package("1.23.4", "undefined symbol")),
        ["k2 does not import: undefined symbol"],
    ),
    "torchaudio for another torch": (
        dict(torchaudio=Package("0.12.1", "undefined symbol"), torchaudio_torch="1.12.1"),
        ["torchaudio 0.12.1 is made for torch 1.12.1, but torch is 1.13.1+cu117"],
    ),
    "a torchaudio that asks for no torch in particular": (dict(torchaudio_torch=None), []),
    "no torchaudio": (dict(torchaudio=Package()), ["no torchaudio"]),
    "no lhotse": (dict(lhotse=Package()), ["no lhotse"]),
    "a broken lhotse": (
        dict(lhotse=Package("1.33.0")),
        ["lhotse 1.33.0 does not work with torch 1.13.1+cu117, which needs lhotse==1.32.1"],
    ),
    "a lhotse that is too old for torch": (
        dict(torch=Package("2.13.0+cpu"), k2_torch="2.13.0", torchaudio_torch=None, cuda=None),
        ["lhotse 1.32.1 does not work with torch 2.13.0+cpu, which needs lhotse>=1.32.2"],
    ),
    "either lhotse goes with a torch between": (
        dict(torch=Package("2.9.1"), k2_torch="2.9.1", torchaudio_torch=None),
        [],
    ),
    "numpy 2 under an old torch": (
        dict(numpy=Package("2.0.1")),
        ["numpy 2.0.1 with torch 1.13.1+cu117: torch before 2.3 needs numpy<2"],
    ),
    "several things": (
        dict(k2=Package(), k2_torch=None, lhotse=Package(), cuda_devices=()),
        ["no k2", "no lhotse"],
    ),
}


@pytest.mark.parametrize(("changes", "problems"), CASES.values(), ids=CASES.keys())
def test_diagnosis(changes, problems):
    facts = changed(**changes)
    assert diagnose(facts) == problems
    last = describe(facts).splitlines()[-1]
    assert last.split(maxsplit=1) == ["wrong:", "; ".join(problems) or "nothing"]
    works = facts.torch.version is not None and facts.torch.error is None
    lacking = [NO_CUDA] if works and not facts.cuda_devices else []
    assert diagnose(facts, need_cuda=True) == problems + lacking


def test_description_holds_the_versions():
    text = describe(changed(lhotse=Package(), k2=Package("1.23.4", "broken"), cuda_devices=()))
    assert "python:     3.10.13\n" in text
    assert f"mlvae:      {mlvae.__version__}\n" in text
    assert "1.23.4 (does not import) (built for torch 1.13.1+cu117, CUDA 11.7)\n" in text
    assert "lhotse:     not installed\n" in text
    assert "torch is built for 11.7; no device: all will run on the CPU\n" in text


def test_env_tells_by_its_status_whether_something_is_wrong(monkeypatch, capsys):
    monkeypatch.setattr(environment, "gather", lambda: GOOD)
    assert cli.main(["env"]) == 0
    monkeypatch.setattr(environment, "gather", lambda: changed(cuda_devices=()))
    assert cli.main(["env"]) == 0
    shown = capsys.readouterr().out
    assert "no device: all will run on the CPU\nwrong:      nothing\n" in shown
    assert cli.main(["env", "--require", "cuda"]) == 1
    assert f"wrong:      {NO_CUDA}\n" in capsys.readouterr().out
    monkeypatch.setattr(environment, "gather", lambda: changed(k2=Package()))
    assert cli.main(["env"]) == 1


def test_gather_finds_what_the_tests_run_on():
    torch = pytest.importorskip("torch")
    facts = environment.gather()
    assert facts.torch == Package(torch.__version__)
    assert bool(facts.cuda_devices) == torch.cuda.is_available()
    assert facts.k2.error is None
    assert facts.k2_torch.split("+")[0] == torch.__version__.split("+")[0]
    assert facts.k2_modules == ()
    assert diagnose(facts) == []


def env_with(folder: Path, files: dict[str, str]) -> subprocess.CompletedProcess:
    """Run ``mlvae env`` where only the packages in ``folder`` can be imported."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    # -S leaves site-packages out, -I the environment of the tests.
    program = (
        f"import sys; sys.path[:0] = [{str(folder)!r}, {str(ROOT)!r}]; "
        "from mlvae.cli import main; sys.exit(main(['env']))"
    )
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=60
    )


TORCH = """
class version: cuda = "11.7"
class cuda:
    is_available = staticmethod(lambda: False)
__version__ = "1.13.1+cu117"
"""


@pytest.mark.parametrize(
    ("files", "wrong"),
    [
        ({}, "no torch; no k2; no torchaudio; no lhotse"),
        (
            {
                "torch.py": TORCH,
                "torchaudio.py": "__version__ = '0.13.1'",
                "lhotse.py": "__version__ = '1.32.1'",
                "k2/__init__.py": "from _k2 import swoosh_l",
                "k2/torch_version.py": (
                    "k2_torch_version = '1.13.1+cu117'\nk2_torch_cuda_version = '11.7'"
                ),
                "_k2.cpython-27-x86_64-linux-gnu.so": "",
            },
            "the k2 wheel holds a module for another Python (_k2.cpython-27-x86_64-linux-gnu.so; ",
        ),
        (
            {
                "torch.py": "raise OSError('libtorch.so: cannot open shared object file')",
                "torchaudio.py": "import torch",
                "lhotse.py": "import torch",
                "k2/__init__.py": "import torch",
            },
            "torch does not import: libtorch.so: cannot open shared object file",
        ),
    ],
    ids=["nothing is installed", "the k2 of another Python", "packages that break"],
)
def test_env_works_where(tmp_path, files, wrong):
    result = env_with(tmp_path, files)
    assert result.returncode == 1
    assert result.stderr == ""
    assert result.stdout.splitlines()[-1].startswith(f"wrong:      {wrong}")
    assert ("no device" in result.stdout) == (files.get("torch.py") == TORCH)


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"mlvae {mlvae.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["graph"], ["graph", "--units", "a"]])
def test_wrong_options_exit_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("unit 'q' is not known"), "unit 'q' is not known"),
        (FileNotFoundError(2, "No such file or directory", "a"), "No such file or directory: 'a'"),
        (ImportError("drawing needs pygraphviz: pip install pygraphviz"), "pip install pygraphviz"),
        (ModuleNotFoundError("No module named 'k2'", name="k2"), "`mlvae env` says what is wrong"),
    ],
)
def test_what_the_user_can_mend_is_one_line(error, message, monkeypatch, capsys):
    def fail():
        raise error

    monkeypatch.setattr(environment, "gather", fail)
    assert cli.main(["env"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("mlvae: error: ")
    assert message in lines[0]


def test_graph_without_units_is_an_error(tmp_path, capsys):
    assert cli.main(["graph", "--units", " ", "--svg", str(tmp_path / "a.svg")]) == 1
    assert "--units holds no unit" in capsys.readouterr().err
    assert not (tmp_path / "a.svg").exists()

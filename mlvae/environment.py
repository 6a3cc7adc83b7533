"""Which versions are here, and what is wrong with them: ``mlvae env``.

torch, k2, torchaudio and lhotse have to fit one another, and where they do not, importing them
fails far from the cause. :func:`gather` looks at what is installed, also where it does not import;
:func:`diagnose` judges what was found, and is a pure function so that every case has a test.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import mlvae
from mlvae.compat import misfits


@dataclass(frozen=True)
class Package:
    """One package as it was found."""

    version: str | None = None  # None where the package is not installed
    error: str | None = None  # first line of what importing it raised; None where it imports


@dataclass(frozen=True)
class Facts:
    """What :func:`diagnose` judges."""

    python: str  # version of the interpreter
    torch: Package = Package()
    k2: Package = Package()
    torchaudio: Package = Package()
    lhotse: Package = Package()
    numpy: Package = Package()
    cuda: str | None = None  # version of CUDA that torch was built for; None for a torch without
    cuda_devices: tuple[str, ...] = ()  # names of the devices that torch can use
    k2_torch: str | None = None  # version of torch that k2 was built for, as in ``1.13.1+cu117``
    k2_cuda: str | None = None  # version of CUDA that k2 was built for; empty for a k2 without
    # file names of k2's compiled module, when none of them is for this Python
    k2_modules: tuple[str, ...] = ()
    # version of torch that torchaudio asks for; None where it asks for no particular one
    torchaudio_torch: str | None = None


def diagnose(facts: Facts, need_cuda: bool = False) -> list[str]:
    """Say what is wrong, a short phrase for each thing, the causes before what follows from them.

    An error that another phrase already explains is not listed again. With ``need_cuda`` it is
    wrong, too, that there is no CUDA device.
    """
    torch, torch_works = facts.torch.version, _works(facts.torch)
    problems = ["no torch"] if torch is None else misfits(torch, numpy=facts.numpy.version)
    if torch is not None and not torch_works:
        problems.append(f"torch does not import: {facts.torch.error}")
    for name, wrong in (
        ("k2", _misfits_of_k2(facts)),
        ("torchaudio", _misfits_of_torchaudio(facts)),
        ("lhotse", misfits(torch, lhotse=facts.lhotse.version) if torch else []),
    ):
        package: Package = getattr(facts, name)
        if package.version is None:
            problems.append(f"no {name}")
        elif wrong:
            problems += wrong
        elif package.error is not None and torch_works:
            problems.append(f"{name} does not import: {package.error}")
    if need_cuda and torch_works and not facts.cuda_devices:
        problems.append("no CUDA device")
    return problems


def _misfits_of_k2(facts: Facts) -> list[str]:
    problems = []
    if facts.k2_modules:
        problems.append(
            f"the k2 wheel holds a module for another Python ({', '.join(facts.k2_modules)}; "
            f"this is Python {facts.python})"
        )
    torch = facts.torch.version
    if torch and facts.k2_torch and _base(facts.k2_torch) != _base(torch):
        problems.append(f"k2 is built for torch {_base(facts.k2_torch)}, but torch is {torch}")
    elif facts.k2_cuda and facts.cuda and facts.k2_cuda != facts.cuda:
        problems.append(
            f"k2 is built for CUDA {facts.k2_cuda}, but torch {torch} for CUDA {facts.cuda}"
        )
    if facts.k2_cuda == "" and facts.cuda_devices:
        problems.append("k2 is built for the CPU only, though CUDA is there")
    return problems


def _misfits_of_torchaudio(facts: Facts) -> list[str]:
    torch, wanted, own = facts.torch.version, facts.torchaudio_torch, facts.torchaudio.version
    if not torch or not wanted or _base(wanted) == _base(torch):
        return []
    return [f"torchaudio {own} is made for torch {wanted}, but torch is {torch}"]


def versions(more: Sequence[str] = ()) -> dict[str, str | None]:
    """Versions of Python, of what results depend on, and of the packages ``more``."""
    names = ("torch", "k2", "lhotse", "numpy", "scipy", *more)
    own = {"python": platform.python_version(), "mlvae": mlvae.__version__}
    return {**own, **{name: _installed(name) for name in names}}


def _installed(name: str) -> str | None:
    """The version that a package's metadata have; None where there are none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def gather() -> Facts:
    """Look at what is installed; raises nothing where things are missing or broken."""
    found = {name: _look(name) for name in ("torch", "k2", "torchaudio", "lhotse", "numpy")}
    _, torch = found["torch"]
    k2_torch, k2_cuda, k2_modules = _look_into_k2()
    return Facts(
        python=platform.python_version(),
        **{name: package for name, (package, _) in found.items()},
        cuda=None if torch is None else torch.version.cuda,
        cuda_devices=() if torch is None else _cuda_devices(torch),
        k2_torch=k2_torch,
        k2_cuda=k2_cuda,
        k2_modules=k2_modules,
        torchaudio_torch=_torch_asked_for_by("torchaudio"),
    )


def describe(facts: Facts, need_cuda: bool = False) -> str:
    """Lay out the versions, one a line, and in the last line what :func:`diagnose` says."""
    cuda = "torch is built without it" if facts.cuda is None else f"torch is built for {facts.cuda}"
    cuda += "; " + (", ".join(facts.cuda_devices) or "no device: all will run on the CPU")
    if not _works(facts.torch):
        cuda = "unknown without torch"
    k2 = _version(facts.k2)
    if facts.k2_torch:
        built_cuda = f"CUDA {facts.k2_cuda}" if facts.k2_cuda else "the CPU"
        k2 += f" (built for torch {facts.k2_torch}, {built_cuda})"
    lines = [
        ("python", facts.python),
        ("mlvae", mlvae.__version__),
        ("torch", _version(facts.torch)),
        ("k2", k2),
        ("lhotse", _version(facts.lhotse)),
        ("torchaudio", _version(facts.torchaudio)),
        ("numpy", _version(facts.numpy)),
        ("CUDA", cuda),
        ("wrong", "; ".join(diagnose(facts, need_cuda)) or "nothing"),
    ]
    return "\n".join(f"{name + ':':<12}{value}" for name, value in lines)


def _works(package: Package) -> bool:
    return package.version is not None and package.error is None


def _version(package: Package) -> str:
    if package.version is None:
        return "not installed"
    return package.version if package.error is None else f"{package.version} (does not import)"


def _look(name: str) -> tuple[Package, ModuleType | None]:
    """Import a package, and find its version where that fails."""
    error = module = None
    try:
        module = importlib.import_module(name)
    except Exception as exception:  # a broken binary may raise anything while it is loaded
        error = (str(exception).strip() or type(exception).__name__).splitlines()[0]
    version = getattr(module, "__version__", None) or _installed(name)
    if version is None and (module is not None or _spec(name) is not None):
        version = "of unknown version"
    return Package(version, error), module


def _spec(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _cuda_devices(torch: ModuleType) -> tuple[str, ...]:
    try:
        if not torch.cuda.is_available():
            return ()
        return tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    except (RuntimeError, AssertionError):  # a driver that does not fit
        return ()


def _look_into_k2() -> tuple[str | None, str | None, tuple[str, ...]]:
    """`k2_torch`, `k2_cuda` and `k2_modules` by k2's files; importing it may be what fails."""
    spec = _spec("k2")
    if spec is None or spec.origin is None:
        return None, None, ()
    folder = Path(spec.origin).parent
    built = {}
    source = folder / "torch_version.py"
    if source.is_file():
        text = source.read_text(encoding="utf-8")
        built = dict(re.findall(r"^(k2_torch\w*)\s*=\s*[\"'](.*)[\"']", text, re.MULTILINE))
    modules = sorted(path.name for path in folder.parent.glob("_k2.*"))
    suitable = {f"_k2{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES}
    if suitable.intersection(modules):
        modules = []
    return built.get("k2_torch_version"), built.get("k2_torch_cuda_version"), tuple(modules)


def _torch_asked_for_by(name: str) -> str | None:
    """The one version of torch that an installed package's metadata asks for, if it is one."""
    try:
        requirements = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for requirement in requirements:
        match = re.match(r"torch\s*\(?\s*==\s*([\w.+]+)\)?\s*(?:;|$)", requirement)
        if match:
            return match.group(1)
    return None


def _base(version: str) -> str:
    """A version without what was built in: ``1.13.1+cu117`` is ``1.13.1``."""
    return version.split("+")[0]


CPU_INFO = Path("/proc/cpuinfo")


def machine_line() -> str:
    """Number of cores, model of the CPU, and any GPU: ``2 cores of AMD EPYC, no GPU``."""
    import torch  # the rest of this module must do without

    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))  # what this process may use, which may be fewer
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{cores} core{'s' if cores > 1 else ''} of {cpu_model()}, {gpu}"


def cpu_model() -> str:
    """The model of the CPU as the system names it."""
    if CPU_INFO.exists():
        for line in CPU_INFO.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()

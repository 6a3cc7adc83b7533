"""What every program of the project does first; libraries that import mlvae are left alone."""

from __future__ import annotations

import codecs
import io
import locale
import os
import sys
import warnings

#: How often threads look before they sleep. Sleeping at once costs an idle machine half as much
#: time again, and ten times as many looks cost a busy one several times as much; see
#: benchmarks/busy.py.
SPINS = "1000"


#: What lhotse warns of where a recording is longer than a batch; it is a batch of its own then.
LONG_CUT = "The first cut drawn in batch collection|We have exceeded the max_"


def start_program() -> None:
    """Make names and texts of every language safe in any locale, and waiting threads sleep.

    * Files, names of files, and what other libraries read and write are UTF-8. Where the locale
      says otherwise, the program is started once more in Python's UTF-8 mode, which cannot be
      switched on later.
    * What standard output cannot show (``PYTHONIOENCODING=ascii``) becomes an escape there, as on
      standard error, and ends no program that has done all its work.
    * OpenMP's threads sleep when they have waited for a moment, unless the user has set
      ``GOMP_SPINCOUNT`` or ``OMP_WAIT_POLICY``: spinning ones keep one another waiting where
      another program takes a core. OpenMP looks when torch is loaded, so that this works where
      torch is imported afterwards; run.sh sets it for the stages.
    * lhotse does not warn of each recording that is longer than a batch.
    """
    encodings = (sys.getfilesystemencoding(), locale.getpreferredencoding(False))
    warnings.filterwarnings("ignore", message=LONG_CUT)
    if any(codecs.lookup(name).name != "utf-8" for name in encodings) and sys.executable:
        arguments = getattr(sys, "orig_argv", [sys.executable, *sys.argv])[1:]
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *arguments])
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if "torch" not in sys.modules and not os.environ.get("OMP_WAIT_POLICY"):
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)

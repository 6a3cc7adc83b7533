#!/usr/bin/env python3
"""What `mlvae report` costs, and how soon its index opens in a browser.

    python benchmarks/report.py answers --utterances 5000

Answers are repeated under new ids until there are as many as are asked for. The command runs on a
tenth of them and on all; its memory must not grow with them, but for a line of each. Then headless
Chromium opens the index from disk, each time anew, and the worst time counts: from the call until
the table is there. The exit status is 1 where a bound is missed: 40 kB a page, 3 MB for the index,
2 seconds to open it.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without being installed

from jsonargparse import ArgumentParser
from jsonargparse.typing import PositiveInt
from tabulate import tabulate

from mlvae.data.manifests import manifest_lines
from mlvae.program import start_program
from mlvae.score.report import find_sources

ROOT = Path(__file__).resolve().parents[1]
MOST_SECONDS, MOST_INDEX, MOST_PAGE = 2.0, 3_000_000, 40_000
OPENED = 5
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--window-size=1200,900",
)


def open_browser(profile: Path) -> Any:
    """Chromium without a window, as a selenium driver; whoever calls this ends it with ``quit``.

    Args:
        profile: an empty folder.

    Raises:
        FileNotFoundError: there is no Chromium, or no driver of it.
    """
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        raise FileNotFoundError("no chromium or chromedriver: apt-get install chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options, Service(programs[1]))


def repeat(answers: Path, folder: Path, count: int) -> Path:
    """Answers of ``count`` utterances: those of a folder again and again, under new ids."""
    (path, *_) = find_sources(answers).values()
    lines = [line for _, line in manifest_lines(path)]
    folder.mkdir()
    with gzip.open(folder / "cuts.jsonl.gz", "wt", encoding="utf-8") as file:
        for number in range(count):
            line = lines[number % len(lines)]
            name = f"{line['id']}-{number // len(lines):03d}"
            file.write(json.dumps({**line, "id": name}) + "\n")
    return folder


def make(answers: Path, out: Path) -> dict[str, float]:
    """Run the command; seconds, megabytes of memory, sizes in bytes of what it has written."""
    command = [sys.executable, "-m", "mlvae.cli", "report", str(answers), str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    began = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise ValueError(f"mlvae report ended with status {status}")
    pages = [path.stat().st_size for path in (out / "utterances").iterdir()]
    return {
        "utterances": len(pages),
        "seconds": time.monotonic() - began,
        "work": used.ru_utime + used.ru_stime,
        "megabytes": used.ru_maxrss / 1024,
        "index": (out / "index.html").stat().st_size,
        "page": sum(pages) / len(pages),
        "largest": max(pages),
        "audio": sum(path.stat().st_size for path in out.glob("audio/*")) / len(pages),
    }


def seconds_to_open(index: Path, profile: Path) -> list[float]:
    """How long a browser takes until the table of an index is there, each time anew."""
    browser, found = open_browser(profile), []
    try:
        for _ in range(OPENED):
            browser.get("about:blank")
            began = time.monotonic()
            browser.get(index.absolute().as_uri())
            assert browser.find_elements("css selector", "#utterances tbody tr")
            found.append(time.monotonic() - began)
    finally:
        browser.quit()
    return found


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("answers", type=Path, help="what `mlvae report` takes")
    parser.add_argument("--utterances", type=PositiveInt, default=5000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, rows = Path(name), []
        for count in (max(options.utterances // 10, 1), options.utterances):
            answers = repeat(options.answers, folder / f"answers-{count}", count)
            rows.append(make(answers, folder / f"report-{count}"))
        print(
            tabulate(
                [
                    [
                        *(row["utterances"], row["seconds"], row["work"], row["megabytes"]),
                        *(row["index"] / 1e6, row["page"] / 1e3, row["largest"] / 1e3),
                        row["audio"] / 1e3,
                    ]
                    for row in rows
                ],
                [
                    *("utterances", "seconds", "CPU seconds", "memory MB", "index MB", "page kB"),
                    *("largest page kB", "audio kB each"),
                ],
                floatfmt=".1f",
            )
        )
        opened = seconds_to_open(folder / f"report-{options.utterances}/index.html", folder / "p")
        print(f"the index opens in {min(opened):.2f} to {max(opened):.2f} s ({OPENED} times)")
    last = rows[-1]
    good = (
        max(opened) <= MOST_SECONDS
        and last["index"] <= MOST_INDEX
        and last["largest"] <= MOST_PAGE
        and all(one["megabytes"] < 2 * rows[0]["megabytes"] for one in rows)
    )
    return 0 if good else 1


if __name__ == "__main__":
    start_program()
    sys.exit(main())

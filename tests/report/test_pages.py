"""The report in a browser, from disk: it is sorted, searched, heard and read as it is meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlvae.score.report import report
from tests.report.conftest import PERCEIVED, UNITS, answered, write_answers

LETTERS = "x" * 10_000
EVIL = "</script><script>window.hacked = 1</script>"
IMAGE = '<img src="x" onerror="window.hacked = 2">'
BIDI = "\u202eabc\u2066 שלום \"quoted\" 'single' &amp; `"
HOSTILE = {
    "id": f"evil & {IMAGE}",
    "text": f"{EVIL} {BIDI} {LETTERS}",
    "words": (EVIL, BIDI),
    "units": (EVIL, "ah", LETTERS, IMAGE, "שלום"),
    "perceived": (IMAGE, "ah", LETTERS, EVIL, "-"),
    "speaker": BIDI,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A report of 60 utterances, of which the hostile one is the worst."""
    folder = tmp_path_factory.mktemp("report")
    hostile = {key: value for key, value in HOSTILE.items() if key != "id"}
    cuts = [answered(folder, HOSTILE["id"], **hostile)]
    for number in range(59):
        perceived = PERCEIVED if number < 2 else UNITS
        text, speaker = ("Der Hund", "bob") if number == 30 else ("The cat", "ann")
        name = f"utt-{number:02d}"
        p = [0.5 - number / 200] * 5 if number >= 2 else (0.9, 0.1, 0.05, 0.2, 0.75)
        cuts.append(
            answered(folder, name, text, perceived=perceived, speaker=speaker, probabilities=p)
        )
    answers = write_answers(folder / "answers" / "cuts.jsonl.gz", cuts)
    assert report(answers, folder / "out #1 %41?") == 0
    return folder / "out #1 %41?"


@pytest.fixture
def page(browser, made) -> Any:
    """Opens pages; at the end nothing was complained of, and no request has left the disk."""
    browser.get_log("performance")
    browser.get_log("browser")

    def open_page(name: str) -> Any:
        browser.get("about:blank")
        path, _, anchor = name.partition("#")
        browser.get((made / path).as_uri() + (f"#{anchor}" if anchor else ""))
        return browser

    yield open_page
    assert browser.execute_script("return window.hacked") is None
    assert browser.get_log("browser") == []
    lines = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [one["params"] for one in lines if one["method"] == "Network.requestWillBeSent"]
    addresses = {one["request"]["url"] for one in requests}
    assert addresses
    assert [url for url in addresses if not url.startswith(("file:///", "data:", "about:"))] == []


def texts(driver, css: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
    return driver.execute_script(script, css)


def find(driver, css: str):
    return driver.find_element("css selector", css)


def click(driver, css: str) -> None:
    """From the middle of the window, where nothing lies above it."""
    element = find(driver, css)
    driver.execute_script("arguments[0].scrollIntoView({ block: 'center' })", element)
    element.click()


def wait(driver, script: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, 30, 0.02).until(lambda one: one.execute_script(f"return {script}"))


def press(driver, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    ActionChains(driver).send_keys(*keys).perform()


def test_the_worst_come_first_and_headings_sort(page):
    driver = page("index.html")
    names = "#utterances tbody td:first-child"
    assert texts(driver, names)[:4] == [HOSTILE["id"], "utt-00", "utt-01", "utt-02"]
    assert texts(driver, "#overall") == ["2.3 % of 300 units flagged"]
    assert len(texts(driver, names)) == 50
    click(driver, "#utterances .more")
    assert len(texts(driver, names)) == 60
    heading = "#utterances thead th:nth-child(1) button"
    click(driver, heading)
    assert texts(driver, names)[:2] == [HOSTILE["id"], "utt-00"]
    click(driver, heading)
    assert texts(driver, names)[0] == "utt-58"
    order = driver.execute_script("return [...document.querySelectorAll('th[aria-sort]')].length")
    assert order == 3  # a heading of each table
    click(driver, "#utterances thead th:nth-child(5) button")  # mean P, the largest first
    assert texts(driver, names)[0] == "utt-02"
    assert driver.execute_script("return document.activeElement.textContent") == "Mean P"


def test_search_finds_texts_speakers_and_what_was_said(page):
    driver = page("index.html")
    names, search = "#utterances tbody td:first-child", find(driver, "#utterances input")
    for wanted, expected in (
        ("HUND", ["utt-30"]),
        ("bob", ["utt-30"]),
        ("dh>d", ["utt-00", "utt-01"]),
        ("t>∅", ["utt-00", "utt-01"]),
        ("t>-", ["utt-00", "utt-01"]),
        ("nowhere", []),
    ):
        search.clear()
        search.send_keys(wanted)
        assert texts(driver, names) == expected
    assert texts(driver, "#utterances .count") == ["0 of 60 utterances"]
    click(driver, ".heat button[aria-label='dh perceived as d: 2 of 59 (3.4 %)']")
    assert texts(driver, names) == ["utt-00", "utt-01"]


def test_units_and_speakers_have_the_number_behind_each_fraction(page):
    driver = page("index.html")
    rows = driver.execute_script(
        "return [...document.querySelectorAll('#units tbody tr')].map((row) => [...row.cells]"
        ".map((cell) => cell.textContent))"
    )
    of_unit = {row[0]: row[1:] for row in rows}
    assert of_unit["dh"][:2] == ["3.4 %", "2 of 59"] and of_unit["dh"][4] == "d 2 (3 %)"
    assert of_unit["t"][2] == "2" and of_unit["ah"][:2] == ["0.0 %", "0 of 60"]
    speakers = texts(driver, "#speakers tbody tr")
    assert len(speakers) == 3
    assert any(row.startswith("ann1.4 %4 of 290") for row in speakers)


def test_a_click_plays_a_unit_or_a_word_alone(page):
    driver = page("utterances/00002.html")
    moved = "(document.querySelector('#audio').currentTime > {})"
    wait(driver, "document.querySelector('#audio').readyState > 2")
    for css, start, end in (
        (".units button:nth-child(2)", 0.3, 0.5),
        ("#chips button:nth-child(1)", 0.1, 0.5),
    ):
        click(driver, css)
        wait(driver, moved.format(start + 0.1))
        wait(driver, "document.querySelector('#audio').paused")
        stopped = driver.execute_script("return document.querySelector('#audio').currentTime")
        assert end - 0.05 < stopped < end + 0.7  # a busy machine stops late
    click(driver, ".units button:nth-child(5)")  # it has no length: what is around it
    wait(driver, moved.format(1.2))


def test_keys_go_through_what_is_flagged_and_play(page):
    driver = page("utterances/00002.html")
    chosen = "return document.querySelector('.chosen').textContent"
    assert texts(driver, "#rank") == ["2 of 60"]
    for key, expected in (("n", "dhd"), ("\ue014", "t∅"), ("p", "dhd"), ("\ue014", "t∅")):
        press(driver, key)
        assert driver.execute_script(chosen) == expected
    press(driver, "n")  # the last one is followed by the next utterance
    wait(
        driver,
        "document.querySelector('h1') && document.querySelector('h1').textContent === 'utt-01'",
    )
    wait(driver, "document.querySelector('.chosen') !== null")
    assert driver.execute_script(chosen) == "dhd"
    press(driver, "\ue012")  # left: back to the last of the one before
    wait(
        driver,
        "document.querySelector('h1') && document.querySelector('h1').textContent === 'utt-00'",
    )
    wait(driver, "document.querySelector('.chosen') !== null")
    assert driver.execute_script(chosen) == "t∅"
    wait(driver, "document.querySelector('#audio').readyState > 2")
    cursor = "return parseFloat(document.querySelector('.cursor').style.left)"
    press(driver, " ")
    wait(driver, "!document.querySelector('#audio').paused")
    wait(driver, "document.querySelector('#audio').currentTime > 0.2")
    assert driver.execute_script(cursor) > 10
    press(driver, " ")
    wait(driver, "document.querySelector('#audio').paused")
    width = "return document.querySelector('.inner').offsetWidth"
    before = driver.execute_script(width)
    press(driver, "+")
    assert driver.execute_script(width) == pytest.approx(1.5 * before, abs=2)
    click(driver, "#fit")
    assert driver.execute_script(width) == pytest.approx(before, abs=2)


def test_hover_and_focus_show_p(page):
    from selenium.webdriver import ActionChains

    driver = page("utterances/00002.html")
    unit = find(driver, ".units button:nth-child(1)")
    ActionChains(driver).move_to_element(unit).perform()
    tip = find(driver, "#tip")
    assert tip.is_displayed() and tip.text == "dh said as d · P 0.900 · 0.10–0.30 s"
    driver.execute_script("document.querySelector('.units button:nth-child(5)').focus()")
    assert tip.text == "t left out · P 0.750 · P(left out) 0.700 · 1.20–1.20 s"
    grounds = driver.execute_script(
        "return [...document.querySelectorAll('.units button')].map((one) => one.style.background)"
    )
    assert len(set(grounds)) == 5


@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize("name", ["index.html", "utterances/00001.html", "utterances/00002.html"])
def test_pages_fit_their_width(page, browser, name, width):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        driver = page(name)
        wide = driver.execute_script("return document.documentElement.scrollWidth")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wide <= width


def test_hostile_text_is_shown_as_text(page):
    driver = page("utterances/00001.html")
    assert texts(driver, "h1") == [HOSTILE["id"]]
    assert texts(driver, ".text") == [HOSTILE["text"]]
    assert texts(driver, ".units bdi")[::2] == list(HOSTILE["units"])
    assert len(texts(driver, "script")) == 3 and len(texts(driver, "img")) == 1
    directions = driver.execute_script(
        "return [...document.querySelectorAll('.units button:nth-child(5) bdi')]"
        ".map((one) => getComputedStyle(one).direction)"
    )
    assert directions[0] == "rtl"
    press(driver, "n")
    assert len(find(driver, "#detail").text) < 1000
    index = page("index.html")
    assert texts(index, "#utterances tbody td:first-child")[0] == HOSTILE["id"]
    assert HOSTILE["units"][0] in texts(index, "#units tbody td:first-child")


def test_pages_are_small(made):
    sizes = [path.stat().st_size for path in (made / "utterances").iterdir()]
    assert len(sizes) == 60
    assert sorted(sizes)[-2] < 40_000  # the hostile one has four copies of 10,000 letters
    assert (made / "index.html").stat().st_size < 60 * 600 + 40_000

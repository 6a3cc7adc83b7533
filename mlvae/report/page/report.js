"use strict";
// What the pages of a report do. Whatever comes from recordings and texts is put into pages as text.

const RAMP = [[255, 255, 255], [254, 230, 184], [253, 184, 99], [224, 113, 28], [140, 45, 4]];
const SHOWN = 50; // rows of a table before more are asked for
const MORE = 200; // rows that come then
const LONGEST = 200; // letters of a symbol in a tooltip

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "style") Object.assign(made.style, value);
    else if (key.includes("-")) made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

/** A piece of text whose direction is its own. */
function isolated(text, name = "bdi", properties = {}) {
  return element(name, { dir: "auto", textContent: text, ...properties });
}

function shortened(text) {
  return text.length > LONGEST ? text.slice(0, LONGEST) + "…" : text;
}

/** A symbol as it is read: of a deletion ∅. */
function said(symbol) {
  return symbol === "-" ? "∅" : symbol;
}

function colour(p) {
  const place = Math.min(Math.max(p, 0), 1) * (RAMP.length - 1);
  const low = Math.min(Math.floor(place), RAMP.length - 2);
  const mixed = RAMP[low].map((a, i) => Math.round(a + (place - low) * (RAMP[low + 1][i] - a)));
  return `rgb(${mixed.join(" ")})`;
}

/** Paint by P; text on dark ground is white. */
function paint(made, p) {
  if (p === null || p === undefined) return;
  made.style.background = colour(p);
  made.classList.toggle("dark", p > 0.8);
}

function percent(part, whole, digits = 1) {
  return whole ? (100 * part / whole).toFixed(digits) + " %" : "–";
}

// ---- Index

/** A table whose rows are sorted by a click on a heading. A column has a title, a value of a row to
    sort by, a cell (what it shows), and whether it begins with the largest. */
class Table {
  constructor(home, columns, sorted, descending) {
    this.home = home;
    this.columns = columns;
    this.sorted = sorted;
    this.descending = descending;
    this.rows = [];
    this.shown = SHOWN;
  }

  show(rows) {
    this.rows = rows;
    this.shown = SHOWN;
    this.draw();
  }

  draw() {
    const focused = [...this.home.querySelectorAll("th button")].indexOf(document.activeElement);
    const by = this.columns[this.sorted].value;
    const sign = this.descending ? -1 : 1;
    const rows = this.rows.map((row) => [by(row), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // unknown ones last
      return sign * (typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b);
    });
    const head = element("tr", {}, ...this.columns.map((column, i) => {
      const button = element("button", { type: "button", textContent: column.title, title: column.about || "" });
      button.onclick = () => {
        this.descending = i === this.sorted ? !this.descending : column.number === true;
        this.sorted = i;
        this.draw();
      };
      const cell = element("th", { scope: "col", className: this.look(column) }, button);
      const way = this.descending ? "descending" : "ascending";
      if (i === this.sorted) cell.setAttribute("aria-sort", way);
      return cell;
    }));
    const body = element("tbody", {}, ...rows.slice(0, this.shown).map(([, row]) =>
      element("tr", {}, ...this.columns.map((column) => {
        const cell = element("td", { className: this.look(column) });
        const content = column.cell(row);
        cell.append(...(Array.isArray(content) ? content : [content]));
        return cell;
      }))));
    this.home.replaceChildren(element("table", {}, element("thead", {}, head), body));
    if (focused >= 0) this.home.querySelectorAll("th button")[focused].focus();
    if (rows.length > this.shown) {
      const left = rows.length - this.shown;
      const more = element("button", { type: "button", className: "more" });
      more.textContent = `Show ${Math.min(left, MORE)} more of ${left.toLocaleString("en")}`;
      more.onclick = () => { this.shown += MORE; this.draw(); };
      this.home.append(more);
    }
  }

  look(column) {
    return [column.number ? "number" : "", column.look || ""].join(" ").trim();
  }
}

function startIndex(data) {
  const pageOf = (number) => `utterances/${String(number).padStart(5, "0")}.html`;
  const withBar = (part, whole) => [
    percent(part, whole),
    element("span", { className: "bar", "aria-hidden": "true" },
      element("i", { style: { width: `${whole ? 100 * part / whole : 0}%` } })),
  ];
  const pairText = (index) => data.pairs[index].map(said).join(">");
  const otherShown = ([index, count], of) => element("span", { className: "pair" },
    isolated(said(data.pairs[index][1])), ` ${count} (${percent(count, of, 0)})`);
  const pairShown = ([index, count]) => element("span", { className: "pair" },
    isolated(data.pairs[index][0]), " → ", isolated(said(data.pairs[index][1])), ` ${count}`);
  const number = (title, value, cell, more = {}) => ({ title, value, cell, number: true, ...more });
  const counted = (part, whole) => `${part.toLocaleString("en")} of ${whole.toLocaleString("en")}`;
  let system = 0;
  const found = (row) => row[7][system];
  const known = (value, digits) => (value === null ? "–" : value.toFixed(digits));
  const chance = (p) => (p === null ? "–" : (p / 1000).toFixed(2)); // of thousandths

  const columns = [
    { title: "Utterance", value: (row) => row[1], look: "name",
      cell: (row) => element("a", { href: pageOf(row[0]) }, isolated(row[1])) },
    { title: "Speaker", value: (row) => row[2], look: "name wide", cell: (row) => isolated(row[2]) },
    number("Flagged", (row) => (found(row) ? found(row)[0] / found(row)[1] : null),
      (row) => (found(row) ? withBar(found(row)[0], found(row)[1]) : "no answer"),
      { about: "Fraction of the units that were perceived as something else" }),
    number("Number", (row) => (found(row) ? found(row)[1] : null),
      (row) => (found(row) ? counted(found(row)[0], found(row)[1]) : "–"), { look: "wide" }),
    number("Mean P", (row) => found(row) && found(row)[2], (row) => chance(found(row) && found(row)[2]),
      { about: "Mean probability that a unit is mispronounced or left out" }),
    number("Text fit", (row) => row[4], (row) => known(row[4], 2),
      { about: "Log posterior minus log prior per frame of the aligned text: the higher, the better the text fits", look: "wide" }),
    ...(data.withReference ? [number("Wrong", (row) => row[6], (row) => (row[6] === null ? "–" : row[6]),
      { about: "Units that are mispronounced according to the reference", look: "wide" })] : []),
    number("Seconds", (row) => row[3], (row) => row[3].toFixed(1), { look: "wide" }),
    { title: "Text", value: (row) => row[5], look: "words wide", cell: (row) => isolated(row[5]) },
  ];
  const home = document.querySelector("#utterances");
  const table = new Table(home.querySelector(".table"), columns, 2, true);
  const search = home.querySelector("input");
  const haystacks = data.rows.map((row) => [row[1], row[2], row[5]].join(" ").toLowerCase());
  const filter = () => {
    const wanted = search.value.trim().toLowerCase();
    const pair = wanted.replace(/>-$/, ">∅"); // as people type it
    const pairs = new Set(data.pairs.flatMap((_, i) => (pairText(i).toLowerCase() === pair ? [i] : [])));
    const rows = data.rows.filter((row, i) => !wanted || haystacks[i].includes(wanted) ||
      (pairs.size && found(row) && found(row)[3].some((index) => pairs.has(index))));
    const all = data.rows.length.toLocaleString("en");
    home.querySelector(".count").textContent =
      wanted ? `${rows.length.toLocaleString("en")} of ${all} utterances` : `${all} utterances`;
    table.show(rows);
  };
  search.oninput = filter;
  const find = (text) => {
    search.value = text;
    filter();
    home.scrollIntoView();
    search.focus({ preventScroll: true });
  };

  const units = new Table(document.querySelector("#units .table"), [
    { title: "Unit", value: (row) => row[0], look: "name", cell: (row) => isolated(row[0]) },
    number("Flagged", (row) => row[2] / row[1], (row) => withBar(row[2], row[1])),
    number("Number", (row) => row[1], (row) => counted(row[2], row[1])),
    number("Left out", (row) => row[3], (row) => row[3].toLocaleString("en"), { look: "wide" }),
    number("Mean P", (row) => row[4], (row) => chance(row[4])),
    { title: "Said instead", value: (row) => -(row[5][0] || [0, 0])[1], look: "pairs",
      cell: (row) => row[5].slice(0, 3).map((pair) => otherShown(pair, row[1])) },
  ], 1, true);
  const speakers = new Table(document.querySelector("#speakers .table"), [
    { title: "Speaker", value: (row) => row[0], look: "name", cell: (row) => isolated(row[0] || "(not named)") },
    number("Flagged", (row) => row[3] / row[2], (row) => withBar(row[3], row[2])),
    number("Number", (row) => row[2], (row) => counted(row[3], row[2])),
    number("Utterances", (row) => row[1], (row) => row[1].toLocaleString("en"), { look: "wide" }),
    number("Mean P", (row) => row[5], (row) => chance(row[5])),
    { title: "Said instead, most often", value: (row) => -(row[6][0] || [0, 0])[1], look: "pairs",
      cell: (row) => row[6].map(pairShown) },
  ], 1, true);

  const draw = () => {
    const counts = data.counts[system];
    const instead = new Map(counts.units.map((row) => [row[0], []]));
    for (const pair of counts.said) instead.get(data.pairs[pair[0]][0]).push(pair);
    const rows = counts.units.map((row) => [...row, instead.get(row[0])]);
    filter();
    units.show(rows);
    speakers.show(counts.speakers);
    const named = counts.speakers.some((row) => row[0]);
    document.querySelector("#speakers").hidden = document.querySelector("#to-speakers").hidden = !named;
    drawHeat(document.querySelector(".heat"), rows, data.pairs, find);
    const sum = (place) => counts.units.reduce((total, row) => total + row[place], 0);
    const total = sum(1);
    document.querySelector("#overall").replaceChildren(
      element("b", { textContent: percent(sum(2), total) }), ` of ${total.toLocaleString("en")} units flagged`);
  };
  if (data.systems.length > 1) {
    const label = document.querySelector("#systems");
    const select = label.querySelector("select");
    select.append(...data.systems.map((name, i) => element("option", { value: i, textContent: name })));
    select.onchange = () => { system = Number(select.value); draw(); };
    label.hidden = false;
  }
  draw();
}

/** Units against what was perceived in their place; a cell finds its utterances. */
function drawHeat(home, units, pairs, find) {
  const rows = units.filter((row) => row[5].length).sort((a, b) => b[2] / b[1] - a[2] / a[1]);
  const rank = { "-": 1, "*": 2 };
  const others = [...new Set(rows.flatMap((row) => row[5].map(([index]) => pairs[index][1])))];
  others.sort((a, b) => (rank[a] || 0) - (rank[b] || 0) || a.localeCompare(b, undefined, { numeric: true }));
  if (!rows.length) {
    home.replaceChildren(element("p", { className: "hint", textContent: "Nothing is flagged." }));
    return;
  }
  const head = element("tr", {}, element("th", { textContent: "unit (number)" }),
    ...others.map((other) => element("th", { scope: "col" }, isolated(said(other)))));
  const body = rows.map((row) => {
    const counts = new Map(row[5].map(([index, count]) => [pairs[index][1], count]));
    return element("tr", {},
      element("th", { scope: "row" }, isolated(row[0]), " ", element("small", { textContent: row[1].toLocaleString("en") })),
      ...others.map((other) => {
        const count = counts.get(other);
        if (!count) return element("td");
        const text = `${row[0]} perceived as ${other === "-" ? "nothing" : other === "*" ? "something else" : other}: ` +
          `${count} of ${row[1]} (${percent(count, row[1])})`;
        const button = element("button", { type: "button", "aria-label": text });
        const share = 100 * count / row[1];
        button.textContent = share < 1 ? "<1" : share.toFixed(0);
        button.dataset.tip = text;
        button.onclick = () => find(`${said(row[0])}>${said(other)}`);
        const cell = element("td", {}, button);
        paint(cell, Math.sqrt(count / row[1]));
        return cell;
      }));
  });
  home.replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
}

// ---- Tooltip: of whatever has data-tip, under the pointer or in focus

function startTips() {
  const tip = element("div", { id: "tip", role: "tooltip", hidden: true });
  tip.setAttribute("role", "tooltip");
  document.body.append(tip);
  const show = (event) => {
    const of = event.target.closest ? event.target.closest("[data-tip]") : null;
    tip.hidden = !of;
    if (!of) return;
    tip.textContent = of.dataset.tip;
    const box = of.getBoundingClientRect();
    const middle = Math.min(Math.max(box.left, 0) + Math.min(box.width, innerWidth) / 2, innerWidth);
    const left = Math.min(Math.max(middle - tip.offsetWidth / 2, 8), innerWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 6;
    tip.style.left = `${Math.max(left, 0)}px`;
    tip.style.top = `${above > 0 ? above : Math.min(box.bottom + 6, innerHeight - tip.offsetHeight)}px`;
  };
  document.addEventListener("pointerover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, true);
}

// ---- Utterance

const LARGEST_ZOOM = 64;
const AROUND = 120; // milliseconds before and after what has no length
const SHORTEST = 40; // milliseconds: less is no sound

function startUtterance(data) {
  const audio = document.querySelector("#audio");
  const inner = document.querySelector("#timeline .inner");
  const box = document.querySelector("#timeline");
  const detail = document.querySelector("#detail");
  const play = document.querySelector("#play");
  const seconds = (milliseconds) => (milliseconds / 1000).toFixed(2);
  const at = (milliseconds) => `${100 * milliseconds / data.duration}%`;
  let end = null; // of what is played, seconds of the audio; null: all
  let zoom = 1;
  let frame = 0; // of the animation that follows the sound

  // Sound

  const sounds = Boolean(data.audio);
  if (sounds) audio.src = data.audio;
  const offset = (data.offset || 0) / 1000;
  const last = offset + data.duration / 1000;
  const silent = (reason) => {
    const note = document.querySelector("#nosound");
    note.textContent = `No sound: ${reason}`;
    note.hidden = false;
    play.disabled = true;
  };
  if (!sounds) silent(data.noSound);
  audio.onerror = () => silent("the browser cannot play the file beside this page, or it is not there");
  const cursor = element("div", { className: "cursor" });
  const follow = () => {
    cancelAnimationFrame(frame); // one at a time, however many events there are
    const now = audio.currentTime;
    if (!audio.paused && now >= (end === null ? last : end)) audio.pause();
    const place = Math.min(Math.max(1000 * (now - offset), 0), data.duration);
    cursor.style.left = at(place);
    document.querySelector("#time").textContent = `${seconds(place)} of ${seconds(data.duration)} s`;
    if (!audio.paused) {
      const x = inner.offsetWidth * place / data.duration;
      if (x < box.scrollLeft || x > box.scrollLeft + box.clientWidth) box.scrollLeft = x - box.clientWidth / 8;
      frame = requestAnimationFrame(follow);
    }
  };
  const showState = () => { play.textContent = audio.paused ? "▶ Play" : "■ Stop"; follow(); };
  for (const event of ["play", "pause", "seeked", "loadedmetadata", "timeupdate", "ended"]) audio.addEventListener(event, showState);
  const hear = (from, to) => {
    if (!sounds || play.disabled) return;
    const middle = (from + to) / 2;
    const half = to > from ? Math.max((to - from) / 2, SHORTEST / 2) : AROUND;
    end = Math.min(offset + (middle + half) / 1000, last);
    audio.currentTime = Math.max(offset + (middle - half) / 1000, offset);
    audio.play().catch(() => {}); // it was stopped before it began
  };
  const playAll = () => {
    if (!sounds || play.disabled) return;
    if (!audio.paused) { audio.pause(); return; }
    const now = audio.currentTime;
    const again = end !== null || now >= last - 0.02 || now < offset || audio.ended;
    end = null;
    if (again) audio.currentTime = offset;
    audio.play().catch(() => {});
  };
  play.onclick = playAll;

  // What is chosen

  let chosen = null;
  const choose = (button, aloud = true) => {
    if (chosen) chosen.classList.remove("chosen");
    chosen = button;
    button.classList.add("chosen");
    detail.textContent = button.dataset.tip;
    const x = button.offsetLeft;
    if (box.contains(button) && (x < box.scrollLeft || x + button.offsetWidth > box.scrollLeft + box.clientWidth)) {
      box.scrollLeft = x - box.clientWidth / 3;
    }
    if (aloud) hear(Number(button.dataset.from), Number(button.dataset.to));
  };
  const pressable = (from, to, tip, ...children) => {
    const button = element("button", { type: "button", "aria-label": tip }, ...children);
    Object.assign(button.dataset, { from, to, tip });
    button.onclick = () => choose(button);
    return button;
  };
  const placed = (button, from, to) => {
    button.style.left = at(Math.min(from, data.duration));
    button.style.width = at(Math.max(to - from, 0));
    button.classList.toggle("point", to <= from);
    return button;
  };
  const span = (from, to) => `${seconds(from)}–${seconds(to)} s`;
  const chance = (p) => (p === null ? "no P" : `P ${(p / 1000).toFixed(3)}`);
  const track = (name, title, ...buttons) => {
    inner.append(element("div", { className: "label", textContent: title }));
    const made = element("div", { className: `track ${name}` }, ...buttons);
    inner.append(made);
    return made;
  };
  const scaled = (p) => (p === null ? null : p / 1000);

  // Pictures

  if (data.peaks) {
    const bytes = Int8Array.from(atob(data.peaks), (letter) => letter.charCodeAt(0));
    const [above, below] = [[], []];
    for (let i = 0; i < bytes.length; i += 2) {
      above.push(`${i / 2} ${-bytes[i + 1] - 0.5}`);
      below.unshift(`${i / 2} ${-bytes[i] + 0.5}`);
    }
    const name = "http://www.w3.org/2000/svg"; // of the language: nothing is fetched from there
    const svg = document.createElementNS(name, "svg");
    const line = document.createElementNS(name, "path");
    svg.setAttribute("viewBox", `-0.5 -128 ${bytes.length / 2} 256`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("class", "wave");
    svg.setAttribute("aria-hidden", "true");
    line.setAttribute("d", `M${[...above, ...below].join("L")}Z`);
    svg.append(line);
    const picture = element("img", { className: "spectrogram", alt: "Spectrogram", src: `data:image/webp;base64,${data.spectrogram}` });
    const top = element("div", { className: "kilohertz" }, element("span", { textContent: `${data.kilohertz} kHz` }));
    inner.append(svg, top, picture);
    for (const shown of [svg, picture]) {
      shown.addEventListener("click", (event) => {
        if (!sounds) return;
        const area = shown.getBoundingClientRect();
        audio.currentTime = offset + (event.clientX - area.left) / area.width * data.duration / 1000;
        if (end !== null && audio.paused) end = null;
        follow();
      });
    }
  }
  const axis = element("div", { className: "axis", "aria-hidden": "true" });
  inner.append(axis, cursor);

  // Words, and what each system found

  const several = data.systems.length > 1;
  const first = data.systems[0];
  if (first.words.length) {
    track("one", "words", ...first.words.map(([from, to, p], i) => {
      const tip = `${shortened(data.words[i])} · ${chance(p)} · ${span(from, to)}`;
      const button = placed(pressable(from, to, tip, isolated(data.words[i])), from, to);
      paint(button, scaled(p));
      return button;
    }));
  }
  const flaggedOf = [];
  for (const found of data.systems) {
    const flagged = [];
    const buttons = data.units.map((unit, i) => {
      const [from, to, p] = [found.start[i], found.end[i], found.p[i]];
      const other = found.perceived[i];
      const deleted = found.deleted && found.deleted[i];
      const what = other === undefined ? "" : other === "-" ? " left out" : other === "*" ? " said as something else" : ` said as ${shortened(other)}`;
      const tip = [
        shortened(unit) + what, chance(p),
        ...(deleted ? [`P(left out) ${(deleted / 1000).toFixed(3)}`] : []),
        span(from, to), ...(several ? [found.name] : []),
      ].join(" · ");
      const below = other === undefined ? isolated(unit, "bdi", { className: "same" }) : isolated(said(other));
      const button = placed(pressable(from, to, tip, isolated(unit), below), from, to);
      paint(button, scaled(p));
      if (other !== undefined) {
        button.classList.add("flagged");
        flagged.push(button);
      }
      return button;
    });
    track("units", several ? found.name : "units, and what was perceived", ...buttons);
    flagged.sort((a, b) => a.dataset.from - b.dataset.from);
    flaggedOf.push(flagged);
  }
  const reference = data.reference;
  if (reference) {
    const starts = reference.start || first.start;
    const ends = reference.end || first.end;
    const graded = reference.scores;
    const buttons = data.units.map((unit, i) => {
      const other = reference.perceived[i];
      const score = graded ? graded[i] : null;
      const wrong = graded ? score !== null && score < 0.5 : other !== unit;
      const what = graded ? (score === null ? " without a score" : ` score ${score} of 2`) :
        wrong ? (other === "-" ? " left out" : ` said as ${shortened(other)}`) : "";
      const tip = `${shortened(unit)}${what} · ${span(starts[i], ends[i])} · reference`;
      const second = graded ? (score === null ? "" : String(score)) : said(other);
      const below = isolated(second, "bdi", { className: wrong || graded ? "" : "same" });
      const button = placed(pressable(starts[i], ends[i], tip, isolated(unit), below), starts[i], ends[i]);
      if (graded && score !== null) paint(button, 1 - score / 2);
      button.classList.toggle("flagged", wrong);
      return button;
    });
    for (const [symbol, from, to] of reference.inserted || []) {
      const tip = `${shortened(symbol)} inserted · ${span(from, to)} · reference`;
      const button = placed(pressable(from, to, tip, isolated(`+${symbol}`)), from, to);
      button.classList.add("flagged");
      buttons.push(button);
    }
    track("units reference", graded ? "reference, with the experts' scores" : "reference", ...buttons);
  }

  // The text as chips, which need no width

  const groups = first.words.map(() => []);
  for (const [i, word] of (data.wordOf || []).entries()) groups[word].push(i);
  document.querySelector("#chips").append(...groups.map((own, word) => {
    const [from, to, p] = first.words[word];
    const flagged = own.filter((i) => first.perceived[i] !== undefined);
    const tip = `${shortened(data.words[word])} · ${chance(p)} · ${span(from, to)}`;
    const button = pressable(from, to, tip, isolated(data.words[word]),
      ...flagged.map((i) => element("small", {}, isolated(data.units[i]), " → ", isolated(said(first.perceived[i])))));
    paint(button, scaled(p));
    return button;
  }));
  document.querySelector("#chips").hidden = !groups.length;

  // Zoom

  const drawAxis = () => {
    const pixels = inner.offsetWidth / data.duration; // of a millisecond
    const steps = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000, 300000];
    const step = steps.find((one) => one * pixels >= 60) || 600000;
    const ticks = [];
    for (let time = 0; time < data.duration - 40 / pixels && ticks.length < 2000; time += step) {
      ticks.push(element("span", { textContent: `${time / 1000} s`, style: { left: at(time) } }));
    }
    axis.replaceChildren(...ticks);
  };
  const setZoom = (to, around = null) => {
    const x = around === null ? box.clientWidth / 2 : around;
    const place = (box.scrollLeft + x) / inner.offsetWidth;
    zoom = Math.min(Math.max(to, 1), LARGEST_ZOOM);
    inner.style.width = `${100 * zoom}%`;
    box.scrollLeft = place * inner.offsetWidth - x;
    drawAxis();
  };
  document.querySelector("#in").onclick = () => setZoom(zoom * 1.5);
  document.querySelector("#out").onclick = () => setZoom(zoom / 1.5);
  const fit = () => {
    // As wide as makes a unit readable: less is a matter of scrolling, not of guessing.
    const wanted = Math.max(data.units.length * 30, box.clientWidth);
    setZoom(Math.max(1, Math.min(wanted / box.clientWidth, LARGEST_ZOOM)), 0);
  };
  document.querySelector("#fit").onclick = () => setZoom(1);
  box.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    setZoom(zoom * Math.exp(-event.deltaY / 200), event.clientX - box.getBoundingClientRect().left);
  }, { passive: false });
  addEventListener("resize", drawAxis);
  fit();
  follow();

  // Other utterances, and keys

  const order = window.ORDER || [];
  const rank = order.indexOf(data.number);
  const pageOf = (place) => `${String(order[place]).padStart(5, "0")}.html`;
  const before = document.querySelector("#before");
  const after = document.querySelector("#after");
  if (rank >= 0) document.querySelector("#rank").textContent = `${rank + 1} of ${order.length.toLocaleString("en")}`;
  if (rank > 0) { before.href = pageOf(rank - 1); before.hidden = false; }
  if (rank >= 0 && rank + 1 < order.length) { after.href = pageOf(rank + 1); after.hidden = false; }
  const systemOf = () => Math.max(flaggedOf.findIndex((flagged) => flagged.includes(chosen)), 0);
  const step = (by) => {
    const flagged = flaggedOf[systemOf()];
    let place = flagged.indexOf(chosen);
    if (place < 0) {
      const now = chosen ? Number(chosen.dataset.from) : by > 0 ? -1 : Infinity;
      place = by > 0 ? flagged.findIndex((button) => button.dataset.from > now) :
        flagged.filter((button) => button.dataset.from < now).length - 1;
    } else place += by;
    if (place >= 0 && place < flagged.length) { choose(flagged[place]); return; }
    const other = by > 0 ? after : before;
    if (!other.hidden) location.href = `${other.href}${by > 0 ? "#first" : "#last"}`;
  };
  const keys = {
    n: () => step(1), ArrowRight: () => step(1), p: () => step(-1), ArrowLeft: () => step(-1),
    "+": () => setZoom(zoom * 1.5), "=": () => setZoom(zoom * 1.5), "-": () => setZoom(zoom / 1.5),
    " ": playAll, w: () => before.hidden || before.click(), b: () => after.hidden || after.click(),
  };
  const pressed = (event) => event.target.closest(".zoom button, a");
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    if (event.key === " " && pressed(event)) return;
    event.preventDefault();
    keys[event.key]();
  });
  // A button that has focus is pressed by the space bar when that is let go: those of zoom alone are.
  addEventListener("keyup", (event) => { if (event.key === " " && !pressed(event)) event.preventDefault(); });
  const asked = { "#first": 0, "#last": -1 }[location.hash];
  if (asked !== undefined && flaggedOf[0].length) choose(flaggedOf[0].at(asked), false);
}

startTips();
const DATA = JSON.parse(document.querySelector("#data").textContent);
(document.body.classList.contains("index") ? startIndex : startUtterance)(DATA);

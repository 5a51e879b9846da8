"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

// Untrusted text (names of models, labels, files) always becomes text nodes, never markup.
function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
function draw(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
const percent = (value, digits = 1) => (value === null ? "" : value > 0 && value < 0.0005 ? "< 0.1 %" : (100 * value).toFixed(digits) + " %");
const points = (value) => (value === null ? "" : (data.factor * value).toFixed(data.factor === 1 ? 3 : 2));
const count = (value) => (value === null ? "" : value.toLocaleString("en"));
const missing = (value) => value === null || value === undefined;
const times = (value) => (value < 100 ? value.toFixed(1) : value.toLocaleString("en", { maximumFractionDigits: 0 })) + "x";
const roundSize = (params) => (params >= 1e9 ? params / 1e9 + "B" : params >= 1e6 ? params / 1e6 + "M" : params >= 1e3 ? params / 1e3 + "k" : String(params));
const colour = (number) => `var(--c${number % 9})`;

function tip(node, words) {
  const show = (event) => {
    const box = at("tip");
    box.textContent = words;
    box.hidden = false;
    const place = event.clientX !== undefined && event.clientX > 0 ? event : node.getBoundingClientRect();
    box.style.left = Math.min((place.clientX ?? place.x) + 12, innerWidth - box.offsetWidth - 8) + "px";
    box.style.top = Math.max((place.clientY ?? place.y) - 36, 4) + "px";
  };
  const hide = () => { at("tip").hidden = true; };
  node.setAttribute("tabindex", "0");
  node.setAttribute("aria-label", words);
  for (const event of ["mousemove", "focus"]) node.addEventListener(event, show);
  for (const event of ["mouseleave", "blur"]) node.addEventListener(event, hide);
}

function summary() {
  at("title").textContent = document.title = data.title;
  const [decision, heading, reasons] = data.verdict;
  at("verdict").classList.add(decision);
  if (decision === "no") at("verdict").setAttribute("role", "alert");
  at("heading").textContent = heading;
  at("reasons").textContent = reasons;
  at("summary").append(make("div", { class: "cards" }, ...data.cards.map(card)));
  for (const words of data.lead) at("summary").append(make("p", { class: "lead" }, words));
}

// Two bars below the figure, for the original and for the small model, where there is a share.
function card([value, caption, remark, share, doubtful]) {
  const node = make("div", { class: doubtful ? "card doubtful" : "card" }, make("b", {}, value), make("span", {}, caption));
  if (!missing(share)) {
    const whole = make("i", { class: "whole" }), part = make("i"), most = Math.max(share, 1);
    whole.style.width = 100 / most + "%";
    part.style.width = (100 * Math.max(share, 0)) / most + "%";
    node.append(make("span", { class: "bars", "aria-hidden": "true" }, whole, part));
  }
  if (remark) node.append(make("small", {}, remark));
  return node;
}

function fill(select, names) {
  select.replaceChildren(...names.map((name, number) => make("option", { value: number }, name)));
}

function explore() {
  if (!data.places.length) return;
  at("explore").hidden = false;
  const place = at("place"), method = at("method"), budget = at("budget");
  fill(place, data.places.map((one) => one.name));
  place.parentElement.hidden = data.places.length === 1;
  const methods = () => {
    const here = data.places[place.value];
    fill(method, here.methods.map((one) => one.name));
    method.value = Math.max(here.methods.findIndex((one) => one.name === here.chosen), 0);
    budget.max = here.layers;
    budget.value = here.k;
    curves(here);
    update();
  };
  const update = () => {
    const here = data.places[place.value], rule = here.methods[method.value], k = Number(budget.value);
    const found = rule.choices.find((one) => one.k === k);
    at("k").textContent = k + " of " + here.layers;
    const strip = at("strip");
    strip.replaceChildren(...Array.from({ length: here.layers }, (_, layer) =>
      make("i", { class: found && found.kept.includes(layer + 1) ? "kept" : "" }, String(layer + 1))));
    strip.setAttribute("aria-label", found ? "kept layers: " + found.kept.join(", ") : "no such choice");
    strip.dataset.kept = found ? found.kept.join(",") : "";
    const rows = found ? [
      ["parameters", count(found.params) + (found.share === null ? "" : " (" + percent(found.share) + " of the original)")],
      ["probe accuracy before training", found.probed === null ? "not known" : points(found.probed)],
      ["measured " + here.metric, found.measured === null ? "not trained" : points(found.measured)],
    ] : [["", "this method cannot choose " + k + " layers here"]];
    if (found && found.behind) rows.push(["far apart", "training reached less than a probe found before it: it may need more training", "flag"]);
    at("figures").replaceChildren(...rows.flatMap(([name, value, kind]) => [make("dt", {}, name), make("dd", kind ? { class: kind } : {}, value)]));
  };
  place.addEventListener("change", methods);
  for (const node of [method, budget]) node.addEventListener("input", update);
  methods();
}

// Round numbers, about `most` of them, that enclose all values.
function ticks(values, most = 5) {
  const low = Math.min(...values), high = Math.max(...values), rough = (high - low || 0.01) / most;
  const power = 10 ** Math.floor(Math.log10(rough)), step = power * [1, 2, 5, 10].find((one) => one * power >= rough * 0.999);
  const first = Math.floor(low / step + 1e-9), last = Math.max(Math.ceil(high / step - 1e-9), first + 1);
  return Array.from({ length: last - first + 1 }, (_, number) => (first + number) * step);
}
// Round sizes between the ends, at most `most` of them: as many as there can be.
function roundSizes(low, high, most) {
  const finest = [1, 1.2, 1.4, 1.6, 1.8, 2, 2.2, 2.4, 2.6, 2.8, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9];
  for (const steps of [finest, [1, 1.5, 2, 3, 4, 5, 7], [1, 2, 5], [1, 3], [1]]) {
    const found = [];
    for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10)
      found.push(...steps.map((step) => Math.round(step * power)).filter((size) => size >= low && size <= high));
    if (found.length <= most) return found;
  }
  return [];
}
function scale(low, high, from, to) {
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}

const chartWidth = (id) => Math.max(300, Math.min(1064, at(id).clientWidth));  // the font keeps its size on a phone

function frame(width, height, label) {
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label });
  svg.append(draw("line", { class: "axis", x1: 50, x2: width - 12, y1: height - 34, y2: height - 34 }));
  return svg;
}

function grid(svg, lines, y, width) {
  const digits = Math.max(0, -Math.floor(Math.log10(data.factor * (lines[1] - lines[0])) + 1e-9));
  for (const value of lines) {
    svg.append(draw("line", { class: "axis", x1: 50, x2: width - 12, y1: y(value), y2: y(value), "stroke-dasharray": "2 4" }));
    svg.append(draw("text", { class: "tick", x: 44, y: y(value) + 4, "text-anchor": "end" }, (data.factor * value).toFixed(digits)));
  }
}

function legend(names, squares = new Set()) {
  const box = make("div", { class: "legend" });
  names.forEach((name, number) => {
    const dot = make("i", squares.has(name) ? { class: "simple" } : {});
    dot.style.background = colour(number);
    box.append(make("span", {}, dot, name));
  });
  return box;
}

const FLOORS = { "majority": "2 4", "bag of words": "8 4" };  // how their lines are dashed

function curves(here) {
  const width = chartWidth("curves"), height = 280, svg = frame(width, height, "Scores over layers");
  const floors = here.probes.flatMap((probe, number) => Object.entries(probe.floors).map(([name, value]) => ({ probe: probe.name, name, value, number })));
  const lines = ticks([...here.probes.flatMap((probe) => [...probe.scores, ...probe.low, ...probe.high]), ...floors.map((floor) => floor.value)]);
  const y = scale(lines[0], lines.at(-1), height - 40, 14), x = (layer) => 60 + ((layer - 0.5) / here.layers) * (width - 80);
  grid(svg, lines, y, width);
  for (const layer of here.kept) svg.prepend(draw("rect", { x: x(layer) - (width - 80) / here.layers / 2, width: (width - 80) / here.layers, y: 8, height: height - 42, fill: "var(--faint)" }));
  const every = Math.ceil(here.layers / (width / 28));
  for (let layer = 1; layer <= here.layers; layer += every) svg.append(draw("text", { x: x(layer), y: height - 16, "text-anchor": "middle" }, layer));
  for (const floor of floors) {
    const line = draw("line", { class: "floor", x1: 60, x2: width - 20, y1: y(floor.value), y2: y(floor.value), stroke: colour(floor.number), "stroke-width": 1.5, "stroke-dasharray": FLOORS[floor.name] });
    tip(line, `${floor.probe}, ${floor.name}: ${points(floor.value)}`);
    svg.append(line);
    if (here.probes.length === 1) svg.append(draw("text", { x: width - 20, y: y(floor.value) - 5, "text-anchor": "end" }, `${floor.name} ${points(floor.value)}`));
  }
  here.probes.forEach((probe, number) => {
    const line = (values) => values.map((value, layer) => `${x(layer + 1)},${y(value)}`);
    if (probe.low.length) svg.append(draw("polygon", { points: [...line(probe.low), ...line(probe.high).reverse()].join(" "), fill: colour(number), opacity: 0.15 }));
    svg.append(draw("polyline", { points: line(probe.scores).join(" "), fill: "none", stroke: colour(number), "stroke-width": 2 }));
    probe.scores.forEach((value, layer) => {
      const dot = draw("circle", { class: "dot", cx: x(layer + 1), cy: y(value), r: 5, fill: colour(number) });
      tip(dot, `${probe.name}, layer ${layer + 1}: ${points(value)}`);
      svg.append(dot);
    });
  });
  const words = [here.kept.length ? "Shaded: kept layers." : "", floors.length ? "Dashed: a bag of words. Dotted: always the most frequent class." : "", here.probed];
  at("curves").replaceChildren(svg, legend(here.probes.map((probe) => probe.name)), make("p", { class: "legend" }, words.filter(Boolean).join(" ")));
}

function chart() {
  const rows = data.rows, width = chartWidth("chart"), height = 320, svg = frame(width, height, "Metric against parameters");
  const names = [...new Set(rows.map((row) => row.method))], simple = new Set(rows.filter((row) => row.simple).map((row) => row.method));
  const params = rows.map((row) => Math.max(row.params, 1)), low = Math.min(...params), high = Math.max(...params) * (Math.min(...params) === Math.max(...params) ? 1.01 : 1);
  const law = data.ladder ? data.ladder.law : [];
  const lines = ticks([...rows.flatMap((row) => [row.low, row.high]), ...law.map((point) => point[1]), ...(data.line ? [data.line[0]] : [])]);
  const y = scale(lines[0], lines.at(-1), height - 44, 30), x = scale(Math.log(low), Math.log(high), 110, width - 70);
  grid(svg, lines, y, width);
  svg.append(draw("text", { x: 12, y: 14 }, data.metric));
  const unit = Math.log(high / low) / (width - 180);  // of a pixel, to fill the margins with round sizes as well
  for (const tick of roundSizes(low * Math.exp(-50 * unit), high * Math.exp(50 * unit), Math.max(5, width / 90)))
    svg.append(draw("line", { class: "axis", x1: x(Math.log(tick)), x2: x(Math.log(tick)), y1: height - 34, y2: height - 29 }),
      draw("text", { class: "size", x: x(Math.log(tick)), y: height - 14, "text-anchor": "middle" }, roundSize(tick)));
  if (data.line) {
    const [value, name] = data.line;
    svg.append(draw("line", { class: "enough", x1: 50, x2: width - 12, y1: y(value), y2: y(value) }), draw("text", { class: "accent", x: 56, y: y(value) - 6 }, name));
  }
  if (law.length) {
    const inside = (value) => Math.min(Math.max(value, lines[0]), lines.at(-1));
    const line = (place) => law.map((point) => `${x(Math.log(point[0]))},${y(inside(point[place]))}`);
    svg.append(draw("polygon", { points: [...line(2), ...line(3).reverse()].join(" "), fill: "var(--accent)", opacity: 0.1 }),
      draw("polyline", { class: "law", points: line(1).join(" "), fill: "none", stroke: "var(--accent)", "stroke-width": 1.5, "stroke-dasharray": "6 4" }));
  }
  rows.forEach((row, index) => {
    const number = names.indexOf(row.method);
    const aside = row.simple || data.ladder ? 0 : 9 * (number - (names.length - simple.size - 1) / 2);  // subnetworks of one size are drawn side by side
    const here = x(Math.log(params[index])) + aside;
    svg.append(draw("line", { x1: here, x2: here, y1: y(row.low), y2: y(row.high), stroke: colour(number), opacity: 0.5 }));
    if (row.answer) svg.append(draw("circle", { cx: here, cy: y(row.value), r: 11, fill: "none", stroke: colour(number), "stroke-width": 2 }));
    const dot = row.simple
      ? draw("rect", { class: "dot", x: here - 5, y: y(row.value) - 5, width: 10, height: 10, fill: colour(number) })
      : draw("circle", { class: "dot", cx: here, cy: y(row.value), r: 6, fill: colour(number) });
    tip(dot, `${row.model ? row.model + ", " : ""}${row.method}${row.budget ? ", " + row.budget : ""}: ${points(row.value)} with ${count(row.params)} parameters`);
    svg.append(dot);
  });
  const words = [rows.some((row) => row.answer) ? (data.ladder ? "Ring: the recommended size." : "Ring: the model of this run.") : "", law.length ? "Dashed curve: the scaling law, with the 95 % interval of further models." : "", simple.size ? "Squares: simple alternatives." : "", "Horizontal: parameters, embeddings and head included (logarithmic).", "Bars: " + data.bars];
  at("chart").replaceChildren(svg, legend(names, simple), make("p", { class: "legend" }, words.filter(Boolean).join(" ")));
}

function cell(value, kind) {
  return missing(value) ? "-" : ({ points, percent, count, times }[kind] ?? String)(value);
}

function table() {
  const columns = data.columns, node = at("models"), head = make("tr");
  let order = null, down = false;
  const body = make("tbody");
  const write = () => {
    const rows = [...(data.means ?? data.rows)];
    if (order !== null) rows.sort((a, b) => {
      const [one, other] = [a[order], b[order]];
      if (missing(one) || missing(other)) return missing(one) - missing(other);  // cells without a value stay last
      const way = typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
      return down ? -way : way;
    });
    body.replaceChildren(...rows.map((row) => make("tr", row.answer ? { class: "answer" } : {}, ...columns.map(([key, , kind, below]) =>
      make("td", kind === "word" ? { class: "word" } : {}, cell(row[key], kind), ...(row[below] ? [make("small", {}, row[below])] : []))))));
  };
  for (const [key, title, kind] of columns) {
    const button = make("button", { type: "button" }, title), heading = make("th", { scope: "col", ...(kind === "word" ? { class: "word" } : {}) }, button);
    button.addEventListener("click", () => {
      down = order === key ? !down : kind !== "word";
      order = key;
      for (const other of head.children) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      write();
    });
    head.append(heading);
  }
  node.append(make("thead", {}, head), body);
  write();
}

function rows(node, titles, values) {
  node.append(
    make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", { scope: "col", class: "word" }, title)))),
    make("tbody", {}, ...values.map(({ answer, cells }) => make("tr", answer ? { class: "answer" } : {}, ...cells.map((value) => make("td", { class: "word" }, value instanceof Node ? value : String(value)))))));
}

function search() {
  if (!data.search) return;
  at("search").hidden = false;
  at("asked").textContent = data.search.sentence;
  rows(at("steps"), ["size", "layers kept", "parameters", "expected", "measured", "kept", "enough"], data.search.steps.map((one) => ({
    answer: one.answer,
    cells: [one.size, one.layers, count(one.params), missing(one.expected) ? "-" : points(one.expected), one.far ? make("span", { class: "flag" }, points(one.measured) + ", far from expected") : points(one.measured), missing(one.retention) ? "-" : percent(one.retention), one.enough ? "yes" : "no"],
  })));
}

// The smallest rung that surely keeps enough, or the largest that fits: rungs come in order, the largest first.
const WISHES = [
  { name: "to keep at least", unit: "% of the metric", usual: (rungs) => 100 * data.ladder.wanted, has: (rung) => rung.low !== null,
    find: (rungs, limit) => rungs.filter((rung) => 100 * rung.low >= limit).at(-1), why: "the smallest that surely does", none: "No size surely keeps that much" },
  { name: "at most", unit: "MB on disk", usual: (rungs) => rungs.at(-1).megabytes, has: (rung) => rung.megabytes !== null,
    find: (rungs, limit) => rungs.find((rung) => rung.megabytes <= limit), why: "the largest that fits", none: "No size is that small" },
  { name: "at most", unit: "ms per batch, on the machine of this run", usual: (rungs) => rungs.at(-1).milliseconds, has: () => true,
    find: (rungs, limit) => rungs.find((rung) => rung.milliseconds <= limit), why: "the largest that is as fast", none: "No size is that fast" },
];

function ladder() {
  if (!data.ladder || !data.ladder.rungs.length) return;
  at("ladder").hidden = false;
  const wishes = WISHES.filter((one) => data.ladder.rungs.every(one.has)), limit = at("limit"), wish = at("wish");
  fill(wish, wishes.map((one) => `${one.name} … ${one.unit.split(/ on | per | of /)[0]}`));
  const advise = () => {
    const asked = wishes[wish.value], rung = limit.value === "" ? undefined : asked.find(data.ladder.rungs, Number(limit.value));
    const size = rung ? [rung.megabytes === null ? "" : `${rung.megabytes.toFixed(1)} MB`, `${rung.milliseconds.toFixed(1)} ms`].filter(Boolean).join(", ") : "";
    at("advice").textContent = limit.value === "" ? "" : rung ? `Take ${rung.name}: ${asked.why}. ${rung.kept}; ${size}.` : `${asked.none}.`;
  };
  const change = () => {
    const asked = wishes[wish.value], usual = asked.usual(data.ladder.rungs);
    limit.value = usual >= 10 ? Math.ceil(usual) : Math.ceil(10 * usual) / 10;
    at("unit").textContent = asked.unit;
    limit.setAttribute("aria-label", asked.unit);
    advise();
  };
  wish.addEventListener("change", change);
  limit.addEventListener("input", advise);
  rows(at("wishes"), ["wish", "take", "why"], data.ladder.wishes.map((cells) => ({ cells: [cells[0], cells[1] || "none", cells[2]] })));
  change();
}

function changed() {
  if (!data.changed) return;
  at("changed").hidden = false;
  at("changed-words").textContent = data.changed.sentence;
  rows(at("slices"), ["dev rows", "count", "original right", "smaller right", "newly wrong", "newly right"],
    data.changed.slices.map((one) => ({ cells: [one.name, count(one.rows), percent(one.original), percent(one.small), one.newly_wrong, one.newly_right] })));
  rows(at("examples").querySelector("table"), ["row", "right", "original", "smaller", "text"],
    data.changed.examples.map((one) => ({ cells: [one.row, one.right, one.original, one.small, one.text] })));
  at("examples").hidden = !data.changed.examples.length;
}

function more() {
  if (!data.more) return;
  at("more").hidden = false;
  at("more-title").textContent = data.more.title;
  for (const { words, header, cells } of data.more.tables) {
    const table = make("table");
    rows(table, header, cells.map((row) => ({ cells: row })));
    at("more-tables").append(make("p", {}, words), make("div", { class: "scroll" }, table));
  }
}

// A table that is wider than the window says so, and can be scrolled by keyboard.
function hints() {
  for (const box of document.querySelectorAll(".scroll")) {
    const wide = box.scrollWidth > box.clientWidth + 1, hint = box.previousElementSibling?.classList.contains("hint") ? box.previousElementSibling : null;
    box.classList.toggle("more", wide);
    for (const [name, value] of Object.entries({ tabindex: "0", role: "region", "aria-label": "table, scrolls sideways" }))
      wide ? box.setAttribute(name, value) : box.removeAttribute(name);
    if (wide && !hint) box.before(make("p", { class: "hint" }, "Scroll the table sideways for more columns →"));
    if (!wide && hint) hint.remove();
  }
}

function theme() {
  at("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
}

summary();
theme();
if (data.rows.length) { chart(); table(); }
at("layers-title").parentElement.hidden = !data.places.length;
explore();
search();
ladder();
changed();
more();
hints();
at("examples").addEventListener("toggle", hints);
addEventListener("resize", () => {
  if (data.rows.length) chart();
  if (data.places.length) curves(data.places[at("place").value]);
  hints();
});
at("notes").append(...data.notes.map((words) => make("li", {}, words)));
for (const [name, value] of data.record) at("record").append(make("dt", {}, name), make("dd", {}, value));

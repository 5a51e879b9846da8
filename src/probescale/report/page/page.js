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
const points = (value) => (value === null ? "" : (100 * value).toFixed(2));
const count = (value) => (value === null ? "" : value.toLocaleString("en"));
const missing = (value) => value === null || value === undefined;
const times = (value) => (value < 100 ? value.toFixed(1) : value.toLocaleString("en", { maximumFractionDigits: 0 })) + "x";
const size = (params) => (params < 1e6 ? count(params) : (params / 1e6).toPrecision(3) + "M");
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
  at("warning").hidden = !data.warning.length;
  data.warning.forEach((words, number) => at("warning").append(make(number ? "p" : "b", {}, words)));
  const box = at("summary");
  for (const words of data.lead) box.append(make("p", { class: "lead" }, words));
  const cards = make("div", { class: "cards" });
  for (const [value, words] of data.cards) cards.append(make("div", { class: "card" }, make("b", {}, value), make("span", {}, words)));
  box.append(cards);
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
    at("figures").replaceChildren(...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  };
  place.addEventListener("change", methods);
  for (const node of [method, budget]) node.addEventListener("input", update);
  methods();
}

function scale(values, from, to) {
  const low = Math.min(...values), high = Math.max(...values), range = high - low || 1;
  return (value) => from + ((value - low) / range) * (to - from);
}

const chartWidth = (id) => Math.max(300, Math.min(900, at(id).clientWidth));  // the font keeps its size on a phone

function frame(width, height, label) {
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label });
  svg.append(draw("line", { class: "axis", x1: 50, x2: width - 12, y1: height - 34, y2: height - 34 }));
  return svg;
}

function grid(svg, values, y, width) {
  const low = Math.min(...values), high = Math.max(...values);
  for (let step = 0; step <= 4; step++) {
    const value = low + ((high - low) * step) / 4;
    svg.append(draw("line", { class: "axis", x1: 50, x2: width - 12, y1: y(value), y2: y(value), "stroke-dasharray": "2 4" }));
    svg.append(draw("text", { x: 44, y: y(value) + 4, "text-anchor": "end" }, (100 * value).toFixed(1)));
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

function curves(here) {
  const width = chartWidth("curves"), height = 260, svg = frame(width, height, "Scores over layers");
  const every = here.probes.flatMap((probe) => [...probe.scores, ...probe.low, ...probe.high]);
  const y = scale(every, height - 46, 14), x = (layer) => 60 + ((layer - 0.5) / here.layers) * (width - 80);
  grid(svg, every, y, width);
  for (const layer of here.kept) svg.prepend(draw("rect", { x: x(layer) - (width - 80) / here.layers / 2, width: (width - 80) / here.layers, y: 8, height: height - 42, fill: "var(--faint)" }));
  for (let layer = 1; layer <= here.layers; layer++) svg.append(draw("text", { x: x(layer), y: height - 16, "text-anchor": "middle" }, layer));
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
  at("curves").replaceChildren(svg, legend(here.probes.map((probe) => probe.name)), make("p", { class: "legend" }, (here.kept.length ? "Shaded: kept layers. " : "") + here.probed));
}

function chart() {
  const rows = data.rows, width = chartWidth("chart"), height = 280, svg = frame(width, height, "Metric against parameters");
  const names = [...new Set(rows.map((row) => row.method))], simple = new Set(rows.filter((row) => row.simple).map((row) => row.method));
  const params = rows.map((row) => Math.max(row.params, 1)), ends = [Math.min(...params), Math.max(...params)];
  const y = scale(rows.flatMap((row) => [row.low, row.high]), height - 46, 14), x = scale(ends.map(Math.log), 100, width - 70);
  grid(svg, rows.flatMap((row) => [row.low, row.high]), y, width);
  for (const end of new Set(ends))
    svg.append(draw("text", { x: x(Math.log(end)), y: height - 16, "text-anchor": "middle" }, size(end)));
  rows.forEach((row, index) => {
    const number = names.indexOf(row.method);
    const aside = row.simple ? 0 : 9 * (number - (names.length - simple.size - 1) / 2);  // subnetworks of one size are drawn side by side
    const here = x(Math.log(params[index])) + aside;
    svg.append(draw("line", { x1: here, x2: here, y1: y(row.low), y2: y(row.high), stroke: colour(number), opacity: 0.5 }));
    const dot = row.simple
      ? draw("rect", { class: "dot", x: here - 5, y: y(row.value) - 5, width: 10, height: 10, fill: colour(number) })
      : draw("circle", { class: "dot", cx: here, cy: y(row.value), r: 6, fill: colour(number) });
    tip(dot, `${row.model ? row.model + ", " : ""}${row.method}${row.budget ? ", " + row.budget : ""}: ${points(row.value)} with ${count(row.params)} parameters`);
    svg.append(dot);
  });
  const squares = simple.size ? "Squares: simple alternatives. " : "";
  at("chart").replaceChildren(svg, legend(names, simple), make("p", { class: "legend" }, squares + "Horizontal: parameters, embeddings and head included (logarithmic). Bars: " + data.bars));
}

function cell(value, kind) {
  return missing(value) ? "-" : ({ points, percent, count, times }[kind] ?? String)(value);
}

function table() {
  const columns = data.columns, node = at("models"), head = make("tr");
  let order = null, down = false;
  const body = make("tbody");
  const write = () => {
    const rows = [...data.rows];
    if (order !== null) rows.sort((a, b) => {
      const [one, other] = [a[order], b[order]];
      if (missing(one) || missing(other)) return missing(one) - missing(other);  // cells without a value stay last
      const way = typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
      return down ? -way : way;
    });
    body.replaceChildren(...rows.map((row) => make("tr", row.answer ? { class: "answer" } : {}, ...columns.map(([key, , kind]) =>
      make("td", kind === "word" ? { class: "word" } : {}, cell(row[key], kind))))));
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

function changed() {
  if (!data.changed) return;
  at("changed").hidden = false;
  at("changed-words").textContent = data.changed.sentence;
  const rows = (node, titles, values) => node.append(
    make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", { scope: "col", class: "word" }, title)))),
    make("tbody", {}, ...values.map((row) => make("tr", {}, ...row.map((value) => make("td", { class: "word" }, String(value)))))));
  rows(at("slices"), ["dev rows", "count", "original right", "smaller right", "newly wrong", "newly right"],
    data.changed.slices.map((one) => [one.name, count(one.rows), percent(one.original), percent(one.small), one.newly_wrong, one.newly_right]));
  rows(at("examples").querySelector("table"), ["row", "right", "original", "smaller", "text"],
    data.changed.examples.map((one) => [one.row, one.right, one.original, one.small, one.text]));
  at("examples").hidden = !data.changed.examples.length;
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
changed();
addEventListener("resize", () => {
  if (data.rows.length) chart();
  if (data.places.length) curves(data.places[at("place").value]);
});
at("notes").append(...data.notes.map((words) => make("li", {}, words)));
for (const [name, value] of data.record) at("record").append(make("dt", {}, name), make("dd", {}, value));

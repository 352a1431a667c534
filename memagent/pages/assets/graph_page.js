
/* The controls, and what happens when one of them changes. Whose page this is on need not be known here. */
const by = (id) => document.getElementById(id);
const home = document.querySelector(".graph");
const narrow = { get matches() { return home.clientWidth <= 900; } };

function refresh() {
  compute();
  const all = shown.nodes.length === nodes.length && shown.edges.length === edges.length;
  by("status").textContent = all ? `${counted(nodes.length, "node", "nodes")}, ${counted(edges.length, "edge", "edges")}`
    : `${shown.nodes.length.toLocaleString("en-GB")} of ${counted(nodes.length, "node", "nodes")}, ${shown.edges.length.toLocaleString("en-GB")} of ${counted(edges.length, "edge", "edges")}`;
  by("notice").hidden = filter.all || shown.passing <= FEW;
  by("notice-text").textContent = `The ${FEW} best connected of ${shown.passing.toLocaleString("en-GB")} nodes`;
  by("empty").hidden = shown.nodes.length > 0;
  by("empty").textContent = nodes.length ? "Nothing passes the filters." : "This memory holds no graph yet.";
  drawBars();
  if (!view.chosen) showPanel(false);
  redraw();
}

function choose(node, bring = false) {
  view.chosen = node;
  if (node && !shown.nodes.includes(node)) reveal(node);
  showPanel(bring && Boolean(node));
  if (narrow.matches) sheet(node ? "panel" : null);
  if (node && (bring || narrow.matches)) bringIn(node);
  redraw();
}

/* Loosen the filters that keep a node out which the reader asked for. */
function reveal(node) {
  filter.kinds.add(node.kind);
  if (node.gone) filter.hidden = true;
  if (!inTime(node)) [filter.from, filter.to] = [FIRST, LAST];
  showControls();
  refresh();
}

function sheet(name) {
  for (const [id, button] of [["filters", "open-filters"], ["panel", "open-list"]]) {
    by(id).classList.toggle("open", id === name);
    by(button).setAttribute("aria-expanded", String(id === name));
  }
}

function roomAbovePanel() { return narrow.matches && panel.classList.contains("open") ? view.height - panel.offsetHeight : view.height; }

/* -- check boxes -- */
function checkRows(home, names, chosen, tint) {
  const rows = names.map(([name, label, count]) => {
    const box = make("input", "", null, { type: "checkbox", checked: true, value: name });
    box.addEventListener("change", () => { if (box.checked) chosen.add(name); else chosen.delete(name); refresh(); });
    const swatch = make("span", tint ? "swatch stroke" : "swatch " + name);
    swatch.setAttribute("aria-hidden", "true");
    if (tint) swatch.style.setProperty("--tint", `var(--stroke-${RELATIONS[name][2]})`);
    return make("label", "row", [box, swatch, make("span", "name", label), make("span", "count", count.toLocaleString("en-GB"))]);
  });
  by(home).replaceChildren(...rows);
}

function tally(list, key) {
  const found = new Map();
  for (const one of list) found.set(one[key], (found.get(one[key]) || 0) + 1);
  return found;
}

function showControls() {
  for (const box of document.querySelectorAll("#kinds input")) box.checked = filter.kinds.has(box.value);
  for (const box of document.querySelectorAll("#relations input")) box.checked = filter.relations.has(box.value);
  by("hidden").checked = filter.hidden;
  showTime();
}

/* -- time -- */
const BARS = 40;
const heights = new Array(BARS).fill(0);
for (const node of dated) heights[Math.min(BARS - 1, Math.floor((node.when[0] - FIRST) / (LAST - FIRST) * BARS))] += 1;

function drawBars() {
  const top = Math.max(...heights, 1);
  by("bars").replaceChildren(...heights.map((count, at) => {
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect"), high = count ? 2 + 28 * Math.sqrt(count / top) : 0.6;
    for (const [name, value] of Object.entries({ x: at * 3 + 0.3, y: 30 - high, width: 2.4, height: high, rx: 0.5 })) bar.setAttribute(name, value);
    const from = FIRST + (LAST - FIRST) * at / BARS;
    if (from >= filter.to || from + (LAST - FIRST) / BARS <= filter.from) bar.setAttribute("class", "off");
    return bar;
  }));
}

const toStep = (time) => Math.round((time - FIRST) / (LAST - FIRST) * 1000);
const toTime = (step) => FIRST + Math.round(step / 1000 * (LAST - FIRST) / DAY) * DAY;
const isoDay = (time) => new Date(time).toISOString().slice(0, 10);

function showTime() {
  const [low, high] = [toStep(filter.from), toStep(filter.to)];
  by("from-slider").value = low; by("to-slider").value = high;
  by("from-slider").setAttribute("aria-valuetext", day(filter.from));
  by("to-slider").setAttribute("aria-valuetext", day(filter.to - 1));
  by("from").value = isoDay(filter.from); by("to").value = isoDay(filter.to - 1);
  by("between").style.left = low / 10 + "%"; by("between").style.right = 100 - high / 10 + "%";
}

function setTime(from, to) {
  filter.from = Math.max(FIRST, Math.min(from, LAST - DAY));
  filter.to = Math.min(LAST, Math.max(to, filter.from + DAY));
  showTime();
  refresh();
}

by("from-slider").addEventListener("input", (event) => setTime(Math.min(toTime(event.target.value), filter.to - DAY), filter.to));
by("to-slider").addEventListener("input", (event) => setTime(filter.from, Math.max(toTime(event.target.value), filter.from + DAY)));
by("from").addEventListener("change", (event) => { const at = Date.parse(event.target.value); setTime(Number.isNaN(at) ? FIRST : at, filter.to); });
by("to").addEventListener("change", (event) => { const at = Date.parse(event.target.value); setTime(filter.from, Number.isNaN(at) ? LAST : at + DAY); });

/* -- everything else -- */
by("hidden").addEventListener("change", (event) => { filter.hidden = event.target.checked; refresh(); });
by("search").addEventListener("input", (event) => { filter.query = event.target.value.trim(); view.chosen = null; refresh(); });
by("search").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  const [best] = shown.found ? [...shown.found].sort((a, b) => b.degree - a.degree) : [];
  if (best) choose(best, true);
});
by("search").addEventListener("focus", () => { if (narrow.matches && filter.query) sheet("panel"); });
by("all").addEventListener("click", () => { filter.all = true; refresh(); fit(); });
by("in").addEventListener("click", () => zoom(1.35));
by("out").addEventListener("click", () => zoom(1 / 1.35));
by("fit").addEventListener("click", () => fit());
by("open-filters").addEventListener("click", () => sheet(by("filters").classList.contains("open") ? null : "filters"));
by("open-list").addEventListener("click", () => { const open = panel.classList.contains("open"); view.chosen = null; showPanel(false); sheet(open ? null : "panel"); redraw(); });
by("reset").addEventListener("click", () => {
  Object.assign(filter, { kinds: filter.kinds, from: FIRST, to: LAST, hidden: true, query: "" });
  for (const name of Object.keys(KINDS)) filter.kinds.add(name);
  for (const name of Object.keys(RELATIONS)) filter.relations.add(name);
  by("search").value = "";
  showControls(); refresh(); fit();
});
for (const button of document.querySelectorAll("[data-layout]")) {
  button.addEventListener("click", () => {
    view.layout = button.dataset.layout;
    for (const other of document.querySelectorAll("[data-layout]")) other.setAttribute("aria-pressed", String(other === button));
    fit();
  });
}
document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement && event.target.type !== "checkbox";
  if (event.key === "/" && !typing) { event.preventDefault(); by("search").focus(); }
  if (event.key === "Escape") {
    if (narrow.matches && by("filters").classList.contains("open")) sheet(null);
    else choose(null);
  }
});

const kindCounts = tally(nodes, "kind"), relationCounts = tally(edges, "relation");
checkRows("kinds", Object.keys(KINDS).filter((name) => kindCounts.has(name)).map((name) => [name, KINDS[name], kindCounts.get(name)]), filter.kinds, false);
checkRows("relations", [...relationCounts].sort((a, b) => b[1] - a[1]).map(([name, count]) => [name, RELATIONS[name][0], count]), filter.relations, true);
const goneCount = nodes.filter((node) => node.gone).length;
by("hidden-row").hidden = !goneCount;
by("hidden-count").textContent = goneCount.toLocaleString("en-GB");
by("time").hidden = !dated.length;
for (const id of ["from", "to"]) { by(id).min = isoDay(FIRST); by(id).max = isoDay(LAST - 1); }
readColours();
showControls();
refresh();
new ResizeObserver(fitStage).observe(canvas);
fitStage();

/* The colours have changed: read them again. */
function recolour() { readColours(); if (view.chosen) showPanel(false); redraw(); }

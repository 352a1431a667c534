
/* The drawing: one canvas, moved and scaled by `view`; `draw` paints what `shown` holds. */
const canvas = document.getElementById("graph");
const pen = canvas.getContext("2d");
const view = { x: 0, y: 0, scale: 1, layout: "network", chosen: null, over: null, width: 0, height: 0, moved: false };
const LEAST = 0.03, MOST = 6, MANY = 2500;
const FONT = '"Inter", system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
const FAINT = new Set(["mentions", "contains", "part_of"]);
let ink = {}, asked = false;

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue("--" + name).trim();
  ink = { ground: colour("ground"), ink: colour("ink"), soft: colour("soft"), faint: colour("faint"), line: colour("line"), gone: colour("gone"), accent: colour("accent"), paper: colour("paper"),
    topic: colour("topic"), event: colour("event"), item: colour("item"), entity: colour("entity"),
    stroke: Object.fromEntries(["cause", "time", "tie", "change", "topic", "plain"].map((group) => [group, colour("stroke-" + group)])) };
}

function placeOf(node) { return view.layout === "time" ? [node.at[2], node.at[3]] : [node.at[0], node.at[1]]; }
function onScreen(node) { const [x, y] = placeOf(node); return [x * view.scale + view.x, y * view.scale + view.y]; }
function sizeOf(node) { return node.size * Math.min(1.7, Math.max(shown.nodes.length > FEW ? 0.26 : 0.5, Math.pow(view.scale, 0.55))); }
function redraw() { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; draw(); }); } }

function fitStage() {
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  const grown = [box.width - view.width, box.height - view.height];
  view.width = box.width; view.height = box.height;
  canvas.width = Math.max(1, Math.round(box.width * ratio)); canvas.height = Math.max(1, Math.round(box.height * ratio));
  if (view.moved) { view.x += grown[0] / 2; view.y += grown[1] / 2; } else { fit(); }
  redraw();
}

function fit(list = shown.nodes) {
  view.moved = false;
  if (!list.length || !view.width) return redraw();
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const node of list) {
    const [x, y] = placeOf(node);
    left = Math.min(left, x); right = Math.max(right, x); top = Math.min(top, y); bottom = Math.max(bottom, y);
  }
  const margin = Math.min(80, view.width * 0.08);
  const edge = view.layout === "time" ? [46, 60, 40, 74] : [margin, 40, margin, 64];  // left, top, right, bottom
  const scale = Math.min((view.width - edge[0] - edge[2]) / Math.max(right - left, 60), (view.height - edge[1] - edge[3]) / Math.max(bottom - top, 60), 1.6);
  view.scale = Math.min(MOST, Math.max(LEAST, scale));
  view.x = (view.width + edge[0] - edge[2]) / 2 - view.scale * (left + right) / 2;
  view.y = (view.height + edge[1] - edge[3]) / 2 - view.scale * (top + bottom) / 2;
  redraw();
}

function zoom(factor, x = view.width / 2, y = view.height / 2) {
  const scale = Math.min(MOST, Math.max(LEAST, view.scale * factor));
  view.x = x - (x - view.x) * scale / view.scale;
  view.y = y - (y - view.y) * scale / view.scale;
  view.scale = scale; view.moved = true;
  redraw();
}

function move(dx, dy) { view.x += dx; view.y += dy; view.moved = true; redraw(); }

/* Move a node into sight, and near enough to tell it from its neighbours. */
function bringIn(node) {
  if (view.scale < 0.8) zoom(0.8 / view.scale, ...onScreen(node));
  const [x, y] = onScreen(node), free = roomAbovePanel();
  if (x < 40 || y < 40 || x > view.width - 40 || y > free - 40) move(view.width / 2 - x, free / 2 - y);
}

function nodeNear(x, y, slop) {
  let best = null, least = Infinity;
  for (const node of shown.nodes) {
    const [nx, ny] = onScreen(node), far = Math.hypot(nx - x, ny - y) - sizeOf(node);
    if (far <= slop && far < least) { best = node; least = far; }
  }
  return best;
}

/* -- painting -- */
function draw() {
  const ratio = window.devicePixelRatio || 1, centre = view.chosen || view.over;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, view.width, view.height);
  const near = centre && new Set(centre.links.flatMap((edge) => [edge.source, edge.target]));
  if (view.layout === "time") drawAxis();
  const lit = (node) => (centre ? node === centre || near.has(node) : !shown.found || shown.found.has(node));
  const bold = centre ? shown.edges.filter((edge) => edge.source === centre || edge.target === centre) : [];
  const many = shown.edges.length > MANY && view.scale < 0.6, beside = new Set(bold);
  if (many) drawLines(shown.edges, centre || shown.found ? 0.05 : 0.16);
  else for (const edge of shown.edges) {
    if (!beside.has(edge)) drawEdge(edge, centre || shown.found ? 0.1 : (shown.edges.length > 1500 ? 0.22 : 0.4) * (view.layout === "time" && FAINT.has(edge.relation) ? 0.3 : 1), 1);
  }
  for (const edge of bold) drawEdge(edge, 0.95, 1.8);
  for (const node of shown.nodes) if (!lit(node)) drawNode(node, 0.22);
  for (const node of shown.nodes) if (lit(node)) drawNode(node, 1);
  drawLabels(lit, centre, bold);
  if (view.layout === "time") drawBands();
  canvas.dataset.scale = view.scale.toFixed(4);
  canvas.dataset.nodes = shown.nodes.length;
  canvas.dataset.edges = shown.edges.length;
  canvas.dataset.gone = shown.edges.filter((edge) => edge.gone).length;
}

/* Thousands of edges as straight lines, one path a colour. */
function drawLines(list, alpha) {
  const paths = new Map();
  for (const edge of list) {
    const colour = edge.gone ? ink.gone : ink.stroke[RELATIONS[edge.relation][2]];
    if (!paths.has(colour)) paths.set(colour, new Path2D());
    const path = paths.get(colour);
    path.moveTo(...onScreen(edge.source)); path.lineTo(...onScreen(edge.target));
  }
  pen.globalAlpha = alpha; pen.lineWidth = 1;
  for (const [colour, path] of paths) { pen.strokeStyle = colour; pen.setLineDash(colour === ink.gone ? [5, 4] : []); pen.stroke(path); }
  pen.setLineDash([]); pen.globalAlpha = 1;
}

function drawEdge(edge, alpha, width) {
  const [ax, ay] = onScreen(edge.source), [bx, by] = onScreen(edge.target);
  if (Math.max(ax, bx) < 0 || Math.max(ay, by) < 0 || Math.min(ax, bx) > view.width || Math.min(ay, by) > view.height) return;
  const length = Math.hypot(bx - ax, by - ay);
  if (length < 2) return;
  const group = RELATIONS[edge.relation][2], faint = group === "plain" ? 0.75 : 1;
  const ux = (bx - ax) / length, uy = (by - ay) / length, bend = Math.min(26, length * 0.09);
  const mx = (ax + bx) / 2 - uy * bend, my = (ay + by) / 2 + ux * bend;
  pen.globalAlpha = alpha * faint; pen.lineWidth = width;
  pen.strokeStyle = pen.fillStyle = edge.gone ? ink.gone : ink.stroke[group];
  pen.setLineDash(edge.gone ? [5, 4] : []);
  pen.beginPath(); pen.moveTo(ax, ay); pen.quadraticCurveTo(mx, my, bx, by); pen.stroke();
  pen.setLineDash([]);
  if (length > 40 && (width > 1 || (view.scale > 0.55 && !FAINT.has(edge.relation)))) {
    const reach = sizeOf(edge.target) + 3, dx = bx - mx, dy = by - my, far = Math.hypot(dx, dy), vx = dx / far, vy = dy / far, wing = width > 1 ? 4.5 : 3.2;
    const tx = bx - vx * reach, ty = by - vy * reach;
    pen.beginPath(); pen.moveTo(tx, ty); pen.lineTo(tx - vx * wing * 2 - vy * wing, ty - vy * wing * 2 + vx * wing);
    pen.lineTo(tx - vx * wing * 2 + vy * wing, ty - vy * wing * 2 - vx * wing); pen.fill();
  }
  pen.globalAlpha = 1;
}

function shape(node, x, y, r) {
  pen.beginPath();
  if (node.kind === "item") pen.roundRect(x - r * 0.88, y - r * 0.88, r * 1.76, r * 1.76, r * 0.4);
  else if (node.kind === "entity") { const d = r * 1.2; pen.moveTo(x, y - d); pen.lineTo(x + d, y); pen.lineTo(x, y + d); pen.lineTo(x - d, y); pen.closePath(); }
  else if (node.kind === "topic") { for (let side = 0; side < 6; side += 1) pen.lineTo(x + r * 1.1 * Math.cos(side * Math.PI / 3), y + r * 1.1 * Math.sin(side * Math.PI / 3)); pen.closePath(); }
  else pen.arc(x, y, r, 0, Math.PI * 2);
}

function drawNode(node, alpha) {
  const [x, y] = onScreen(node), r = sizeOf(node);
  if (x < -30 || y < -30 || x > view.width + 30 || y > view.height + 30) return;
  if (r < 3.2 && node !== view.chosen) {
    pen.globalAlpha = alpha; pen.fillStyle = node.gone ? ink.gone : ink[node.kind];
    pen.fillRect(x - r, y - r, r * 2, r * 2);
    pen.globalAlpha = 1;
    return;
  }
  if (node === view.chosen) { shape(node, x, y, r + 6); pen.globalAlpha = 0.22; pen.fillStyle = ink.accent; pen.fill(); }
  shape(node, x, y, r);
  pen.globalAlpha = 1; pen.fillStyle = ink.ground; pen.fill();
  pen.globalAlpha = alpha;
  if (node.gone) {
    pen.setLineDash([3, 2.5]); pen.lineWidth = 1.6; pen.strokeStyle = ink.gone; pen.stroke(); pen.setLineDash([]);
  } else {
    pen.fillStyle = ink[node.kind]; pen.fill();
    pen.lineWidth = node === view.chosen ? 2.4 : 1.4; pen.strokeStyle = node === view.chosen ? ink.ink : ink.ground; pen.stroke();
  }
  pen.globalAlpha = 1;
}

/* Labels go to the best connected first; one that would cover another is left out. */
function drawLabels(lit, centre, bold) {
  const taken = [];
  const put = (text, x, y, font, colour, sure) => {
    pen.font = font;
    const width = pen.measureText(text).width;
    if (x > 0 && x < view.width) x = Math.min(Math.max(x, width / 2 + 6), Math.max(view.width - width / 2 - 6, width / 2 + 6));
    const box = [x - width / 2 - 3, y - 8, x + width / 2 + 3, y + 8];
    if (box[2] < 0 || box[0] > view.width || box[3] < 0 || box[1] > view.height) return;
    if (!sure && taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) return;
    taken.push(box);
    pen.textAlign = "center"; pen.textBaseline = "middle"; pen.lineJoin = "round";
    pen.lineWidth = 4; pen.strokeStyle = ink.ground; pen.strokeText(text, x, y);
    pen.fillStyle = colour; pen.fillText(text, x, y);
  };
  const under = (node, sure) => {
    const [x, y] = onScreen(node);
    put(node.short, x, y + sizeOf(node) + 11, (node.kind === "topic" || node === centre ? "600 " : "") + "12px " + FONT, node.gone ? ink.gone : node.kind === "topic" ? ink.topic : ink.ink, sure);
  };
  if (centre) under(centre, true);
  if (view.chosen && view.scale > 0.35 && bold.length <= 40) {
    for (const edge of bold) {
      const [ax, ay] = onScreen(edge.source), [bx, by] = onScreen(edge.target);
      if (Math.hypot(bx - ax, by - ay) > 90) put(edge.label || RELATIONS[edge.relation][0], (ax + bx) / 2, (ay + by) / 2, "11px " + FONT, ink.soft, false);
    }
  }
  if (centre && centre.degree > 60 && view.scale < 0.6) return;
  const weight = (node) => (node.kind === "topic" ? 1e5 : node.kind === "entity" ? 1e3 : 0) + node.degree;
  const some = shown.nodes.filter((node) => node !== centre && lit(node)).sort((a, b) => weight(b) - weight(a) || a.number - b.number);
  const most = view.width < 500 ? 11 : centre || shown.found ? 60 : view.scale < 0.25 ? 40 : view.scale < 0.8 ? 70 : 260;
  for (const node of some.slice(0, most)) under(node, false);
}

/* -- the time line's axis -- */
function drawAxis() {
  if (!DATA.axis) return;
  const [first, last, left, right] = DATA.axis;
  const x = (seconds) => (last > first ? left + (seconds - first) / (last - first) * (right - left) : left) * view.scale + view.x;
  const perPixel = last > first ? (last - first) / ((right - left) * view.scale) : DAY / 1000;
  const step = [1, 2, 7, 14, 30, 61, 91, 183, 365, 730, 1826, 3652, 18262].find((days) => days * 86400 / perPixel > 84) || 36525;
  pen.font = "11px " + FONT; pen.textAlign = "center"; pen.textBaseline = "top";
  for (const tick of ticks(first, last, step)) {
    if (tick < first * 1000 - step * DAY / 3) continue;
    const at = x(tick / 1000);
    if (at < -40 || at > view.width + 40) continue;
    pen.strokeStyle = ink.line; pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(at, 28); pen.lineTo(at, view.height); pen.stroke();
    pen.fillStyle = ink.soft;
    pen.fillText(said(tick, step >= 365 ? { year: "numeric" } : step >= 30 ? { month: "short", year: "numeric" } : { day: "numeric", month: "short", year: "numeric" }), at, 10);
  }
}

/* The bands' names stand at the left edge, above their first row. */
function drawBands() {
  const tops = new Map();
  for (const node of shown.nodes) tops.set(node.kind, Math.min(tops.get(node.kind) ?? Infinity, node.at[3]));
  pen.font = "600 11px " + FONT; pen.textAlign = "left"; pen.textBaseline = "bottom"; pen.lineWidth = 4; pen.strokeStyle = ink.ground;
  for (const [kind, top] of tops) {
    const y = top * view.scale + view.y - 14;
    pen.strokeText(KINDS[kind], 14, y);
    pen.fillStyle = ink[kind]; pen.fillText(KINDS[kind], 14, y);
  }
}

function ticks(first, last, step) {
  const found = [], end = last * 1000 + DAY * Math.max(1, step / 3);
  let at = new Date(first * 1000);
  if (step < 30) {
    for (let tick = Math.floor(first * 1000 / DAY) * DAY; tick <= end && found.length < 2000; tick += step * DAY) found.push(tick);
  } else {
    const months = Math.round(step / 30.44);
    at = Date.UTC(at.getUTCFullYear(), months >= 12 ? 0 : Math.floor(at.getUTCMonth() / months) * months, 1);
    while (at <= end && found.length < 2000) { found.push(at); const then = new Date(at); at = Date.UTC(then.getUTCFullYear(), then.getUTCMonth() + months, 1); }
  }
  return found;
}

/* -- pointer, wheel, keys -- */
const held = new Map();
let start = null;
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  held.set(event.pointerId, [event.offsetX, event.offsetY]);
  start = held.size === 1 ? { x: event.offsetX, y: event.offsetY, far: false } : null;
});
canvas.addEventListener("pointermove", (event) => {
  const before = held.get(event.pointerId), now = [event.offsetX, event.offsetY];
  if (!before) {
    const over = nodeNear(...now, 4);
    if (over !== view.over) { view.over = over; canvas.classList.toggle("over", Boolean(over)); redraw(); }
    return;
  }
  if (held.size === 1) {
    if (start && Math.hypot(now[0] - start.x, now[1] - start.y) > 5) { start.far = true; canvas.classList.add("held"); }
    if (!start || start.far) move(now[0] - before[0], now[1] - before[1]);
  } else if (held.size === 2) {
    const [other] = [...held].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    const was = Math.hypot(before[0] - other[0], before[1] - other[1]), is = Math.hypot(now[0] - other[0], now[1] - other[1]);
    if (was > 0) zoom(is / was, (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    move((now[0] - before[0]) / 2, (now[1] - before[1]) / 2);
  }
  held.set(event.pointerId, now);
});
function released(event) {
  held.delete(event.pointerId);
  canvas.classList.remove("held");
  if (event.type === "pointerup" && start && !start.far) choose(nodeNear(event.offsetX, event.offsetY, event.pointerType === "touch" ? 16 : 5));
  start = null;
}
canvas.addEventListener("pointerup", released);
canvas.addEventListener("pointercancel", released);
canvas.addEventListener("pointerleave", () => { if (view.over) { view.over = null; redraw(); } });
canvas.addEventListener("dblclick", (event) => zoom(1.6, event.offsetX, event.offsetY));
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const size = event.deltaMode === 1 ? 18 : event.deltaMode === 2 ? 240 : 1;
  zoom(Math.exp(-Math.max(-240, Math.min(240, event.deltaY * size)) * (event.ctrlKey ? 0.008 : 0.0016)), event.offsetX, event.offsetY);
}, { passive: false });
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const far = event.shiftKey ? 160 : 48;
  const deeds = { ArrowLeft: () => move(far, 0), ArrowRight: () => move(-far, 0), ArrowUp: () => move(0, far), ArrowDown: () => move(0, -far),
    "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), 0: () => fit(), Enter: () => choose(nodeNear(view.width / 2, view.height / 2, Infinity)) };
  if (deeds[event.key]) { event.preventDefault(); deeds[event.key](); }
});

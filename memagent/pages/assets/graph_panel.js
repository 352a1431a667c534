
/* The right-hand panel: the list of nodes, or one node with its edges and the turns it rests on. Stored text goes in as text only. */
const panel = document.getElementById("panel");
const LISTED = 150;

/* An element: its class, its text or children, its properties. */
function make(tag, kind = "", inside = null, more = {}) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  if (Array.isArray(inside)) element.append(...inside.filter(Boolean));
  else if (inside !== null) element.textContent = inside;
  return Object.assign(element, more);
}

function told(tag, kind, text) { return make(tag, kind, text, { dir: "auto" }); }

function icon(path) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), line = document.createElementNS(svg.namespaceURI, "path");
  svg.setAttribute("viewBox", "0 0 20 20"); svg.setAttribute("aria-hidden", "true"); line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

function closer(label, then) {
  const button = make("button", "icon", [icon("M5 5l10 10M15 5L5 15")], { type: "button", title: label });
  button.setAttribute("aria-label", label);
  button.addEventListener("click", then);
  return button;
}

function link(node, note) {
  const button = make("button", `link ${node.kind}${node.gone ? " gone" : ""}`, [marked(shortened(node.title, 160)), make("small", "", note)], { type: "button" });
  button.addEventListener("click", () => choose(node, true));
  return button;
}

/* The text with the searched words marked. */
function marked(text) {
  const span = make("span", "", null, { dir: "auto" }), words = filter.query.trim().split(/\s+/).filter(Boolean);
  const pattern = words.length ? new RegExp("(" + words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|") + ")", "giu") : null;
  for (const [at, piece] of (pattern ? text.split(pattern) : [text]).entries()) span.append(at % 2 ? make("mark", "", piece) : piece);
  return span;
}

function counted(many, one, more) { return `${many.toLocaleString("en-GB")} ${many === 1 ? one : more}`; }

function showPanel(focus) {
  const node = view.chosen;
  panel.replaceChildren(...(node ? nodeView(node) : listView()));
  panel.scrollTop = 0;
  panel.dataset.node = node ? node.id : "";
  if (focus) panel.focus({ preventScroll: true });
}

/* -- the list -- */
function listView() {
  const list = (shown.found ? shown.nodes.filter((node) => shown.found.has(node)) : shown.nodes).slice();
  if (shown.found || filter.kinds.size < 4) list.sort((a, b) => b.degree - a.degree || a.number - b.number);
  const head = make("div", "head", [make("h2", "", filter.query ? counted(list.length, "match", "matches") : counted(list.length, "node", "nodes")), closeSheet()]);
  const rows = make("ul"), body = make("div", "body", [filter.query || list.length ? null : make("p", "hint", "Nothing passes the filters."), elsewhere(), rows]);
  const add = (from) => {
    for (const node of list.slice(from, from + LISTED)) rows.append(make("li", "", [link(node, node.when ? said(node.when[0], { day: "numeric", month: "short", year: "numeric" }) : counted(node.degree, "edge", "edges"))]));
    const left = list.length - from - LISTED;
    if (left > 0) {
      const more = make("button", "plain more", `Show ${Math.min(left, LISTED)} more`, { type: "button" });
      more.addEventListener("click", () => { more.remove(); add(from + LISTED); });
      body.append(more);
    }
  };
  add(0);
  return [head, body];
}

/* Where the drawing is a part of the graph: the way to search the rest. */
function elsewhere() {
  return filter.query && home.dataset.list ? make("p", "hint", [make("a", "", "Search every node", { href: home.dataset.list + encodeURIComponent(filter.query) })]) : null;
}

function closeSheet() {
  const button = closer("Close", () => sheet(null));
  button.classList.add("narrow");
  return button;
}

/* -- one node -- */
function nodeView(node) {
  const states = { closed: "deleted or replaced", outdated: "out of date" };
  const chips = [make("span", "chip " + node.kind, KIND[node.kind]), node.gone ? make("span", "chip gone", states[node.state]) : null];
  const back = closer("Back to the list", () => choose(null));
  const head = make("div", "head", [...chips, make("h2"), back]);
  const body = make("div", "body", [titleOf(node), told("p", "text" + (node.gone ? " gone" : ""), node.text || "(no text)"), around(node), facts(node), aliases(node), quotes(node), relations(node)]);
  return [head, body];
}

/* The title line, where it says less than the whole text. */
function titleOf(node) { return node.title !== node.text && node.text ? told("p", "title", node.title) : null; }

/* Where the drawing is a part of the graph: the way to what is tied to the node. */
function around(node) {
  return home.dataset.around ? make("p", "", [make("a", "around", "Draw what is tied to it", { href: home.dataset.around + encodeURIComponent(node.id) })]) : null;
}

function facts(node) {
  const rows = make("dl"), add = (name, value, kind = "") => value && rows.append(make("dt", "", name), told("dd", kind, value));
  add("Happened", node.span ? happened(node.span) : "");
  add("In words", node.phrase ? `“${node.phrase}”` : "");
  add("Told", node.said ? moment(node.said) : "");
  add("People", node.people.join(", "));
  add("Session", node.session);
  add("Id", node.id, "code");
  return rows;
}

function part(title, count, inside) {
  return make("section", "part", [make("h3", "", [title, count ? make("span", "", String(count)) : null]), ...inside]);
}

function aliases(node) {
  return node.aliases.length ? part("Also told as", 0, node.aliases.map((text) => told("p", "hint", text))) : null;
}

function quote(turn) {
  const who = make("div", "who", [told("b", "", turn.speaker), make("span", "", turn.said ? moment(turn.said) : ""), make("span", "", turn.id)]);
  return make("blockquote", "", [who, told("p", "", turn.text)]);
}

function quotes(node) {
  return node.turns.length ? part("Said in", node.turns.length, node.turns.map((at) => quote(turns[at]))) : null;
}

function relations(node) {
  const groups = new Map();
  for (const edge of node.links) {
    if (!filter.hidden && edge.gone) continue;
    const leaving = edge.source === node, name = RELATIONS[edge.relation][leaving ? 0 : 1] + (edge.label ? `: ${edge.label}` : "");
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push([edge, leaving ? edge.target : edge.source]);
  }
  const total = [...groups.values()].reduce((sum, group) => sum + group.length, 0);
  return total ? part("Relations", total, [...groups].flatMap(([name, group]) => relationGroup(name, group))) : null;
}

function relationGroup(name, group) {
  const title = told("p", "group", name);
  title.style.setProperty("--stroke", `var(--stroke-${RELATIONS[group[0][0].relation][2]})`);
  const rows = make("ul"), few = 12;
  const add = (some) => some.forEach(([edge, other]) => rows.append(make("li", "", [link(other, edgeNote(edge)), evidence(edge)])));
  add(group.slice(0, few));
  if (group.length <= few) return [title, rows];
  const more = make("button", "plain more", `Show all ${group.length}`, { type: "button" });
  more.addEventListener("click", () => { more.remove(); add(group.slice(few)); });
  return [title, rows, more];
}

function edgeNote(edge) {
  return [edge.count > 1 ? `told ${edge.count} times` : "", edge.confidence < 1 ? `${Math.round(edge.confidence * 100)} % sure` : ""].filter(Boolean).join(", ");
}

/* The turns an edge rests on, where they say more than those of the node itself. */
function evidence(edge) {
  if (!edge.turns.length) return null;
  const fold = make("details", "", [make("summary", "", `evidence: ${counted(edge.turns.length, "turn", "turns")}`)]);
  fold.addEventListener("toggle", () => { if (fold.open && fold.childElementCount === 1) fold.append(...edge.turns.map((at) => quote(turns[at]))); });
  return fold;
}

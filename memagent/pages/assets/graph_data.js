
/* What the page shows: the data, the filters, and which nodes and edges pass them. */
const DATA = JSON.parse(document.getElementById("data").textContent);
const KINDS = { topic: "Topics", event: "Events", item: "Memories", entity: "People and things" };
const KIND = { topic: "Topic", event: "Event", item: "Memory", entity: "Person or thing" };
/* relation: [said from its source, said from its target, colour group] */
const RELATIONS = {
  causes: ["causes", "caused by", "cause"], motivates: ["motivates", "motivated by", "cause"], enables: ["enables", "enabled by", "cause"],
  follows: ["follows", "followed by", "time"], before: ["before", "after", "time"], after: ["after", "before", "time"],
  contrasts: ["contrasts with", "contrasts with", "tie"], part_of: ["part of", "has part", "plain"], parallel: ["parallel to", "parallel to", "tie"],
  elaborates: ["elaborates", "elaborated by", "tie"], same_as: ["same as", "same as", "tie"], supersedes: ["replaces", "replaced by", "change"],
  contains: ["contains", "belongs to", "topic"], mentions: ["mentions", "mentioned by", "plain"], related: ["related to", "related to", "tie"],
};
const FEW = 700;
const DAY = 86400000;
const nodes = DATA.nodes.map((node, at) => ({ ...node, number: at, gone: node.state !== "open", links: [], degree: 0, span: node.span || null, when: spanOf(node) }));
const edges = DATA.edges.map(([source, target, relation, label, state, confidence, count, turns]) => (
  { source: nodes[source], target: nodes[target], relation, label, gone: state !== "open", confidence, count, turns }));
const turns = DATA.turns.map(([id, speaker, said, text, session]) => ({ id, speaker, said, text, session }));
for (const edge of edges) {
  for (const node of new Set([edge.source, edge.target])) { node.links.push(edge); node.degree += 1; }
}
for (const node of nodes) {
  node.size = Math.min(node.kind === "topic" ? 17 : 14, (node.kind === "topic" ? 8 : 5) + 1.5 * Math.sqrt(node.degree));
  node.title = node.title || node.text || node.id;
  node.short = shortened(node.title, 34);
  node.words = folded([node.text, ...node.people, ...node.aliases, node.phrase || "", dateWords(node)].join("\n"));
}
const dated = nodes.filter((node) => node.when);
const FIRST = dated.length ? Math.floor(Math.min(...extremes(dated, 0)) / DAY) * DAY : 0;
const LAST = dated.length ? Math.max(Math.ceil(Math.max(...extremes(dated, 1)) / DAY) * DAY, FIRST + DAY) : DAY;

const filter = { kinds: new Set(Object.keys(KINDS)), relations: new Set(Object.keys(RELATIONS)), from: FIRST, to: LAST, hidden: true, query: "", all: nodes.length <= FEW };
const shown = { nodes: [], edges: [], passing: 0, found: null };

function extremes(list, end) {
  let low = Infinity, high = -Infinity;
  for (const node of list) { low = Math.min(low, node.when[end]); high = Math.max(high, node.when[end]); }
  return [low, high];
}

/* [first, last] moment of a node in milliseconds, or null. */
function spanOf(node) {
  const [start, end] = node.span || [null, null];
  const from = Date.parse(start || end || node.said || "");
  if (Number.isNaN(from)) return null;
  const to = end ? Date.parse(end) - 1 : from;
  return [from, Math.max(from, to)];
}

function folded(text) { return text.normalize("NFKD").replace(/\p{M}+/gu, "").toLowerCase(); }

function shortened(text, most) {
  const line = text.replace(/\s+/g, " ").trim();
  const signs = Array.from(line);
  return signs.length > most ? signs.slice(0, most - 1).join("").trimEnd() + "…" : line;
}

/* -- dates, always in UTC as they are stored -- */
function said(moment, parts) { return new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...parts }).format(moment); }
function day(moment) { return said(moment, { day: "numeric", month: "long", year: "numeric" }); }
function moment(iso) { const at = new Date(iso); return day(at) + (iso.includes("T00:00:00Z") ? "" : ", " + said(at, { hour: "2-digit", minute: "2-digit" })); }
function happened(span) {
  const [start, end, grain] = span;
  if (!start && !end) return "unknown";
  if (!start) return "until " + day(Date.parse(end) - 1);
  if (!end) return "since " + day(Date.parse(start));
  const from = Date.parse(start), to = Date.parse(end) - 1;
  if (grain === "minute" || grain === "hour") return moment(start);
  if (grain === "month") return said(from, { month: "long", year: "numeric" });
  if (grain === "year") return said(from, { year: "numeric" });
  return day(from) === day(to) ? day(from) : `${day(from)} to ${day(to)}`;
}
function dateWords(node) { return (node.span ? happened(node.span) + "\n" : "") + (node.said ? moment(node.said) : ""); }

/* -- what passes the filters -- */
function whole() { return filter.from <= FIRST && filter.to >= LAST; }
function inTime(node) { return whole() || (node.when && node.when[0] < filter.to && node.when[1] >= filter.from); }

function compute() {
  const passes = (node) => filter.kinds.has(node.kind) && (filter.hidden || !node.gone);
  const edgePasses = (edge) => filter.relations.has(edge.relation) && (filter.hidden || !edge.gone);
  const timed = new Set(nodes.filter((node) => passes(node) && (node.when || whole()) && inTime(node)));
  if (!whole()) {  // what has no time of its own is shown with what it is tied to
    for (const node of nodes) {
      if (!node.when && passes(node) && node.links.some((edge) => edgePasses(edge) && timed.has(edge.source === node ? edge.target : edge.source))) timed.add(node);
    }
  }
  let list = nodes.filter((node) => timed.has(node));
  shown.passing = list.length;
  shown.found = filter.query ? new Set(list.filter((node) => matches(node))) : null;
  if (!filter.all && list.length > FEW) {
    const rank = (node) => (shown.found && shown.found.has(node) ? 1e6 : 0) + (node === view.chosen ? 1e7 : 0) + node.degree;
    list = list.slice().sort((a, b) => rank(b) - rank(a) || a.number - b.number).slice(0, FEW).sort((a, b) => a.number - b.number);
  }
  const inside = new Set(list);
  shown.nodes = list;
  shown.edges = edges.filter((edge) => edgePasses(edge) && inside.has(edge.source) && inside.has(edge.target));
}

function matches(node) { return folded(filter.query).split(/\s+/).every((word) => node.words.includes(word)); }

// Tries calls from the page: builds each request from its form, shows it as a line for a shell, and shows the reply as text.
const MOST = 100_000;
const key = document.getElementById("key");
const common = [...document.querySelectorAll("#caller [data-common]")];
const quoted = text => "'" + text.replaceAll("'", "'\\''") + "'";

function requestOf(form) {
  const query = new URLSearchParams(), headers = {}, named = form.dataset.common.split(" ");
  let path = form.dataset.path, body;
  for (const field of common) if (field.value && named.includes(field.dataset.common)) query.set(field.dataset.common, field.value);
  for (const field of form.querySelectorAll("[data-in]")) {
    const { in: place, name } = field.dataset;
    if (place === "body") { body = field.value; headers["Content-Type"] = form.dataset.type; }
    else if (!field.value) continue;
    else if (place === "path") path = path.replace(`{${name}}`, encodeURIComponent(field.value));
    else if (place === "query") query.set(name, field.value);
    else headers[name] = field.value;
  }
  return { address: path + (query.size ? "?" + query : ""), method: form.dataset.method, headers, body };
}

function show(form) {
  const { address, method, headers, body } = requestOf(form), parts = ["curl"];
  if (method !== "GET") parts.push("-X", method);
  parts.push(quoted(location.origin + address));
  if (key.value) parts.push('-H "Authorization: Bearer $MEMAGENT_API_KEY"');
  for (const [name, value] of Object.entries(headers)) parts.push("-H", quoted(`${name}: ${value}`));
  if (body !== undefined) parts.push("-d", quoted(body));
  form.previousElementSibling.textContent = parts.join(" ");
}

function pretty(text, kind) {
  if (!/json$/.test(kind)) return text;
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

async function send(form) {
  const { address, method, headers, body } = requestOf(form), reply = form.querySelector(".reply"), begun = performance.now();
  if (key.value) headers.Authorization = "Bearer " + key.value;
  reply.textContent = "Sending …";
  const status = document.createElement("p"), content = document.createElement("pre");
  try {
    const answer = await fetch(address, { method, headers, body, credentials: "omit" });
    const text = await answer.text(), shown = pretty(text, (answer.headers.get("content-type") ?? "").split(";")[0]);
    status.textContent = `${answer.status} ${answer.statusText}, ${Math.round(performance.now() - begun)} ms`;
    status.className = answer.ok ? "good" : "bad";
    content.textContent = shown.length > MOST ? shown.slice(0, MOST) + "\n… and more" : shown || "(no body)";
  } catch (fault) {
    status.textContent = "The service could not be reached.";
    status.className = "bad";
    content.textContent = String(fault);
  }
  content.tabIndex = 0;
  reply.replaceChildren(status, content);
}

for (const form of document.querySelectorAll("form.try")) {
  form.hidden = false;
  form.addEventListener("input", () => show(form));
  form.addEventListener("submit", event => { event.preventDefault(); send(form); });
  form.closest("details").addEventListener("toggle", () => show(form));
}
document.getElementById("caller").hidden = false;
for (const field of [key, ...common]) field.addEventListener("input", () => document.querySelectorAll("details[open] > form.try").forEach(show));

// A link to a schema opens it.
const open = () => { const at = document.getElementById(decodeURIComponent(location.hash.slice(1))); if (at?.tagName === "DETAILS") { at.open = true; at.scrollIntoView(); } };
addEventListener("hashchange", open);
open();

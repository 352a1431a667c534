// Comfort on pages that work without it: the theme button, keys, and forms that are sent once.
const root = document.documentElement;
const theme = document.getElementById("theme");
if (theme) {
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const now = root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    try { localStorage.setItem("memagent-theme", root.dataset.theme); } catch { /* not remembered, then */ }
  });
}

// A key leads to the element that names it:  data-key="/"  on a search field, data-key="e" on the text to edit.
document.addEventListener("keydown", event => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (typing && (event.ctrlKey || event.metaKey) && event.key === "Enter" && typing.form) {
    event.preventDefault();
    typing.form.requestSubmit();
    return;
  }
  if (typing) {
    if (event.key === "Escape") typing.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const found = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (!found) return;
  event.preventDefault();
  if (found.matches("input, textarea")) { found.focus(); found.select?.(); } else found.click();
});

document.addEventListener("submit", event => {
  if (event.target.method !== "post") return;
  if (event.target.dataset.sent) { event.preventDefault(); return; }
  event.target.dataset.sent = "1";
});
addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach(form => delete form.dataset.sent));

// Menus and choices that close when something else is looked at.
document.addEventListener("click", event => {
  for (const open of document.querySelectorAll("details.menu[open]")) if (!open.contains(event.target)) open.open = false;
});
for (const field of document.querySelectorAll("[data-sends]")) field.addEventListener("change", () => field.form.requestSubmit());

// What is still at work is fetched again, ever less often, and shown when nobody is busy with the page. A note stays.
let pause = 1_500;
const look = async () => {
  const main = document.getElementById("content");
  if (!document.querySelector("[data-refresh]")) return;
  if (!document.hidden) {
    const answer = await fetch(location.href).catch(() => null);
    const fresh = answer?.ok ? new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("content") : null;
    const typed = [...main.querySelectorAll("textarea, input")].some(field => field.value !== field.defaultValue);
    const busy = typed || (main.contains(document.activeElement) && main !== document.activeElement);
    if (fresh && !busy) {
      const note = main.querySelector(":scope > .note");
      if (note) fresh.querySelector(".page-head").after(note);
      main.replaceChildren(...fresh.childNodes);
    }
  }
  pause = Math.min(pause * 1.4, 15_000);
  setTimeout(look, pause);
};
setTimeout(look, pause);

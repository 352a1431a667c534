
/* What only the page that stands alone has: whose graph it is, and its own dark and light. */
const wantsDark = window.matchMedia("(prefers-color-scheme: dark)");
function setTheme(dark) { document.documentElement.classList.toggle("dark", dark); recolour(); }
by("theme").addEventListener("click", () => setTheme(!document.documentElement.classList.contains("dark")));
wantsDark.addEventListener("change", (event) => setTheme(event.matches));
by("scope").textContent = [DATA.scope, ...DATA.asOf].join(" · ");
setTheme(wantsDark.matches);

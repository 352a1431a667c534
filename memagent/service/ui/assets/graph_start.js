// Fetches what the canvas draws, then loads what draws it. The page's list and time line need neither.
const app = document.getElementById("graph-app"), wait = document.getElementById("graph-wait");

function loaded(address) {
  return new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = address;
    script.addEventListener("load", done);
    script.addEventListener("error", () => failed(new Error(address)));
    document.head.append(script);
  });
}

async function begin() {
  wait.hidden = false;
  const answer = await fetch(app.dataset.from, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(String(answer.status));
  document.getElementById("data").textContent = await answer.text();
  app.hidden = false;
  for (let at = 1; app.dataset[`script-${at}`]; at += 1) await loaded(app.dataset[`script-${at}`]);
  wait.hidden = true;
  app.dataset.ready = "1";
  new MutationObserver(() => window.recolour()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.recolour());
}

if (app) {
  begin().catch(() => {
    app.hidden = true;
    wait.hidden = false;
    wait.className = "note bad";
    wait.textContent = "The graph could not be fetched. Load the page again, or look at the list.";
  });
}

// Runs before the page is drawn, so that a remembered theme does not flash the other one.
"use strict";
(() => {
  try {
    const kept = localStorage.getItem("memagent-theme");
    if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  } catch { /* storage is off: the system's theme it is */ }
})();

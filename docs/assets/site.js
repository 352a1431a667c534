// The button that copies a page's Markdown source, which the site keeps in the page itself: it also works from disk.
for (const button of document.querySelectorAll(".copy-page")) {
  button.addEventListener("click", async () => {
    const source = JSON.parse(document.getElementById("page-source").textContent);
    try {
      await navigator.clipboard.writeText(source);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed by the browser";
    }
  });
}

"use strict";
// Without this script a page shows the same: charts are drawn already, data are links. With it, charts answer to the pointer.
(() => {
  const packed = document.getElementById("vega");
  let loading = null;

  // The library is unpacked once; the content policy names its hash, so nothing else can come in this way.
  async function library() {
    const bytes = Uint8Array.from(atob(packed.textContent.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    script.remove();
  }

  async function enliven(drawn) {
    const spec = JSON.parse(drawn.parentElement.querySelector("script.spec").textContent);
    await (loading ??= library());
    const live = document.createElement("div");
    const options = { mode: "vega-lite", actions: false, renderer: "svg", ast: true, tooltip: { theme: "page" } };
    await window.vegaEmbed(live, spec, options);
    drawn.replaceChildren(live);
    drawn.dataset.live = "yes";
  }

  if (packed && "DecompressionStream" in window && "IntersectionObserver" in window) {
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        enliven(entry.target).catch((error) => { entry.target.dataset.live = `no: ${error}`; });
      }
    }, { rootMargin: "200px" });
    for (const drawn of document.querySelectorAll(".chart .drawn")) seen.observe(drawn);
  }

  // A row of a long list is looked for by its words.
  for (const field of document.querySelectorAll("input[data-filter]")) {
    const rows = [...document.getElementById(field.dataset.filter).querySelectorAll("[data-row]")];
    field.parentElement.hidden = false;
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    });
  }

  // On paper everything is open.
  window.addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
})();

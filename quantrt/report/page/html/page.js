// SPDX-License-Identifier: Apache-2.0
// Puts the page together.

const report = JSON.parse(document.getElementById("data").textContent);

function themeButton() {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = el("button", { type: "button", onclick: () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); } });
  function name() { button.textContent = isDark() ? "Light" : "Dark"; }
  name();
  return button;
}

const parts = [
  ["summary", "Summary", summarySection], ["compare", "Side by side", sideBySideSection], ["latency", "Latency", latencySection],
  ["time", "Time", sharesSection], ["layers", "Layers", layersSection], ["graph", "Graph", graphSection],
  ["ranges", "Ranges", rangesSection], ["roofline", "Roofline", rooflineSection],
].map(([id, title, make]) => ({ id, title, element: make(report) })).filter((part) => part.element);

const engines = report.engines;
const model = engines[0].build.model && engines[0].build.model.path;
document.getElementById("page").replaceChildren(
  el("header", { class: "top" },
    el("div", null, el("h1", null, engines.map((engine) => engine.name).join(" and ")),
      el("div", { class: "by" }, [model ? "from " + model : null, engines[0].built_on, "QuantRT " + report.quantrt].filter(Boolean).join(" · "))),
    themeButton()),
  el("nav", { "aria-label": "Sections" }, parts.map((part) => el("a", { href: "#" + part.id }, part.title))),
  ...parts.map((part) => part.element));

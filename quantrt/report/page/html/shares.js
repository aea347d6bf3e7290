// SPDX-License-Identifier: Apache-2.0
// Where the time goes: by precision, by kind of layer, by layer.

function grouped(layers, key) {
  const groups = new Map();
  for (const layer of layers) {
    const name = layer[key] || "none";
    const group = groups.get(name) || { name, count: 0, time: 0 };
    group.count += 1;
    group.time += layer.time_us || 0;
    groups.set(name, group);
  }
  return [...groups.values()].sort((a, b) => b.time - a.time || b.count - a.count);
}

function stackOf(groups, key) {
  return el("div", { class: "stack" }, groups.filter((group) => group[key]).map((group) => {
    const part = el("i", { class: tone(group.name), title: group.name });
    part.style.flexGrow = group[key];
    return part;
  }));
}

function barRows(groups, total, styleOf) {
  const most = Math.max(...groups.filter((group) => !group.isRest).map((group) => group.time), 1e-9);
  return el("table", null, el("thead", null, el("tr", null,
    ["", "", el("span", null, "time", el("span", { class: "unit" }, " µs")), el("span", null, "share", el("span", { class: "unit" }, " %"))]
      .map((title, index) => el("th", { class: index > 1 ? "number" : null }, title)))),
    el("tbody", null, groups.map((group) => {
      const bar = el("i", { class: styleOf(group) });
      bar.style.width = group.time / most * 100 + "%";
      return el("tr", null, el("td", { class: "name" }, breakable(group.title || group.name)), el("td", null, group.isRest ? "" : el("div", { class: "bar" }, bar)),
        el("td", { class: "number" }, us(group.time)), el("td", { class: "number" }, percent(group.time / total)));
    })));
}

function sharesOf(engine, isOne) {
  const total = sum(engine.layers.map((layer) => layer.time_us));
  const precisions = grouped(engine.layers, "computes_in");
  const legend = precisions.map((group) => el("span", null, el("span", { class: "dot " + tone(group.name) }),
    group.name === "none" ? "without a precision" : group.name, ": " + counted(group.count, "layer"),
    total ? ", " + us(group.time) + " µs, " + percent(group.time / total) + " %" : ""));
  const title = isOne ? null : el("h3", null, engine.name);
  if (!total) {
    return el("div", null, title, stackOf(precisions, "count"), el("div", { class: "legend" }, legend),
      el("p", { class: "lead" }, "Layers by precision; their times are not known: " + (engine.measured.why_not || "none was measured") + "."));
  }
  const longest = [...engine.layers].filter((layer) => layer.time_us).sort((a, b) => b.time_us - a.time_us);
  const top = longest.slice(0, 12).map((layer) => ({ name: layer.computes_in, title: layer.name, time: layer.time_us }));
  const rest = longest.slice(12);
  if (rest.length) top.push({ name: "none", title: "the other " + rest.length, isRest: true, time: sum(rest.map((layer) => layer.time_us)) });
  const kinds = grouped(engine.layers, "kind").filter((group) => group.time).slice(0, 12)
    .map((group) => ({ ...group, title: group.name + " (" + group.count + ")" }));
  const causes = grouped(engine.layers, "cause").filter((group) => group.time).slice(0, 8);
  return el("div", null, title, stackOf(precisions, "time"), el("div", { class: "legend" }, legend),
    el("div", { class: "split" },
      el("div", null, el("h3", null, "Longest layers"), barRows(top, total, (group) => tone(group.name))),
      el("div", null, el("h3", null, "By kind"), barRows(kinds, total, () => "none"),
        el("h3", null, "By what it is spent on"), barRows(causes, total, () => "none"))));
}

function sharesSection(report) {
  const isOne = report.engines.length === 1;
  return section("time", "Where the time goes", "Medians per layer, as its library or its kernel was watched; the sum of layers is not the latency of a run.",
    report.engines.map((engine) => sharesOf(engine, isOne)));
}

// SPDX-License-Identifier: Apache-2.0
// Two engines, their layers beside each other where they stand for the same nodes of the file.

const SHOWN = 4; // layers of a group that are listed before it is opened

function alignedPlaces(report, side, place) {
  const row = report.aligned.find((candidate) => candidate[1 + side].includes(place));
  return row ? row[2 - side] : [];
}

function sideBySideSection(report) {
  if (report.engines.length < 2) return null;
  const [left, right] = report.engines;
  const rows = report.aligned.map(([sources, ours, theirs]) => ({
    sources, left: ours.map((place) => left.layers[place]), right: theirs.map((place) => right.layers[place]),
  }));
  for (const row of rows) {
    row.before = timeOf(row.left);
    row.after = timeOf(row.right);
    row.gain = row.before === null || row.after === null ? null : row.before - row.after;
  }
  const names = (layers) => (layers.length
    ? [layers.slice(0, SHOWN).map((layer) => el("div", null, chip(layer.precision), " " + layer.kind)),
      layers.length > SHOWN ? el("div", { class: "faint" }, "and " + (layers.length - SHOWN) + " more") : null]
    : el("span", { class: "faint" }, "nothing"));
  const column = (key, title, value) => ({ key, title, unit: "µs", number: true, value, cell: (row) => us(value(row)) });
  const columns = [
    { key: "sources", title: "Nodes of the file", value: (row) => row.sources.join(" "), style: "name",
      cell: (row) => breakable(row.sources.length > 2 ? row.sources[0] + " and " + (row.sources.length - 1) + " more" : row.sources.join(", ") || [...row.left, ...row.right].map((layer) => layer.name).join(", ")) },
    { key: "left", title: left.name, style: "word", value: (row) => row.left.length, cell: (row) => names(row.left) },
    column("before", "time", (row) => row.before),
    { key: "right", title: right.name, style: "word", value: (row) => row.right.length, cell: (row) => names(row.right) },
    column("after", "time", (row) => row.after),
    { key: "gain", title: "less by", unit: "µs", number: true, value: (row) => (known(row.gain) ? Math.abs(row.gain) : null), cell: (row) => (known(row.gain) ? row.gain.toFixed(1).replace("-", "−") : "-") },
    { key: "speed", title: "speed", unit: "×", number: true, value: (row) => (row.after ? row.before / row.after : null), cell: (row) => (row.before && row.after ? (row.before / row.after).toFixed(2) : "-") },
  ];
  const table = sortable({ columns, rows, sorted: "gain", name: "Aligned layers", detail: (row) => el("div", { class: "split" },
    [row.left, row.right].map((layers) => el("div", null, layers.map((layer) => [el("h3", null, "\u00a0 " + layer.name), layerDetail(layer)])))) });
  const words = el("input", { type: "search", placeholder: "Filter by node or layer", "aria-label": "Filter aligned layers", oninput: () => {
    const wanted = words.value.toLowerCase();
    table.show(rows.filter((row) => [...row.sources, ...row.left.map(textOf), ...row.right.map(textOf)].join("\n").toLowerCase().includes(wanted)));
  } });
  const total = (engine) => sum(engine.layers.map((layer) => layer.time_us));
  const lead = "Layers that stand for the same nodes of the model file, those whose time differs most first. All layers: "
    + us(total(left)) + " µs in " + left.name + ", " + us(total(right)) + " µs in " + right.name + ".";
  return section("compare", "Side by side", lead, el("div", { class: "controls" }, words), table.root);
}

function timeOf(layers) {
  return layers.length && layers.every((layer) => known(layer.time_us)) ? sum(layers.map((layer) => layer.time_us)) : null;
}

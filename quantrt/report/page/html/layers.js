// SPDX-License-Identifier: Apache-2.0
// The table of layers: sorted, filtered, and opened for everything known of one.

function layerDetail(layer) {
  const rivals = layer.rivals.map(([name, time, reason]) => el("div", null, name, known(time) ? ", " + us(time) + " µs" : "", reason ? ": " + reason : ""));
  const weights = Object.entries(layer.weights).map(([dtype, size]) => bytes(size).join(" ") + " of " + dtype).join(", ");
  const attributes = Object.entries(layer.attributes).map(([name, value]) => name + " " + value).join(", ");
  const lines = (texts) => (texts.length ? texts.map((text) => el("div", { class: "mono" }, text)) : null);
  const differs = known(layer.built_us) && layer.built_us !== layer.time_us;
  return definitions([
    ["Why this precision", layer.reason],
    ["Computes in", layer.computes_in !== layer.precision ? layer.computes_in : ""],
    ["Time spent on", layer.cause],
    ["Speed", known(layer.gops) ? digits(layer.gops) + " Gop/s, " + digits(layer.intensity) + " operations per byte" : ""],
    ["Tactic", layer.tactic],
    ["Other tactics", rivals.length ? rivals : null],
    ["Time at the build", differs ? us(layer.built_us) + " µs, alone" : ""],
    ["Inputs", lines(layer.inputs)],
    ["Outputs", lines(layer.outputs)],
    ["Weights", weights],
    ["Attributes", attributes],
    ["Nodes of the file", lines(layer.sources)],
  ]);
}

function layerColumns() {
  const mega = (value) => (known(value) ? digits(value / 1e6) : "-");
  const share = (layer) => {
    if (!known(layer.share_ratio)) return "";
    const bar = el("i", { class: tone(layer.computes_in) });
    bar.style.width = (layer.share_ratio || 0) / layer.most * 100 + "%";
    return el("div", { class: "bar", title: percent(layer.share_ratio) + " %" }, bar);
  };
  return [
    { key: "place", title: "#", number: true, value: (layer) => layer.place, cell: (layer) => String(layer.place + 1) },
    { key: "name", title: "Layer", value: (layer) => layer.name, cell: (layer) => breakable(layer.name), style: "name" },
    { key: "kind", title: "Kind", value: (layer) => layer.kind, cell: (layer) => layer.kind, style: "word" },
    { key: "precision", title: "Precision", value: (layer) => layer.precision, cell: (layer) => chip(layer.precision) },
    { key: "time", title: "time", unit: "µs", number: true, value: (layer) => layer.time_us, cell: (layer) => us(layer.time_us) },
    { key: "share", title: "share", unit: "%", number: true, value: (layer) => layer.share_ratio, cell: (layer) => percent(layer.share_ratio) },
    { key: "bar", title: "", value: (layer) => layer.share_ratio, cell: share, number: false },
    { key: "moved", title: "moved", unit: "MB", number: true, value: (layer) => layer.bytes_moved, cell: (layer) => mega(layer.bytes_moved) },
    { key: "operations", title: "operations", unit: "M", number: true, value: (layer) => layer.operations, cell: (layer) => mega(layer.operations) },
    { key: "roof", title: "of roof", unit: "%", number: true, value: (layer) => layer.roof_ratio, cell: (layer) => percent(layer.roof_ratio, 0) },
    { key: "bound", title: "Bound by", value: (layer) => layer.bound_by, cell: (layer) => layer.bound_by || "-", style: "word" },
  ];
}

function layersSection(report) {
  const tables = report.engines.map((engine) => layerTable(engine));
  let current = tables[0];
  const holder = el("div", null, current);
  const pick = choices(report.engines.map((engine, index) => [index, engine.name]), 0, (index) => {
    current = tables[index];
    holder.replaceChildren(current);
  });
  const lead = "What the library runs, in order. A row opens for tactics, tensors, and the nodes of the file it was made of.";
  return section("layers", "Layers", lead, report.engines.length > 1 ? el("div", { class: "controls" }, pick) : null, holder);
}

function layerTable(engine) {
  const most = Math.max(...engine.layers.map((layer) => layer.share_ratio || 0), 1e-9);
  const rows = engine.layers.map((layer, place) => ({ ...layer, place, most }));
  const table = sortable({ columns: layerColumns(), rows, sorted: "place", descending: false, detail: layerDetail, name: "Layers of " + engine.name });
  const count = el("span", { class: "muted", role: "status" });
  const words = el("input", { type: "search", placeholder: "Filter by name, node or tactic", "aria-label": "Filter layers", oninput: draw });
  const precision = select("Every precision", rows.map((layer) => layer.precision), draw);
  const kind = select("Every kind", rows.map((layer) => layer.kind), draw);

  function draw() {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const list = rows.filter((layer) => (!precision.value || layer.precision === precision.value)
      && (!kind.value || layer.kind === kind.value)
      && wanted.every((word) => textOf(layer).includes(word)));
    const time = sum(list.map((layer) => layer.time_us));
    count.textContent = list.length + " of " + counted(rows.length, "layer") + (time ? ", " + us(time) + " µs" : "");
    table.show(list);
  }

  draw();
  return el("div", { class: "layer-table" }, el("div", { class: "controls" }, words, precision, kind, el("span", { class: "spring" }), count), table.root);
}

function textOf(layer) {
  layer.text = layer.text || [layer.name, layer.kind, layer.precision, layer.tactic || "", layer.reason, ...layer.sources].join("\n").toLowerCase();
  return layer.text;
}

function select(every, values, draw) {
  const found = [...new Set(values)].filter(Boolean).sort();
  return el("select", { onchange: draw, "aria-label": every }, el("option", { value: "" }, every), found.map((value) => el("option", { value }, value)));
}

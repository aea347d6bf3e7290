// SPDX-License-Identifier: Apache-2.0
// What an engine is, whether it kept its promises, and what was measured where.

function candidateOf(engine, role) {
  const verdict = engine.build.verdict;
  return verdict ? engine.build.candidates.find((row) => row.name === verdict[role]) || null : null;
}

function figure(title, value, unit, ...notes) {
  const shown = notes.filter(Boolean).map((note) => el("div", { class: "note" }, note));
  const number = el("div", { class: "value" }, value, unit ? el("span", { class: "unit" }, " " + unit) : null);
  return el("div", { class: "figure" }, el("div", { class: "label" }, title), number, shown);
}

function latencyFigure(engine) {
  const shipped = candidateOf(engine, "shipped");
  if (!shipped || !shipped.latency) return figure("Latency", "-", "", "not timed when it was built");
  const pair = shipped.against_float;
  const baseline = engine.build.verdict.baseline;
  const bounds = pair && known(pair.hi) && pair.lo > 0
    ? "99 % interval " + times(1 / pair.hi) + " to " + times(1 / pair.lo) : null;
  return figure("Latency, median", ms(shipped.latency.median_ms), "ms",
    pair ? times(1 / pair.ratio) + " as fast as " + baseline : "the FP32 baseline itself", bounds);
}

// FP32 need not run on every sample to tell that a drop is inside the budget.
function isBound(accuracy) {
  return known(accuracy.float_samples) && accuracy.float_samples < accuracy.samples;
}

function accuracyFigure(engine) {
  const shipped = candidateOf(engine, "shipped");
  const accuracy = shipped && shipped.accuracy;
  if (!accuracy) return figure("Accuracy", "-", "", shipped && shipped.precision === "fp32" ? "FP32: the reference itself" : "not checked");
  const budget = engine.build.config && engine.build.config.budget ? engine.build.config.budget.max_drop_ratio : null;
  const drop = "drop " + (isBound(accuracy) ? "at most " : "") + (known(accuracy.drop_ratio) ? accuracy.drop_ratio.toFixed(4) : "-")
    + (known(budget) ? " of " + budget.toFixed(4) + " allowed" : "");
  const noise = known(accuracy.sqnr_db) ? "output SQNR " + accuracy.sqnr_db.toFixed(1) + " dB" : null;
  if (accuracy.metric === "sqnr") return figure("Output SQNR", known(accuracy.sqnr_db) ? accuracy.sqnr_db.toFixed(1) : "same", known(accuracy.sqnr_db) ? "dB" : "", drop);
  return figure("Accuracy, " + accuracy.metric, known(accuracy.score) ? accuracy.score.toFixed(4) : "-", "", drop, noise);
}

function sizeFigure(engine) {
  const size = bytes(engine.file_bytes ?? engine.model_bytes);
  const from = engine.build.model ? engine.build.model.file_bytes : null;
  const ratio = from && engine.file_bytes ? (engine.file_bytes / from).toFixed(2) + " of the ONNX file" : null;
  return figure("File size", size[0], size[1], ratio, from ? "ONNX file " + bytes(from).join(" ") : null);
}

function layersFigure(engine) {
  const codes = engine.node_counts.fp8 ? "fp8" : "int8";
  const coded = engine.node_counts[codes] || 0;
  const counts = Object.entries(engine.node_counts);
  const stack = el("div", { class: "stack", "aria-hidden": "true" }, counts.map(([precision, count]) => {
    const part = el("i", { class: tone(precision) });
    part.style.flexGrow = count;
    return part;
  }));
  stack.style.height = "8px";
  stack.style.margin = "8px 0 6px";
  const text = counts.map(([precision, count]) => count + " " + precision).join(", ");
  const main = coded ? coded + " of " + engine.node_total : String(engine.node_total);
  return figure(coded ? "Nodes in " + codes : "Nodes", main, "", stack, text);
}

function verdictLine(engine) {
  const verdict = engine.build.verdict;
  if (!verdict) return el("p", { class: "verdict" }, "The engine holds no build report.");
  const isFloat = verdict.shipped === verdict.baseline;
  const accuracy = candidateOf(engine, "shipped").accuracy;
  const triedMore = engine.build.candidates.some((row) => row.precision !== "fp32");
  const mark = !engine.is_calibrated ? ["warn", "NOT CALIBRATED"] : isFloat ? ["kept", triedMore ? "KEPT FLOAT" : "FLOAT"] : accuracy ? ["", "IN BUDGET"] : ["warn", "NOT CHECKED"];
  const checked = accuracy ? " Accuracy was checked on " + verdict.checked_on + ", " + counted(accuracy.samples, "sample") + "." : "";
  return el("p", { class: "verdict" }, el("span", { class: ("mark " + mark[0]).trim() }, mark[1]),
    el("span", { class: "breaks" }, verdict.reason + "." + checked));
}

function candidatesTable(engine) {
  const of = (row, part, key) => (row[part] ? row[part][key] : null);
  const columns = [
    { key: "name", title: "Candidate", value: (row) => row.name, cell: (row) => row.name, style: "word" },
    ...["median", "p95", "p99"].map((key) => ({
      key, title: key, unit: "ms", number: true,
      value: (row) => of(row, "latency", key + "_ms"), cell: (row) => ms(of(row, "latency", key + "_ms")),
    })),
    { key: "speed", title: "speed", unit: "× FP32", number: true, value: (row) => (row.against_float ? 1 / row.against_float.ratio : null),
      cell: (row) => (row.against_float ? (1 / row.against_float.ratio).toFixed(2) : "-") },
    { key: "drop", title: "drop", number: true, value: (row) => of(row, "accuracy", "drop_ratio"),
      cell: (row) => (known(of(row, "accuracy", "drop_ratio")) ? (isBound(row.accuracy) ? "≤ " : "") + row.accuracy.drop_ratio.toFixed(4) : "-") },
    { key: "sqnr", title: "SQNR", unit: "dB", number: true, value: (row) => of(row, "accuracy", "sqnr_db"),
      cell: (row) => (known(of(row, "accuracy", "sqnr_db")) ? row.accuracy.sqnr_db.toFixed(1) : "-") },
    { key: "size", title: "model", unit: "MB", number: true, value: (row) => row.size_bytes ?? null, cell: (row) => (known(row.size_bytes) ? digits(row.size_bytes / 1e6) : "-") },
    { key: "result", title: "Result", value: (row) => row.status, style: "reason",
      cell: (row) => (row.status === "shipped" ? "shipped" : row.status + ": " + row.reason) },
  ];
  const rows = engine.build.candidates.map((row) => ({ ...row, style: row.status === "shipped" ? "shipped" : "" }));
  return sortable({ columns, rows, sorted: null, name: "Candidates of " + engine.name }).root;
}

function measuredWhere(engine) {
  const measured = engine.measured;
  const calibration = engine.build.calibration;
  const built = candidateOf(engine, "shipped") ? "when the engine was built, on " : "the engine was made on ";
  const timed = engine.layers.some((layer) => known(layer.built_us));
  const here = measured.runs
    ? "on this machine for this report, " + measured.here + ": medians of " + counted(measured.runs, "run") + " on " + measured.inputs + "; " + measured.method
    : (timed ? "when the engine was built, on " + engine.built_on + ", each kernel alone" : "not measured: " + measured.why_not);
  const cache = engine.build.calibration_cache;
  const ranges = cache
    ? counted(cache.used.length, "scale") + " of the calibration cache " + cache.path
    : calibration
    ? counted(calibration.samples, "calibration sample") + (calibration.is_random ? " of random values: they mean nothing" : "")
    : (engine.tensors.length ? "given, not observed" : "");
  return definitions([
    ["Latency and accuracy", built + engine.built_on],
    ["Times of layers", here],
    ["Ranges", ranges],
    ["Runs as", engine.precision + " on " + engine.library],
    ["Inputs", engine.inputs.join(", ")],
    ["Outputs", engine.outputs.join(", ")],
  ]);
}

function notesOf(engine) {
  const build = engine.build;
  const notes = [...(build.calibration ? build.calibration.notes : []), ...(build.notes || [])];
  const items = [...engine.notes.map((note) => el("li", { class: "warn" }, note)), ...notes.map((note) => el("li", null, note))];
  return items.length ? el("ul", { class: "notes" }, items) : null;
}

function summarySection(report) {
  const engines = report.engines;
  const blocks = engines.map((engine) => el("div", null,
    engines.length > 1 ? el("h3", null, engine.name) : null,
    verdictLine(engine),
    el("div", { class: "figures" }, latencyFigure(engine), accuracyFigure(engine), sizeFigure(engine), layersFigure(engine)),
    notesOf(engine)));
  const tables = engines.filter((engine) => engine.build.candidates).map((engine) => [
    el("h3", null, "What was tried" + (engines.length > 1 ? " for " + engine.name : "")), candidatesTable(engine)]);
  const where = engines.map((engine) => [
    el("h3", null, "What was measured where" + (engines.length > 1 ? ", " + engine.name : "")), measuredWhere(engine)]);
  return section("summary", "Summary", null, el("div", { class: engines.length > 1 ? "engines two" : "engines" }, blocks), tables, where);
}

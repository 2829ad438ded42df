"use strict";
const run = JSON.parse(document.getElementById("data").textContent);
let data = run;  // of the rank that is shown
const view = document.getElementById("view");
const PAGE = 200;

// Everything is put on the page as text: names of the program are data, never markup.
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) made.append(child);
  return made;
}
const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
function seconds(value) {
  if (!value) return "0 s";
  if (value >= 1) return `${value.toFixed(2)} s`;
  return value >= 1e-3 ? `${(value * 1e3).toFixed(1)} ms` : `${(value * 1e6).toFixed(1)} us`;
}
function bytes(value) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (value >= size) return `${(value / size).toFixed(1)} ${unit}`;
  return `${value} B`;
}
const base = (file) => file.split("/").pop();
function place(file, line) {
  if (!file) return null;
  const text = `${base(file)}:${line}`;
  if (!data.sources[file]) return el("span", {class: "dim code", title: file}, text);
  return el("button", {class: "link code", title: file, onclick: () => open("source", {file, line})}, text);
}
function paged(rows, draw, into) {
  let shown = 0;
  const more = el("button", {class: "more", onclick: grow});
  function grow() {
    const next = rows.slice(shown, shown + PAGE).map(draw);
    into.append(...next);
    shown += next.length;
    more.textContent = `Show more (${(rows.length - shown).toLocaleString("en")} left)`;
    more.hidden = shown >= rows.length;
    if (shown > PAGE && next.length && next[0].focus) { next[0].setAttribute("tabindex", "-1"); next[0].focus(); }
  }
  grow();
  return more;
}
function table(heads, rows, draw) {
  const body = el("tbody");
  const more = paged(rows, draw, body);
  const top = el("tr", {}, heads.map((head) => el("th", {class: head.startsWith("#") ? "n" : "", scope: "col"},
    head.replace("#", ""))));
  return [el("div", {class: "scroll"}, el("table", {}, el("thead", {}, top), body)), more];
}
const cell = (...content) => el("td", {}, ...content);
const number = (text) => el("td", {class: "n"}, text);
const none = (text) => el("p", {class: "dim"}, text);
function sourceLine(file, line) {
  const lines = data.sources[file];
  return lines && lines[line - 1] !== undefined ? lines[line - 1] : null;
}
function excerpt(file, line) {
  const lines = data.sources[file];
  if (!lines || !line) return null;
  const pre = el("pre", {});
  for (let at = Math.max(1, line - 2); at <= Math.min(lines.length, line + 2); at++)
    pre.append(el("span", {class: at === line ? "at" : ""}, `${String(at).padStart(5)}  ${lines[at - 1]}`), "\n");
  return pre;
}

const totals = () => {
  const captures = data.captures;
  return {
    graphs: captures.filter((each) => each.graph_nodes).length,
    operations: captures.reduce((sum, each) => sum + each.operations, 0),
    guards: captures.reduce((sum, each) => sum + each.guard_count, 0),
    capture: captures.reduce((sum, each) => sum + each.seconds, 0),
    backend: data.compiles.reduce((sum, each) => sum + each.seconds, 0),
    price: data.breaks.reduce((sum, each) => sum + each.passages * each.added_us, 0) / 1e6,
    again: data.recompiles.reduce((sum, each) => sum + each.seconds, 0),
    eager: data.eager.reduce((sum, each) => sum + each.count, 0),
    eagerly: data.eager.reduce((sum, each) => sum + each.seconds, 0),
  };
};

const sections = {
  overview() {
    const sum = totals();
    const tile = (value, label, section) => el("button", {class: "tile", onclick: () => open(section)},
      el("b", {}, value), label);
    const found = [el("div", {class: "tiles"},
      tile(String(sum.graphs), "graphs", "graphs"), tile(String(data.breaks.length), "breaking lines", "breaks"),
      tile(String(data.recompiles.length), "recompiles", "recompiles"),
      tile(String(sum.eager), "eager calls", "eager"), tile(sum.guards.toLocaleString("en"), "guards", "guards"),
      tile(seconds(sum.capture), "to capture", "timeline"), tile(seconds(sum.backend), "of it in backends", "timeline"),
      tile(seconds(sum.price), "added by breaks", "breaks"), tile(seconds(sum.again), "in recompiles", "recompiles"),
      tile(seconds(sum.eagerly), "in eager calls", "eager"))];
    if (data.error) found.push(el("p", {class: "bad"}, `The script ended with ${data.error}`));
    found.push(el("h2", {}, "Functions"));
    found.push(...(data.sites.length ? table(["function", "#entries", "#calls", "#guards"], data.sites,
      (each) => el("tr", {}, cell(el("span", {class: "code"}, each.name)), number(String(each.entries)),
        number(each.calls.toLocaleString("en")), number(String(each.guards)))) : [none("Nothing was compiled.")]));
    if (data.breaks.length) found.push(el("h2", {}, "Costliest break"), breakCard(data.breaks[0]));
    if (data.recompiles.length) found.push(el("h2", {}, "Last recompile"),
      recompileCard(data.recompiles[data.recompiles.length - 1]));
    return found;
  },
  timeline() {
    const canvas = el("canvas", {role: "img", "aria-label": "Events over time; the table below lists them"});
    requestAnimationFrame(() => drawTimeline(canvas));
    const shown = {rows: data.events};
    const holder = el("div");
    const fill = () => holder.replaceChildren(...table(["#at", "event", "line", "#took"], shown.rows, (each) =>
      el("tr", {class: "row"}, number(seconds(each.t)), cell(el("span", {class: "code"}, each.text)),
        cell(place(each.file, each.line) || ""), number(each.seconds ? seconds(each.seconds) : ""))));
    const box = search("Search events", (words) => {
      shown.rows = data.events.filter((each) => matches(words, each.text, each.kind, each.file || ""));
      fill();
    });
    fill();
    return [canvas, box, holder];
  },
  breaks() {
    if (!data.breaks.length) return [none("No graph break: every capture is one graph.")];
    const holder = el("div");
    return [holder, paged(data.breaks, breakCard, holder)];
  },
  recompiles() {
    if (!data.recompiles.length) return [none("No recompile: each function was captured once.")];
    const groups = new Map();
    for (const each of data.recompiles) groups.set(each.name, [...(groups.get(each.name) || []), each]);
    const found = [];
    for (const [name, rows] of groups) {
      const holder = el("div");
      found.push(el("h2", {class: "code"}, `${name}: ${count(rows.length, "recompile")}`), holder,
        paged(rows, recompileCard, holder));
    }
    return found;
  },
  eager() {
    if (!data.eager.length) return [none("No call ran eagerly.")];
    const holder = el("div");
    return [holder, paged(data.eager, eagerCard, holder)];
  },
  ranks() {
    const all = run.ranks;
    const marked = (values, draw) => values.map((value) => el("td", {class: `n${!draw && new Set(values).size > 1
      ? " differs" : ""}`}, draw ? draw(value) : String(value)));
    const side = (title, rows) => rows.length ? [el("h2", {}, title), ...table(["", ...all.map((each) => `#rank ${each.rank}`)],
      rows, (row) => el("tr", {}, cell(el("span", {class: "code"}, row.name)), ...marked(row.values, row.draw)))] : [];
    const names = (pick) => [...new Set(all.flatMap((each) => Object.keys(each.summary[pick])))].sort();
    const counted = (pick) => names(pick).map((name) => ({name, values: all.map((each) => each.summary[pick][name] || 0)}));
    const told = {graphs: 0, operations: 0, guards: 0, capture_seconds: seconds, calls: 0, peak_bytes: bytes};
    const first = Object.entries(told).map(([name, draw]) => ({name: name.replace("_", " "), draw: draw || null,
      values: all.map((each) => each.summary[name])}));
    return [el("p", {}, "Show the other sections for ", ...all.flatMap((each, index) => [el("button", {class: "link",
      "aria-pressed": String(each === data), onclick: () => showRank(index, "overview")}, `rank ${each.rank}`), " "])),
    ...side("Totals", first), ...side("Calls by function", counted("functions")), ...side("Breaks", counted("breaks")),
    ...side("Recompiles", counted("recompiles")), ...side("Eager calls", counted("eager")),
    ...side("Collectives, captured", counted("collectives"))];
  },
  graphs(target) {
    const holder = el("div");
    const draw = (words) => {
      holder.replaceChildren();
      data.captures.forEach((capture, index) => {
        if (!capture.graph_nodes) return;
        const nodes = capture.nodes.filter((node) => matches(words, node.text, capture.name));
        if (!nodes.length) return;
        const open_ = words.length || (target && target.capture === index) || data.captures.length < 3;
        const details = el("details", {class: "card"}, el("summary", {}, el("span", {class: "code"},
          `graph ${index}: ${capture.name}`), el("span", {class: "dim"}, `  ${count(capture.operations, "operation")}, `
          + `${capture.guard_count} guards, captured in ${seconds(capture.seconds)}`)));
        const fill = () => {
          if (details.dataset.filled) return;
          details.dataset.filled = "yes";
          details.append(...table(["line", "node"], nodes, (node) => {
            const row = el("tr", {id: `node-${index}-${node.name}`}, cell(place(node.file, node.line) || ""),
              cell(el("span", {class: "code"}, node.text)));
            if (target && target.capture === index && target.node === node.name) row.className = "at";
            return row;
          }));
        };
        details.addEventListener("toggle", () => { if (details.open) fill(); });
        if (open_) { fill(); details.open = true; }
        holder.append(details);
      });
      if (!holder.children.length) holder.append(none(words.length ? "No node matches." : "No graph was captured."));
    };
    draw([]);
    if (target) requestAnimationFrame(() => {
      const row = document.getElementById(`node-${target.capture}-${target.node}`);
      if (row) { row.setAttribute("tabindex", "-1"); row.focus(); row.scrollIntoView({block: "center"}); }
    });
    return [search("Search nodes", draw), holder];
  },
  guards() {
    const sums = new Map();
    for (const capture of data.captures) for (const family of capture.families) {
      const sum = sums.get(family.title) || {guards: 0, us: 0};
      sums.set(family.title, {guards: sum.guards + family.count, us: sum.us + family.us});
    }
    const families = [...sums].sort((left, right) => right[1].us - left[1].us || right[1].guards - left[1].guards);
    const found = [el("h2", {}, "Families"), ...table(["family", "#guards", "#us to check, measured"], families,
      (each) => el("tr", {}, cell(each[0]), number(String(each[1].guards)), number(each[1].us.toFixed(2))))];
    found.push(el("h2", {}, "Cost of one check, measured"));
    const rows = [...data.captures].sort((left, right) => right.guard_us - left.guard_us);
    found.push(...table(["function", "#guards", "#us a call"], rows, (each) => el("tr", {},
      cell(el("span", {class: "code"}, each.name)), number(String(each.guard_count)),
      number(each.guard_us.toFixed(2)))));
    const all = data.captures.flatMap((capture) => capture.guards.map((guard) => ({...guard, name: capture.name})));
    const holder = el("div");
    const draw = (words) => holder.replaceChildren(...table(["guard", "line", "function"],
      all.filter((guard) => matches(words, guard.text, guard.family, guard.name)), (guard) => el("tr", {},
        cell(el("span", {class: "code"}, guard.text)), cell(place(guard.file, guard.line) || ""), cell(guard.name))));
    found.push(el("h2", {}, "Guards"), search("Search guards", draw), holder);
    draw([]);
    return found;
  },
  sizes() {
    const rows = data.captures.flatMap((each) => each.sizes.map((text) => ({name: each.name, text})));
    if (!rows.length) return [none("No size varies: all graphs have fixed sizes.")];
    return table(["input", "function"], rows, (each) => el("tr", {}, cell(el("span", {class: "code"}, each.text)),
      cell(each.name)));
  },
  regions() {
    if (!data.regions.length) return [none("No graph was compiled in pieces.")];
    return data.regions.map((text) => el("div", {class: "card"}, el("p", {}, text)));
  },
  memory() {
    const rows = data.captures.filter((each) => each.graph_nodes);
    const peak = data.memory.length ? data.memory[data.memory.length - 1].bytes : 0;
    return [el("p", {}, peak ? `Largest resident size of the process: ${bytes(peak)}` : "The size is not known."),
      el("p", {class: "dim"}, "Bytes of tensors in each graph, from their sizes; graphs with varying sizes count "
        + "fixed ones only."),
      ...table(["function", "#inputs", "#made by operations"], rows, (each) => el("tr", {},
        cell(el("span", {class: "code"}, each.name)), number(bytes(each.input_bytes)), number(bytes(each.made_bytes))))];
  },
  source(target) {
    const files = Object.keys(data.sources);
    if (!files.length) return [none("No line of a user's file was met.")];
    const file = target && target.file ? target.file : files[0];
    const nodes = new Map();
    data.captures.forEach((capture, index) => capture.nodes.forEach((node) => {
      if (node.file === file) nodes.set(node.line, [...(nodes.get(node.line) || []), {capture: index, node: node.name,
        text: node.text, name: capture.name}]);
    }));
    const broken = new Set(data.breaks.filter((each) => each.file === file).map((each) => each.line));
    const listing = el("div", {class: "source card scroll code", role: "list"});
    const detail = el("div", {"aria-live": "polite"});
    const choose = (line, button) => {
      for (const other of listing.querySelectorAll(".hit")) other.classList.remove("hit");
      button.classList.add("hit");
      const here = nodes.get(line) || [];
      detail.replaceChildren(el("h2", {}, `Line ${line}`));
      data.breaks.filter((each) => each.file === file && each.line === line).forEach((each) => detail.append(
        breakCard(each)));
      if (here.length) detail.append(...table(["node", "function"], here, (each) => el("tr", {}, cell(el("button", {
        class: "link code", onclick: () => open("graphs", each)}, each.text)), cell(each.name))));
      else detail.append(none("No node of a graph comes from this line."));
    };
    let chosen = null;
    data.sources[file].forEach((text, index) => {
      const line = index + 1;
      const marks = `${broken.has(line) ? "break " : ""}${nodes.has(line) ? nodes.get(line).length : ""}`;
      const row = el("button", {class: `l${broken.has(line) ? " broken" : ""}`, role: "listitem",
        onclick: () => choose(line, row)}, el("span", {}, String(line)), el("span", {}, marks), el("span", {}, text));
      if (target && target.line === line) chosen = [line, row];
      listing.append(row);
    });
    const picker = el("p", {}, files.map((each) => el("button", {class: "link code", title: each,
      onclick: () => open("source", {file: each})}, base(each))).flatMap((each) => [each, " "]));
    if (chosen) {
      choose(...chosen);
      requestAnimationFrame(() => { chosen[1].focus(); chosen[1].scrollIntoView({block: "center"}); });
    }
    return [picker, el("h2", {class: "code"}, file), detail, listing];
  },
};

function breakCard(each) {
  const price = each.passages ? `${count(each.passages, "passage")}; each adds ${each.added_us.toFixed(1)} us beside the `
    + `${each.native_us.toFixed(1)} us of the instruction itself: ${seconds(each.passages * each.added_us / 1e6)} in all`
    : "its price was not measured";
  const stack = each.stack.slice(0, -1).reverse().map((frame) => el("p", {class: "dim"}, "called from ",
    place(frame.file, frame.line), ` in ${frame.name}`));
  const where = each.stack.length ? each.stack[each.stack.length - 1].name : "";
  return el("article", {class: "card", tabindex: "0"}, el("h3", {}, `${each.code} ${each.title}: ${each.cause}`),
    el("p", {}, "at ", place(each.file, each.line) || "an unknown line", where ? ` in ${where}` : "",
      each.count > 1 ? `, ${each.count} times` : ""), excerpt(each.file, each.line), ...stack,
    each.follow.length ? el("p", {class: "dim"}, `followed on this line by: ${each.follow.join("; ")}`) : null,
    el("p", {class: "price"}, price), each.remedy ? el("p", {class: "remedy"}, `Remedy: ${each.remedy}`) : null,
    ...tried(each.file, each.line),
    el("details", {}, el("summary", {}, "All frames"), el("pre", {}, each.full.join("\n"))));
}
function tried(file, line) {
  const here = (each) => each.file === file && each.line === line;
  const cost = (each) => `${count(each.breaks, "break")}, ${count(each.recompiles, "recompile")}, `
    + `${count(each.graphs, "graph")}, ${each.microseconds.toFixed(0)} us a call`;
  return (data.remedies || []).flatMap((found) => [
    ...found.proposals.filter(here).map((each) => el("details", {class: "remedy"},
      el("summary", {}, `Tried, and equal to eager: ${each.title}`), each.diff ? el("pre", {}, each.diff) : null,
      ...Object.entries(each.settings).map(([name, value]) => el("p", {}, `compile with ${name}=${value}`)),
      ...Object.entries(each.added).map(([name, text]) => el("p", {}, `call with ${name}=${text}`)),
      el("p", {}, `before: ${cost(each.before)}`), el("p", {}, `after: ${cost(each.after)}`),
      ...each.remarks.map((text) => el("p", {class: "dim"}, text)))),
    ...found.failures.filter(here).map((each) => el("p", {class: "dim"}, each.tried.length
      ? `None of ${each.tried.length} tried remedies works.` : "No remedy is known that could be tried.")),
  ]);
}
function eagerCard(each) {
  const price = each.timed ? `${count(each.count, "call")}; ${seconds(each.seconds / each.timed)} each: `
    + `${seconds(each.seconds)} in all${each.timed < each.count ? ` (of ${each.timed} that were timed)` : ""}`
    : `${count(each.count, "call")}; not timed`;
  return el("article", {class: "card", tabindex: "0"}, el("h3", {class: "code"}, each.name), el("pre", {}, each.why),
    each.file ? el("p", {}, "at ", place(each.file, each.line)) : null, el("p", {class: "price"}, price),
    excerpt(each.file, each.line));
}
function recompileCard(each) {
  const rows = each.entries.map((entry, index) => el("p", {}, index ? `nor entry ${index + 1}: ` : "",
    el("span", {class: index ? "" : "price"}, entry.cause), entry.file ? ", at " : "",
    place(entry.file, entry.line), entry.more ? `, and ${entry.more} more guards` : ""));
  const price = each.seconds ? `${seconds(each.seconds)} to compile again; one check of the new entry takes `
    + `${each.guard_us.toFixed(1)} us` : "nothing was compiled for it";
  return el("article", {class: "card", tabindex: "0"}, el("p", {class: "dim"}, `after ${seconds(each.t)}`), ...rows,
    el("p", {class: "price"}, price),
    el("pre", {}, each.entries[0].guard), excerpt(each.file, each.line), ...tried(each.file, each.line));
}
const matches = (words, ...texts) => words.every((word) => texts.some((text) => text.toLowerCase().includes(word)));
function search(label, then) {
  const box = el("input", {type: "search", placeholder: label, "aria-label": label});
  box.addEventListener("input", () => then(box.value.toLowerCase().split(/\s+/).filter(Boolean)));
  return el("p", {}, box);
}
function callRates() {
  return data.calls.slice(1).map((each, index) => ({from: data.calls[index].t, to: each.t,
    rate: (each.calls - data.calls[index].calls) / Math.max(each.t - data.calls[index].t, 1e-9)}));
}
function drawTimeline(canvas) {
  const width = canvas.clientWidth, height = canvas.clientHeight, scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const lanes = {calls: ["calls", "--mark"], CaptureFinished: ["captures", "--good"], BackendCompiled: ["compiles", "--mark"],
    GraphBreak: ["breaks", "--bad"], Recompile: ["recompiles", "--warn"], EagerFallback: ["eager", "--dim"]};
  const names = Object.keys(lanes), step = height / names.length, long = Math.max(data.seconds, 1e-9);
  pen.font = "12px system-ui, sans-serif";
  names.forEach((name, lane) => {
    pen.fillStyle = colour("--dim");
    pen.fillText(lanes[name][0], 6, lane * step + step / 2 + 4);
  });
  const room = width - 90;
  const most = Math.max(1, ...callRates().map((each) => each.rate));
  for (const each of callRates()) {
    const left = 80 + each.from / long * room, size = each.rate ? Math.max(2, Math.sqrt(each.rate / most)
      * (step - 8)) : 0;
    pen.fillStyle = colour("--mark");
    pen.fillRect(left, step - 4 - size, Math.max(1, (each.to - each.from) / long * room), size);
  }
  for (const each of data.events) {
    const lane = names.indexOf(each.kind);
    if (lane < 0) continue;
    pen.fillStyle = colour(lanes[each.kind][1]);
    const end = 80 + each.t / long * room, size = Math.max(2, each.seconds / long * room);
    pen.fillRect(Math.max(80, end - size), lane * step + 4, size, step - 8);
  }
}

const titles = {overview: "Overview", timeline: "Timeline", breaks: "Breaks", recompiles: "Recompiles",
  eager: "Eager calls", ...(run.ranks ? {ranks: "Ranks"} : {}), graphs: "Graphs",
  guards: "Guards", sizes: "Sizes", regions: "Regions", memory: "Memory", source: "Source"};
const tabs = document.getElementById("tabs");
for (const [name, title] of Object.entries(titles)) tabs.append(el("button", {role: "tab", id: `tab-${name}`,
  "aria-controls": "view", onclick: () => open(name)}, title));
tabs.addEventListener("keydown", (event) => {
  const all = [...tabs.children], at = all.indexOf(document.activeElement);
  const next = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1}[event.key];
  if (next === undefined || at < 0) return;
  event.preventDefault();
  all[(next + all.length) % all.length].click();
  all[(next + all.length) % all.length].focus();
});
function open(name, target) {
  for (const tab of tabs.children) {
    const chosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.setAttribute("tabindex", chosen ? "0" : "-1");
  }
  view.setAttribute("aria-labelledby", `tab-${name}`);
  view.replaceChildren(...sections[name](target));
  if (location.hash.slice(1) !== name) history.replaceState(null, "", `#${name}`);
}
function summarise() {
  const rank = run.ranks ? `rank ${data.rank} of ${run.ranks.length}: ` : "";
  document.getElementById("title").textContent = data.title;
  document.getElementById("summary").textContent = `${rank}${count(data.captures.length, "capture")}, ${count(
    data.breaks.length, "breaking line")}, ${count(data.recompiles.length, "recompile")} in ${seconds(data.seconds)}`;
}
function showRank(index, section) {
  data = run.ranks[index];
  summarise();
  open(section);
}
if (run.ranks) data = run.ranks[0];
summarise();
const wanted = location.hash.slice(1);
open(Object.hasOwn(titles, wanted) ? wanted : "overview");
document.documentElement.dataset.ready = "yes";

// The overview: tiles, the table of clients, the map, syncs, and what was refused.
import { HeatMap, drawLines } from "./board_charts.js";
import { keepFocus, replaceNode } from "./board_focus.js";
import { ago, amount, between, betweenPoints, clientLink, count, counted, element, milliseconds, nameOf, percent, points, setText, visible } from "./board_text.js";
import { DASH, data, helpCounts, helpNote, helpWord, now, toneOf, unit, valuesOf } from "./board_values.js";

const at = (id) => document.getElementById(id);
const sorting = { key: "client", down: false };
const tableRows = new Map();
let heat = null;

const tile = (name, value, note = "") => {
  const list = at("tiles");
  let box = list.querySelector(`[data-name="${name}"]`);
  if (!box) {
    box = element("div", { class: "tile", "data-name": name }, element("dt", {}, name), element("dd", {}, element("span"), element("small")));
    list.append(box);
  }
  box.hidden = value === null;
  setText(box.querySelector("span"), value === null ? "" : value);
  setText(box.querySelector("small"), note);
  return box;
};

const drawAccuracies = (all) => {
  tile("Accuracy", all && percent(all.accuracy), all ? between(all.accuracy_interval) : "");
  tile("Zero-shot accuracy", all && percent(all.zero_shot), all ? between(all.zero_shot_interval) : "");
  const gain = tile("Gain", all && points(all.gain), all && all.gain_interval ? betweenPoints(all.gain_interval) + " points" : "interval not known");
  gain.querySelector("span").className = toneOf(all);
  setText(at("tiles-note"), all ? `Accuracies are of ${counted(all.labelled, "labelled image", "labelled images")}. The small numbers at accuracies and gains are 95 % intervals.` : "");
};

export const drawTiles = () => {
  const { sums } = data.fleet;
  const stale = sums.clients - sums.fresh;
  const box = tile("Clients", count(sums.clients), stale ? count(stale) + " stale" : "all fresh");
  box.querySelector("small").className = stale ? "stale" : "";
  tile("Images", count(sums.images), counted(sums.reporting, "client reports", "clients report"));
  tile("Changed by the memory", sums.compared ? percent(sums.differing / sums.compared) : DASH, counted(sums.differing, "prediction", "predictions"));
  drawAccuracies(data.fleet.accuracies);
  const help = tile("Does adapting help?", helpWord(data.fleet.help), helpNote(data.fleet.help));
  const { helped, harmed, neither } = data.fleet.help;
  setText(at("help-note"), helped + harmed + neither ? helpCounts(data.fleet.help) : "");
  help.querySelector("span").className = { helps: "up", hurts: "down" }[data.fleet.help.verdict] || "";
  const load = data.load;
  tile("Syncs per second", load.rate.toFixed(load.rate < 10 ? 2 : 0), "over the last minute");
  tile("Latency", load.p50 === null ? DASH : milliseconds(load.p50), load.p99 === null ? "" : "p99 " + milliseconds(load.p99));
};

const CELLS = [
  ["ago", (value) => ago(value)],
  ["classes", (value) => count(value) + " of " + count(data.task.classes)],
  ["images", count],
  ["changed", percent],
  ["accuracy", percent, (all) => between(all.accuracy_interval)],
  ["gain", points, (all) => (all.gain_interval ? betweenPoints(all.gain_interval) : "")],
  ["unlike", percent],
  ["syncs", count],
];

const newRow = (client) => {
  const badge = element("span", { class: "badge stale", hidden: "" }, "stale");
  const shared = element("span", { class: "shared stale", hidden: "" }, "two devices");
  const collapsed = element("span", { class: "collapsed stale", hidden: "" }, "one class");
  const row = element("tr", {}, element("th", { scope: "row" }, clientLink(client), badge, shared, collapsed));
  row.append(...CELLS.map(([key]) => element("td", { "data-key": key }, element("span"), element("small"))));
  return row;
};

const fillRow = (row, client, values) => {
  row.querySelector(".badge").hidden = !client.stale;
  row.querySelector(".shared").hidden = !client.name_shared;
  row.querySelector(".collapsed").hidden = !client.report || client.report.collapsed === undefined;
  row.classList.toggle("is-stale", client.stale);
  CELLS.forEach(([key, text, interval], i) => {
    const cell = row.cells[i + 1];
    const missing = values[key] === null || values[key] === undefined;
    setText(cell.firstElementChild, missing ? DASH : text(values[key]));
    setText(cell.lastElementChild, missing || !interval ? "" : interval(client.accuracies));
    const tone = key === "gain" ? toneOf(client.accuracies) : key === "ago" && client.stale ? "stale" : "";
    cell.className = missing ? "none" : tone;
  });
};

const compare = (one, other) => {
  const [a, b] = [one[sorting.key] ?? null, other[sorting.key] ?? null];
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
  return (sorting.down ? -order : order) || one.client.localeCompare(other.client, "en", { numeric: true });
};

export const drawTable = () => {
  const body = at("clients").tBodies[0];
  at("clients").classList.toggle("unflagged", !data.task.flag);
  const shown = data.fleet.rows.map((row) => ({ row, values: valuesOf(row) })).sort((a, b) => compare(a.values, b.values));
  const names = new Set(shown.map(({ row }) => row.client));
  for (const [name, row] of tableRows) if (!names.has(name)) { row.remove(); tableRows.delete(name); }
  keepFocus(() => shown.forEach(({ row, values }, i) => {
    if (!tableRows.has(row.client)) tableRows.set(row.client, newRow(row.client));
    const node = tableRows.get(row.client);
    fillRow(node, row, values);
    if (body.rows[i] !== node) body.insertBefore(node, body.rows[i] || null);
  }));
  const { matching, rows, sums } = data.fleet;
  const columns = data.fleet.accuracies ? "" : "Accuracy and gain appear where devices were given labels. ";
  const left = matching > rows.length ? `${count(rows.length)} of ${count(matching)} clients are shown: those that synced last.` : "";
  setText(at("rows-note"), sums.clients ? (matching ? columns + left : "No client matches.") : "No client has synced yet.");
};

export const drawMap = () => {
  const map = data.map;
  const place = at("map");
  if (!map || map.clients.length < 2) {
    heat = null;
    const why = map ? "There is nothing to show before two clients have synced." : "The exchange of this method cannot say whose summaries a client gets.";
    place.replaceChildren(element("p", { class: "caption" }, why));
    return;
  }
  if (!heat) heat = new HeatMap(place);
  const bound = map.left_out ? ` These are the ${map.clients.length} clients that synced last; ${count(map.left_out)} others are not shown.` : "";
  heat.show(map, `Row: who receives; column: from whom. Colour: ${unit()}, as a sync now would bring it.${bound}`);
};

export const drawLoad = () => {
  const place = at("load");
  while (place.children.length < 2) place.append(element("figure"));
  const { step, rates, p50s, p99s } = data.load;
  const [first, second] = place.children;
  drawLines(first, "Syncs per second", [{ label: "syncs", values: rates }], step, amount);
  drawLines(second, "Time to answer", [{ label: "p50", values: p50s }, { label: "p99", values: p99s, second: true }], step, (value) => amount(1000 * value) + " ms");
};

const refusedTable = (place) => {
  if (place.querySelector("tbody")) return;
  const head = element("tr", {}, ...["Client", "When", "Times", "Code", "Reason"].map((text) => element("th", { scope: "col", class: "name" }, text)));
  const table = element("table", {}, element("thead", {}, head), element("tbody"));
  place.replaceChildren(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Refused" }, table));
};

export const drawRefused = () => {
  const place = at("refused");
  if (!data.refusals.length) {
    place.replaceChildren(element("p", { class: "caption" }, "Nothing was refused since the server started."));
    return;
  }
  const rows = data.refusals.map((one) => element(
    "tr", {},
    element("th", { scope: "row" }, one.client ? clientLink(one.client) : nameOf("")),
    element("td", { "data-time": one.time, class: "name" }, ago(now() - one.time)),
    element("td", { class: "name" }, count(one.count)),
    element("td", { class: "name" }, element("code", {}, one.code)),
    element("td", { class: "detail" }, visible(one.detail)),
  ));
  refusedTable(place);
  replaceNode(place.querySelector("tbody"), element("tbody", {}, ...rows));
};

// Sorts by a heading; a second click turns the order round.
export const sortBy = (button) => {
  const key = button.dataset.key;
  sorting.down = sorting.key === key ? !sorting.down : key !== "client" && key !== "ago";
  sorting.key = key;
  at("clients").querySelectorAll("th[aria-sort]").forEach((th) => th.removeAttribute("aria-sort"));
  button.closest("th").setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
  drawTable();
};

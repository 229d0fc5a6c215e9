// The page of one client.
import { ago, amount, clientLink, count, counted, element, nameOf, percent, points, visible } from "./board_text.js";
import { data, unit, valuesOf } from "./board_values.js";

const fact = (list, name, value) => list.append(element("dt", {}, name), element("dd", {}, value));

const facts = (row) => {
  const list = element("dl", { class: "facts" });
  const values = valuesOf(row);
  const report = row.report;
  fact(list, "Last sync", element("span", { "data-time": row.synced, class: row.stale ? "stale" : "" }, ago(values.ago)));
  fact(list, "State", element("span", { class: row.stale ? "stale" : "" }, row.stale ? "stale" : "fresh"));
  fact(list, "Uploads", `version ${count(row.version)}, ${counted(row.syncs, "sync", "syncs")} since the server started`);
  if (!report) {
    fact(list, "Report", "none since the server started");
    return list;
  }
  fact(list, "Images", count(report.images) + (report.unreadable ? `, and ${count(report.unreadable)} that could not be read` : ""));
  if (report.images) fact(list, "As zero-shot", `${percent(values.agreement)}: adaptation changed ${counted(report.differing, "answer", "answers")}`);
  fact(list, "Zero-shot entropy", report.entropy.toFixed(3) + " of the latest images (0: certain, 1: no idea)");
  if (report.labelled) {
    const zeroShot = report.correct_zero_shot / report.labelled;
    fact(list, "Accuracy", `${percent(values.accuracy)} of ${count(report.labelled)} labelled images; zero-shot ${percent(zeroShot)} (${points(values.gain)})`);
  }
  fact(list, "Queue", `${count(report.waiting)} waiting, ${count(report.dropped)} dropped`);
  if (report.software) fact(list, "Software", visible(report.software));
  return list;
};

const part = (title, ...children) => element("section", {}, element("h2", {}, title), ...children);

const classList = (view) => {
  if (!view.classes) return element("p", { class: "caption" }, "This method does not say.");
  const items = view.classes.map((one) => element("li", { class: one.seen ? "seen" : "unseen" }, visible(one.name), element("span", { class: "skip" }, one.seen ? " (seen)" : " (not seen)")));
  return element("ul", { class: "classes" }, ...items);
};

const bars = (helpers) => {
  if (!helpers.length) return element("p", { class: "caption" }, "Nobody yet.");
  const high = Math.max(...helpers.map((one) => one.amount));
  return element("ul", { class: "bars" }, ...helpers.map((one) => {
    const bar = element("span", { class: "bar" });
    bar.style.width = (100 * one.amount) / high + "%";
    return element("li", {}, clientLink(one.client), bar, element("span", { class: "value" }, amount(one.amount)));
  }));
};

// Those on the map whom a client helps, most first.
const helpedBy = (client) => {
  const column = data.map ? data.map.clients.indexOf(client) : -1;
  if (column < 0) return [];
  const all = data.map.clients.map((name, i) => ({ client: name, amount: data.map.amounts[i][column] }));
  return all.filter((one) => one.amount > 0).sort((a, b) => b.amount - a.amount).slice(0, 20);
};

export const drawClient = (place, name) => {
  const focused = document.activeElement && place.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const heading = element("h2", {}, nameOf(name));
  const back = element("p", {}, element("a", { href: "#/" }, "← all clients"));
  const view = data.client;
  if (!view || view.row.client !== name) {
    const text = data.client === null ? "The server knows no client of this name: it has not uploaded yet, it left, or it was removed." : "One moment.";
    place.replaceChildren(back, heading, element("p", {}, text));
    return;
  }
  place.replaceChildren(
    back, heading, facts(view.row),
    part(view.classes ? `Classes: ${count(view.row.classes)} of ${count(view.classes.length)} seen` : "Classes", classList(view)),
    part("Who helps it", bars(view.helpers), element("p", { class: "caption" }, `The number is ${unit()}. At most twenty are shown.`)),
    part("Whom it helps", bars(helpedBy(name)), element("p", { class: "caption" }, "Of the clients on the map of the overview, at most twenty.")),
  );
  if (focused) place.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
};

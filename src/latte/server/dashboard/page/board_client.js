// The page of one client.
import { courseOf } from "./board_charts.js";
import { replaceChildren } from "./board_focus.js";
import { ago, amount, between, betweenPoints, clientLink, count, counted, element, nameOf, percent, points, visible } from "./board_text.js";
import { data, helpCounts, helpWord, toneOf, unit, valuesOf } from "./board_values.js";

const fact = (list, name, value) => list.append(element("dt", {}, name), element("dd", {}, value));

const accuracyFacts = (list, all) => {
  fact(list, "Accuracy", `${percent(all.accuracy)} of ${counted(all.labelled, "labelled image", "labelled images")}, 95 % interval ${between(all.accuracy_interval)}`);
  fact(list, "Zero-shot accuracy", `${percent(all.zero_shot)}, 95 % interval ${between(all.zero_shot_interval)}`);
  const interval = all.gain_interval ? `95 % interval ${betweenPoints(all.gain_interval)}` : "interval not known";
  fact(list, "Gain", element("span", { class: toneOf(all) }, `${points(all.gain)} points, ${interval}`));
};

const facts = (row) => {
  const list = element("dl", { class: "facts" });
  const values = valuesOf(row);
  const report = row.report;
  fact(list, "Last sync", element("span", { "data-time": row.synced, class: row.stale ? "stale" : "" }, ago(values.ago)));
  fact(list, "State", element("span", { class: row.stale ? "stale" : "" }, row.stale ? "stale" : "fresh"));
  if (row.name_shared) fact(list, "Name", element("span", { class: "stale" }, "two devices use it and overwrite each other: give each its own name, token and state folder"));
  fact(list, "Uploads", `version ${count(row.version)}, ${counted(row.syncs, "sync", "syncs")} since the server started`);
  if (!report) {
    fact(list, "Report", "none yet");
    return list;
  }
  fact(list, "Images", count(report.images) + (report.unreadable ? `, and ${count(report.unreadable)} that could not be read` : ""));
  if (report.images && report.differing !== undefined) fact(list, "Changed by the memory", `${counted(report.differing, "prediction", "predictions")} (${percent(values.changed)}); of the latest images, ${percent(1 - report.agreement)}`);
  if (report.entropy !== undefined) fact(list, "Zero-shot uncertainty", `${percent(report.entropy)} on the latest images (0: certain, 100: no idea)`);
  if (report.collapsed !== undefined) fact(list, "Warning", element("span", { class: "stale" }, `${percent(report.collapsed)} of the latest zero-shot predictions are one class. If most images do not show that, the encoder does not tell the classes apart, and adapting may lose accuracy: try other class names, templates or another encoder, and label some images`));
  if (row.accuracies) accuracyFacts(list, row.accuracies);
  if (row.help) fact(list, "Does adapting help?", `${helpCounts(row.help)} By these alone: ${helpWord(row.help)}.`);
  if (row.unlike !== null) fact(list, "Unlike the known classes", percent(row.unlike) + " of its images");
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

// A list with a bar per client; null: nobody knows.
const bars = (helpers) => {
  if (!data.map) return element("p", { class: "caption" }, "The exchange of this method cannot say.");
  if (!helpers) return element("p", { class: "caption" }, "Not known yet.");
  if (!helpers.length) return element("p", { class: "caption" }, "Nobody yet.");
  const high = Math.max(...helpers.map((one) => one.amount));
  return element("ul", { class: "bars" }, ...helpers.map((one) => {
    const bar = element("span", { class: "bar" });
    bar.style.width = (100 * one.amount) / high + "%";
    return element("li", {}, clientLink(one.client), bar, element("span", { class: "value" }, amount(one.amount)));
  }));
};

const boundOf = (map) => (map && map.left_out ? `Of the ${map.clients.length} clients that synced last, at most twenty are shown.` : "At most twenty are shown.");

const overTime = (points) => {
  const [first, last] = [points[0], points[points.length - 1]];
  if (!first || first.images === last.images) return [element("p", { class: "caption" }, "There is nothing to show before the second report since the server started.")];
  return [courseOf(points), element("p", { class: "caption" }, "Changed by the memory: the share of predictions that differ from zero-shot's. Zero-shot uncertainty: 0 % is certain, 100 % is no idea. Both are of the latest 100 images of each report.")];
};

export const drawClient = (place, name) => {
  const heading = element("h2", {}, nameOf(name));
  const back = element("p", {}, element("a", { href: "#/" }, "← all clients"));
  const view = data.client;
  if (!view || view.row.client !== name) {
    const text = data.client === null ? "The server knows no client of this name: it has not uploaded yet, it left, or it was removed." : "One moment.";
    replaceChildren(place, back, heading, element("p", {}, text));
    return;
  }
  replaceChildren(
    place, back, heading, facts(view.row),
    part("Over time", ...overTime(view.course)),
    part(view.classes ? `Classes: ${count(view.row.classes)} of ${count(view.classes.length)} seen` : "Classes", classList(view)),
    part("Who helps it", bars(view.helpers), element("p", { class: "caption" }, `The number is ${unit()}. At most twenty are shown.`)),
    part("Whom it helps", bars(view.helped), element("p", { class: "caption" }, boundOf(data.map))),
  );
};

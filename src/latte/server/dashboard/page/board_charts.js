// Charts: lines over the last minutes or over images, and the map of who helps whom.
import { replaceChildren } from "./board_focus.js";
import { amount, clientLink, count, element, nameOf, percent } from "./board_text.js";

const SVG = "http://www.w3.org/2000/svg";
const LIGHT = ["#f4f6f9", "#b8cfe6", "#6a9fd0", "#2c67a8", "#0b2a55"];
const DARK = ["#1d222a", "#244a75", "#2f7bb8", "#6fb4dd", "#d9f0ff"];
const SMALL = 12; // clients of a map that has room for every name
export const scheme = matchMedia("(prefers-color-scheme: dark)");

const drawing = (tag, attributes) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

const canvasOf = () => drawing("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });

// A round number at or above the largest value.
const ceiling = (values) => {
  const high = Math.max(...values.filter((value) => value !== null), 0);
  if (high <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(high));
  return [1, 2, 5, 10].map((step) => step * power).find((value) => value >= high * 0.999);
};

// places: of the values, from 0 to 1.
const pathOf = (values, places, high) => {
  const parts = [];
  let start = true;
  values.forEach((value, i) => {
    if (value !== null) {
      const place = (100 * places[i]).toFixed(2) + " " + (100 - (100 * value) / high).toFixed(2);
      parts.push(start ? "M" + place + "h0" : "L" + place);
    }
    start = value === null;
  });
  return parts.join("");
};

const tickAt = (kind, side, place, text) => {
  const tick = element("span", { class: kind }, text);
  tick.style[side] = 100 * place + "%";
  return tick;
};

// The plot of lines, [{ label, values, second }], and its legend. axis: { places, ticks: [[place, text]], high, unit, about }.
const plotOf = (lines, axis) => {
  const plot = element("div", { class: "plot", role: "img", "aria-label": axis.about });
  const svg = canvasOf();
  for (const share of [0, 0.5, 1]) {
    svg.append(drawing("path", { class: "grid", d: `M0 ${100 - 100 * share}H100` }));
    plot.append(tickAt("y-tick", "bottom", share, axis.unit(share * axis.high)));
  }
  for (const line of lines) svg.append(drawing("path", { class: line.second ? "line second" : "line", d: pathOf(line.values, axis.places, axis.high) }));
  for (const [place, text] of axis.ticks) plot.append(tickAt("x-tick", "left", place, text));
  plot.append(svg);
  return lines.length > 1 ? [plot, legend(lines)] : [plot];
};

// Fills a figure with lines over time, one value per step of so many seconds, the last at the right edge.
export const drawLines = (figure, title, lines, step, unit) => {
  const length = Math.max(...lines.map((line) => line.values.length), 1);
  const places = Array.from({ length }, (_, i) => (length > 1 ? i / (length - 1) : 1));
  const seconds = (length - 1) * step;
  const start = "−" + (seconds < 120 ? Math.round(seconds) + " s" : Math.round(seconds / 60) + " min");
  const ticks = seconds < 10 ? [[1, "now"]] : [[0, start], [1, "now"]];
  const about = title + ", over the last minutes; the tiles above have the latest numbers";
  const high = ceiling(lines.flatMap((line) => line.values));
  figure.replaceChildren(element("h3", {}, title), ...plotOf(lines, { places, ticks, high, unit, about }));
};

// What the memory changed, and the zero-shot entropy, over the images of a client; points, at least two: [{ images, agreement, entropy }].
export const courseOf = (points) => {
  const [first, last] = [points[0], points[points.length - 1]];
  const places = points.map((point) => (point.images - first.images) / (last.images - first.images));
  const lines = [
    { label: "changed by the memory", values: points.map((point) => 1 - point.agreement) },
    { label: "zero-shot uncertainty", values: points.map((point) => point.entropy), second: true },
  ];
  const ends = (value) => `from ${percent(value(first))} to ${percent(value(last))}`;
  const about = `After ${count(first.images)} to ${count(last.images)} images: changed by the memory ${ends((point) => 1 - point.agreement)}, zero-shot uncertainty ${ends((point) => point.entropy)}`;
  const ticks = [[0, count(first.images)], [1, count(last.images) + " images"]];
  const unit = (value) => Math.round(100 * value) + " %";
  return element("figure", { class: "course" }, ...plotOf(lines, { places, ticks, high: 1, unit, about }));
};

const legend = (lines) => {
  const list = element("ul", { class: "legend" });
  for (const line of lines) {
    const sample = drawing("svg", { viewBox: "0 0 28 10", width: 28, height: 10, "aria-hidden": "true" });
    sample.append(drawing("path", { class: line.second ? "line second" : "line", d: "M1 5H27" }));
    list.append(element("li", {}, sample, line.label));
  }
  return list;
};

const mixed = (share) => {
  const stops = (scheme.matches ? DARK : LIGHT).map((stop) => [1, 3, 5].map((i) => parseInt(stop.slice(i, i + 2), 16)));
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  return stops[low].map((value, i) => Math.round(value + (at - low) * (stops[low + 1][i] - value)));
};

// Neighbours whose names differ only in a number at the end: [{ name, start, end }]. In a small map each has its own name.
export const groupsOf = (clients) => {
  if (clients.length <= SMALL) return clients.map((name, start) => ({ name, start, end: start + 1 }));
  const stems = clients.map((name) => name.replace(/[\s._-]*\d+$/u, "") || name);
  const groups = [];
  stems.forEach((name, i) => {
    const last = groups[groups.length - 1];
    if (last && last.name === name) last.end = i + 1;
    else groups.push({ name, start: i, end: i + 1 });
  });
  return groups;
};

// The map of who helps whom. A cell is chosen with the pointer, with a finger or with the arrow keys.
export class HeatMap {
  constructor(parent) {
    this.picture = element("canvas", { tabindex: "0", role: "img" });
    this.marks = canvasOf();
    this.rows = element("div", { class: "heat-rows", "aria-hidden": "true" });
    this.columns = element("div", { class: "heat-columns", "aria-hidden": "true" });
    this.high = element("span", {}, "");
    this.readout = element("p", { class: "readout", "aria-live": "polite" });
    this.caption = element("figcaption", { class: "caption" });
    this.cell = null;
    const plot = element("div", { class: "heat-plot" }, this.picture, this.marks);
    const scale = element("p", { class: "scale" }, element("span", {}, "0"), element("span", { class: "ramp" }), this.high);
    parent.replaceChildren(element("figure", { class: "heat" }, element("div", { class: "heat-grid" }, this.rows, plot, this.columns), scale, this.readout, this.caption));
    for (const kind of ["pointermove", "pointerdown"]) this.picture.addEventListener(kind, (event) => this.point(event));
    this.picture.addEventListener("keydown", (event) => this.step(event));
    scheme.addEventListener("change", () => this.data && this.show(this.data, this.text));
  }

  show(data, text) {
    this.cell = this.moved(data.clients);
    this.data = data;
    this.text = text;
    const size = data.clients.length;
    const high = Math.max(...data.amounts.flat(), 0) || 1;
    this.paint(size, high);
    this.mark(groupsOf(data.clients), size);
    this.high.textContent = amount(high);
    this.caption.textContent = text;
    this.picture.setAttribute("aria-label", `Who helps whom, a heat map of ${size} clients; the arrow keys choose a cell, and the text below says what it shows`);
    this.say();
  }

  // The chosen cell where its clients are now; null where one of them has left.
  moved(clients) {
    const places = this.cell && this.cell.map((place) => clients.indexOf(this.data.clients[place]));
    return places && Math.min(...places) >= 0 ? places : null;
  }

  paint(size, high) {
    this.picture.width = this.picture.height = Math.max(size, 1);
    const context = this.picture.getContext("2d");
    const image = context.createImageData(Math.max(size, 1), Math.max(size, 1));
    this.data.amounts.forEach((row, i) => row.forEach((value, j) => {
      image.data.set([...mixed(value / high), i === j ? 0 : 255], 4 * (i * size + j));
    }));
    context.putImageData(image, 0, 0);
  }

  mark(groups, size) {
    const shown = groups.filter((group) => group.end - group.start > 0.02 * size);
    const bounds = groups.length < 0.5 * size ? groups.filter((group) => group.start) : [];
    this.marks.replaceChildren(...bounds.map((group) => {
      const at = ((100 * group.start) / size).toFixed(3);
      return drawing("path", { class: "bound", d: `M0 ${at}H100M${at} 0V100` });
    }));
    const labels = (first, second) => shown.map((group) => {
      const label = element("span", {}, nameOf(group.name));
      label.style[first] = (100 * group.start) / size + "%";
      label.style[second] = (100 * (group.end - group.start)) / size + "%";
      return label;
    });
    this.rows.replaceChildren(...labels("top", "height"));
    this.columns.replaceChildren(...labels("left", "width"));
  }

  point(event) {
    const box = this.picture.getBoundingClientRect();
    const size = this.data.clients.length;
    const place = (at, start, length) => Math.min(size - 1, Math.max(0, Math.floor((size * (at - start)) / length)));
    this.choose(place(event.clientY, box.top, box.height), place(event.clientX, box.left, box.width));
  }

  step(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    if (!move || !this.data) return;
    event.preventDefault();
    const last = this.data.clients.length - 1;
    const [row, column] = this.cell || [-move[0], -move[1]];
    this.choose(Math.min(last, Math.max(0, row + move[0])), Math.min(last, Math.max(0, column + move[1])));
  }

  choose(row, column) {
    if (this.cell && this.cell[0] === row && this.cell[1] === column) return;
    this.cell = [row, column];
    this.say();
  }

  say() {
    this.marks.querySelectorAll(".cursor").forEach((old) => old.remove());
    if (!this.cell) return this.tell("Point at a cell, or choose one with the arrow keys.");
    const [row, column] = this.cell;
    const { clients, amounts } = this.data;
    const side = 100 / clients.length;
    this.marks.append(drawing("rect", { class: "cursor", x: column * side, y: row * side, width: side, height: side }));
    const value = " gets " + amount(amounts[row][column]) + " from ";
    const parts = row === column ? [clientLink(clients[row]), " and itself"] : [clientLink(clients[row]), value, clientLink(clients[column])];
    this.tell(...parts);
  }

  // Changes the readout; where the link with the focus goes, the map gets the focus.
  tell(...parts) {
    const focused = this.readout.contains(document.activeElement);
    replaceChildren(this.readout, ...parts);
    if (focused && !this.readout.contains(document.activeElement)) this.picture.focus({ preventScroll: true });
  }
}

// Charts: lines over the last minutes, and the map of who helps whom.
import { amount, clientLink, element, nameOf } from "./board_text.js";

const SVG = "http://www.w3.org/2000/svg";
const LIGHT = ["#f4f6f9", "#b8cfe6", "#6a9fd0", "#2c67a8", "#0b2a55"];
const DARK = ["#1d222a", "#244a75", "#2f7bb8", "#6fb4dd", "#d9f0ff"];
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

const pathOf = (values, high) => {
  const parts = [];
  let start = true;
  values.forEach((value, i) => {
    if (value !== null) {
      const place = (values.length > 1 ? (100 * i) / (values.length - 1) : 100).toFixed(2) + " " + (100 - (100 * value) / high).toFixed(2);
      parts.push(start ? "M" + place + "h0" : "L" + place);
    }
    start = value === null;
  });
  return parts.join("");
};

// Fills a figure with lines over time, the last value at the right edge; lines: [{ label, values, second }].
export const drawLines = (figure, title, lines, step, unit) => {
  const high = ceiling(lines.flatMap((line) => line.values));
  const length = Math.max(...lines.map((line) => line.values.length), 1);
  const plot = element("div", { class: "plot", role: "img", "aria-label": title + ", over the last minutes; the tiles above have the latest numbers" });
  const svg = canvasOf();
  for (const share of [0, 0.5, 1]) {
    svg.append(drawing("path", { class: "grid", d: `M0 ${100 - 100 * share}H100` }));
    const tick = element("span", { class: "y-tick" }, unit(share * high));
    tick.style.bottom = 100 * share + "%";
    plot.append(tick);
  }
  for (const line of lines) svg.append(drawing("path", { class: line.second ? "line second" : "line", d: pathOf(line.values, high) }));
  const seconds = (length - 1) * step;
  const ticks = seconds < 10 ? [[100, "now"]] : [[0, "−" + (seconds < 120 ? Math.round(seconds) + " s" : Math.round(seconds / 60) + " min")], [100, "now"]];
  for (const [place, text] of ticks) {
    const tick = element("span", { class: "x-tick" }, text);
    tick.style.left = place + "%";
    plot.append(tick);
  }
  plot.append(svg);
  figure.replaceChildren(element("h3", {}, title), plot);
  if (lines.length > 1) figure.append(legend(lines));
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

// Neighbours whose names differ only in a number at the end: [{ name, start, end }].
export const groupsOf = (clients) => {
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
    this.data = data;
    this.text = text;
    const size = data.clients.length;
    const high = Math.max(...data.amounts.flat(), 0) || 1;
    this.paint(size, high);
    this.mark(groupsOf(data.clients), size);
    this.high.textContent = amount(high);
    this.caption.textContent = text;
    this.picture.setAttribute("aria-label", `Who helps whom, a heat map of ${size} clients; the arrow keys choose a cell, and the text below says what it shows`);
    if (this.cell && Math.max(...this.cell) >= size) this.cell = null;
    this.say();
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
    if (!this.cell) return this.readout.replaceChildren("Point at a cell, or choose one with the arrow keys.");
    const [row, column] = this.cell;
    const { clients, amounts } = this.data;
    const side = 100 / clients.length;
    this.marks.append(drawing("rect", { class: "cursor", x: column * side, y: row * side, width: side, height: side }));
    const value = " gets " + amount(amounts[row][column]) + " from ";
    const parts = row === column ? [clientLink(clients[row]), " and itself"] : [clientLink(clients[row]), value, clientLink(clients[column])];
    this.readout.replaceChildren(...parts);
  }
}

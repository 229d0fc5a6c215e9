// Values as text, and text as elements. Nothing here ever parses HTML: names come from clients.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const JOINERS = "\u200c\u200d"; // formats that spell words of many scripts, and emoji

const written = (char) => {
  const code = char.codePointAt(0);
  if (code < 256) return "\\x" + code.toString(16).padStart(2, "0");
  return code < 65536 ? "\\u" + code.toString(16).padStart(4, "0") : "\\U" + code.toString(16).padStart(8, "0");
};

// Text with every character that controls or hides written out.
export const visible = (text) => text.replace(HIDDEN, (char) => (JOINERS.includes(char) ? char : written(char)));

export const element = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

// A name, kept apart from the direction of the text around it.
export const nameOf = (client) => element("bdi", {}, client === "" ? "(unknown)" : visible(client));

export const clientLink = (client) => element("a", { href: "#/client/" + encodeURIComponent(client) }, nameOf(client));

export const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };

export const count = (value) => Math.round(value).toLocaleString("en");

export const counted = (value, one, many) => count(value) + " " + (value === 1 ? one : many);

export const amount = (value) => (Number.isInteger(value) ? count(value) : Number(value.toPrecision(3)).toString());

export const percent = (share) => (100 * share).toFixed(1) + " %";

// The ends of an interval, in percent.
export const between = ([low, high]) => `${(100 * low).toFixed(1)} to ${(100 * high).toFixed(1)}`;

export const points = (share) => (share < 0 ? "−" : "+") + Math.abs(100 * share).toFixed(1);

export const betweenPoints = ([low, high]) => `${points(low)} to ${points(high)}`;

export const span = (seconds) => {
  if (seconds < 1) return Math.max(seconds * 1000, 0).toPrecision(3).replace(/\.?0+$/, "") + " ms";
  if (seconds < 120) return Math.floor(seconds) + " s";
  if (seconds < 7200) return Math.floor(seconds / 60) + " min";
  if (seconds < 172800) return Math.floor(seconds / 3600) + " h";
  return Math.floor(seconds / 86400) + " days";
};

export const ago = (seconds) => (seconds < 1 ? "now" : span(seconds) + " ago");

// Latencies and rates on an axis.
export const milliseconds = (seconds) => {
  const value = 1000 * seconds;
  return (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)) + " ms";
};

// Content that changes while somebody reads it: what is the same stays, and what has the focus keeps it.

const LINK = "a[href]";

const linksOf = (node) => {
  if (node.nodeType !== Node.ELEMENT_NODE) return [];
  return node.matches(LINK) ? [node] : [...node.querySelectorAll(LINK)];
};

const focusIn = (node) => {
  const links = linksOf(node);
  const index = links.indexOf(document.activeElement);
  return index < 0 ? null : { index, address: links[index].getAttribute("href") };
};

// Focuses the link to the same address that is nearest to the old place, or else the one that took this place.
const restore = (node, { index, address }) => {
  const links = linksOf(node);
  const distance = (link) => Math.abs(links.indexOf(link) - index);
  const same = links.filter((link) => link.getAttribute("href") === address).sort((a, b) => distance(a) - distance(b));
  const link = same[0] || links[Math.min(index, links.length - 1)];
  if (link) link.focus({ preventScroll: true });
};

// Puts a node in the place of another, unless both are the same.
export const replaceNode = (old, node) => {
  if (old.isEqualNode(node)) return;
  const focus = focusIn(old);
  old.replaceWith(node);
  if (focus) restore(node, focus);
};

// Gives a parent these children, each in the place of the one before it; only those that differ are replaced.
export const replaceChildren = (parent, ...children) => {
  const nodes = children.map((child) => (typeof child === "string" ? document.createTextNode(child) : child));
  while (parent.childNodes.length > nodes.length) parent.lastChild.remove();
  nodes.forEach((node, i) => {
    const old = parent.childNodes[i];
    if (old) replaceNode(old, node);
    else parent.append(node);
  });
};

// Moves nodes of a parent; a node that is moved loses the focus, and gets it back.
export const keepFocus = (move) => {
  const focused = document.activeElement;
  move();
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
};

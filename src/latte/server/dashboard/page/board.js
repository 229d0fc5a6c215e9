// The dashboard: what the server sends becomes a page, and stays up to date.
import { drawClient } from "./board_client.js";
import { Link, forgetToken, saveToken, takeFragment } from "./board_link.js";
import { drawLoad, drawMap, drawRefused, drawTable, drawTiles, sortBy } from "./board_overview.js";
import { ago, count, setText, visible } from "./board_text.js";
import { clock, data, now } from "./board_values.js";

const at = (id) => document.getElementById(id);
let fresh = new Set(); // names of parts that came since the page was last drawn
let typing = 0;

const agePlaces = () => document.querySelectorAll("[data-time]").forEach((cell) => setText(cell, ago(now() - Number(cell.dataset.time))));

const selected = () => {
  const match = location.hash.match(/^#\/client\/(.+)$/);
  try {
    return match ? decodeURIComponent(match[1]) : "";
  } catch {
    return ""; // an address that was typed
  }
};

const draw = () => {
  if (!data.fleet || !data.load || !data.task) return;
  const name = selected();
  at("login").hidden = true;
  at("overview").hidden = name !== "";
  at("client").hidden = name === "";
  setText(at("task"), `${visible(data.task.method)}, ${count(data.task.classes)} classes`);
  if (name) {
    if (["client", "map", "all"].some((part) => fresh.has(part))) drawClient(at("client"), name);
  } else {
    drawTiles();
    drawTable();
    if (fresh.has("map") || fresh.has("all")) drawMap();
    if (fresh.has("load") || fresh.has("all")) drawLoad();
    if (fresh.has("refusals") || fresh.has("all")) drawRefused();
  }
  agePlaces();
  watchEdges();
  fresh = new Set();
  document.documentElement.dataset.ready = "true";
};

const watchEdges = () => document.querySelectorAll(".scroll").forEach((box) => {
  if (box.dataset.watched) return;
  box.dataset.watched = "true";
  const mark = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  box.addEventListener("scroll", mark, { passive: true });
  new ResizeObserver(mark).observe(box);
  new ResizeObserver(mark).observe(box.firstElementChild);
});

const WORDS = { live: "live", wait: "connecting", lost: "connection lost", login: "not signed in" };

const status = (word, text = WORDS[word]) => {
  at("status").dataset.state = word;
  setText(at("status"), text);
};

const link = new Link({
  take: (name, value) => {
    if (name === "beat") {
      clock.server = value;
      clock.here = performance.now();
      status("live");
      draw();
    } else if (name in data) {
      data[name] = value;
      fresh.add(name);
    }
  },
  lost: (reason) => status("lost", `${visible(reason) || WORDS.lost}, trying again`),
  refused: (problem) => {
    forgetToken();
    data.fleet = null;
    status("login");
    for (const id of ["overview", "client"]) at(id).hidden = true;
    at("login").hidden = false;
    setText(at("login-problem"), problem);
    at("token").focus();
  },
});

const follow = () => {
  const query = new URLSearchParams({ stale: at("stale").value, state: at("state").value, find: at("find").value });
  if (selected()) query.set("client", selected());
  sessionStorage.setItem("latte-stale", at("stale").value);
  link.open(query);
};

const start = () => {
  const values = takeFragment();
  at("stale").value = values.get("stale") || sessionStorage.getItem("latte-stale") || "900";
  if (!at("stale").value) at("stale").value = "900";
  at("login").addEventListener("submit", (event) => {
    event.preventDefault();
    saveToken(at("token").value);
    at("token").value = "";
    follow();
  });
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["state", "stale"]) at(id).addEventListener("input", follow);
  at("find").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(follow, 250); });
  at("clients").querySelectorAll("thead button").forEach((button) => button.addEventListener("click", () => sortBy(button)));
  document.querySelector("a.skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address behind the # is that of a page
    at("main").focus();
  });
  addEventListener("hashchange", () => {
    if (location.hash.startsWith("#token=")) takeFragment();
    fresh.add("all");
    data.client = undefined;
    draw();
    follow();
    scrollTo(0, 0);
    at("main").focus({ preventScroll: true });
  });
  watchEdges();
  follow();
};

start();

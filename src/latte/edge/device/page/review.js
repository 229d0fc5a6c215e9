// One picture after the other: a key per class, none of these, skip, undo. Names come from files: nothing parses HTML.
const at = (id) => document.getElementById(id);
const KEYS = "123456789abcdefghijklmnopqrstuvwxyz"; // beyond these, classes are found by typing
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const LOOK = 3000; // milliseconds between two looks while nothing is asked, or the device learns

let state = null;
let busy = false;
let turn = 0; // of what a person does: an answer to an earlier look comes too late

const visible = (text) => text.replace(HIDDEN, (char) => "\\u" + char.codePointAt(0).toString(16).padStart(4, "0"));
const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const element = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

const drawClasses = () => {
  const many = state.classes.length > KEYS.length;
  const found = at("find").value.trim().toLowerCase();
  const answers = state.question.answers;
  at("finder").hidden = !many;
  const shown = state.classes.filter((name) => !many || (found ? name.toLowerCase().includes(found) : answers.includes(name)));
  at("classes").replaceChildren(...shown.slice(0, 60).map((name, i) => {
    const key = many ? KEYS[i] : KEYS[state.classes.indexOf(name)];
    const button = element("button", { type: "button", "data-label": name }, ...(key && !(many && found) ? [element("kbd", {}, key)] : []), visible(name));
    button.classList.toggle("framed", answers.includes(name));
    button.addEventListener("click", () => send("label", name));
    return button;
  }));
  const which = answers.length > 1 ? "Framed: the two predictions. Which is whose is not shown, so that it does not sway you." : "Framed: the prediction.";
  setText(at("framed"), which);
};

const draw = () => {
  const { question } = state;
  setText(at("device"), state.device ? `device ${visible(state.device)}${state.running ? "" : ", not running: it learns when it starts"}` : "");
  setText(at("counts"), `${state.labelled} labelled, ${state.learnt} learnt`);
  at("help").replaceChildren(...state.help.map((text) => element("p", {}, text)));
  at("empty").hidden = question !== null;
  at("question").hidden = question === null;
  at("none").disabled = at("skip").disabled = question === null;
  at("undo").disabled = !state.undo;
  if (question && at("picture").dataset.number !== String(question.number)) {
    at("picture").dataset.number = question.number;
    at("picture").src = "picture/" + question.number;
    at("find").value = "";
    setText(at("name"), visible(question.name));
    setText(at("why"), question.why === "differ" ? "the two predictions differ" : "the device is least sure");
    at("unlike").hidden = !question.unlike;
    drawClasses();
    if (state.next !== null) new Image().src = "picture/" + state.next;
  }
  document.documentElement.dataset.ready = "true";
};

const ask = async (path, body) => {
  const options = body ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {};
  const mine = body ? ++turn : turn;
  try {
    const response = await fetch(path, options);
    const answer = await response.json();
    if (mine !== turn) return;
    if (!response.ok) throw new Error(answer.detail);
    state = answer;
    at("problem").hidden = true;
    draw();
  } catch (error) {
    at("problem").hidden = false;
    setText(at("problem"), error instanceof TypeError ? "No answer: is latte edge review still running?" : visible(error.message));
  }
};

const send = async (action, label = "") => {
  if (busy || (action !== "undo" && !state.question)) return;
  busy = true;
  await ask(action, { number: state.question ? state.question.number : 0, label });
  busy = false;
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !state) return;
  const typing = event.target === at("find");
  if (typing && event.key === "Enter") at("classes").querySelector("button")?.click();
  if (typing && event.key !== "Escape") return;
  const place = event.key.length === 1 ? KEYS.indexOf(event.key.toLowerCase()) : -1;
  if (event.key === "0") send("label", "");
  else if (event.key === "ArrowRight") send("skip");
  else if (event.key === "ArrowLeft") send("undo");
  else if (event.key === "Escape") at("find").blur();
  else if (event.key === "/" && !at("finder").hidden) at("find").focus();
  else if (place >= 0 && state.question) {
    const shown = [...at("classes").children];
    const wanted = state.classes.length > KEYS.length ? shown[place] : shown.find((button) => button.dataset.label === state.classes[place]);
    wanted?.click();
  } else return;
  event.preventDefault();
});

at("none").addEventListener("click", () => send("label", ""));
at("skip").addEventListener("click", () => send("skip"));
at("undo").addEventListener("click", () => send("undo"));
at("find").addEventListener("input", drawClasses);
setInterval(() => { if (!busy && !document.hidden) ask("state"); }, LOOK);
ask("state");

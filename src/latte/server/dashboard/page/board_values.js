// What the server has sent, and what follows from it for one client.

import { count, counted } from "./board_text.js";

export const DASH = "–";
export const data = { task: null, fleet: null, load: null, refusals: [], map: null, client: undefined };
export const clock = { server: 0, here: 0 };

const UNITS = {
  latte: "how many prototypes, of all classes, a client gets from whom",
  ristretto: "the share of the other client's evidence that a client's head uses",
};

export const unit = () => UNITS[data.task.method] || "how much a client gets from whom";

// The server's time: ages do not depend on the clock of this machine.
export const now = () => clock.server + (performance.now() - clock.here) / 1000;

// "up" or "down" where the whole interval of a gain is on one side of zero; otherwise nobody can say.
export const toneOf = (accuracies) => {
  const [low, high] = (accuracies && accuracies.gain_interval) || [0, 0];
  return low > 0 ? "up" : high < 0 ? "down" : "";
};

const WORDS = { helps: "proven to help", unknown: "not known yet", hurts: "hurts" };

export const helpWord = (help) => WORDS[help.verdict];

const odds = (help) => `evidence ${count(help.evidence)} to 1`;

// What the labels say, and what happens or is needed next.
export const helpNote = (help) => ({
  helps: () => odds(help),
  hurts: () => `${odds(help)}: predictions fall back to zero-shot`,
  unknown: () => `${help.more === null ? "more than 1,000" : "about " + count(help.more)} more labels of images on which the predictions differ`,
})[help.verdict]();

export const helpCounts = (help) => `On ${counted(help.helped + help.harmed + help.neither, "labelled image", "labelled images")} the two predictions differed. Adapted right ${count(help.helped)}, zero-shot right ${count(help.harmed)}, neither ${count(help.neither)}.`;

export const valuesOf = (row) => {
  const report = row.report || {};
  const accuracies = row.accuracies || {};
  return {
    client: row.client,
    ago: Math.max(now() - row.synced, 0),
    classes: row.classes,
    images: report.images || null,
    changed: report.images && report.differing !== undefined ? report.differing / report.images : null,
    accuracy: accuracies.accuracy ?? null,
    gain: accuracies.gain ?? null,
    unlike: row.unlike ?? null,
    syncs: row.syncs,
  };
};

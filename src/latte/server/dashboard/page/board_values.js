// What the server has sent, and what follows from it for one client.

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
    syncs: row.syncs,
  };
};

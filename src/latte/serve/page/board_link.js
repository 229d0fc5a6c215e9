// The connection to the server: the token, and a stream of events that is opened again when it breaks.

const KEY = "latte-admin-token";
const SLOWEST = 15000; // milliseconds between two attempts
const SILENCE = 20000; // milliseconds without a beat after which a connection counts as lost

// A link may carry the token and settings behind the #, which never leaves the browser; it is taken out of the address.
export const takeFragment = () => {
  const match = location.hash.match(/^#token=/);
  if (!match) return new URLSearchParams();
  const values = new URLSearchParams(location.hash.slice(1));
  sessionStorage.setItem(KEY, values.get("token"));
  history.replaceState(null, "", location.pathname + "#/");
  return values;
};

export const saveToken = (token) => sessionStorage.setItem(KEY, token.trim());
export const forgetToken = () => sessionStorage.removeItem(KEY);

const headers = () => {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: "Bearer " + token } : {};
};

// Calls take(name, value) for every event of the stream, until it ends.
const read = async (body, take, alive) => {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const match = event.match(/^event: (\w+)\ndata: (.*)$/s);
      if (match) take(match[1], JSON.parse(match[2]));
    }
  }
};

// Follows the fleet as a query asks for it. Handlers: take(name, value), state(word), refused(detail).
export class Link {
  constructor(handlers) {
    this.handlers = handlers;
    this.abort = null;
  }

  open(query) {
    this.close();
    this.abort = new AbortController();
    this.follow("v1/fleet/events?" + query, this.abort);
  }

  close() {
    if (this.abort) this.abort.abort();
    this.abort = null;
  }

  async follow(address, abort) {
    for (let pause = 1000; !abort.signal.aborted; pause = Math.min(2 * pause, SLOWEST)) {
      if (await this.once(address, abort)) pause = 500;
      if (abort.signal.aborted) return;
      this.handlers.state("lost");
      await new Promise((resolve) => setTimeout(resolve, pause * (0.5 + Math.random())));
    }
  }

  // One connection; returns whether anything came.
  async once(address, abort) {
    let came = false;
    const connection = new AbortController();
    const stop = () => connection.abort();
    abort.signal.addEventListener("abort", stop);
    let timer = setTimeout(stop, SILENCE);
    const alive = () => { came = true; clearTimeout(timer); timer = setTimeout(stop, SILENCE); };
    try {
      const response = await fetch(address, { headers: headers(), cache: "no-store", signal: connection.signal });
      if (response.status === 401 || response.status === 403) {
        this.close();
        this.handlers.refused(response.status, sessionStorage.getItem(KEY) !== null);
      } else if (response.ok) {
        await read(response.body, (name, value) => { if (!abort.signal.aborted) this.handlers.take(name, value); }, alive);
      }
    } catch (error) {
      if (!(error instanceof TypeError) && error.name !== "AbortError") throw error; // a broken connection is normal
    } finally {
      clearTimeout(timer);
      abort.signal.removeEventListener("abort", stop);
    }
    return came;
  }
}

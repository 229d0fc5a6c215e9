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

const PLAIN = /^[\x21-\x7e]*$/; // a token has only these, and nothing else can be sent in a header

const headersOf = (token) => (token ? { Authorization: "Bearer " + token } : {});

const refusal = (status, token) => {
  if (token === null) return "";
  return status === 401 ? "This token is not valid." : "This token is not an admin's.";
};

// Why the server does not answer with a stream, in its own words.
const reasonOf = async (response) => {
  try {
    return String((await response.json()).detail);
  } catch {
    return `the server answered ${response.status}`; // a proxy, perhaps
  }
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

// Follows the fleet as a query asks for it. Handlers: take(name, value), lost(reason), refused(problem).
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
      const { came, reason } = await this.once(address, abort);
      if (came) pause = 500;
      if (abort.signal.aborted) return;
      this.handlers.lost(reason);
      await new Promise((resolve) => setTimeout(resolve, pause * (0.5 + Math.random())));
    }
  }

  refuse(problem) {
    this.close();
    this.handlers.refused(problem);
  }

  // One connection; returns whether anything came, and the server's reason where it would not answer.
  async once(address, abort) {
    const end = { came: false, reason: "" };
    const token = sessionStorage.getItem(KEY);
    if (token && !PLAIN.test(token)) {
      this.refuse("This token has characters that no token has. Copy it again, without what is around it.");
      return end;
    }
    const connection = new AbortController();
    const stop = () => connection.abort();
    abort.signal.addEventListener("abort", stop);
    let timer = setTimeout(stop, SILENCE);
    const alive = () => { end.came = true; clearTimeout(timer); timer = setTimeout(stop, SILENCE); };
    try {
      const response = await fetch(address, { headers: headersOf(token), cache: "no-store", signal: connection.signal });
      if (response.status === 401 || response.status === 403) this.refuse(refusal(response.status, token));
      else if (!response.ok) end.reason = await reasonOf(response);
      else await read(response.body, (name, value) => { if (!abort.signal.aborted) this.handlers.take(name, value); }, alive);
    } catch (error) {
      if (!(error instanceof TypeError) && error.name !== "AbortError") throw error; // a broken connection is normal
    } finally {
      clearTimeout(timer);
      abort.signal.removeEventListener("abort", stop);
    }
    return end;
  }
}

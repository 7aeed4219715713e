/* The public API of this service. The key lives in this module alone: reloading or closing the page forgets it. */

/* The path below which a proxy shows the service, if any; addresses in these modules are those behind it. */
export const ROOT = new URL(import.meta.url).pathname.replace(/\/static\/desk\/api\.js$/, "");

let key = "";
export const useKey = (text) => { key = text.trim(); };
export const hasKey = () => key !== "";

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || "the service answered " + status);
    this.status = status;
    this.errors = body.errors || [];
  }
}

const send = async (path, { method = "GET", body, headers = {}, signal, turns = 5 } = {}) => {
  const all = { ...headers };
  if (key) all.Authorization = "Bearer " + key;
  if (body !== undefined) all["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(ROOT + path, { method, body, headers: all, signal, credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "The service does not answer; is it still running?" });
  }
  if (answer.ok) return answer;
  if (answer.status === 503 && turns > 1) { // nothing was done, and the service says when to come again
    await pause(1000 * Math.min(5, Number(answer.headers.get("Retry-After")) || 1), signal);
    return send(path, { method, body, headers, signal, turns: turns - 1 });
  }
  let told = {};
  try { told = await answer.json(); } catch { /* not JSON: the status says it */ }
  throw new Problem(answer.status, told);
};

export const read = async (path, signal) => (await send(path, { signal })).json();
export const readText = async (path, signal) => (await send(path, { signal })).text();
export const readBlob = async (path) => (await send(path)).blob();
export const post = async (path, body, signal, headers) =>
  (await send(path, { method: "POST", body: typeof body === "string" ? body : JSON.stringify(body), signal, headers })).json();
export const postBlob = async (path, body) => (await send(path, { method: "POST", body: JSON.stringify(body) })).blob();

const freshKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("");
/* Submits once, however often the connection breaks. */
export const submit = (path, body, signal) => post(path, body, signal, { "Idempotency-Key": freshKey() });

export const planPath = (id, rest = "") => "/v1/plans/" + encodeURIComponent(id) + rest;

const parsed = (block) => {
  const event = { id: 0, kind: "", data: null };
  for (const line of block.split("\n")) {
    const [name, text] = [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()];
    if (name === "id") event.id = Number(text);
    if (name === "event") event.kind = text;
    if (name === "data") event.data = JSON.parse(text);
  }
  return event.kind ? event : null;
};
export const pause = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal?.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});
const eventsIn = async function* (answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) { const event = parsed(block); if (event) yield event; }
  }
};
/* What may be otherwise a second later: no answer, an overloaded service, one that starts again. */
const passes = (error) => error.status === 0 || error.status === 429 || error.status >= 500;
/* Asks until there is an answer, and says that it waits: what is followed goes on when the service is back. */
export const insisting = async (act, signal, tell) => {
  for (let lost = false; ; lost = true) {
    try {
      const found = await act();
      if (lost) tell("The service answers again");
      return found;
    } catch (error) {
      if (signal.aborted || !passes(error)) throw error;
      tell(error.status ? "The service answers " + error.status + "; trying again" : "The service does not answer; trying again");
      await pause(1000, signal);
    }
  }
};
/* Every event of a plan until it has ended, over broken connections. An EventSource cannot carry a key. */
export const events = async function* (id, signal, tell) {
  let last = 0;
  while (!signal.aborted) {
    const answer = await insisting(() => send(planPath(id, "/events"), { headers: last ? { "Last-Event-ID": String(last) } : {}, signal }), signal, tell);
    if (answer.status === 204) return; // nothing comes any more
    try {
      for await (const event of eventsIn(answer)) {
        last = event.id;
        yield event;
        if (event.kind === "done") return;
      }
    } catch (error) {
      if (signal.aborted) throw error; // otherwise the connection broke: the next one begins behind the last event
    }
    await pause(1000, signal);
  }
};
export const every = async (ms, signal, act, tell) => { while (!signal.aborted) { await insisting(act, signal, tell); await pause(typeof ms === "function" ? ms() : ms, signal); } };

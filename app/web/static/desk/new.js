/* A request, checked while it is written: fields for what most people choose, its JSON beside them for all of it. */
import { ROOT, hasKey, planPath, post, read, submit } from "./api.js";
import { clusterPart } from "./cluster.js";
import { clipped, copy, count, make, save } from "./dom.js";
import { draftOf, keepingFocus, mergePatch, pointerOf, quantity, valueAt } from "./fields.js";
import { clusterImport, modelImport } from "./imports.js";
import { OBJECTIVES } from "./rows.js";

const PAUSE_MS = 300;
const START = "llama-405b-two-buildings";
const PRECISIONS = ["bf16", "fp8", "fp16", "fp32", "fp4"];
const DEFAULTS = { "/objective/kind": "iteration_time", "/workload/precision": "bf16" };

const remark = (severity, text, pointer, remedies) => make("li", { className: "severity-" + severity }, make("strong", {}, severity), ": " + text, pointer ? make("span", {}, " (", make("code", {}, pointer), ")") : null,
  remedies.length ? ". Remedy: " + remedies.join("; or ") : null);

/* Remarks that differ by names and numbers alone are folded behind the first of them. */
const few = (diagnostics) => {
  const alike = new Map();
  for (const one of diagnostics) { const key = one.severity + one.detail.replace(/'[^']*'|\d+/g, ""); alike.set(key, [...(alike.get(key) || []), remark(one.severity, one.detail, one.pointer, one.remedies)]); }
  return [...alike.values()].flatMap((items) => (items.length <= 2 ? items : [items[0], make("li", {}, make("details", {}, make("summary", {}, count(items.length - 1) + " more like this"), make("ul", { className: "warnings" }, ...items.slice(1))))]));
};

/* label, path, kind of field or its options, hint */
const fieldsOf = (models, clusters) => [
  ["Name", ["name"], "text", ""],
  ["Model", ["workload", "architecture"], Object.fromEntries([["", "of its own, see the JSON"], ...models.map((one) => [one, one])])],
  ["Cluster", ["cluster"], Object.fromEntries([["", "of its own, below"], ...clusters.map((one) => [one, one])])],
  ["Global batch", ["workload", "global_batch_sequences"], "count", "", "sequences"],
  ["Sequence length", ["workload", "sequence_length"], "count", "", "tokens"],
  ["Precision", ["workload", "precision"], Object.fromEntries(PRECISIONS.map((one) => [one, one]))],
  ["GPUs, at most", ["constraints", "max_gpus"], "count", "all"],
  ["Objective", ["objective", "kind"], OBJECTIVES],
  ["Target iteration", ["objective", "target_iteration_s"], "time", "none"],
  ["Time limit", ["options", "time_limit_s"], "search", ""],
  ["Enough at a gap of", ["options", "relative_gap"], "share", ""],
];
const control = (draft, [label, path, kind, hint]) => {
  const known = { "aria-label": label, "data-pointer": pointerOf(path) };
  if (kind === "text") return make("input", { ...known, maxlength: "120", value: valueAt(draft.request, path) || "", oninput: (event) => draft.put(path, event.target.value || undefined) });
  if (typeof kind === "string") return quantity(draft, kind, path, label, { hint });
  const value = valueAt(draft.request, path) ?? DEFAULTS[pointerOf(path)] ?? "";
  return make("select", { ...known, onchange: (event) => { const chosen = event.target.value; if (chosen) draft.change((request) => { path.slice(0, -1).reduce((inside, key) => (inside[key] ??= {}), request)[path.at(-1)] = chosen; }); } },
    ...Object.entries(kind).map(([one, text]) => make("option", { value: one, selected: one === (typeof value === "object" ? "" : value) }, text)));
};
const formPart = (draft, list) => {
  const element = make("form", { className: "draft", "aria-label": "The request", onsubmit: (event) => event.preventDefault() });
  const redraw = () => {
    if (element.contains(document.activeElement) && document.activeElement.tagName === "INPUT") return;
    keepingFocus(element, () => element.replaceChildren(...list.map((one, index) => {
      const input = control(draft, one);
      input.id = "field-" + index;
      return make("p", {}, make("label", { for: input.id }, one[0]), make("span", { className: "with-unit" }, input, one[4] ? make("span", { className: "unit" }, one[4]) : null));
    })));
  };
  return { element, redraw };
};

const checker = (verdict, signal, point) => {
  let timer, asked = new AbortController();
  const list = (items) => (items.length ? make("ul", { className: "warnings" }, ...items) : null);
  const say = (words, kind, items, notes = []) => verdict.replaceChildren(...[make("p", { className: kind }, words), list(items),
    notes.length ? make("details", {}, make("summary", {}, notes.length === 1 ? "1 note" : notes.length + " notes"), list(notes)) : null].filter(Boolean));
  const ask = async (body) => {
    asked.abort();
    asked = new AbortController();
    signal.addEventListener("abort", () => asked.abort(), { once: true });
    try {
      const { name, labels, webhook, ...request } = body;
      const found = await post("/v1/plans:validate", request, asked.signal);
      const remarks = (kept) => few(found.diagnostics.filter(kept));
      const graver = found.diagnostics.filter((one) => one.severity !== "note");
      say(!found.feasible ? "No plan can obey this request." : graver.length ? "Nothing forbids it, but look at this:" : "Arithmetic finds nothing against it.", found.feasible ? "good" : "alert", remarks((one) => one.severity !== "note"), remarks((one) => one.severity === "note"));
      point(graver.map((one) => one.pointer));
    } catch (error) {
      if (error.name === "AbortError") return;
      say(error.errors?.length ? "The request has " + (error.errors.length === 1 ? "a fault:" : error.errors.length + " faults:") : error.message, "alert",
        (error.errors || []).slice(0, 20).map((one) => remark("error", one.what, one.pointer || one.where, [one.allowed ? one.remedy + " Allowed: " + one.allowed : one.remedy])));
      point((error.errors || []).map((one) => one.pointer));
    }
  };
  return (draft, text) => {
    clearTimeout(timer);
    asked.abort();
    timer = setTimeout(() => {
      if (signal.aborted) return;
      if (draft.request) keep(draft, text.value);
      const unread = draft.faults();
      if (!draft.request) { say("This is no JSON: correct the text, or begin again with an example.", "alert", []); return; }
      if (unread.length) { say(unread.length === 1 ? "A field cannot be read:" : unread.length + " fields cannot be read:", "alert", unread.map((words) => remark("error", words, "", []))); return; }
      ask(draft.request);
    }, PAUSE_MS);
  };
};

/* A draft stays with its place in the history of the browser: going back or reloading finds it. One with a webhook's secret is not kept. */
const keep = (draft, text) => history.replaceState(draft.request?.webhook?.secret ? null : { draft: text }, "");
const kept = () => { try { return JSON.parse(history.state?.draft); } catch { return null; } };
/* A request that another page hands over: a plan's own, with changes made to it. */
let handed = null;
export const handOver = (body) => { handed = body; };
const start = async (query, signal) => {
  const from = query.get("from"), given = handed;
  handed = null;
  if (!from) return { body: given || kept() || await read("/v1/examples/" + (query.get("example") || START), signal), before: null, from };
  const [before, { name }] = await Promise.all([read(planPath(from, "/request"), signal), read(planPath(from, "/status"), signal)]);
  return { body: given || kept() || { name: (name ? clipped(name, 108) + ", changed" : undefined), ...structuredClone(before) }, before, from };
};

const curlOf = (text, path) => "curl -s " + location.origin + ROOT + path + (hasKey() ? ' -H "Authorization: Bearer $ISTHMUS_KEY"' : "") + " -H 'Content-Type: application/json' --data-binary @- <<'EOF'\n" + text + "\nEOF\n";

export const show = async (page, { query, signal, tell, attempt, go }) => {
  document.title = "New plan · Isthmus";
  const entry = (kind) => (name) => read("/v1/catalogue/" + kind + "/" + encodeURIComponent(name), signal);
  const [models, clusters, gpus, examples, { body, before, from }] = await Promise.all([read("/v1/catalogue/models", signal), read("/v1/catalogue/clusters", signal), read("/v1/catalogue/gpus", signal), read("/v1/examples", signal), start(query, signal)]);
  const entries = new Map(await Promise.all(gpus.map(async (name) => [name, await entry("gpus")(name)])));
  const verdict = make("div", { id: "verdict", role: "status" });
  const text = make("textarea", { id: "json", spellcheck: "false", rows: "24", "aria-label": "The request as JSON", "aria-describedby": "verdict" });
  const point = (pointers) => { for (const input of page.querySelectorAll("[data-pointer]")) input.classList.toggle("pointed", pointers.some((one) => one && (one === input.dataset.pointer || one.startsWith(input.dataset.pointer + "/")))); };
  const check = checker(verdict, signal, point);
  const sending = make("button", { type: "button", className: "main" }, from ? "Replan" : "Plan");
  const draft = draftOf(text, {
    changed: () => { sending.disabled = !draft.request || draft.faults().length > 0; cluster.follow(); check(draft, text); },
    redraw: () => { controls.disabled = !draft.request; if (draft.request) { form.redraw(); cluster.redraw(); } },
  });
  const form = formPart(draft, fieldsOf(models, clusters)), cluster = clusterPart(draft, { entries, entry: entry("clusters"), attempt });
  const controls = make("fieldset", { className: "controls" }, form.element, modelImport(draft, signal), cluster.element, clusterImport(draft, signal));
  sending.onclick = () => attempt(async () => {
    const { name = "", labels = {}, webhook, ...request } = draft.request;
    const made = before ? await submit(planPath(from, ":replan"), { patch: mergePatch(before, request), name, labels }, signal) : await submit("/v1/plans", draft.request, signal);
    await go("/plans/" + made.id);
  });
  const pick = make("select", { "aria-label": "Begin with", onchange: (event) => attempt(async () => { if (event.target.value) draft.replace(await read(event.target.value, signal)); }) },
    make("option", { value: "" }, "begin with an example"), ...examples.map((one) => make("option", { value: one.href }, one.title)));
  const copying = (word, what) => make("button", { type: "button", onclick: () => attempt(async () => { await copy(what()); tell("Copied"); }) }, word);
  page.append(
    make("h1", {}, from ? "Replan with a change" : "New plan"),
    make("p", { className: "lead" }, from ? "The request of the plan, as it was understood. Change what is different now; the new plan keeps the link to the old one."
      : "Choose a model and a cluster, or describe your own. Write quantities as you would: 400 Gb/s, 5 ms, 80 GB. The JSON beside has them in SI units and is what will be sent."),
    ...(from ? [] : [make("p", {}, pick)]),
    make("div", { className: "pair drafting" }, controls, make("div", { className: "beside" }, make("p", { className: "actions" }, sending), verdict, text, make("p", { className: "take" },
      make("button", { type: "button", onclick: () => save(text.value, "request.json", "application/json") }, "Save request.json"), copying("Copy JSON", () => text.value), copying("Copy as curl", () => curlOf(text.value, "/v1/plans"))),
      make("details", {}, make("summary", {}, "The same from a terminal"), make("pre", { tabindex: "0", "aria-label": "Command" }, curlOf("(the JSON above)", "/v1/plans"))))));
  draft.replace(body);
  tell("");
};

/* A request, checked while it is written: a form for what most people choose, its JSON beside it for all of it. */
import { planPath, post, read, submit } from "./api.js";
import { make, save } from "./dom.js";
import { OBJECTIVES } from "./rows.js";

const PAUSE_MS = 300;
const START = "llama-405b-two-buildings";
const PRECISIONS = ["bf16", "fp8", "fp16", "fp32", "fp4"];

const at = (body, path) => path.reduce((inside, key) => (inside === null || inside === undefined ? undefined : inside[key]), body);
const put = (body, path, value) => {
  const last = path.at(-1);
  const holder = path.slice(0, -1).reduce((inside, key) => (inside[key] ??= {}), body);
  if (value === undefined) delete holder[last]; else holder[last] = value;
};
/* What turns one document into another, as a JSON merge patch (RFC 7396). */
export const mergePatch = (before, after) => {
  const patch = {};
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (!(key in after)) patch[key] = null;
    else if (JSON.stringify(before[key]) === JSON.stringify(after[key])) continue;
    else if ([before[key], after[key]].every((one) => one !== null && typeof one === "object" && !Array.isArray(one))) patch[key] = mergePatch(before[key], after[key]);
    else patch[key] = after[key];
  }
  return patch;
};

const remark = (severity, text, pointer, remedies) => make("li", { className: "severity-" + severity }, make("strong", {}, severity), ": " + text, pointer ? make("span", {}, " (", make("code", {}, pointer), ")") : null,
  remedies.length ? ". Remedy: " + remedies.join("; or ") : null);

const fields = (models, clusters) => {
  const select = (options, words = {}) => make("select", {}, ...options.map((one) => make("option", { value: one }, words[one] || one)));
  const number = (step = "1", min = "1") => make("input", { type: "number", min, step, inputmode: "decimal" });
  const own = "as in the JSON beside";
  return [
    ["Name", ["name"], make("input", { maxlength: "120" }), ""],
    ["Model", ["workload", "architecture"], select(["", ...models], { "": own }), ""],
    ["Cluster", ["cluster"], select(["", ...clusters], { "": own }), ""],
    ["Global batch", ["workload", "global_batch_sequences"], number(), "sequences"],
    ["Sequence length", ["workload", "sequence_length"], number(), "tokens"],
    ["Precision", ["workload", "precision"], select(PRECISIONS), ""],
    ["GPUs, at most", ["constraints", "max_gpus"], number(), "empty: all"],
    ["Objective", ["objective", "kind"], select(Object.keys(OBJECTIVES), OBJECTIVES), ""],
    ["Target iteration", ["objective", "target_iteration_s"], number("any", "0"), "s, for other objectives"],
    ["Time limit", ["options", "time_limit_s"], number("any", "0"), "s of searching"],
    ["Enough at a gap of", ["options", "relative_gap"], number("any", "0"), "%", 100],
  ];
};

const scaleOf = (input) => Number(input.dataset.scale || 1);
const DEFAULTS = { "objective.kind": "iteration_time", "workload.precision": "bf16" };

const editor = (list, changed) => {
  const text = make("textarea", { id: "json", spellcheck: "false", rows: "26", "aria-label": "The request as JSON", "aria-describedby": "verdict" });
  const form = make("form", { className: "draft", "aria-label": "The request" }, ...list.map(([label, path, input, unit, scale], index) => {
    input.id = "field-" + index;
    input.dataset.path = path.join(".");
    if (scale) input.dataset.scale = scale;
    return make("p", {}, make("label", { for: input.id }, label), make("span", { className: "with-unit" }, input, unit ? make("span", { className: "unit" }, unit) : null));
  }));
  const body = () => JSON.parse(text.value);
  const fill = (request) => {
    for (const [, path, input] of list) {
      if (input === document.activeElement) continue;
      const value = at(request, path) ?? DEFAULTS[path.join(".")] ?? "";
      input.value = typeof value === "object" ? "" : typeof value === "number" ? String(Number((value * scaleOf(input)).toPrecision(12))) : value;
    }
  };
  const write = (request) => { text.value = JSON.stringify(request, null, 2); fill(request); changed(); };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    const field = list.find(([, , input]) => input === event.target);
    if (!field) return;
    let request;
    try { request = body(); } catch { return; }
    const [, path, input] = field, typed = input.value;
    if (typed === "" && input.tagName === "SELECT") return;
    put(request, path, typed === "" ? undefined : input.type === "number" ? Number((Number(typed) / scaleOf(input)).toPrecision(12)) : typed);
    text.value = JSON.stringify(request, null, 2);
    changed();
  });
  text.addEventListener("input", () => { try { fill(body()); } catch { /* told by the check */ } changed(); });
  return { form, text, body, write };
};

const checker = (verdict, signal) => {
  let timer, asked = new AbortController();
  const say = (words, kind, items) => verdict.replaceChildren(make("p", { className: kind }, words), items.length ? make("ul", { className: "warnings" }, ...items) : "");
  const ask = async (body) => {
    asked.abort();
    asked = new AbortController();
    signal.addEventListener("abort", () => asked.abort(), { once: true });
    try {
      const { name, labels, webhook, ...request } = body;
      const found = await post("/v1/plans:validate", request, asked.signal);
      const items = found.diagnostics.map((one) => remark(one.severity, one.detail, one.pointer, one.remedies));
      const graver = found.diagnostics.filter((one) => one.severity !== "note").length;
      say(!found.feasible ? "No plan can obey this request." : graver ? "Nothing forbids it, but look at this:" : "Arithmetic finds nothing against it.", found.feasible ? "good" : "alert", items);
    } catch (error) {
      if (error.name === "AbortError") return;
      say(error.errors?.length ? "The request has " + (error.errors.length === 1 ? "a fault:" : error.errors.length + " faults:") : error.message, "alert",
        (error.errors || []).slice(0, 20).map((one) => remark("error", one.what, one.pointer || one.where, [one.allowed ? one.remedy + " Allowed: " + one.allowed : one.remedy])));
    }
  };
  return (read) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      let body;
      try { body = read(); } catch (error) { say("This is no JSON: " + error.message, "alert", []); return; }
      ask(body);
    }, PAUSE_MS);
  };
};

const start = async (query, signal) => {
  const from = query.get("from");
  if (!from) return { body: await read("/v1/examples/" + (query.get("example") || START), signal), before: null, from };
  const before = await read(planPath(from, "/request"), signal);
  return { body: structuredClone(before), before, from };
};

export const show = async (page, { query, signal, tell, attempt, go }) => {
  document.title = "New plan · Isthmus";
  const [models, clusters, examples, begun] = await Promise.all([read("/v1/catalogue/models", signal), read("/v1/catalogue/clusters", signal), read("/v1/examples", signal), start(query, signal)]);
  const { before, from } = begun;
  const verdict = make("div", { id: "verdict", role: "status" });
  const check = checker(verdict, signal);
  const draft = editor(fields(models, clusters), () => { check(draft.body); });
  const curl = "curl -s " + location.origin + "/v1/plans -H 'Content-Type: application/json' --data-binary @request.json";
  const send = () => attempt(async () => {
    const body = draft.body();
    const { name = "", labels = {}, webhook, ...request } = body;
    const made = before ? await submit(planPath(from, ":replan"), { patch: mergePatch(before, request), name, labels }, signal) : await submit("/v1/plans", body, signal);
    await go("/plans/" + made.id);
  });
  const pick = make("select", { "aria-label": "Begin with", onchange: (event) => attempt(async () => { if (event.target.value) draft.write(await read(event.target.value, signal)); }) },
    make("option", { value: "" }, "begin with an example"), ...examples.map((one) => make("option", { value: one.href }, one.title)));
  page.append(
    make("h1", {}, from ? "Replan with a change" : "New plan"),
    make("p", { className: "lead" }, from ? "The request of the plan, as it was understood. Change what is different now; the new plan keeps the link to the old one."
      : "Choose in the form, or paste a whole request, with a cluster and a model of your own, into the JSON."),
    from ? null : make("p", {}, pick),
    make("div", { className: "pair drafting" }, draft.form, make("div", {}, draft.text, make("p", { className: "take" },
      make("button", { type: "button", onclick: () => save(draft.text.value, "request.json", "application/json") }, "Save request.json"),
      make("button", { type: "button", onclick: () => navigator.clipboard?.writeText(draft.text.value) }, "Copy")))),
    verdict,
    make("p", { className: "actions" }, make("button", { type: "button", className: "main", onclick: send }, from ? "Replan" : "Plan")),
    make("p", {}, "The same from a terminal:"), make("pre", { tabindex: "0", "aria-label": "Command" }, curl));
  draft.write(begun.body);
  tell("");
};

/* Questions about a plan: a formula answers at once, a search proves afterwards, and the two never look alike. */
import { insisting, pause, post, read, submit } from "./api.js";
import { answerOf } from "./answers.js";
import { applied, settingsOf, sliders } from "./changes.js";
import { clipped, make, percent, seconds, section, span } from "./dom.js";
import { estimate } from "./estimate.js";
import { handOver } from "./new.js";
import { takeable } from "./take.js";
import { parse } from "./units.js";

const POLL_MS = 1000;
const ENDED = new Set(["succeeded", "incomplete", "cancelled", "failed"]);
const WISHES = [
  ["tensor parallel", "/constraints/allowed/tp", "count", true], ["pipeline ranks", "/constraints/allowed/pp", "count", true], ["replicas", "/constraints/allowed/dp", "count", true], ["context parallel", "/constraints/allowed/cp", "count", true],
  ["expert parallel", "/constraints/allowed/ep", "count", true], ["micro-batch, sequences", "/constraints/allowed/micro_batch_sequences", "count", true], ["GPUs, at most", "/constraints/max_gpus", "count", false], ["iteration, at most", "/objective/target_iteration_s", "time", false]];
const questionPath = (id, rest = "") => "/v1/questions/" + encodeURIComponent(id) + rest;

/* Follows a question until it has ended; every part of its answer replaces the one before. */
const following = (place, { signal, attempt, tell }) => {
  let current = new AbortController();
  return async (id, context) => {
    current.abort();
    current = new AbortController();
    const mine = current;
    signal.addEventListener("abort", () => mine.abort(), { once: true });
    const head = make("p", { className: "actions" }), body = make("div");
    const title = make("h3", {}, context.title || "The question of this address");
    place.replaceChildren(title, head, body);
    place.hidden = false;
    for (let last = ""; !mine.signal.aborted;) {
      const found = await insisting(() => read(questionPath(id), mine.signal), mine.signal, tell), ended = ENDED.has(found.state);
      head.replaceChildren(make("span", { className: "state " + (ended ? "badge-succeeded" : "badge-running") }, ended ? (found.answer?.complete ? "answered" : found.state === "failed" ? "failed" : "as far as it was searched") : found.state === "queued" ? "waiting for a worker" : "searching, " + span(found.elapsed_s)),
        ended ? "" : make("button", { type: "button", onclick: () => attempt(() => post(questionPath(id, ":cancel"))) }, "Stop, keep what is known"));
      if (found.fault || found.answer) {
        const text = JSON.stringify([found.fault, found.answer]);
        if (text !== last) { // a search that was ended from outside has a fault, and what it knew before
          last = text;
          if (!context.title && found.answer) title.textContent = TITLES[found.answer.ask];
          body.replaceChildren(...(found.fault ? [make("p", { className: "alert" }, found.fault.what), make("p", {}, found.fault.remedy)] : []), ...(found.answer ? [answerOf(found.answer, context)] : []));
          takeable(body);
        }
      }
      if (ended) { tell("The question is answered"); return; }
      await pause(POLL_MS, mine.signal);
    }
  };
};

const SLID = { latency: "delay", bandwidth: "rate", memory: "memory", gpus: "GPUs" };
const instant = (plan, request) => {
  const element = make("div", { className: "instant", role: "status", hidden: true });
  const show = (settings) => {
    element.hidden = !Object.keys(settings).length;
    if (element.hidden) return null;
    const found = estimate(plan, request, settings);
    element.replaceChildren(make("p", {}, make("span", { className: "state badge-guessed" }, "by formula"), " The plan as it stands: ", found.iteration_s === null ? make("strong", {}, "does not fit") : make("strong", {}, seconds(plan.metrics.iteration_s) + " → " + seconds(found.iteration_s)),
      found.iteration_s === null ? "" : " (" + percent(found.iteration_s / plan.metrics.iteration_s - 1, true) + ")"),
      make("ul", { className: "note" }, ...found.parts.map(({ name, added, why }) => make("li", {}, make("strong", {}, SLID[name]), ": " + (added === null ? "" : (added > 0 ? "+" : added < 0 ? "−" : "±") + seconds(Math.abs(added)) + ", ") + why + "."))),
      make("p", { className: "note" }, "Computed in this page from the plan's own breakdown, its dual prices and its routes. Another plan may be better, and a search alone tells."));
    return found;
  };
  return { element, show };
};

const whatIf = (plan, request, ask) => {
  const shown = instant(plan, request);
  let found = null;
  const variantsOf = (parts) => [{ name: parts.length > 1 ? "all together" : parts[0][1].words, changes: parts.flatMap(([name, one]) => settingsOf(request, name, one)) }, ...(parts.length > 1 ? parts.map(([name, one]) => ({ name: one.words, changes: settingsOf(request, name, one) })) : [])];
  const prove = make("button", { type: "button", className: "main", disabled: true, onclick: () => {
    const settings = panel.values(), parts = Object.entries(settings), variants = variantsOf(parts);
    const alone = Object.fromEntries(parts.map(([name, one]) => [one.words, estimate(plan, request, { [name]: one }).gain_s]));
    ask({ ask: "what_if", variants }, { title: "What it would change", estimates: { ...alone, [variants[0].name]: found?.gain_s }, changesOf: (name) => variants.find((one) => one.name === name)?.changes });
  } }, "Prove it by a search");
  const robust = make("button", { type: "button", disabled: true, onclick: () => ask({ ask: "robust", scenarios: variantsOf(Object.entries(panel.values())) }, { title: TITLES.robust }) }, "Find one plan for every case");
  const panel = sliders(plan, request, () => { const settings = panel.values(); found = shown.show(settings); prove.disabled = robust.disabled = !Object.keys(settings).length; });
  return make("div", {}, make("h3", {}, "What if …"), panel.element, shown.element, make("p", { className: "actions" }, prove, robust));
};

/* Objectives that take a target for nothing: a target is asked for beside one that obeys it. */
const WITHOUT_TARGET = new Set(["iteration_time", "time_at_confidence"]);
const whyNot = (request, ask) => {
  const which = make("select", { "aria-label": "What you would have expected" }, ...WISHES.map(([name], index) => make("option", { value: String(index) }, name))), value = make("input", { className: "quantity", "aria-label": "Its value", placeholder: "8" });
  const said = make("span", { className: "alert", role: "status" });
  const send = () => {
    const [name, pointer, kind, isList] = WISHES[Number(which.value)], read = parse(kind, value.value);
    said.textContent = read.fault || (read.value === undefined ? "Say which value." : "");
    if (said.textContent) return;
    const obeyed = pointer === "/objective/target_iteration_s" && WITHOUT_TARGET.has(request.objective.kind) ? [{ pointer: "/objective/kind", value: "fewest_gpus" }] : [];
    const changes = [...obeyed, { pointer, value: isList ? [read.value] : read.value }];
    ask({ ask: "why_not", changes }, { title: "Why not " + name + " " + value.value + "?", asked: changes });
  };
  return make("div", {}, make("h3", {}, "Why not …"), make("p", { className: "actions" }, which, value, make("button", { type: "button", onclick: send }, "Ask"), said));
};

/* Questions of one click. */
const MORE = [
  ["worth", "What is more of everything worth, and what does distance cost?", () => ({})], ["frontier", "How much time for how many GPUs, bytes and money?", (request) => ({ against: request.cluster.pools.every((one) => one.gpu.usd_per_gpu_hour !== null) ? ["gpus", "bytes", "money"] : ["gpus", "bytes"] })],
  ["curves", "How does it change with rate, delay and memory?", () => ({})], ["what_if_lost", "What if a building, a pool or a link were lost?", () => ({})]];
const TITLES = { what_if: "What it would change", why_not: "Why not", least: "The least that reaches the target", what_now: "What now?", robust: "One plan for every case: as requested, and as set", ...Object.fromEntries(MORE.map(([kind, words]) => [kind, words])) };
const more = (request, ask, attempt) => {
  const target = make("input", { className: "quantity", "aria-label": "Iteration time to reach", placeholder: "5 s" }), lost = make("select", { "aria-label": "What is lost" }, ...["places", "pools", "links"].flatMap((kind) => request.cluster[kind].filter((one) => one.level !== "region").slice(0, 100).map((one) => make("option", { value: one.id }, one.id))));
  const button = (words, act) => make("button", { type: "button", onclick: act }, words);
  return make("details", {}, make("summary", {}, "More questions"), make("p", { className: "actions" }, ...MORE.map(([kind, words, parts]) => button(words, () => ask({ ask: kind, ...parts(request) }, { title: words }))),
    make("span", { className: "with-unit" }, button("What is the least for an iteration of", () => attempt(() => {
      const { value, fault } = parse("time", target.value);
      target.toggleAttribute("aria-invalid", !value);
      if (!value) throw new Error("Iteration time to reach: " + (fault || "say which, like 5 s"));
      return ask({ ask: "least", target: { iteration_s: value } }, { title: "The least for an iteration of " + target.value });
    })), target),
    make("span", { className: "with-unit" }, button("What now, without", () => ask({ ask: "what_now", lost: [lost.value] }, { title: "What now, without " + lost.value + "?" })), lost)));
};

/* The section of a plan's page. `plan` is its summary, null where the request has no plan. */
export const askSection = (id, plan, request, { signal, attempt, tell, go }) => {
  const proof = make("div", { className: "proof", hidden: true, role: "region", "aria-label": "Answer", "aria-live": "polite" });
  const follow = following(proof, { signal, attempt, tell });
  const acts = { planIt: (changes, name) => { handOver({ ...applied(request, changes), name: clipped(name) }); go("/new?from=" + id); } };
  const address = (question, changes) => { const url = new URL(location.href); url.searchParams.set("question", question); history.replaceState({ asked: changes }, "", url.pathname + url.search + "#ask"); };
  const limit = make("input", { value: "60 s", className: "quantity", "aria-label": "Time for an answer" });
  const ask = (question, context) => attempt(async () => {
    const { value: time_limit_s = 60, fault } = parse("search", limit.value);
    limit.toggleAttribute("aria-invalid", Boolean(fault));
    if (fault) throw new Error("Time for an answer: " + fault);
    const made = await submit("/v1/questions", { ...question, ...(plan ? { plan_id: id } : { request }), options: { time_limit_s } }, signal);
    address(made.id, context.asked);
    proof.scrollIntoView({ block: "nearest" });
    await follow(made.id, { ...context, ...acts });
  });
  const asked = new URLSearchParams(location.search).get("question");
  if (asked) attempt(() => follow(asked, { ...acts, asked: history.state?.asked }));
  return section("ask", "Ask", make("p", {}, make("label", { className: "with-unit" }, "An answer takes at most ", limit)), ...(plan ? [whatIf(plan, request, ask), whyNot(request, ask), more(request, ask, attempt)] : [make("p", {}, "The search finds every set of wishes that clash, and the least that has to give, with a plan for each way out."),
    make("p", { className: "actions" }, make("button", { type: "button", className: "main", onclick: () => ask({ ask: "why_not" }, { title: "Why there is no plan" }) }, "Find every conflict and every way out"))]), proof);
};

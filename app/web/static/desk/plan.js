/* One plan: what the report says of it, in place; live while it is searched; reasons and remedies where there is none. */
import { events, insisting, pause, planPath, post, read, readBlob, readText, submit } from "./api.js";
import { copy, count, make, moment, percent, refill, save, seconds, section, showPart, span } from "./dom.js";
import { askSection } from "./ask.js";
import { curve } from "./curve.js";
import { exportsPart } from "./exports.js";
import { OBJECTIVES, isActive, stateBadge, titleOf } from "./rows.js";
import { surePart } from "./sure.js";
import { takeable } from "./take.js";
import { parse } from "./units.js";

const REFRESH_MS = 3000; // a report of 100,000 GPUs takes the service about a second
const AGAIN_MS = 200; // the service answers a status from memory for a tenth of a second

const TOLD_MS = 10000; // a better plan is said aloud no more often
const kin = (one) => [one.study_id && ["/studies/" + one.study_id, "part of a study"], one.parent_id && ["/plans/" + one.parent_id, "made from another plan"]].filter(Boolean).flatMap(([href, words]) => ["; ", make("a", { href }, words)]);
const head = (one) => make("p", { className: "subtitle" }, stateBadge(one), " ", [one.model + (one.cluster ? " on " + one.cluster : ""), OBJECTIVES[one.objective]].filter(Boolean).join(", "),
  "; submitted ", make("time", { datetime: one.created_at }, moment(one.created_at)),
  one.elapsed_s && !isActive(one) ? ", searched " + span(one.elapsed_s) : "", one.figures && STOPS[one.stop_reason] ? ", ended because " + STOPS[one.stop_reason] : "", ...kin(one), ...Object.entries(one.labels).map(([key, value]) => make("span", { className: "tag" }, value ? key + "=" + value : key)));

const tiles = (facts) => make("dl", { className: "tiles" }, ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
const STOPS = { time: "it reached its limit of time", memory: "it reached its limit of memory", cancelled: "a client stopped it", killed: "it was ended from outside",
  crashed: "of a defect of this program", refused: "the search refused the request", attempts: "its worker went silent each time" };

const reasons = (found) => make("ol", { className: "reasons" }, ...found.map((one) => make("li", {},
  make("p", {}, make("strong", {}, one.code.replaceAll("-", " ")), one.pointer ? make("code", {}, one.pointer) : null),
  make("p", {}, one.detail),
  one.remedies.length ? make("div", {}, make("p", { className: "remedy" }, "What would help, cheapest first:"), make("ul", {}, ...one.remedies.map((text) => make("li", {}, text)))) : null)));

/* What stands where a plan would: an answer too, never a success. */
export const without = (envelope) => {
  const { outcome, fault, state, stop_reason: why } = envelope;
  if (outcome?.status === "infeasible") {
    return section("why", "No plan obeys this request", make("p", { className: "alert" }, "This is proven, not given up: " + outcome.reasons.length +
      (outcome.reasons.length === 1 ? " contradiction." : " contradictions.")), reasons(outcome.reasons), make("p", {}, make("a", { href: "/new?from=" + envelope.id, className: "button" }, "Change the request")));
  }
  if (outcome?.status === "not_found") {
    return section("why", "No plan found, and no proof that there is none", make("p", {}, outcome.detail), tiles([["No plan is faster than", seconds(outcome.lower_bound_s)], ["Searched", span(outcome.elapsed_s)]]),
      make("p", {}, "A longer time limit may find one. ", make("a", { href: "/new?from=" + envelope.id }, "Change the request"), "."));
  }
  if (fault) return section("why", "The search failed", make("p", { className: "alert" }, fault.what), make("p", {}, fault.remedy), fault.where ? make("p", {}, make("code", {}, fault.where)) : null);
  if (state === "cancelled") return section("why", "Stopped before a plan was found", make("p", {}, "Ended because " + (STOPS[why] || why) + "."));
  return null;
};

const live = () => {
  const points = [];
  const element = make("section", { id: "live", "aria-label": "The search" });
  const picture = make("div"), facts = make("div"), message = make("p", { className: "note" });
  const legend = make("ul", { className: "legend" }, make("li", {}, make("span", { className: "key-best" }), "best plan found"), make("li", {}, make("span", { className: "key-bound" }), "lower bound"));
  element.append(make("h2", {}, "Searching"), facts, make("figure", {}, legend, picture), message);
  let limit_s = 1, tried = "–", gap = null;
  const add = (data) => {
    const before = points.at(-1) || { elapsed_s: 0, incumbent_s: null, lower_bound_s: null };
    points.push({ elapsed_s: data.elapsed_s ?? before.elapsed_s, incumbent_s: data.incumbent_s ?? data.iteration_s ?? before.incumbent_s, lower_bound_s: data.lower_bound_s ?? before.lower_bound_s });
    const now = points.at(-1);
    if (data.num_configurations) tried = count(data.num_explored) + " timed, " + count(data.num_pruned) + " discarded, of " + count(data.num_configurations);
    gap = data.relative_gap ?? gap;
    facts.replaceChildren(tiles([["Best plan so far", seconds(now.incumbent_s)], ["No plan is faster than", seconds(now.lower_bound_s)], ["Gap", percent(gap)], ["Searched, limit " + span(limit_s), span(now.elapsed_s)],
      ["Configurations", tried]]));
    const drawn = curve(points, Math.max(now.elapsed_s, limit_s, 0.1));
    if (drawn) picture.replaceChildren(drawn);
    if (data.message) message.textContent = data.message;
  };
  /* Another attempt begins at 0 s, with what the one before has found. */
  const again = () => { const { incumbent_s = null, lower_bound_s = null } = points.at(-1) || {}; points.splice(0, points.length, { elapsed_s: 0, incumbent_s, lower_bound_s }); };
  return { element, add, again, until: (value) => { limit_s = value; } };
};

const parts = (page, tell) => {
  const place = make("div", { id: "parts" });
  const nav = make("nav", { className: "parts", "aria-label": "Parts of the plan", hidden: true });
  const link = (one, names = {}) => make("li", {}, make("a", { href: "#" + one.id }, names[one.id] || one.querySelector("h2").textContent));
  const showAll = (sections, names = {}) => {
    place.replaceChildren(...sections);
    nav.replaceChildren(make("ul", {}, ...sections.map((one) => link(one, names))));
    nav.hidden = sections.length < 2;
    globalThis.showPipeline();
    takeable(place);
    showPart();
  };
  let latest = 0;
  const showReport = async (id, attempt, signal) => {
    const mine = ++latest;
    if (!place.children.length) place.append(make("p", { className: "note" }, "Drawing the plan …"));
    const text = await readText(planPath(id, "/artifacts/report-html"), signal);
    if (mine !== latest) return; // a later look may be answered earlier
    const report = new DOMParser().parseFromString(text, "text/html");
    const sections = [...report.querySelectorAll("main > section")].map((one) => document.importNode(one, true));
    showAll(sections, Object.fromEntries([...report.querySelectorAll("nav a")].map((one) => [one.hash.slice(1), one.textContent])));
    const exports = await exportsPart(id, attempt, signal);
    if (mine !== latest) return;
    add(exports);
  };
  const add = (one, before = "") => {
    const next = place.querySelector("#" + (before || "nothing")), entry = nav.querySelector('a[href="#' + before + '"]')?.parentElement;
    place.insertBefore(one, next);
    nav.querySelector("ul").insertBefore(link(one), entry || null);
    takeable(one); if (location.hash === "#" + one.id) one.scrollIntoView();
  };
  return { place, nav, showAll, showReport, add };
};

/* The search goes on where it ended, as a new plan that is never worse. */
const goingOn = (one, attempt, go) => {
  const limit = make("input", { value: "10 min", className: "quantity", "aria-label": "How much longer to search" });
  return make("span", { className: "with-unit" }, make("button", { type: "button", onclick: () => attempt(async () => {
    const { value: time_limit_s, fault } = parse("search", limit.value);
    limit.toggleAttribute("aria-invalid", Boolean(fault));
    if (fault) throw new Error("How much longer: " + fault);
    const made = await submit(planPath(one.id, ":resume"), { time_limit_s, name: one.name, labels: one.labels });
    await go("/plans/" + made.id);
  }) }, "Search on for"), limit);
};

const actions = (one, attempt, go, refresh, tell) => make("p", { className: "actions" },
  isActive(one) ? make("button", { type: "button", onclick: () => attempt(async () => { await post(planPath(one.id, ":cancel")); await refresh(); }) }, one.cancel_requested ? "Stopping" : "Stop, keep the best") : null,
  isActive(one) || one.state === "infeasible" ? null : goingOn(one, attempt, go),
  make("a", { className: "button", href: "/new?from=" + one.id }, "Replan with a change"),
  figure(one) && make("a", { className: "button", href: "/compare?a=" + one.id + (one.parent_id ? "&b=" + one.parent_id : "") }, one.parent_id ? "Compare with its parent" : "Compare"),
  make("button", { type: "button", onclick: () => attempt(async () => save(await readBlob(planPath(one.id, "/request")), one.id + ".request.json")) }, "Request as JSON"),
  make("button", { type: "button", onclick: () => attempt(async () => save(await readBlob(planPath(one.id)), one.id + ".json")) }, figure(one) ? "Plan as JSON" : "Outcome as JSON"),
  figure(one) ? make("button", { type: "button", onclick: () => attempt(async () => save(await readBlob(planPath(one.id, "/artifacts/report-html")), one.id + ".report.html")) }, "Report, one HTML file") : null,
  make("button", { type: "button", className: "quiet", onclick: () => attempt(async () => { await copy(location.href); tell("Copied"); }) }, "Copy link"));
const figure = (one) => one.figures !== null;

export const show = async (page, { id, signal, tell, attempt, go }) => {
  const top = make("div"), course = live();
  const content = parts(page, tell);
  course.element.hidden = true;
  page.append(top, course.element, content.nav, content.place);
  let one, shown = 0, said = Date.now();
  const refresh = async () => {
    one = await insisting(() => read(planPath(id, "/status"), signal), signal, tell);
    document.title = titleOf(one) + " · Isthmus";
    refill(top, make("h1", {}, titleOf(one)), head(one), actions(one, attempt, go, refresh, tell));
    course.element.hidden = !isActive(one);
  };
  await refresh();
  if (isActive(one)) {
    course.until((await read(planPath(id, "/request"), signal)).options.time_limit_s);
    tell(one.state === "queued" ? "Waiting for a worker" : "Searching");
    const later = async () => {
      if (content.place.contains(document.activeElement) || Date.now() - shown < REFRESH_MS) return;
      shown = Date.now();
      await refresh();
      await content.showReport(id, attempt, signal);
    };
    for await (const { kind, data } of events(id, signal, tell)) {
      if (kind === "progress" || kind === "incumbent") course.add(data);
      if (kind === "state" && data.attempt > 1) course.again();
      if (kind === "state") { await pause(AGAIN_MS, signal); await refresh(); }
      if (kind !== "incumbent") continue;
      attempt(later);
      if (Date.now() - said > TOLD_MS) { said = Date.now(); tell("Best plan so far: " + seconds(data.iteration_s) + " per iteration"); }
    }
    for (await refresh(); isActive(one); await refresh()) await pause(AGAIN_MS, signal);
    tell("The search has ended: " + (one.figures ? seconds(one.figures.iteration_s) + " per iteration" : one.state.replace("_", " ")));
  }
  const ask = async () => {
    const [request, plan] = await Promise.all([read(planPath(id, "/request"), signal), figure(one) ? read(planPath(id, "/summary"), signal) : null]);
    if (plan) content.add(surePart(plan, request), "time");
    content.add(askSection(id, plan, request, { signal, attempt, tell, go }));
  };
  if (figure(one) && !isActive(one)) { await content.showReport(id, attempt, signal); await ask(); }
  else {
    const found = without(await read(planPath(id), signal));
    if (found) { content.showAll([found]); await ask(); }
  }
};

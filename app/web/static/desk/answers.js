/* Answers of any question: intervals, what is decided, and the plans behind them. */
import { badge, count, datum, make, number, percent, seconds, span, table } from "./dom.js";
import { curveOver } from "./charts.js";
import { inUnit, intervals } from "./intervals.js";
import { frontiersPart, leastPart, lossesPart, waysPart, worldsPart } from "./spent.js";

const VERDICTS = { gains: "proven to gain", loses: "proven to lose", "changes nothing": "proven to change nothing", "not decided yet": "not decided yet", "no plan": "no plan" };
const KINDS = { gains: "succeeded", loses: "failed", "changes nothing": "queued", "not decided yet": "not_found", "no plan": "infeasible" };
const CROSSINGS = { none: "nothing crosses", pp_out: "pipelines cross", dp_out: "replicas are apart" };
const known = (value) => value !== null && value !== undefined;

export const degreesOf = ({ degrees }) => ["tp", "cp", "ep", "pp", "dp", "vpp"].filter((name) => degrees[name] > 1 || name === "tp" || name === "pp" || name === "dp").map((name) => name + " " + degrees[name]).join(" · ");
/* A judged plan in short. */
export const behind = (plan) => (plan ? make("details", {}, make("summary", {}, seconds(plan.iteration_s) + ", " + count(plan.num_gpus) + " GPUs"), make("ul", {}, ...[degreesOf(plan.configuration), "sharding " + plan.configuration.sharding + ", recompute " + plan.configuration.recompute,
  CROSSINGS[plan.crossing] || plan.crossing.replaceAll("_", " "), ...plan.routes.slice(0, 6).map((one) => count(one.num_replicas) + " replicas: " + [...new Set(one.places)].join(", ")), plan.routes.length > 6 ? count(plan.routes.length - 6) + " more routes" : null]
  .filter(Boolean).map((words) => make("li", {}, words)))) : "–");

const tiles = (facts) => make("dl", { className: "tiles" }, ...facts.filter(([, value]) => value !== null && value !== "–").map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
const reasonsOf = (reasons) => make("ul", { className: "warnings" }, ...reasons.map((one) => make("li", {}, make("strong", {}, one.code.replaceAll("-", " ")), ": " + one.detail, one.remedies?.length ? ". Remedy: " + one.remedies.join("; or ") : "")));

/* gains: {name, gain, changes, note, estimate}. */
const gainsPart = (title, all, answer, { planIt }) => {
  const rows = answer.unit === "s/iteration" ? all : all.map((one) => ({ ...one, estimate: null })); // formulas tell seconds
  const show = inUnit(answer.unit), known = rows.filter(({ gain }) => gain.least !== null || gain.most !== null);
  const picture = known.length ? make("figure", {}, make("ul", { className: "legend" }, ...[known.some(({ gain }) => gain.verdict === "gains") && ["interval gains", "proven gain"], known.some(({ gain }) => gain.verdict === "loses") && ["interval loses", "proven loss"], ["interval undecided", "proven interval, includes 0"], ["found", "between the plans found"], rows.some((one) => typeof one.estimate === "number") ? ["estimate", "formula, not a proof"] : null].filter(Boolean)
    .map(([kind, words]) => make("li", {}, make("span", { className: "key " + kind }), words))),
    intervals(title, known.map(({ name, gain, estimate }) => ({ name, least: gain.least, most: gain.most, kind: gain.verdict === "gains" ? "gains" : gain.verdict === "loses" ? "loses" : "undecided",
      dot: typeof gain.value === "number" && typeof answer.value === "number" ? answer.value - gain.value : null, estimate })), answer.unit),
    make("figcaption", {}, "Time per iteration saved against the plan as asked, to the right of 0; left of it is lost.".replace("Time per iteration", answer.unit === "s/iteration" ? "Time per iteration" : "What is (" + answer.unit + ")"))) : null;
  const cells = ({ name, gain, changes, note }) => [note ? make("span", {}, name, make("span", { className: "part note" }, note)) : name, badge(gain.status === "not_tried" ? "not tried" : VERDICTS[gain.verdict] || gain.verdict, KINDS[gain.verdict]),
    datum(gain.least, show(gain.least)), datum(gain.most, show(gain.most)), datum(gain.value, show(gain.value)), datum(gain.lower_bound, show(gain.lower_bound)), gain.reasons?.length ? reasonsOf(gain.reasons) : behind(gain.plan),
    changes?.length ? make("button", { type: "button", "aria-label": "Plan " + name, onclick: () => planIt(changes, name) }, "Plan it") : ""];
  return [picture, table(title, [["change"], ["verdict"], ["gain, at least", true], ["at most", true], ["best plan found", true], ["no plan below", true], ["plan behind it"], [""]], rows.map(cells))].filter(Boolean);
};

/* What would help is planned together with what was asked. */
const whyPart = (answer, { planIt, asked = [] }) => {
  const wish = (name) => { const found = answer.wishes.find((one) => one.name === name); return make("span", {}, make("code", {}, name.replace("constraints.", "")), found ? " " + found.stated : ""); };
  const joined = (nodes) => nodes.flatMap((node, index) => (index ? [" and ", node] : [node]));
  const parts = [];
  if (answer.outcome === "planned") parts.push(make("p", { className: "good" }, "Nothing forbids it: there is such a plan."), make("div", {}, behind(answer.plan)));
  if (answer.conflicts.length) parts.push(make("h4", {}, answer.conflicts.length === 1 ? "The conflict" : "The conflicts"), make("ol", { className: "reasons" }, ...answer.conflicts.map((one) => make("li", {},
    make("p", {}, ...(one.wishes.length ? joined(one.wishes.map(wish)) : ["Whatever is wished for"]), one.physics.length ? make("span", {}, " against ", make("strong", {}, one.physics.join(", "))) : null),
    make("p", { className: "note" }, one.minimal ? "Proven minimal: without any one of these there is a plan." : "Not proven minimal."), reasonsOf(one.reasons)))));
  if (answer.relaxations.length) parts.push(table("What would help", [["change"], ["kind"], ["proven not to be enough"], ["plan that there is then"], [""]], answer.relaxations.map((one) => [one.text, badge(one.kind === "wish" ? "give up a wish" : "buy", one.kind === "wish" ? "queued" : "not_found"),
    one.least_proven || "–", behind(one.plan), make("button", { type: "button", "aria-label": "Plan: " + one.text, onclick: () => planIt([...asked, ...one.changes], one.text) }, "Plan it")])));
  if (answer.undecided.length) parts.push(make("p", { className: "note" }, "Not decided in time: " + answer.undecided.map((set) => set.join(" with ")).join("; ") + "."));
  return parts;
};

export const answerOf = (answer, context) => {
  const show = inUnit(answer.unit || "s/iteration"), parts = [];
  const estimates = context.estimates || {}, changesOf = context.changesOf || (() => null);
  const facts = [["Target", known(answer.target_iteration_s) ? seconds(answer.target_iteration_s) : null], ["With all there is", answer.fastest ? seconds(answer.fastest.iteration_s) : null], ["No plan is faster than", known(answer.fastest_lower_bound_s) ? seconds(answer.fastest_lower_bound_s) : null], ["Worst case, one plan", known(answer.value_s) ? seconds(answer.value_s) : null],
    ["As asked, best plan found", known(answer.value) ? show(answer.value) : null], ["No plan is below", known(answer.lower_bound) ? show(answer.lower_bound) : known(answer.lower_bound_s) ? seconds(answer.lower_bound_s) : null],
    ["Before", known(answer.before_s) ? seconds(answer.before_s) : null], ["Searches", known(answer.num_searches) ? count(answer.num_searches) : null], ["Time spent", span(answer.elapsed_s)], ["Complete", answer.complete ? "yes" : "not yet"]];
  parts.push(tiles(facts));
  if (answer.reasons?.length) parts.push(reasonsOf(answer.reasons));
  if (answer.conflicts) parts.push(...whyPart(answer, context));
  if (answer.gains) parts.push(...gainsPart("What each change gains", answer.gains.map((gain) => ({ name: gain.name, gain, changes: changesOf(gain.name), estimate: estimates[gain.name] })), answer, context));
  if (answer.values) parts.push(...gainsPart("What more of each is worth", [...answer.values.map((one) => ({ name: one.name.replace("constraints.", "").replaceAll("_", " "), gain: one.useful, changes: one.useful_changes, note: one.there, estimate: one.plan_held_s })),
    ...(answer.in_one_building ? [{ name: "all in one building", gain: answer.in_one_building }] : [])], answer, context));
  if (answer.curves) parts.push(...answer.curves.map((one) => curveOver("Best plan over " + one.over, one.points.map((point) => ({ at: point.factor, value: point.value, bound: point.lower_bound, name: "× " + point.factor })), { show, along: one.over + ", times what is there", logarithmic: true })),
    ...answer.curves.map((one) => table("Points over " + one.over, [["factor", true], ["best plan found", true], ["no plan below", true], ["gap", true], ["plan behind it"]], one.points.map((point) => [datum(point.factor, "× " + point.factor), datum(point.value, show(point.value)), datum(point.lower_bound, show(point.lower_bound)), datum(point.relative_gap, percent(point.relative_gap)), point.detail || behind(point.plan)]))));
  if (answer.frontiers) parts.push(...frontiersPart(answer, context));
  if (answer.least) parts.push(...leastPart(answer, context));
  if (answer.losses) parts.push(...lossesPart(answer, context));
  if (answer.ask === "what_now") parts.push(...waysPart(answer, context));
  if (answer.ask === "robust") parts.push(...worldsPart(answer));
  return make("div", { className: "answer" }, ...parts);
};

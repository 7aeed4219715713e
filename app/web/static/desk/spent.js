/* Answers about what is spent, what moves and what is not known: the least for a target, frontiers, losses, several worlds. */
import { pareto } from "./charts.js";
import { behind } from "./answers.js";
import { badge, bytes, count, datum, make, number, percent, seconds, table } from "./dom.js";
import { intervals } from "./intervals.js";

const SPENT = { gpus: ["GPUs in use", (one) => one.num_gpus, count], money: ["USD per million tokens", (one) => one.usd_per_million_tokens, number], bytes: ["bytes between buildings per iteration", (one) => one.cross_building_bytes, bytes], energy: ["kWh per million tokens", (one) => one.kwh_per_million_tokens, number] };
const GPU_HOURS = ["GPU hours per iteration", (one) => (one.num_gpus * one.iteration_s) / 3600, number];
const planButton = (changes, words, planIt) => (changes?.length ? make("button", { type: "button", "aria-label": "Plan " + words, onclick: () => planIt(changes, words) }, "Plan it") : "");

const LIMITS = { gpus: "/constraints/max_gpus", bytes: "/constraints/max_cross_building_bytes_per_iteration", iteration_s: "/objective/target_iteration_s" };
export const frontiersPart = (answer, { planIt }) => answer.frontiers.flatMap(({ against, limited, points, detail }) => {
  const priced = against !== "money" || points.some((one) => one.usd_per_million_tokens !== null);
  const [along, figure, show] = priced ? SPENT[against] : GPU_HOURS;
  const least = (one) => (limited !== "iteration_s" || priced ? one.lower_bound : one.relative_gap === null ? null : figure(one) * (1 - one.relative_gap));
  const again = (one) => [{ pointer: LIMITS[limited], value: limited === "gpus" ? Math.round(one.limit) : one.limit }, ...(limited === "iteration_s" ? [{ pointer: "/objective/kind", value: against === "money" ? "cost_per_token" : "fewest_gpus" }] : [])];
  const bound = (one) => (limited === "iteration_s" ? null : one.lower_bound);
  return [make("h4", {}, "Time against " + along), pareto("Iteration time against " + along, points.map((one) => ({ x: figure(one), y: one.iteration_s, bound: bound(one), name: along, act: () => planIt(again(one), along + " " + show(figure(one))) })), { showX: show, showY: seconds, along, up: "iteration time" }) || make("p", { className: "note" }, detail || "Fewer than two plans."),
    points.length ? table("Frontier against " + along, [["iteration", true], [along, true], ["no plan below", true], ["gap", true], ["plan behind it"], ["again"]], points.map((one) => [datum(one.iteration_s, seconds(one.iteration_s)), datum(figure(one), show(figure(one))),
      datum(least(one), limited === "iteration_s" ? show(least(one)) : seconds(least(one))), datum(one.relative_gap, percent(one.relative_gap)), behind(one.plan), planButton(again(one), along + " " + show(figure(one)), planIt)])) : null].filter(Boolean);
});

const OF = { gpus: "GPUs", cost: "cost", fibre: "fibre between buildings", memory: "memory of a GPU" };
export const leastPart = (answer, { planIt }) => [table("The least of each", [["of"], ["enough", true], ["proven: no less than", true], ["there is", true], ["unit"], ["plan behind it"], [""]], answer.least.map((one) => [OF[one.of] || one.of, one.value === null ? badge(one.status.replace("_", " "), one.status) : datum(one.value, number(one.value)),
  datum(one.lower_bound, number(one.lower_bound)), datum(one.there, number(one.there)), one.unit, make("span", {}, one.plan ? behind(one.plan) : "", one.detail), planButton(one.changes, "with the least " + (OF[one.of] || one.of), planIt)]))];

const way = (one, chosen) => [chosen ? make("strong", {}, "recommended") : "", datum(one.num_moved, count(one.num_moved) + " of " + count(one.num_groups)), datum(one.least_moved, count(one.least_moved)), datum(one.iteration_s, seconds(one.iteration_s)), datum(one.lower_bound_s, seconds(one.lower_bound_s)),
  datum(one.state_bytes, bytes(one.state_bytes)), datum(one.checkpoint_bytes, bytes(one.checkpoint_bytes)), datum(one.transfer_s, seconds(one.transfer_s)), behind(one.plan)];
export const waysPart = (answer, { planIt }) => [make("p", {}, count(answer.num_groups_lost) + " of " + count(answer.num_groups_before) + " stage groups stood on what is gone."),
  pareto("Iteration time against stage groups that move", answer.points.map((one) => ({ x: one.num_moved, y: one.iteration_s, bound: one.lower_bound_s, name: "moves" })), { showX: count, showY: seconds, along: "stage groups that move", up: "iteration time" }),
  table("Ways on", [[""], ["stage groups that move", true], ["none moves fewer than", true], ["iteration", true], ["no plan that moves so few is below", true], ["state to fetch", true], ["of it from a checkpoint", true], ["longest fetch", true], ["plan behind it"]], answer.points.map((one, index) => way(one, index === answer.chosen))),
  answer.lost_changes?.length ? make("p", { className: "actions" }, make("button", { type: "button", onclick: () => planIt(answer.lost_changes, "without " + answer.lost.join(", ")) }, "Plan without " + answer.lost.join(", "))) : null].filter(Boolean);

export const lossesPart = (answer, { planIt }) => [table("If it were lost", [["what"], ["outcome"], ["before", true], ["then", true], ["stage groups that move", true], ["state to fetch", true], ["longest fetch", true], ["plan behind it"], [""]], answer.losses.map(({ kind, name, answer: then }) => {
  const one = then && then.chosen !== null ? then.points[then.chosen] : null;
  return [kind + " " + name, then ? badge(then.outcome === "planned" ? "there is a way on" : then.outcome.replace("_", " "), then.outcome === "planned" ? "succeeded" : then.outcome) : badge("not tried", "queued"), datum(answer.before_s, seconds(answer.before_s)), datum(one?.iteration_s, seconds(one?.iteration_s)),
    datum(one?.num_moved, one ? count(one.num_moved) + " of " + count(one.num_groups) : ""), datum(one?.state_bytes, bytes(one?.state_bytes)), datum(one?.transfer_s, seconds(one?.transfer_s)), one ? behind(one.plan) : "–", planButton(then?.lost_changes, "without " + name, planIt)];
}))];

/* One plan in every world, beside what each world alone would allow and what the plan of the request comes to there. */
export const worldsPart = ({ figures, plan, value_s: value, lower_bound_s: bound, request_plan_value_s: other, least_price_s: least, most_price_s: most }) => {
  const alone = figures.filter((one) => one.best_s !== null);
  return [value === null ? null : make("p", {}, "This one plan takes at most ", make("strong", {}, seconds(value)), " per iteration in any of the worlds; no plan can promise less than ", datum(bound, seconds(bound)), ". ",
    other === null ? "The plan that is best as requested does not run in every world. " : ["The plan that is best as requested takes up to ", make("strong", {}, seconds(other)), ". "],
    least === null ? "" : "Where all is as requested, it costs " + (most - least < 5e-5 * value ? seconds(least) : seconds(least) + " to " + seconds(most)) + " more per iteration than the best plan there."),
  alone.length ? make("figure", {}, make("ul", { className: "legend" }, ...[["interval gap", "best plan of this world alone, from bound to found"], ["found", "the one plan for all"], ["beaten-key", "plan that is best as requested"]].map(([kind, words]) => make("li", {}, make("span", { className: "key " + kind }), words))),
    intervals("Iteration time in every world", alone.map((one) => ({ name: one.name, least: one.lower_bound_s, most: one.best_s, dot: one.iteration_s, other: one.request_plan_s, kind: "gap" })), "s", { zero: false })) : null,
  table("World by world", [["world"], ["the one plan", true], ["plan best as requested", true], ["best plan of this world", true], ["no plan below", true], ["outcome"]], figures.map((one) => [one.name, datum(one.iteration_s, seconds(one.iteration_s)), datum(one.request_plan_s, seconds(one.request_plan_s)),
    datum(one.best_s, seconds(one.best_s)), datum(one.lower_bound_s, seconds(one.lower_bound_s)), one.reasons.length ? one.reasons.map(({ detail }) => detail).join(" ") : badge(one.status === "planned" ? "planned" : one.status.replace("_", " "), one.status === "planned" ? "succeeded" : one.status)])),
  plan ? make("div", {}, "The one plan: ", behind(plan)) : null].filter(Boolean);
};

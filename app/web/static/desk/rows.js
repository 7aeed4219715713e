/* Plans as rows of a table, updated in place so that focus and choice stay where they are. */
import { age, badge, count, datum, make, moment, percent, seconds, span } from "./dom.js";

export const WORDS = { not_found: "no plan found", succeeded: "planned", incomplete: "stopped with a plan" };
export const OBJECTIVES = { iteration_time: "fastest iteration", time_at_confidence: "surest time", cost_per_token: "least cost", fewest_gpus: "fewest GPUs",
  least_cross_building_traffic: "least traffic" };
export const isActive = (one) => one.state === "queued" || one.state === "running";
export const stateBadge = (one) => badge(one.state === "cancelled" && one.figures ? WORDS.incomplete : one.state === "queued" && one.queue_position ? "queued, " + one.queue_position + " before" : WORDS[one.state] || one.state, one.state);
export const titleOf = (one) => one.name || one.model + ", " + moment(one.created_at);

const figure = (one, name) => one.figures?.[name] ?? null;
const time = (one) => one.progress?.incumbent_s ?? figure(one, "iteration_s");
const gap = (one) => one.progress?.relative_gap ?? figure(one, "relative_gap");
const plan = (one) => make("span", {}, make("a", { href: "/plans/" + one.id }, titleOf(one)),
  ...Object.entries(one.labels).map(([key, value]) => make("span", { className: "tag" }, value ? key + "=" + value : key)));

/* name, number?, key to sort by, cell */
export const COLUMNS = [
  ["plan", false, (one) => titleOf(one).toLowerCase(), plan],
  ["model", false, (one) => one.model, (one) => one.model],
  ["cluster", false, (one) => one.cluster, (one) => one.cluster],
  ["GPUs", true, (one) => figure(one, "num_gpus"), (one) => datum(figure(one, "num_gpus"), count(figure(one, "num_gpus")))],
  ["objective", false, (one) => one.objective, (one) => OBJECTIVES[one.objective] || one.objective],
  ["outcome", false, (one) => one.state, stateBadge],
  ["iteration", true, time, (one) => datum(time(one), seconds(time(one)))],
  ["gap", true, gap, (one) => datum(gap(one), percent(gap(one)))],
  ["searched", true, (one) => one.elapsed_s, (one) => datum(one.elapsed_s, span(one.elapsed_s))],
  ["submitted", true, (one) => one.created_at, (one) => make("time", { datetime: one.created_at, title: moment(one.created_at) }, age(one.created_at))],
];

export const planTable = (caption, { heads = null, choose = null } = {}) => {
  const body = make("tbody");
  const rows = new Map();
  const top = COLUMNS.map((column, index) => (heads ? heads(column, index) : make("th", { scope: "col", className: column[1] ? "n" : "" }, column[0])));
  if (choose) top.unshift(make("th", { scope: "col" }, make("span", { className: "unseen" }, "compare")));
  const element = make("div", { className: "scroll wide", tabindex: "0", role: "region", "aria-label": caption },
    make("table", {}, make("caption", { className: "unseen" }, caption), make("thead", {}, make("tr", {}, ...top)), body));
  const row = (one) => {
    const known = rows.get(one.id);
    const made = known || make("tr", {}, ...(choose ? [make("td", {}, choose(one))] : []),
      ...COLUMNS.map(([, numeric], index) => make(index ? "td" : "th", { scope: index ? null : "row", className: numeric ? "n" : "" })));
    COLUMNS.forEach(([, , , cell], index) => {
      const place = made.children[index + (choose ? 1 : 0)];
      const value = cell(one);
      const fresh = make("span", {}, value);
      if (place.firstChild?.isEqualNode(fresh)) return;
      place.replaceChildren(fresh);
    });
    rows.set(one.id, made);
    return made;
  };
  const fill = (items) => {
    const wanted = items.map(row);
    const kept = new Set(items.map((one) => one.id));
    for (const id of rows.keys()) if (!kept.has(id)) rows.delete(id);
    if (wanted.length !== body.children.length || wanted.some((one, index) => body.children[index] !== one)) body.replaceChildren(...wanted);
  };
  return { element, fill };
};

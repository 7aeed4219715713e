/* Plans side by side, each against the first: the service says what differs, the drawings are those of their reports. */
import { planPath, read, readText } from "./api.js";
import { bytes, count, datum, make, number, odds, percent, seconds, section, showPart, table } from "./dom.js";
import { titleOf } from "./rows.js";
import { intervals } from "./intervals.js";
import { takeable } from "./take.js";
import { written } from "./units.js";

const NAMES = {
  iteration_s: "iteration time", lower_bound_s: "no plan is faster than", relative_gap: "gap", tokens_per_s: "tokens per second",
  tokens_per_s_per_gpu: "tokens per second and GPU", model_flops_utilisation: "model FLOPs utilisation", num_gpus: "GPUs in use",
  cross_building_bytes: "between buildings, per iteration", usd_per_million_tokens: "USD per million tokens", fullest_gpu_bytes: "memory of the fullest GPU",
  compute_s: "compute", tensor_parallel_s: "tensor parallel", context_parallel_s: "context parallel", expert_parallel_s: "expert parallel", bubble_s: "bubble",
  pipeline_s: "pipeline transfers", data_parallel_s: "gradient exchange", optimizer_s: "optimizer", overhead_s: "step overhead",
};
const CAUSES = { pp: "pipeline", dp: "data parallel", ep: "expert parallel", cp: "context parallel", tp: "tensor parallel" };
const SHARES = new Set(["relative_gap", "model_flops_utilisation"]);
const shown = (name, value) => datum(value, name.endsWith("_s") && !name.startsWith("tokens") ? seconds(value) : name.endsWith("bytes") ? bytes(value)
  : SHARES.has(name) ? percent(value) : name === "num_gpus" ? count(value) : number(value));
/* A share changes by points: twice a gap of 2 % is no gap of 100 %. */
const change = (a, b, relative, name = "") => (SHARES.has(name) && a !== null && b !== null ? datum(b - a, percent(b - a, true).replace("%", "points"))
  : relative === null || relative === undefined ? (a === b ? "=" : "–") : relative === 0 ? "=" : datum(relative, percent(relative, true)));
const markOf = (index) => String.fromCharCode(65 + index);
/* One row for each key of any comparison with A: A's value and each other plan's. What a comparison leaves out is there as it is in A, unless it tells it in smaller or larger pieces. */
const rowsOf = (found, part) => [...new Set(found.flatMap((one) => Object.keys(one[part])))].map((key) => {
  const cells = found.map((one) => one[part][key]), { a } = cells.find(Boolean);
  const elsewhere = (one) => Object.keys(one[part]).some((other) => other.startsWith(key + "/") || key.startsWith(other + "/"));
  return { key, values: [a, ...cells.map((one, index) => (one ? one.b : elsewhere(found[index]) ? null : a))], changes: cells.map((one) => (one ? one.change : 0)) };
});
const besides = (caption, found, part, name = (key) => NAMES[key] || key, show = shown) => table(caption, [["what"], ...[{}, ...found].map((_, index) => [markOf(index), true]), ...found.map((_, index) => [markOf(index + 1) + " against A", true])],
  rowsOf(found, part).filter(({ values }) => values.some(Boolean)).map(({ key, values, changes }) => [name(key), ...values.map((one) => show(key, one)), ...changes.map((one, index) => change(values[0], values[index + 1], one, key))]), { unseen: true });
const UNITS = [[/bytes_per_s$/, "rate"], [/bytes$/, "bytes"], [/_s$/, "time"], [/_km$/, "distance"], [/fraction$|gap$|probability$/, "share"]];
/* Numbers that repeat, counted: 2, 62 times 1. */
const runs = (values) => values.reduce((found, one) => { if (found.length && found.at(-1)[0] === one) found.at(-1)[1] += 1; else found.push([one, 1]); return found; }, []).map(([one, times]) => (times > 1 ? times + " × " : "") + count(one)).join(", ") || "none";
const brief = (name, value) => {
  if (value === null || value === undefined) return "–";
  const [, unit] = UNITS.find(([pattern]) => pattern.test(name)) || [null, "ratio"];
  if (typeof value === "number") return datum(value, Number.isInteger(value) && unit === "ratio" ? count(value) : written(unit, Number(value.toPrecision(6))));
  const text = typeof value === "string" ? value : Array.isArray(value) && value.every((one) => typeof one === "number") ? runs(value) : JSON.stringify(value);
  return text.length > 90 ? make("span", { title: text.slice(0, 2000) }, text.slice(0, 87) + "…") : text;
};
const differing = (caption, found, part) => {
  const rows = rowsOf(found, part);
  return rows.length ? table(caption, [["what"], ...[{}, ...found].map((_, index) => [markOf(index)])], rows.map(({ key, values }) => [key, ...values.map((one) => brief(key, one))]), { unseen: true }) : make("p", { className: "note" }, caption + ": none.");
};
const moved = ({ moves }, mark) => {
  if (!moves.comparable) return make("p", {}, "No stage group of " + mark + " holds the layers of one of A: all " + count(moves.num_stage_groups) + " are other ones.");
  const others = moves.num_with_other_layers ? " " + count(moves.num_with_other_layers) + " of them hold layers, or a split of them, that no group of A holds." : "";
  const words = make("p", {}, count(moves.num_moved) + " of " + count(moves.num_stage_groups) + " stage groups move from A to " + mark + "." + others);
  if (!moves.moves.length) return words;
  const home = (one, end) => one[end + "_place"] + (one.from_place === one.to_place ? ", " + one[end + "_pool"] : "");
  return make("div", {}, words, table("Moves from A to " + mark, [["pipeline rank", true], ["from"], ["to"], ["stage groups", true]],
    moves.moves.slice(0, 200).map((one) => [count(one.pipeline_rank), home(one, "from"), home(one, "to"), datum(one.num_stage_groups, count(one.num_stage_groups))])));
};

const bar = (name, { p10, p50, p90 }) => ({ name, least: p10, most: p90, dot: p50, kind: "undecided" });
const decided = ({ best_plans_s: best }, mark) => [best.least > 0 ? "The best plan of A's request is faster than every plan of " + mark + "'s: proven, in the model." : best.most < 0 ? "The best plan of " + mark + "'s request is faster than every plan of A's: proven, in the model."
  : "Which of A and " + mark + " has the faster best plan is not decided: longer searches may turn it over.", " The best plan of " + mark + " takes between ", ...(best.most < 0 ? [datum(-best.most, seconds(-best.most)), " and ", datum(-best.least, seconds(-best.least)), " less"] : [datum(best.least, seconds(best.least)), " and ", datum(best.most, seconds(best.most)), " more"]), " per iteration than that of A."];
const errorBars = (known) => {
  const [{ a }] = known.map(({ bars }) => bars), each = [["A", a], ...known.map(({ mark, bars }) => [mark, bars.b])];
  const rows = [...each.map(([mark, one]) => ["iteration time of " + mark, one.iteration_s, seconds]), ...known.map(({ mark, bars }) => [mark + " over A", bars.time_ratio, number]),
    ...each.map(([mark, one]) => ["tokens per second of " + mark, one.tokens_per_s, number]), ...each.map(([mark, one]) => ["peak memory of " + mark, one.peak_memory_bytes, bytes])];
  return [...known.map(({ mark, bars }) => make("p", {}, "If both were run, " + mark + " would be faster than A with a probability of ", make("strong", {}, odds(bars.b_faster_probability)), ".")),
    make("p", { className: "note" }, "What two plans share (the same software, the same kind of job) cancels, so a ratio is known better than either time."),
    table("Error bars", [["what"], ["10 %", true], ["50 %", true], ["90 %", true]], rows.map(([name, one, show]) => [name, ...["p10", "p50", "p90"].map((at) => datum(one[at], show(one[at])))])),
    make("figure", { className: "chart" }, intervals("Iteration times with error bars", each.map(([mark, one]) => bar(mark + ", 10 to 90 %", one.iteration_s)), "s", { zero: false }), make("figcaption", {}, "The dots are the predictions. Bars that overlap do not mean that nothing is known: see the ratio."))];
};
/* How sure the differences are: error bars of the times, and what bounds and plans prove of the best plans. */
const sureness = (found) => {
  const known = found.map((one, index) => ({ mark: markOf(index + 1), bars: one.predicted })).filter(({ bars }) => bars);
  const kind = (best) => (best.least > 0 ? "loses" : best.most < 0 ? "gains" : "undecided");
  return section("sure", "How sure the difference is", ...(known.length < found.length ? [make("p", { className: "note" }, "Where error bars of a difference are missing, a plan has none, or the software profiles differ.")] : []), ...(known.length ? errorBars(known) : []),
    make("h3", {}, "What the searches prove"), ...found.map((one, index) => make("p", {}, ...decided(one, markOf(index + 1)))),
    make("figure", { className: "chart" }, intervals("Best plans less A's best plan", found.map(({ best_plans_s: best }, index) => ({ name: "best plan of " + markOf(index + 1) + " less A's", least: best.least, most: best.most, kind: kind(best) })), "s"), make("figcaption", {}, "From what is proven at least to what is proven at most. Wholly right of 0: A's request is the faster one; wholly left: it is not; across 0: not decided.")));
};

/* Drawings of the reports, below each other; ids get a prefix, since a page may have each but once. */
const drawings = (report, mark, ids) => ids.map((id) => {
  const figure = report.querySelector("#" + id + " > figure");
  if (!figure) return null;
  const copy = document.importNode(figure, true);
  for (const one of copy.querySelectorAll("[id]")) one.id = mark + one.id;
  for (const one of copy.querySelectorAll("[aria-labelledby]")) {
    one.setAttribute("aria-labelledby", mark + one.getAttribute("aria-labelledby"));
    if (one.hasAttribute("aria-describedby")) one.setAttribute("aria-describedby", mark + one.getAttribute("aria-describedby"));
  }
  return copy;
});
const PARTS = { time: "Where the time goes", buildings: "What flows between buildings", memory: "Memory per pipeline rank" };
const pictures = async (plans, signal) => {
  const drawnOf = async (one, index) => drawings(new DOMParser().parseFromString(await readText(planPath(one.id, "/artifacts/report-html"), signal), "text/html"), markOf(index).toLowerCase() + "-", Object.keys(PARTS));
  const found = await Promise.all(plans.map(drawnOf));
  return Object.entries(PARTS).map(([id, heading], part) => section("drawn-" + id, heading, ...found.map((figures, index) => make("div", {}, make("h3", {}, markOf(index)), figures[part] || make("p", { className: "note" }, "Nothing to draw.")))));
};

export const MOST = 6; // plans side by side: more columns than that nobody reads
export const addressOf = (ids) => "/compare?" + ids.map((id, index) => markOf(index).toLowerCase() + "=" + encodeURIComponent(id)).join("&");
const choose = (plans, ids, go) => {
  const select = (chosen, index) => make("label", {}, markOf(index) + " ", make("select", { name: "plan", value: chosen }, make("option", { value: "" }, index < 2 ? "choose a plan" : index < ids.length ? "none" : "one more"),
    ...plans.map((one) => make("option", { value: one.id, selected: one.id === chosen }, titleOf(one) + ": " + seconds(one.figures.iteration_s)))));
  const shown = [...ids, ""].slice(0, MOST);
  return make("form", { className: "filters", "aria-label": "The plans", onchange: (event) => go(addressOf(new FormData(event.currentTarget).getAll("plan").filter((id) => id)), { replace: true }) },
    ...(shown.length < 2 ? ["", ""] : shown).map(select));
};

export const show = async (page, { query, signal, tell, go }) => {
  document.title = "Compare · Isthmus";
  const ids = [...new Set(Array.from({ length: MOST }, (_, index) => query.get(markOf(index).toLowerCase()) || "").filter((id) => id))];
  page.append(make("h1", {}, "Compare plans"));
  const known = (await read("/v1/plans?limit=100", signal)).items;
  for (const id of ids) if (!known.some((one) => one.id === id)) known.push(await read(planPath(id, "/status"), signal));
  const plans = known.filter((one) => one.figures);
  page.append(choose(plans, ids, go));
  if (ids.length < 2) { tell(plans.length < 2 ? "There are not yet two plans to compare." : "Choose two plans or more."); return; }
  const chosen = ids.map((id) => plans.find((one) => one.id === id));
  if (!chosen.every(Boolean)) { tell("Only searches that found a plan can be compared."); return; }
  tell("Comparing");
  const found = await Promise.all(ids.slice(1).map((id) => read(planPath(ids[0], "/comparison?other=" + encodeURIComponent(id)), signal)));
  const faster = found.map((one, index) => (one.figures.iteration_s.change === 0 ? (found.length > 1 ? markOf(index + 1) + " takes as long as A." : "Both take the same time.")
    : markOf(index + 1) + " takes " + percent(Math.abs(one.figures.iteration_s.change)) + (one.figures.iteration_s.change < 0 ? " less" : " more") + " time per iteration" + (found.length > 1 ? " than A." : ".")));
  page.append(
    make("p", { className: "lead" }, ...chosen.flatMap((one, index) => [index ? ", " : "", markOf(index) + " is ", make("a", { href: "/plans/" + one.id }, titleOf(one))]), ". ", faster.join(" ")),
    section("figures", "Figures", besides("Figures", found, "figures")),
    section("times", "Time by cause", besides("Iteration time by cause", found, "time")),
    sureness(found),
    section("request", "What was asked differently", differing("Differences of the requests", found, "request")),
    section("choices", "What was chosen differently", differing("Differences of the configurations", found, "configuration")),
    section("placement", "Placement", besides("GPUs by pool", found, "gpus_of_pool", (key) => key, (_, value) => datum(value, count(value))), ...found.map((one, index) => moved(one, markOf(index + 1)))),
    section("bytes", "Bytes by link", besides("Bytes per iteration by link and cause", found, "bytes_of_link",
      (key) => key.replace(/ (\w+)$/, (_, cause) => ", " + (CAUSES[cause] || cause)), (_, value) => datum(value, bytes(value)))));
  takeable(page);
  showPart();
  page.append(...await pictures(chosen, signal));
  takeable(page);
  if (location.hash.startsWith("#drawn-")) showPart(); // which came last
  tell("");
};

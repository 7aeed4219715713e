/* Two plans side by side: the service says what differs, the drawings are those of their reports. */
import { planPath, read, readText } from "./api.js";
import { bytes, count, datum, make, number, odds, percent, seconds, section, table } from "./dom.js";
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
const change = (one, name = "") => (SHARES.has(name) && one.a !== null && one.b !== null ? datum(one.b - one.a, percent(one.b - one.a, true).replace("%", "points"))
  : one.change === null || one.change === undefined ? (one.a === one.b ? "=" : "–") : one.change === 0 ? "=" : datum(one.change, percent(one.change, true)));
const HEADS = [["what"], ["A", true], ["B", true], ["B against A", true]];
const besides = (caption, values, name = (key) => NAMES[key] || key, show = shown) => table(caption, HEADS,
  Object.entries(values).filter(([, one]) => one.a || one.b).map(([key, one]) => [name(key), show(key, one.a), show(key, one.b), change(one, key)]), { unseen: true });
const UNITS = [[/bytes_per_s$/, "rate"], [/bytes$/, "bytes"], [/_s$/, "time"], [/_km$/, "distance"], [/fraction$|gap$|probability$/, "share"]];
const brief = (name, value) => {
  if (value === null || value === undefined) return "–";
  const [, unit] = UNITS.find(([pattern]) => pattern.test(name)) || [null, "ratio"];
  if (typeof value === "number") return datum(value, Number.isInteger(value) && unit === "ratio" ? count(value) : written(unit, Number(value.toPrecision(6))));
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 90 ? make("span", { title: text.slice(0, 2000) }, text.slice(0, 87) + "…") : text;
};
const differing = (caption, values) => {
  const rows = Object.entries(values);
  return rows.length ? table(caption, [["what"], ["A"], ["B"]], rows.map(([name, one]) => [name, brief(name, one.a), brief(name, one.b)]), { unseen: true }) : make("p", { className: "note" }, caption + ": none.");
};
const moved = (moves) => {
  if (!moves.comparable) return make("p", {}, "Other tensor, context or pipeline degrees: all " + count(moves.num_stage_groups) + " stage groups are other ones.");
  const words = make("p", {}, count(moves.num_moved) + " of " + count(moves.num_stage_groups) + " stage groups change place from A to B.");
  if (!moves.moves.length) return words;
  return make("div", {}, words, table("Moves", [["pipeline rank", true], ["from"], ["to"], ["stage groups", true]],
    moves.moves.slice(0, 200).map((one) => [count(one.pipeline_rank), one.from_place, one.to_place, datum(one.num_stage_groups, count(one.num_stage_groups))])));
};

const bar = (name, { p10, p50, p90 }) => ({ name, least: p10, most: p90, dot: p50, kind: "undecided" });
/* How sure the difference is: error bars of the times, and what bounds and plans prove of the two best plans. */
const sureness = ({ predicted: bars, best_plans_s: best }) => {
  const decided = best.least > 0 ? "The best plan of A's request is faster than every plan of B's: proven, in the model." : best.most < 0 ? "The best plan of B's request is faster than every plan of A's: proven, in the model." : "Which request has the faster best plan is not decided: longer searches may turn it over.";
  const proof = [make("h3", {}, "What the searches prove"), make("p", {}, decided + " The best plan of B takes between ", datum(best.least, seconds(best.least)), " and ", datum(best.most, seconds(best.most)), " more per iteration than that of A."),
    make("figure", { className: "chart" }, intervals("B's best plan less A's best plan", [{ name: "best plan of B less A's", least: best.least, most: best.most, kind: best.least > 0 ? "loses" : best.most < 0 ? "gains" : "undecided" }], "s"))];
  if (!bars) return section("sure", "How sure the difference is", make("p", { className: "note" }, "No error bars of the difference: a plan has none, or the software profiles differ."), ...proof);
  const { a, b, time_ratio: ratio } = bars;
  return section("sure", "How sure the difference is",
    make("p", {}, "If both were run, B would be the faster one with a probability of ", make("strong", {}, odds(bars.b_faster_probability)), ". What both plans share (the same software, the same kind of job) cancels, so the ratio is known better than either time."),
    table("Error bars of both plans", [["what"], ["10 %", true], ["50 %", true], ["90 %", true]], [["iteration time of A", a.iteration_s, seconds], ["iteration time of B", b.iteration_s, seconds], ["B over A", ratio, number], ["tokens per second of A", a.tokens_per_s, number], ["tokens per second of B", b.tokens_per_s, number],
      ["peak memory of A", a.peak_memory_bytes, bytes], ["peak memory of B", b.peak_memory_bytes, bytes]].map(([name, one, show]) => [name, ...["p10", "p50", "p90"].map((at) => datum(one[at], show(one[at])))])),
    make("figure", { className: "chart" }, intervals("Iteration times with error bars", [bar("A, 10 to 90 %", a.iteration_s), bar("B, 10 to 90 %", b.iteration_s)], "s", { zero: false }), make("figcaption", {}, "The dots are the predictions. Bars that overlap do not mean that nothing is known: see the ratio.")),
    ...proof);
};

/* Drawings of both reports, side by side; ids get a prefix, since a page may have each but once. */
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
const pictures = async (a, b, signal) => {
  const reports = await Promise.all([a, b].map(async (one) => new DOMParser().parseFromString(await readText(planPath(one.id, "/artifacts/report-html"), signal), "text/html")));
  const ids = ["time", "buildings", "memory"];
  const [left, right] = reports.map((report, index) => drawings(report, "ab"[index] + "-", ids));
  return ids.map((id, index) => section("drawn-" + id, { time: "Where the time goes", buildings: "What flows between buildings", memory: "Memory per pipeline rank" }[id],
    make("div", {}, ...[[left, "A"], [right, "B"]].map(([found, mark]) => make("div", {}, make("h3", {}, mark), found[index] || make("p", { className: "note" }, "Nothing to draw."))))));
};

const choose = (plans, a, b, go) => {
  const select = (name, label, chosen) => make("label", {}, label, make("select", { name, value: chosen }, make("option", { value: "" }, "choose a plan"),
    ...plans.map((one) => make("option", { value: one.id, selected: one.id === chosen }, titleOf(one) + ": " + seconds(one.figures.iteration_s)))));
  return make("form", { className: "filters", "aria-label": "The two plans", onchange: (event) => {
    const values = new FormData(event.currentTarget);
    go("/compare?a=" + values.get("a") + "&b=" + values.get("b"), { replace: true });
  } }, select("a", "A ", a), select("b", "B ", b));
};

export const show = async (page, { query, signal, tell, go }) => {
  document.title = "Compare · Isthmus";
  const a = query.get("a") || "", b = query.get("b") || "";
  page.append(make("h1", {}, "Compare two plans"));
  const known = (await read("/v1/plans?limit=100", signal)).items.filter((one) => one.figures);
  for (const id of [a, b]) if (id && !known.some((one) => one.id === id)) known.push(await read(planPath(id, "/status"), signal));
  const plans = known.filter((one) => one.figures);
  page.append(choose(plans, a, b, go));
  if (!a || !b) { tell(plans.length < 2 ? "There are not yet two plans to compare." : "Choose two plans."); return; }
  const [first, second] = [a, b].map((id) => plans.find((one) => one.id === id));
  if (!first || !second) { tell("Only searches that found a plan can be compared."); return; }
  tell("Comparing");
  const found = await read(planPath(a, "/comparison?other=" + encodeURIComponent(b)), signal);
  const faster = found.figures.iteration_s;
  page.append(
    make("p", { className: "lead" }, "A is ", make("a", { href: "/plans/" + a }, titleOf(first)), ", B is ", make("a", { href: "/plans/" + b }, titleOf(second)), ". ",
      faster.change === 0 ? "Both take the same time." : "B takes " + percent(Math.abs(faster.change)) + (faster.change < 0 ? " less" : " more") + " time per iteration."),
    section("figures", "Figures", besides("Figures of both", found.figures)),
    section("times", "Time by cause", besides("Iteration time by cause", found.time)),
    sureness(found),
    section("request", "What was asked differently", differing("Differences of the requests", found.request)),
    section("choices", "What was chosen differently", differing("Differences of the configurations", found.configuration)),
    section("placement", "Placement", besides("GPUs by pool", found.gpus_of_pool, (key) => key, (_, value) => datum(value, count(value))), moved(found.moves)),
    section("bytes", "Bytes by link", besides("Bytes per iteration by link and cause", found.bytes_of_link,
      (key) => key.replace(/ (\w+)$/, (_, cause) => ", " + (CAUSES[cause] || cause)), (_, value) => datum(value, bytes(value)))));
  takeable(page);
  page.append(...await pictures(first, second, signal));
  takeable(page);
  tell("");
};

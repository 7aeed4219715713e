/* Two plans side by side: the service says what differs, the drawings are those of their reports. */
import { planPath, read, readText } from "./api.js";
import { bytes, count, datum, make, number, percent, seconds, section, table } from "./dom.js";
import { titleOf } from "./rows.js";
import { takeable } from "./take.js";

const NAMES = {
  iteration_s: "iteration time", lower_bound_s: "no plan is faster than", relative_gap: "gap", tokens_per_s: "tokens per second",
  tokens_per_s_per_gpu: "tokens per second and GPU", model_flops_utilisation: "model FLOPs utilisation", num_gpus: "GPUs in use",
  cross_building_bytes: "between buildings, per iteration", usd_per_million_tokens: "USD per million tokens", fullest_gpu_bytes: "memory of the fullest GPU",
  compute_s: "compute", tensor_parallel_s: "tensor parallel", context_parallel_s: "context parallel", expert_parallel_s: "expert parallel", bubble_s: "bubble",
  pipeline_s: "pipeline transfers", data_parallel_s: "gradient exchange", optimizer_s: "optimizer",
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
const brief = (value) => {
  if (value === null || value === undefined) return "–";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 90 ? make("span", { title: text.slice(0, 2000) }, text.slice(0, 87) + "…") : text;
};
const differing = (caption, values) => {
  const rows = Object.entries(values);
  return rows.length ? table(caption, [["what"], ["A"], ["B"]], rows.map(([name, one]) => [name, brief(one.a), brief(one.b)]), { unseen: true }) : make("p", { className: "note" }, caption + ": none.");
};
const moved = (moves) => {
  if (!moves.comparable) return make("p", {}, "Other tensor, context or pipeline degrees: all " + count(moves.num_stage_groups) + " stage groups are other ones.");
  const words = make("p", {}, count(moves.num_moved) + " of " + count(moves.num_stage_groups) + " stage groups change place from A to B.");
  if (!moves.moves.length) return words;
  return make("div", {}, words, table("Moves", [["pipeline rank", true], ["from"], ["to"], ["stage groups", true]],
    moves.moves.slice(0, 200).map((one) => [count(one.pipeline_rank), one.from_place, one.to_place, datum(one.num_stage_groups, count(one.num_stage_groups))])));
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

/* How far to believe one plan: error bars of time and memory, the proof beside them, and the runs behind its class. */
import { bytes, count, datum, make, number, odds, seconds, section, table } from "./dom.js";
import { intervals } from "./intervals.js";

const classOf = (one) => [one.generation, one.kind, one.precision].join("-");
const evidence = (one) => make("li", {}, make("a", { href: "/accuracy?class=" + encodeURIComponent(classOf(one)) + "#runs" }, one.generation + ", " + one.kind + ", " + one.precision), ": ",
  one.rows ? count(one.rows) + (one.rows === 1 ? " measured run" : " measured runs") + (one.own_rows ? ", " + count(one.own_rows) + " of them of this software" : "") : make("strong", { className: "alert" }, "nobody has measured such a run"));

export const surePart = (plan, { objective }) => {
  const { prediction: bars, proof, metrics, memory } = plan;
  if (!bars) return section("sure", "How far to believe it", make("p", { className: "note" }, "This plan states no error bars."));
  const ofTime = objective.kind === "iteration_time"; // a bound of anything else is none of time
  const limit = Math.min(...memory.map((one) => one.limit_bytes)), picture = (title, rows, unit) => make("figure", { className: "chart" }, intervals(title, rows, unit, { zero: false }));
  return section("sure", "How far to believe it",
    make("p", {}, "Measured, the iteration would take ", make("strong", {}, seconds(bars.iteration_s.p10) + " to " + seconds(bars.iteration_s.p90)), " in 8 of 10 cases. The fullest GPU stays within its memory with a probability of ", make("strong", {}, odds(bars.fits_probability)), "."),
    picture("Iteration time with its error bars" + (ofTime ? " and its gap" : ""), [{ name: "prediction, 10 to 90 %", least: bars.iteration_s.p10, most: bars.iteration_s.p90, dot: bars.iteration_s.p50, kind: "undecided" },
      { name: ofTime ? "best plan, by the model" : "this plan, by the model", least: ofTime ? proof.lower_bound_s : metrics.iteration_s, most: metrics.iteration_s, dot: metrics.iteration_s, kind: "gap" }], "s"),
    picture("Memory of the fullest GPU with its error bars and its limit", [{ name: "peak memory, 10 to 90 %", least: bars.peak_memory_bytes.p10, most: bars.peak_memory_bytes.p90, dot: bars.peak_memory_bytes.p50, kind: "undecided", limit }], "B"),
    make("p", { className: "note" }, "Grey: what measuring may show. " + (ofTime ? "Blue: what a longer search may find, between what no plan is below and this plan. " : "") + "Red: the memory that the request leaves to use."),
    table("Error bars", [["what"], ["10 %", true], ["50 %", true], ["90 %", true]], [["iteration time", bars.iteration_s, seconds], ["tokens per second", bars.tokens_per_s, number], ["peak memory of the fullest GPU", bars.peak_memory_bytes, bytes]]
      .map(([name, one, show]) => [name, ...["p10", "p50", "p90"].map((at) => datum(one[at], show(one[at])))])),
    make("h3", {}, "What stands behind it"), make("ul", {}, ...bars.evidence.map(evidence)));
};

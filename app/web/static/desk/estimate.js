/* What a change does to a plan that stays as it is, by formulas on the plan's own figures: at once, and not a proof. */
import { percent, seconds } from "./dom.js";
import { buildingOf } from "./sketch.js";
import { written } from "./units.js";

/* Times that a micro-batch passes from one building to another on its way forward: every chunk runs through all ranks, and a schedule that loops starts the next chunk at the first rank again. */
export const crossings = (plan, cluster) => {
  const building = buildingOf(cluster), { degrees, family } = plan.configuration;
  return Math.max(0, ...plan.routes.map(({ places }) => {
    const at = places.map(building), along = at.filter((one, index) => index && one !== at[index - 1]).length;
    const back = family === "loop" && at.at(-1) !== at[0] ? 1 : 0;
    return degrees.vpp * along + (degrees.vpp - 1) * back;
  }));
};
const buildingsOf = (plan, cluster) => { const building = buildingOf(cluster); return new Set(plan.routes.flatMap(({ places }) => places.map(building))).size; };
const ofLinks = (plan, cluster) => plan.link_loads.filter((load) => cluster.links.some((one) => one.id === load.link));

/* Each returns the change of the iteration time in seconds, and the formula in words. */
const FORMULAS = {
  latency(plan, { cluster }, { by_s: by }) {
    const passes = crossings(plan, cluster), buildings = buildingsOf(plan, cluster), rings = plan.crossing.startsWith("dp") && plan.time.data_parallel_s > 0 ? 2 * (buildings - 1) : 0;
    const added = Math.max((2 * passes + rings) * by, -plan.time.pipeline_s - plan.time.data_parallel_s);
    return [added, passes || rings ? [passes && "the first micro-batch comes " + passes + (passes === 1 ? " time" : " times") + " to another building on its way forward and as often on its way back", rings && "the gradient ring passes between buildings " + rings + " times"].filter(Boolean).join(", ")
      + ": " + (2 * passes + rings) + " × " + seconds(by) : "nothing of this plan crosses a link"];
  },
  bandwidth(plan, { cluster }, { times }) {
    const priced = ofLinks(plan, cluster).flatMap((load) => load.flows.map((flow) => flow.price_s_per_gb * flow.bytes_per_iteration / 1e9)).reduce((sum, one) => sum + one, 0);
    const exposed = plan.time.pipeline_s + plan.time.data_parallel_s;
    const added = Math.max(priced * (1 / times - 1), -exposed);
    return [added, priced ? "the dual prices of its links times their bytes, " + seconds(priced) + ", grow as 1 / rate" : "no dual price of its links is above 0: compute or another link sets the pace"];
  },
  memory(plan, { cluster }, { times }) {
    const fullest = plan.memory.map((one) => Object.entries(one).filter(([name]) => name.endsWith("_bytes") && name !== "limit_bytes").reduce((sum, [, value]) => sum + value, 0)).reduce((a, b) => Math.max(a, b), 0);
    const limit = Math.min(...plan.memory.map((one) => one.limit_bytes)) * times;
    return [fullest > limit ? null : 0, "the fullest GPU needs " + written("bytes", Number(fullest.toPrecision(3))) + (fullest > limit ? ", more than the " : " of the ") + written("bytes", Number(limit.toPrecision(3))) + " there would be"
      + (fullest > limit ? ": this plan does not fit" : "; a plan that uses more may be faster")];
  },
  gpus(plan, request, { times }) {
    const { compute_s: compute, tensor_parallel_s: tp, context_parallel_s: cp, expert_parallel_s: ep, bubble_s: bubble } = plan.time;
    const shared = compute + tp + cp + ep;
    return [shared * (1 / times - 1), "computing, " + percent(shared / plan.time.total_s) + " of the time, is shared by " + times.toPrecision(3).replace(/\.?0+$/, "") + " times as many; bubble (" + seconds(bubble) + ") and exchanges stay"];
  },
};

/* `settings` are {latency: {by_s}, bandwidth: {times}, memory: {times}, gpus: {times}}, each only where it is moved. */
export const estimate = (plan, request, settings) => {
  const parts = Object.entries(settings).map(([name, setting]) => { const [added, why] = FORMULAS[name](plan, request, setting); return { name, added, why }; });
  const fits = parts.every(({ added }) => added !== null);
  const iteration_s = fits ? Math.max(0, parts.reduce((sum, { added }) => sum + added, plan.metrics.iteration_s)) : null;
  return { iteration_s, gain_s: fits ? plan.metrics.iteration_s - iteration_s : null, parts };
};

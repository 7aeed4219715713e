/* Changes of a request by JSON Pointer, as questions have them, and the sliders that make the usual ones. */
import { count, make } from "./dom.js";
import { written } from "./units.js";

const part = (text) => text.replaceAll("~1", "/").replaceAll("~0", "~"), escaped = (name) => name.replaceAll("~", "~0").replaceAll("/", "~1");
/* The place in a list of an element with this id; else a number is a place, as the service reads it. */
const placeOf = (list, key) => { const found = list.findIndex((one) => one?.id === key); return found >= 0 ? found : Number(key); };
/* The request with changes made to it: in a list, a part of a pointer is the id of an element, a number, or * for all. */
export const applied = (request, changes) => {
  const made = structuredClone(request);
  const spots = (holder, [first, ...others]) => {
    const keys = !Array.isArray(holder) ? [first] : first === "*" ? [...holder.keys()] : [placeOf(holder, first)];
    return others.length ? keys.flatMap((key) => { holder[key] ??= {}; return spots(holder[key], others); }) : keys.map((key) => [holder, key]);
  };
  for (const { pointer, op = "replace", value } of changes) {
    for (const [holder, key] of spots(made, pointer.slice(1).split("/").map(part)).reverse()) {
      if (op === "replace") holder[key] = value;
      else if (op === "add") holder[key] = [...(holder[key] || []), value];
      else if (op === "remove") { if (Array.isArray(holder)) holder.splice(key, 1); else holder[key] = null; }
      else holder[key] = op === "increase" ? holder[key] + value : holder[key] * value;
    }
  }
  return made;
};

const TIMES = [1 / 8, 1 / 6, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 0.8, 1, 1.25, 1.5, 2, 3, 4, 6, 8];
const ADDED_S = [0, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 3e-2, 5e-2, 0.1];
const GPUS = [1 / 8, 1 / 4, 1 / 2, 0.75, 1, 1.5, 2, 3, 4];
const times = (factor) => "× " + Number(factor.toPrecision(3));
/* The delay that a link has now: its own, light in its fibre at 4.9 µs per km, or what the planner takes inside a region and between regions (1,000 km). */
const INSIDE_S = 2.36e-5, BETWEEN_S = 5.2e-3;
const delayOf = (cluster) => {
  const parents = new Map(cluster.places.map((one) => [one.id, one.parent])), root = (id) => { let top = id; for (let turns = 0; parents.get(top) && turns < 8; turns++) top = parents.get(top); return top; };
  return (link) => link.latency_s ?? (typeof link.distance_km === "number" ? link.distance_km * 4.9e-6 : root(link.from_place) === root(link.to_place) ? INSIDE_S : BETWEEN_S);
};

/* name, label, values, place of "as it is", whether there is something to change, setting of a value */
const SLIDERS = [
  ["latency", "Delay of every link, one way", ADDED_S, 0, ({ cluster }) => cluster.links.length > 0, (value) => ({ by_s: value, words: written("time", value) + " more delay" })],
  ["bandwidth", "Rate of every link", TIMES, 7, ({ cluster }) => cluster.links.length > 0, (value) => ({ times: value, words: "links " + times(value) })],
  ["memory", "Memory of every GPU", TIMES.slice(4, 12), 3, () => true, (value, { cluster }) => ({ times: value, words: new Set(cluster.pools.map((one) => one.gpu.memory_bytes)).size === 1 ? written("bytes", Number((cluster.pools[0].gpu.memory_bytes * value).toPrecision(3))) + " of memory" : "memory " + times(value) })],
  ["gpus", "GPUs", GPUS, 4, () => true, (value, request, plan) => ({ times: value, words: count(Math.round(plan.metrics.num_gpus * value)) + " GPUs" })],
];
/* One change of a number that every link has, else one for each that has it: a question takes a hundred. */
const ofLinks = (links, field, change) => {
  const those = links.filter((one) => typeof one[field] === "number");
  return (those.length && those.length === links.length ? ["*"] : those.map((one) => escaped(one.id))).map((at) => ({ pointer: "/cluster/links/" + at + "/" + field, ...change }));
};
/* The same as changes of the request. */
export const settingsOf = (request, name, { by_s: by, times: factor }) => {
  const { links, pools } = request.cluster;
  if (name === "latency") return links.every((one) => typeof one.latency_s === "number") ? ofLinks(links, "latency_s", { op: "increase", value: by }) : links.map((one) => ({ pointer: "/cluster/links/" + escaped(one.id) + "/latency_s", value: delayOf(request.cluster)(one) + by }));
  if (name === "bandwidth") return ["capacity_bytes_per_s", "reverse_capacity_bytes_per_s"].flatMap((field) => ofLinks(links, field, { op: "multiply", value: factor }));
  if (name === "memory") return [{ pointer: "/cluster/pools/*/gpu/memory_bytes", op: "multiply", value: factor }];
  const free = pools.reduce((sum, one) => sum + one.num_hosts * one.gpus_per_host - one.num_reserved_gpus - one.num_unhealthy_gpus, 0), most = Math.min(free, request.constraints.max_gpus ?? free);
  const limit = request.constraints.max_gpus || factor < 1 ? [{ pointer: "/constraints/max_gpus", value: Math.max(1, Math.round(most * factor)) }] : [];
  return factor > 1 && most * factor > free ? [...limit, ...pools.map((one) => ({ pointer: "/cluster/pools/" + escaped(one.id) + "/num_hosts", value: Math.ceil(one.num_hosts * factor) })), ...pools.filter((one) => one.host_names.length).map((one) => ({ pointer: "/cluster/pools/" + escaped(one.id) + "/host_names", value: [] }))] : limit;
};

export const sliders = (plan, request, changed) => {
  const made = SLIDERS.map(([name, label, values, rest, there, setting]) => {
    const output = make("output", {}), input = make("input", { type: "range", min: "0", max: String(values.length - 1), step: "1", value: String(rest), disabled: !there(request), "aria-label": label });
    const now = () => (Number(input.value) === rest ? null : setting(values[Number(input.value)], request, plan));
    const told = () => { const words = input.disabled ? "no links" : now()?.words || "as it is"; output.textContent = words; input.setAttribute("aria-valuetext", words); };
    input.addEventListener("input", () => { told(); changed(); });
    told();
    return { name, now, element: make("label", { className: "slider" }, make("span", {}, label), input, output) };
  });
  return { element: make("div", { className: "sliders" }, ...made.map((one) => one.element)), values: () => Object.fromEntries(made.map((one) => [one.name, one.now()]).filter(([, value]) => value)) };
};

/* A cluster made by hand: places, pools and links as tables of fields, beside a drawing of them. */
import { count, make, table } from "./dom.js";
import { keepingFocus, pointerOf, quantity, valueAt } from "./fields.js";
import { sketch } from "./sketch.js";
import { takeable } from "./take.js";
import { written } from "./units.js";

const LEVELS = ["region", "building", "zone", "rack"];
const MOST_ROWS = 60; // of a table of fields; larger clusters are imported, and changed as JSON
const FIRST = { num_hosts: 64, gpus_per_host: 8, nic_bytes_per_s: 5e10 };
const LINK = { capacity_bytes_per_s: 4e11, distance_km: 10 };

export const byHand = (gpu) => ({
  name: "my-cluster",
  places: [{ id: "building-1", level: "building" }, { id: "building-2", level: "building" }],
  pools: [1, 2].map((number) => ({ id: "pool-" + number, place: "building-" + number, gpu, ...FIRST })),
  links: [{ id: "link-1", from_place: "building-1", to_place: "building-2", ...LINK }],
});
const fresh = (stem, taken) => { let number = 1; while (taken.some((one) => one.id === stem + "-" + number)) number++; return stem + "-" + number; };
const lists = (cluster) => { for (const kind of ["places", "pools", "links"]) cluster[kind] ??= []; return cluster; };

/* Whether there are rows to show: what is pasted or half written may be anything. */
const hasRows = (cluster) => ["places", "pools", "links"].every((kind) => Array.isArray(cluster[kind] ?? []) && (cluster[kind] ?? []).every((one) => one && typeof one === "object"));

/* A type of the catalogue with another memory or price is a type of its own, and has a name of its own. */
export const gpuWith = (entries, base, changes) => {
  const entry = entries.get(base);
  const changed = Object.entries(changes).filter(([name, value]) => value !== undefined && value !== null && value !== entry[name]);
  if (!changed.length) return base;
  const { memory_bytes: memory, usd_per_gpu_hour: price } = Object.fromEntries(changed);
  return { ...entry, ...Object.fromEntries(changed), name: [base, memory ? Number((memory / 1e9).toPrecision(4)) + " GB" : "", price !== undefined ? price + " USD" : ""].filter(Boolean).join(", ") };
};
const baseOf = (entries, gpu) => {
  const name = gpu?.name || gpu;
  return [...entries.keys()].find((one) => name === one || String(name).startsWith(one + ", ")) || null;
};

const changes = (draft) => ({
  addPlace: () => draft.change(({ cluster }) => {
    const id = fresh("building", lists(cluster).places), pool = cluster.pools.at(-1);
    cluster.places.push({ id, level: "building" });
    cluster.pools.push({ ...FIRST, ...pool, num_unhealthy_gpus: undefined, num_reserved_gpus: undefined, host_names: undefined, id: fresh("pool", cluster.pools), place: id });
  }),
  addPool: () => draft.change(({ cluster }) => { lists(cluster).pools.push({ ...FIRST, gpu: cluster.pools.at(-1)?.gpu || "H100-SXM-80G", id: fresh("pool", cluster.pools), place: cluster.places.at(-1)?.id }); }),
  join: (from, to) => draft.change(({ cluster }) => { lists(cluster).links.push({ ...LINK, id: fresh("link", cluster.links), from_place: from, to_place: to }); }),
  rename: (before, after) => draft.change(({ cluster }) => {
    for (const one of cluster.places) { if (one.id === before) one.id = after; if (one.parent === before) one.parent = after; }
    for (const one of cluster.pools) if (one.place === before) one.place = after;
    for (const one of cluster.links) for (const end of ["from_place", "to_place"]) if (one[end] === before) one[end] = after;
  }),
  call: (kind, index, id) => draft.change(({ cluster }) => { cluster[kind][index].id = id; }),
  removePlace: (id) => draft.change(({ cluster }) => {
    const gone = new Set([id]);
    for (let before = 0; before !== gone.size;) { before = gone.size; for (const one of cluster.places) if (gone.has(one.parent)) gone.add(one.id); }
    cluster.places = cluster.places.filter((one) => !gone.has(one.id));
    cluster.pools = cluster.pools.filter((one) => !gone.has(one.place));
    cluster.links = cluster.links.filter((one) => !gone.has(one.from_place) && !gone.has(one.to_place));
  }),
  remove: (kind, index) => draft.change(({ cluster }) => { cluster[kind].splice(index, 1); }),
});

const tables = (draft, entries) => {
  const { cluster } = draft.request, act = changes(draft);
  const places = cluster.places.map((one) => one.id);
  const field = (kind, index, name, units, label, options) => quantity(draft, units, ["cluster", kind, index, ...name.split(".")], label + " of " + cluster[kind][index].id, options);
  const name = (kind, index, rename) => make("input", { value: String(cluster[kind][index].id), "aria-label": "Name of " + cluster[kind][index].id, "data-pointer": pointerOf(["cluster", kind, index, "id"]), maxlength: "120", autocomplete: "off",
    onchange: (event) => {
      const after = event.target.value.trim(), fault = !after ? "a name is missing" : cluster[kind].some((one, other) => other !== index && one.id === after) ? "“" + after + "” is taken" : "";
      draft.mark(event.target, fault && "Name of " + cluster[kind][index].id + ": " + fault);
      if (!fault) rename(after);
    } });
  const choice = (kind, index, field, label, options, { put = (value) => draft.put(["cluster", kind, index, field], value || undefined), value = cluster[kind][index][field] } = {}) => make("select",
    { "aria-label": label + " of " + cluster[kind][index].id, "data-pointer": pointerOf(["cluster", kind, index, field]), title: String(value ?? ""), onchange: (event) => { put(event.target.value); draft.change(() => {}); } },
    ...options.map((one) => make("option", { value: one, selected: one === (value ?? "") }, one || "–")));
  const remove = (label, gone) => make("button", { type: "button", className: "remove", "aria-label": "Remove " + label, title: "Remove " + label, onclick: gone }, "✕");
  const gpuFields = (index) => {
    const { gpu } = cluster.pools[index], base = baseOf(entries, gpu), path = ["cluster", "pools", index, "gpu"];
    const now = (typeof gpu === "object" ? gpu : entries.get(gpu)) || {};
    const set = (field) => (value) => draft.put(path, gpuWith(entries, base, { ...{ memory_bytes: valueAt(draft.request, path)?.memory_bytes, usd_per_gpu_hour: valueAt(draft.request, path)?.usd_per_gpu_hour }, [field]: value }));
    const select = choice("pools", index, "gpu", "GPU", base ? [...entries.keys()] : ["", ...entries.keys()], { value: base || "" });
    if (!base) return [select, told("bytes", now.memory_bytes), told("money", now.usd_per_gpu_hour)];
    return [select, field("pools", index, "gpu.memory_bytes", "bytes", "Memory", { act: set("memory_bytes"), value: now.memory_bytes }), field("pools", index, "gpu.usd_per_gpu_hour", "money", "Price", { act: set("usd_per_gpu_hour"), value: now.usd_per_gpu_hour, hint: "none" })];
  };
  const told = (kind, value) => make("span", { className: "note" }, written(kind, value) || "–");
  const rows = (kind, row) => cluster[kind].slice(0, MOST_ROWS).map((_, index) => row(index));
  const shown = (kind, caption, heads, row, add) => make("div", { className: "fields" }, table(caption, [...heads.map((head) => [head]), [""]], rows(kind, row)),
    cluster[kind].length > MOST_ROWS ? make("p", { className: "cut" }, count(cluster[kind].length - MOST_ROWS) + " more rows are in the JSON.") : null, make("p", { className: "actions" }, ...add));
  const button = (text, onclick) => make("button", { type: "button", onclick }, text);
  return [
    shown("places", "Buildings and what is in them", ["name", "kind", "in", "oversubscription upwards", "delay upwards"], (index) => [
      name("places", index, (after) => act.rename(cluster.places[index].id, after)), choice("places", index, "level", "Kind", LEVELS), choice("places", index, "parent", "Place around", ["", ...places.filter((one) => one !== cluster.places[index].id)]),
      field("places", index, "uplink.oversubscription", "ratio", "Oversubscription", { hint: "1" }), field("places", index, "uplink.latency_s", "time", "Delay", { hint: "usual" }),
      remove("place " + cluster.places[index].id, () => act.removePlace(cluster.places[index].id))], [button("Add a building", act.addPlace)]),
    shown("pools", "Pools of GPUs", ["name", "in", "GPU", "memory", "USD per GPU-hour", "hosts", "GPUs per host", "each network card", "cards per GPU", "GPUs out of service"], (index) => {
      const [gpu, memory, price] = gpuFields(index);
      return [name("pools", index, (id) => act.call("pools", index, id)), choice("pools", index, "place", "Place", places), gpu, memory, price, field("pools", index, "num_hosts", "count", "Hosts"),
        field("pools", index, "gpus_per_host", "count", "GPUs per host", { hint: "8" }), field("pools", index, "nic_bytes_per_s", "rate", "Network card"), field("pools", index, "nics_per_gpu", "ratio", "Network cards per GPU", { hint: "1" }), field("pools", index, "num_unhealthy_gpus", "count", "GPUs out of service", { hint: "0" }),
        remove("pool " + cluster.pools[index].id, () => act.remove("pools", index))];
    }, [button("Add a pool", act.addPool)]),
    shown("links", "Links", ["name", "from", "to", "capacity, each way", "planes", "delay, one way", "length", "over\u00adsubscription", "loss", "USD per GB"], (index) => [
      name("links", index, (id) => act.call("links", index, id)), choice("links", index, "from_place", "From", places), choice("links", index, "to_place", "To", places),
      field("links", index, "capacity_bytes_per_s", "rate", "Capacity"), field("links", index, "planes", "count", "Planes", { hint: "1" }), field("links", index, "latency_s", "time", "Delay", { hint: "by length" }), field("links", index, "distance_km", "distance", "Length", { hint: "usual" }),
      field("links", index, "oversubscription", "ratio", "Oversubscription", { hint: "1" }), field("links", index, "loss_probability", "share", "Loss", { hint: "0" }), field("links", index, "usd_per_gb", "money", "Egress price", { hint: "free" }),
      remove("link " + cluster.links[index].id, () => act.remove("links", index))], [button("Add a link", () => act.join(places.at(0), places.at(-1)))]),
  ];
};

/* The cluster of the draft: a name of the catalogue as a drawing, one of its own as a drawing and tables. */
export const clusterPart = (draft, { entries, entry, attempt }) => {
  const picture = make("figure"), below = make("div");
  const element = make("section", { id: "cluster", "aria-labelledby": "cluster-heading" }, make("h2", { id: "cluster-heading" }, "Cluster"), picture, below);
  const pick = (kind, which) => { const index = kind === "links" ? which : draft.request.cluster.places.findIndex((one) => one.id === which); below.querySelector('[data-pointer="' + pointerOf(["cluster", kind, index, kind === "links" ? "capacity_bytes_per_s" : "id"]) + '"]')?.focus(); };
  const join = (from, to) => { changes(draft).join(from, to); pick("links", draft.request.cluster.links.length - 1); };
  const drawPicture = (cluster, own) => picture.replaceChildren(sketch(cluster, own ? { join, pick } : {}),
    make("figcaption", {}, own ? "Drag from one building to another to join them, or press Enter on one and then on the other; arrow keys lead from each to the next. Click a building or a link, or press Space on it, to change it below." : "As the catalogue has it."));
  const redraw = () => {
    const cluster = draft.request?.cluster;
    if (typeof cluster === "string" && cluster) {
      below.replaceChildren(make("p", { className: "actions" }, make("button", { type: "button", onclick: () => attempt(async () => { const made = await entry(cluster); draft.change((request) => { request.cluster = { ...made, name: made.name + "-changed" }; }); }) }, "Change it by hand"),
        make("button", { type: "button", onclick: () => draft.change((request) => { request.cluster = byHand("H100-SXM-80G"); }) }, "Begin an empty one")));
      attempt(async () => { const found = await entry(cluster); if (draft.request?.cluster === cluster) drawPicture(found, false); });
    } else if (cluster && typeof cluster === "object") {
      if (!hasRows(cluster)) { picture.replaceChildren(); below.replaceChildren(make("p", { className: "note" }, "This cluster has no lists of places, pools and links to show.")); return; }
      lists(cluster);
      drawPicture(cluster, true);
      keepingFocus(below, () => below.replaceChildren(...tables(draft, entries)));
      takeable(element);
    } else { picture.replaceChildren(); below.replaceChildren(); }
  };
  /* While a field is typed in, only the drawing follows: the field keeps its place. */
  const follow = () => { const cluster = draft.request?.cluster; if (cluster && typeof cluster === "object" && hasRows(cluster)) drawPicture(cluster, true); };
  return { element, redraw, follow };
};

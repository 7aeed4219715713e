/* Files of other tools in place of a cluster or a model: read by the service, told with their lines where they cannot be. */
import { post } from "./api.js";
import { make } from "./dom.js";

const KINDS = [
  ["slurm-yaml", "Slurm topology.yaml", "tier-0"], ["slurm-topoconf", "scontrol show topoconf", "tier-0"], ["slurm-conf", "Slurm topology.conf", "tier-0"],
  ["topograph", "topograph graph (JSON)", "tier-0"], ["kueue", "Kueue Topology and nodes", "example.com/rack"], ["links-csv", "Table of links (CSV)", "site"]];
const HOSTS = 'hosts:\n  - {match: ["*"], gpu: H100-SXM-80G, gpus_per_host: 8, nic_bytes_per_s: 5e10}\nlinks:\n  - {among: building, capacity_bytes_per_s: 4e11, distance_km: 10}\n';
const POOLS = "pools:\n  - {id: east, place: east, gpu: H100-SXM-80G, num_hosts: 64, nic_bytes_per_s: 5e10}\n";
const OVERLAYS = { site: "levels:\n  - {level: site, place: building}\n" + POOLS, "example.com/rack": "levels:\n  - {level: example.com/rack, place: rack}\n  - {level: example.com/building, place: building}\n" + HOSTS,
  "tier-0": "levels: # from the hosts upwards\n  - {level: tier-0, place: rack}\n  - {level: tier-1, place: building}\n" + HOSTS };

const told = (place) => ({
  notes: (notes) => place.replaceChildren(make("ul", { className: "note" }, ...notes.map((text) => make("li", {}, text)))),
  refused: (error) => place.replaceChildren(make("p", { className: "alert" }, error.errors?.length ? "It cannot be read:" : error.message), make("ul", { className: "warnings" },
    ...(error.errors || []).slice(0, 20).map((one) => make("li", { className: "severity-error" }, make("strong", {}, one.where), ": " + one.what + ". ", one.allowed ? "Allowed: " + one.allowed + ". " : "", one.remedy)))),
});
const area = (id, label, rows, value = "") => make("p", {}, make("label", { for: id }, label), make("textarea", { id, rows: String(rows), spellcheck: "false", value }));
/* A text that is pasted, or files of this machine that are read into it. */
const source = (id, label, { multiple = false } = {}) => {
  const place = area(id, label, 5);
  let files = [];
  const text = place.querySelector("textarea");
  const pick = make("input", { type: "file", multiple, "aria-label": label + ", from files", onchange: async () => {
    files = await Promise.all([...pick.files].map(async (one) => ({ name: one.name, text: await one.text() })));
    text.value = files.length === 1 ? files[0].text : files.map((one) => one.name).join(", ");
    text.readOnly = files.length > 1;
  } });
  text.addEventListener("input", () => { files = files.length === 1 ? [{ ...files[0], text: text.value }] : []; });
  place.append(pick);
  return { place, files: () => (files.length ? files : [{ name: "pasted", text: text.value }]) };
};

const part = (summary, children, word, send, signal) => {
  const outcome = make("div", { role: "status" }), say = told(outcome);
  const go = async () => {
    try { say.notes(await send((body) => post("/v1/imports", body, signal))); } catch (error) { if (error.name !== "AbortError") say.refused(error); }
  };
  return make("details", { className: "import" }, make("summary", {}, summary), ...children, make("p", { className: "actions" }, make("button", { type: "button", onclick: go }, word)), outcome);
};

export const clusterImport = (draft, signal) => {
  const kind = make("select", { id: "import-kind", onchange: () => { overlay.value = OVERLAYS[KINDS.find(([name]) => name === kind.value)[2]]; } }, ...KINDS.map(([value, text]) => make("option", { value }, text)));
  const given = source("import-files", "The file, or its text", { multiple: true });
  const below = area("import-overlay", "What it does not say: GPUs, rates, delays (YAML)", 7, OVERLAYS["tier-0"]), overlay = below.querySelector("textarea");
  return part("Import it from Slurm, Kueue, topograph or a table", [make("p", {}, make("label", { for: "import-kind" }, "What it is "), kind), given.place, below], "Import the cluster", async (ask) => {
    const found = await ask({ kind: kind.value, files: given.files(), overlay: { name: "overlay", text: overlay.value } });
    draft.change((request) => { request.cluster = found.cluster; });
    return found.notes;
  }, signal);
};

export const modelImport = (draft, signal) => {
  const given = source("config-text", "config.json"), name = make("input", { id: "config-name", maxlength: "120", placeholder: "as the file says" });
  return part("Paste a model's config.json (Hugging Face)", [given.place, make("p", {}, make("label", { for: "config-name" }, "Call it "), name)], "Use this model", async (ask) => {
    const found = await ask({ kind: "huggingface", files: given.files(), name: name.value.trim() });
    draft.change((request) => { request.workload = { ...request.workload, architecture: found.architecture }; });
    return found.notes;
  }, signal);
};

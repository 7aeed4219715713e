/* Quantities as people write them, to and from the SI numbers of a request: 400 Gb/s is 5e10 bytes per second. */

const PREFIX = { "": 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12, p: 1e15 };
const BINARY = { k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40, p: 2 ** 50 };
/* Prefixes of bits and bytes are read in any case: nobody means a thousandth of one. b are bits, B bytes. */
const ofBits = (text, perSecond) => {
  const found = (perSecond ? /^([kmgtp]?)(i?)(b|B|bit|bits|byte|bytes)(\/s|ps|\/sec)$/i : /^([kmgtp]?)(i?)(b|B|byte|bytes)()$/i).exec(text);
  if (!found) return null;
  const [, prefix, binary, unit, per] = found;
  if (perSecond && per.toLowerCase() === "ps" && unit === "B" && per !== "ps") return null; // GBPS is read both ways
  const isByte = unit === "B" || unit.toLowerCase().startsWith("byte") || (!perSecond && text === text.toLowerCase());
  if (!isByte && !perSecond) return null;
  const scale = binary ? BINARY[prefix.toLowerCase()] : PREFIX[prefix.toLowerCase()];
  return scale && scale / (isByte ? 1 : 8);
};
const named = (table) => (text) => table[text] ?? table[text.toLowerCase()] ?? null;

const KINDS = {
  rate: { of: (text) => ofBits(text, true), example: "400 Gb/s", steps: [[1.25e14, "Pb/s"], [1.25e11, "Tb/s"], [1.25e8, "Gb/s"], [1.25e5, "Mb/s"], [125, "kb/s"], [0.125, "b/s"]] },
  bytes: { of: (text) => ofBits(text, false), example: "80 GB", steps: [[1e15, "PB"], [1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]] },
  time: { of: named({ s: 1, sec: 1, ms: 1e-3, "µs": 1e-6, "μs": 1e-6, us: 1e-6, ns: 1e-9, min: 60, h: 3600 }), example: "5 ms", steps: [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]] },
  search: { of: named({ s: 1, sec: 1, min: 60, h: 3600 }), example: "30 s", steps: [[3600, "h"], [60, "min"], [1, "s"]], whole: true },
  distance: { of: named({ km: 1, m: 1e-3, mi: 1.609344 }), example: "80 km", steps: [[1, "km"], [1e-3, "m"]] },
  share: { of: named({ "%": 0.01, "": 1 }), example: "0.1 %", steps: [[1e-5, "%", 0.01], [0, ""]] },
  ratio: { of: named({ "": 1, x: 1, "×": 1 }), example: "2.8", steps: [[0, ""]] },
  money: { of: named({ "": 1, "$": 1, usd: 1 }), example: "2.50", steps: [[0, ""]] },
  count: { of: named({ "": 1, k: 1e3 }), example: "1,024", steps: [[0, ""]], integer: true },
};
const NUMBER = /^([+-]?(?:\d{1,3}(?:[,\u202f\u00a0 ]\d{3})+|\d+)?(?:\.\d+)?(?:e[+-]?\d{1,3})?)\s*(.*)$/i;

/* `{value}` in SI, `{value: undefined}` for nothing, or `{fault}` in words. */
export const parse = (kind, text) => {
  const { of, example, integer } = KINDS[kind];
  const written = text.trim();
  if (!written) return { value: undefined };
  const [, digits, unit] = NUMBER.exec(written) || [];
  if (!digits || !/\d/.test(digits)) return { fault: "“" + written + "” is no number: write it like " + example };
  if (/^,/.test(unit)) return { fault: "“" + written + "”: write decimals with a point, like " + example };
  const scale = of(unit.trim());
  if (!scale) return { fault: unit.trim() ? "“" + unit.trim() + "” is no unit here: write it like " + example : "the unit is missing: write it like " + example };
  const value = Number((Number(digits.replace(/[,\u202f\u00a0 ]/g, "")) * scale).toPrecision(15));
  if (value < 0) return { fault: "less than nothing" };
  if (integer && !Number.isInteger(value)) return { fault: "“" + written + "” is no whole number" };
  return { value };
};

/* The same quantity for a person, with so many digits that reading it again gives the number. */
export const written = (kind, value) => {
  if (typeof value !== "number") return "";
  const { steps, integer, whole } = KINDS[kind];
  if (integer) return value.toLocaleString("en");
  const step = value === 0 ? steps[0] : steps.find(([from]) => Math.abs(value) >= from && (!whole || Number.isInteger(value / from)));
  const [least, unit, scale = least || 1] = step || steps.at(-1);
  const digits = Number((value / scale).toPrecision(12));
  return digits + (unit ? " " + unit : "");
};
export const exampleOf = (kind) => KINDS[kind].example;

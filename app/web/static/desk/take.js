/* Everything shown can be taken along: tables as CSV or JSON with exact values, drawings as SVG or PNG. */
import { ROOT } from "./api.js";
import { make, save, scrolling } from "./dom.js";

const exact = (cell) => {
  const field = cell.querySelector("input, select");
  if (field) return field.value || null;
  const data = [...cell.querySelectorAll("data[value]")];
  if (data.length === 1 && data[0].textContent.trim() === cell.textContent.trim()) return Number(data[0].value);
  const time = cell.querySelector("time[datetime]");
  if (time) return time.dateTime;
  const text = cell.textContent.trim();
  return text === "–" ? null : text;
};
const contents = (table) => {
  const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  const kept = heads.map((_, index) => index).filter((index) => !table.tBodies[0].rows[0]?.cells[index].querySelector("input[type=checkbox], button.remove"));
  return { heads: kept.map((index) => heads[index]), rows: [...table.tBodies[0].rows].map((row) => kept.map((index) => exact(row.cells[index]))) };
};
const quoted = (value) => {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? "'" + value : value; // a spreadsheet would run it as a formula
  return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
};
export const csv = ({ heads, rows }) => [heads, ...rows].map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
const asJson = ({ heads, rows }) => JSON.stringify(rows.map((row) => Object.fromEntries(heads.map((head, index) => [head || "name", row[index]]))), null, 2) + "\n";

const stem = (words) => (document.title.split(" · ")[0] + " " + words).toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 80);
const styled = async (drawing) => {
  const copy = drawing.cloneNode(true);
  const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
  style.textContent = (await (await fetch(ROOT + "/static/report/report.css")).text()).replace(/@media print \{[\s\S]*$/, "");
  copy.prepend(style);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const box = drawing.viewBox.baseVal;
  copy.setAttribute("width", box.width);
  copy.setAttribute("height", box.height);
  return [new XMLSerializer().serializeToString(copy), box];
};
const asPng = async (drawing, name) => {
  const [text, box] = await styled(drawing);
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  await image.decode();
  const canvas = make("canvas", { width: box.width * 2, height: box.height * 2 });
  const pen = canvas.getContext("2d");
  pen.fillStyle = getComputedStyle(document.body).backgroundColor;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  save(canvas.toDataURL("image/png"), name);
};

const controls = (name, entries) => make("p", { className: "take" },
  ...entries.map(([word, act]) => make("button", { type: "button", "aria-label": word + " of " + name, onclick: act }, word)));
const forTable = (table) => {
  const name = table.caption?.textContent.trim() || "table";
  return controls(name, [
    ["CSV", () => save(csv(contents(table)), stem(name) + ".csv", "text/csv")],
    ["JSON", () => save(asJson(contents(table)), stem(name) + ".json", "application/json")]]);
};
const forDrawing = (drawing) => {
  const name = drawing.querySelector("title")?.textContent || "drawing";
  return controls(name, [
    ["SVG", async () => save((await styled(drawing))[0], stem(name) + ".svg", "image/svg+xml")],
    ["PNG", () => asPng(drawing, stem(name) + ".png")]]);
};
/* What is drawn anew with every move is taken as it is seen. */
const forCanvas = (canvas) => controls("the pipeline as it is shown", [["PNG", () => {
  const copy = make("canvas", { width: canvas.width, height: canvas.height }), pen = copy.getContext("2d");
  pen.fillStyle = getComputedStyle(canvas).backgroundColor;
  pen.fillRect(0, 0, copy.width, copy.height);
  pen.drawImage(canvas, 0, 0);
  save(copy.toDataURL("image/png"), stem("pipeline") + ".png");
}]]);
/* Puts the buttons behind every table and drawing inside an element, once. */
export const takeable = (inside) => {
  for (const table of inside.querySelectorAll(".scroll > table")) {
    if (!table.parentElement.nextElementSibling?.classList.contains("take")) table.parentElement.after(forTable(table));
  }
  for (const canvas of inside.querySelectorAll("#viewer > canvas")) {
    if (!canvas.parentElement.querySelector(".take")) canvas.parentElement.append(forCanvas(canvas));
  }
  for (const drawing of inside.querySelectorAll(".drawing > svg")) {
    scrolling(drawing.parentElement);
    if (!drawing.parentElement.nextElementSibling?.classList.contains("take")) drawing.parentElement.after(forDrawing(drawing));
  }
};

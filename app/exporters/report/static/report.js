"use strict";
/* The zoom into the pipeline. Everything else of the page works without this script. The desk calls it for each plan it shows. */
globalThis.showPipeline = () => {
  const host = document.getElementById("viewer");
  const source = document.getElementById("viewer-data");
  if (!host || !source) return;
  const data = JSON.parse(source.textContent);
  const LEFT = 130, ROW = 15, LANE = 12, MEMORY = 60, AXIS = 22;
  const KIND = { F: "F", B: "B", W: "W", X: "BW" };

  const sums = (differences) => { let at = 0; return differences.map((step) => (at += step)); };
  const unpack = (timing) => {
    for (const rank of timing.ranks) {
      rank.starts = sums(rank.starts);
      rank.stageOf = rank.stages.length === 1 ? () => rank.stages[0] : (index) => rank.stages[index];
      // whole ticks: an operation ends where the next begins, so that no memory is counted twice between them
      rank.ends = rank.starts.map((start, index) => Math.min(start + timing.stages[rank.stageOf(index)][rank.kinds[index]], rank.starts[index + 1] ?? Infinity));
    }
    for (const lane of timing.lanes) {
      lane.starts = sums(lane.starts);
      lane.longest = Math.max(...lane.times.map(([long, late]) => long + late));
    }
    timing.end = Math.max(...timing.ranks.map((rank) => rank.ends[rank.ends.length - 1]));
    return timing;
  };
  const memoryOf = (timing, rank) => {
    const changes = [];
    rank.starts.forEach((start, index) => {
      const stage = timing.stages[rank.stageOf(index)], kind = rank.kinds[index], end = rank.ends[index];
      if (kind === "F") changes.push([start, stage.held]);
      else if (kind === "B") changes.push([end, stage.context - stage.held]);
      else if (kind === "X") changes.push([end, -stage.held]);
      else changes.push([end, -stage.context]);
    });
    changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let held = 0;
    return changes.map(([at, change]) => [at, (held += change)]);
  };
  const firstAfter = (values, wanted) => {
    let low = 0, high = values.length;
    while (low < high) { const middle = (low + high) >> 1; if (values[middle] <= wanted) low = middle + 1; else high = middle; }
    return low;
  };
  const seconds = (ticks) => {
    const value = ticks * data.tick;
    const digits = (x) => String(Number(x.toPrecision(4)));
    if (value === 0 || value >= 1) return digits(value) + " s";
    return value >= 1e-3 ? digits(value * 1e3) + " ms" : digits(value * 1e6) + " µs";
  };
  const gigabytes = (bytes) => (bytes / 1e9).toPrecision(3) + " GB";

  const make = (name, properties = {}, children = []) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const choice = (label, options) => {
    const select = make("select");
    options.forEach((text, index) => select.append(make("option", { value: String(index), textContent: text })));
    return [select, make("label", {}, [label + " ", select])];
  };
  const canvas = make("canvas", { tabIndex: 0 });
  const told = make("output");
  const [routes, routesLabel] = choice("Timing", data.timings.map((one) => one.name));
  const [ranks, ranksLabel] = choice("Memory of rank", []);
  const pen = canvas.getContext("2d");
  let timing, memory, highest, low = 0, high = 1, pointer = null, queued = false;

  const fill = () => Math.min(timing.end, 2.5 * (timing.ranks[0].ends[firstAfter(timing.ranks[0].ends, 0)] + timing.ranks[timing.ranks.length - 1].starts[0]));
  const show = (from, to) => {
    const width = Math.max(20, Math.min(timing.end, to - from));
    low = Math.max(0, Math.min(from, timing.end - width));
    high = low + width;
    draw();
  };
  const zoom = (factor, at = (low + high) / 2) => show(at - (at - low) * factor, at + (high - at) * factor);
  const pan = (share) => show(low + share * (high - low), high + share * (high - low));
  const buttons = [
    ["Zoom in", () => zoom(0.5)], ["Zoom out", () => zoom(2)], ["Earlier", () => pan(-0.5)], ["Later", () => pan(0.5)],
    ["Fill", () => show(0, fill())], ["Middle", () => show((timing.end - fill()) / 2, (timing.end + fill()) / 2)],
    ["Drain", () => show(timing.end - fill(), timing.end)], ["Whole", () => show(0, timing.end)],
  ].map(([textContent, onclick]) => make("button", { type: "button", textContent, onclick }));

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const height = () => timing.ranks.length * rowHeight() + timing.lanes.length * LANE + MEMORY + AXIS + 16;
  const rowHeight = () => Math.max(4, Math.min(ROW, 640 / timing.ranks.length));
  let width = 0; // of the canvas, read once per picture: asking for it after a change lays the whole page out anew
  const x = (at) => LEFT + (at - low) / (high - low) * (width - LEFT);
  const back = (px) => low + (px - LEFT) / (width - LEFT) * (high - low);

  const drawRow = (rank, index, inks) => {
    const size = rowHeight(), top = index * size;
    pen.fillStyle = inks.idle;
    pen.fillRect(LEFT, top, width - LEFT, size - 1);
    let drawn = -1, last = "";
    for (let i = firstAfter(rank.ends, low); i < rank.starts.length && rank.starts[i] < high; i++) {
      const from = Math.max(LEFT, x(rank.starts[i])), to = x(rank.ends[i]), kind = KIND[rank.kinds[i]];
      if (to - drawn < 0.35 && kind === last) continue;
      const wide = Math.max(0.35, Math.min(to, width) - from);
      pen.fillStyle = inks[kind];
      pen.fillRect(from, top, wide > 3 ? wide - 0.7 : wide, size - 1);
      drawn = to; last = kind;
      const text = String(rank.batches[i]);
      if (size >= 11 && wide > 6 * text.length + 4) {
        pen.fillStyle = inks["on-" + kind];
        pen.fillText(text, from + wide / 2 - 3 * text.length, top + size / 2 + 3);
      }
    }
    if (size >= 11 || index % Math.ceil(11 / size) === 0) {
      pen.fillStyle = inks.ink;
      pen.fillText((index + " " + rank.name).slice(0, 19), 2, top + size / 2 + 3.5);
    }
  };
  const drawLane = (lane, index, inks) => {
    const top = timing.ranks.length * rowHeight() + 6 + index * LANE;
    pen.fillStyle = inks.ink;
    pen.fillText(lane.name.slice(0, 19), 2, top + 9);
    pen.fillStyle = inks.idle;
    pen.fillRect(LEFT, top, width - LEFT, LANE - 2);
    for (let i = firstAfter(lane.starts, low - lane.longest - 1); i < lane.starts.length && lane.starts[i] < high; i++) {
      const [long, late] = lane.times[i], from = lane.starts[i];
      const clipped = (a, b, y, tall) => {
        const left = Math.max(LEFT, x(a)), right = Math.min(width, x(b));
        if (right >= left) pen.fillRect(left, y, Math.max(0.7, right - left), tall);
      };
      pen.fillStyle = inks.delay;
      clipped(from + long, from + long + late, top + 4, 2);
      pen.fillStyle = inks.message;
      clipped(from, from + long, top, LANE - 2);
    }
  };
  const drawMemory = (inks) => {
    const top = timing.ranks.length * rowHeight() + timing.lanes.length * LANE + 14, bottom = top + MEMORY;
    const y = (bytes) => bottom - bytes / highest * (MEMORY - 4);
    const budget = timing.ranks[Number(ranks.value)].budget;
    pen.fillStyle = inks.ink;
    pen.fillText("memory, rank " + ranks.value, 2, top + 11);
    pen.fillText("up to " + gigabytes(highest), 2, top + 25);
    pen.strokeStyle = inks.F;
    pen.beginPath();
    const first = Math.max(0, firstAfter(memory.at, low) - 1);
    let height = memory.at.length && memory.at[first] <= low ? memory.held[first] : 0;
    pen.moveTo(LEFT, y(height));
    for (let i = first; i < memory.at.length && memory.at[i] < high; i++) {
      if (memory.at[i] <= low) continue;
      pen.lineTo(x(memory.at[i]), y(height));
      height = memory.held[i];
      pen.lineTo(x(memory.at[i]), y(height));
    }
    pen.lineTo(width, y(height));
    pen.stroke();
    if (budget !== null) {
      pen.strokeStyle = inks.limit;
      pen.setLineDash([6, 3]);
      pen.beginPath(); pen.moveTo(LEFT, y(budget)); pen.lineTo(width, y(budget)); pen.stroke();
      pen.setLineDash([]);
    }
    drawAxis(bottom, inks);
  };
  const drawAxis = (bottom, inks) => {
    const about = Math.max(1, Math.min(7, Math.floor((width - LEFT) / 75)));
    const raw = (high - low) * data.tick / about, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw);
    for (let n = Math.ceil(low * data.tick / step); n * step <= high * data.tick; n++) {
      const at = x(n * step / data.tick), text = String(Number((n * step).toPrecision(9))) + " s";
      pen.fillStyle = inks.rule;
      pen.fillRect(at, timing.ranks.length * rowHeight(), 0.8, bottom + 4 - timing.ranks.length * rowHeight());
      pen.fillStyle = inks.soft;
      if (at + 3 + 7 * text.length < width) pen.fillText(text, at + 3, bottom + 14);
    }
  };
  const paint = () => {
    queued = false;
    if (!canvas.isConnected) return;
    width = canvas.clientWidth;
    const ratio = (window.devicePixelRatio || 1) * enlarged();
    const wide = Math.round(width * ratio), tall = Math.round(height() * ratio);
    if (canvas.width !== wide || canvas.height !== tall) Object.assign(canvas, { width: wide, height: tall });
    if (canvas.style.height !== height() + "px") canvas.style.height = height() + "px";
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height());
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    const names = ["idle", "F", "B", "W", "BW", "on-F", "on-B", "on-W", "on-BW", "ink", "soft", "rule", "message", "delay", "limit"];
    const inks = Object.fromEntries(names.map((name) => [name, colour(name)]));
    timing.ranks.forEach((rank, index) => drawRow(rank, index, inks));
    timing.lanes.forEach((lane, index) => drawLane(lane, index, inks));
    drawMemory(inks);
    canvas.setAttribute("aria-label", "Pipeline from " + seconds(low) + " to " + seconds(high) + " of " + seconds(timing.end));
  };
  // a style sheet may enlarge the page: a pointer is told in pixels of the screen, a drawing is made in those of the page
  const enlarged = () => canvas.getBoundingClientRect().width / (canvas.clientWidth || 1) || 1;
  const draw = () => { if (!queued) { queued = true; requestAnimationFrame(paint); } };

  const tell = (event) => {
    const box = canvas.getBoundingClientRect(), size = enlarged(), px = (event.clientX - box.left) / size, py = (event.clientY - box.top) / size;
    const index = Math.floor(py / rowHeight()), rank = timing.ranks[index], at = back(px);
    if (!rank || px < LEFT) { told.textContent = ""; return; }
    const i = firstAfter(rank.ends, at);
    if (i >= rank.starts.length || rank.starts[i] > at) { told.textContent = "rank " + index + " idle at " + seconds(at); return; }
    told.textContent = "rank " + index + (rank.name ? " (" + rank.name + "): " : ": ") + KIND[rank.kinds[i]] + " of micro-batch " + rank.batches[i] +
      ", stage " + rank.stageOf(i) + ", " + seconds(rank.starts[i]) + " to " + seconds(rank.ends[i]) + " (" +
      seconds(rank.ends[i] - rank.starts[i]) + ")";
  };
  const chooseRank = () => {
    const rank = timing.ranks[Number(ranks.value)], points = memoryOf(timing, rank);
    memory = { at: points.map((one) => one[0]), held: points.map((one) => one[1]) };
    highest = Math.max(rank.budget || 0, memory.held.reduce((most, held) => Math.max(most, held), 1));
    draw();
  };
  const chooseTiming = () => {
    timing = data.timings[Number(routes.value)];
    if (!timing.end) unpack(timing);
    ranks.replaceChildren(...timing.ranks.map((rank, index) =>
      make("option", { value: String(index), textContent: rank.name ? index + " (" + rank.name + ")" : String(index) })));
    ranks.value = String(timing.fullest);
    chooseRank();
    show(0, timing.end);
  };
  const KEYS = {
    ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
    Home: () => show(0, high - low), End: () => show(timing.end - (high - low), timing.end), 0: () => show(0, timing.end),
  };
  canvas.setAttribute("role", "img");
  canvas.addEventListener("keydown", (event) => {
    const act = KEYS[event.key];
    if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); act(); }
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, back((event.clientX - canvas.getBoundingClientRect().left) / enlarged()));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { pointer = { at: event.clientX, low, high }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { pointer = null; });
  canvas.addEventListener("pointercancel", () => { pointer = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (!pointer) { tell(event); return; }
    const moved = (event.clientX - pointer.at) / enlarged() / (width - LEFT) * (pointer.high - pointer.low);
    show(pointer.low - moved, pointer.high - moved);
  });
  routes.addEventListener("change", chooseTiming);
  ranks.addEventListener("change", chooseRank);
  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  host.append(
    make("div", { className: "bar" }, [routesLabel, ranksLabel, ...buttons]), canvas, told,
    make("p", { textContent: "Drag or use the arrow keys to move, + and − or Ctrl and the wheel to zoom, 0 for the whole. " + (host.dataset.note || "") }),
  );
  host.hidden = false;
  chooseTiming();
};
globalThis.showPipeline();

"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const say = (text) => { document.getElementById("said").textContent = text; };
  for (const part of all("[data-needs-script]")) part.hidden = false;
  for (const part of all(".scroll")) if (part.scrollWidth > part.clientWidth) part.tabIndex = 0; // arrows scroll it

  const charts = [];
  const switchTheme = themed(say, () => charts.forEach((chart) => chart.redraw()));

  // Rows: a filter, and keys that go from one to the next.
  const filter = document.querySelector("[data-filters]");
  const rows = () => all("table[data-rows] tbody tr").filter((row) => !row.hidden);
  if (filter) {
    filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of all("table[data-rows] tbody tr")) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
      say(`${rows().length} rows`);
    });
  }
  const move = (step) => {
    const shown = rows();
    if (!shown.length) return;
    const at = shown.findIndex((row) => row.classList.contains("chosen"));
    const next = shown[Math.min(shown.length - 1, Math.max(0, at + step))];
    for (const row of shown) row.classList.remove("chosen");
    next.classList.add("chosen");
    next.scrollIntoView({ block: "nearest" });
    const link = next.querySelector("a");
    if (link) link.focus({ preventScroll: true });
    else say(next.textContent.trim().replace(/\s+/g, " "));
  };

  // Charts.
  const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  const seconds = (value, digits = 4) => {
    if (value === null || value === undefined) return "-";
    const [factor, unit] = UNITS.find(([size]) => Math.abs(value) >= size) ?? UNITS[3];
    return `${Number((value / factor).toPrecision(digits))} ${unit}`;
  };
  const variable = (name) => {
    const canvas = document.createElement("span");
    canvas.style.color = `var(--${name})`;
    (document.querySelector(".chart") ?? document.body).append(canvas);
    const found = getComputedStyle(canvas).color;
    canvas.remove();
    return found;
  };
  const moment = (at) => new Date(at * 1000).toISOString().slice(0, 16).replace("T", " ");

  const days = (ticks) => ticks.map((tick) => moment(tick).slice(5, ticks.at(-1) - ticks[0] < 2 * 86400 ? 16 : 10));

  const draw = async (place) => {
    const { project, case: name, machine } = place.dataset;
    const query = new URLSearchParams({ project, case: name, machine });
    let found;
    try {
      const answer = await fetch(`/api/points?${query}`);
      if (!answer.ok) throw new Error((await answer.json()).detail);
      found = await answer.json();
    } catch (error) {
      const text = document.createElement("p");
      text.className = "failed";
      text.textContent = `The points cannot be read: ${error.message}`;
      place.replaceChildren(text);
      return;
    }
    const { at, median_s, lower_s, upper_s, run_id, commit } = found.points;
    const background = (plot) => {
      const context = plot.ctx;
      const { left, top, width, height } = plot.bbox;
      context.save();
      context.beginPath();
      context.rect(left, top, width, height);
      context.clip();
      found.bands.forEach((band, index) => {
        if (index % 2 === 0) return;
        const from = plot.valToPos(band.start, "x", true);
        const to = plot.valToPos(band.end, "x", true);
        context.fillStyle = variable("band");
        context.fillRect(from, top, Math.max(1, to - from), height);
      });
      for (const change of found.changes) {
        const x = plot.valToPos(change.at, "x", true);
        context.strokeStyle = variable(change.log_ratio > 0 ? "slower" : "faster");
        context.lineWidth = 2 * devicePixelRatio;
        context.setLineDash([6, 4]);
        context.beginPath();
        context.moveTo(x, top);
        context.lineTo(x, top + height);
        context.stroke();
      }
      context.restore();
    };
    const axis = (values) => ({
      stroke: () => variable("quiet"), grid: { stroke: () => variable("grid"), width: 1 },
      ticks: { stroke: () => variable("grid") }, values, font: "12px system-ui, sans-serif",
    });
    const size = () => ({ width: place.clientWidth, height: 300 });
    const plot = new uPlot({
      ...size(),
      cursor: { drag: { x: true, y: false } },
      scales: { x: { time: true } },
      padding: [8, 44, 0, 0],
      axes: [{ ...axis((_, ticks) => days(ticks)), space: 110 }, { ...axis((_, ticks) => ticks.map((tick) => seconds(tick, 3))), size: 76 }],
      series: [
        { label: "run", value: (_, value, __, index) => (index === null ? "-" : `${moment(value)} UTC  ${run_id[index]}  ${(commit[index] ?? "").slice(0, 12)}`) },
        { label: "upper", stroke: "transparent", points: { show: false } },
        { label: "lower", stroke: "transparent", points: { show: false } },
        { label: "median", stroke: () => variable("candidate"), width: 1.5, points: { size: 4, show: at.length < 400 }, value: (_, value) => seconds(value) },
      ],
      bands: [{ series: [1, 2], fill: () => variable("spread") }],
      hooks: { drawAxes: [background] },
    }, [at, upper_s, lower_s, median_s], place);
    charts.push(plot);
    addEventListener("resize", () => plot.setSize(size()));
    place.tabIndex = 0;
    place.setAttribute("role", "img");
    const low = Math.min(...median_s), high = Math.max(...median_s);
    place.setAttribute("aria-label", `${found.title}: ${found.runs} runs, medians from ${seconds(low)} to ${seconds(high)}, ${found.changes.length} changes`);
    let chosen = at.length - 1;
    place.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.preventDefault();
      event.stopPropagation();
      chosen = Math.min(at.length - 1, Math.max(0, chosen + (event.key === "ArrowLeft" ? -1 : 1)));
      plot.setCursor({ left: plot.valToPos(at[chosen], "x"), top: plot.valToPos(median_s[chosen], "y") });
      say(`${moment(at[chosen])}, ${seconds(median_s[chosen])}`);
    });
  };

  const dialog = document.getElementById("keys");
  const go = (place) => all(".views a")[place]?.click();
  document.addEventListener("click", (event) => {
    const action = event.target.closest("[data-action]")?.dataset.action;
    if (action === "theme") switchTheme();
    if (action === "keys") dialog.showModal();
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (event.target.matches("input, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const keys = {
      "/": () => filter?.focus(), "?": () => dialog.showModal(), t: switchTheme,
      ArrowDown: () => move(1), ArrowUp: () => move(-1),
      1: () => go(0), 2: () => go(1), 3: () => go(2), 4: () => go(3),
    };
    if (event.key in keys && !(event.key.startsWith("Arrow") && !rows().length)) {
      event.preventDefault();
      keys[event.key]();
    }
  });
  for (const place of all(".chart")) draw(place);
})();

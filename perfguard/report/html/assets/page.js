"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const say = (text) => { document.getElementById("said").textContent = text; };
  const data = JSON.parse(document.getElementById("data").textContent);
  for (const part of all("[data-needs-script]")) part.hidden = false;

  const switchTheme = themed(say);

  // Tables: a click on a name sorts; what is unknown stays last. Rows without a sort key, such as an axis, stay too.
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    const raw = cell.dataset.sort ?? cell.textContent.trim();
    const number = Number(raw);
    if (raw === "" || raw === "-" || raw === "nan") return null;
    return Number.isNaN(number) ? raw : number;
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  const sortBy = (table, column, heading) => {
    const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of all("th", table.tHead)) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    const body = table.tBodies[0];
    const rows = Array.from(body.rows).map((row, index) => ({ row, index, key: keyOf(row, column) }));
    rows.sort((a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.index - b.index;
      return sign * compare(a.key, b.key) || a.index - b.index;
    });
    for (const { row } of rows) body.append(row);
    say(`sorted by ${heading.textContent.trim()}, ${heading.getAttribute("aria-sort")}`);
  };
  for (const table of all("table[data-sortable]")) {
    Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sortBy(table, column, heading));
    });
  }
  for (const table of all("table")) {
    const rows = Array.from(table.tBodies[0].rows);
    rows.forEach((row, index) => { row.tabIndex = index ? -1 : 0; });
  }
  const moveRow = (row, key) => {
    const rows = Array.from(row.parentElement.rows).filter((other) => !other.hidden);
    const at = rows.indexOf(row);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[key];
    const next = to === undefined ? null : rows[to];
    if (!next) return false;
    row.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    return true;
  };

  // Filter: every word must occur.
  const filter = (input) => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const run = document.getElementById(input.dataset.filters);
    let shown = 0;
    let total = 0;
    const cases = new Set(all(".case", run).map((part) => part.dataset.filter));
    for (const part of all("[data-filter]", run)) {
      const inside = part.closest(".case");
      const text = part.dataset.filter.toLowerCase();
      // The rows of a case's ops are filtered only where the case itself is not what was looked for.
      const own = words.every((word) => text.includes(word));
      part.hidden = part.dataset.filter !== "" && !own && !(inside && inside !== part && words.every((word) => inside.dataset.filter.toLowerCase().includes(word)));
      if (inside === part) { total += 1; }
    }
    for (const part of all(".case", run)) {
      if (part.hidden && all("tr[data-filter]", part).some((row) => !row.hidden)) part.hidden = false;
      shown += part.hidden ? 0 : 1;
    }
    if (cases.size) say(words.length ? `${shown} of ${total} cases` : `${total} cases`);
  };
  for (const input of all("input[data-filters]")) input.addEventListener("input", () => filter(input));

  // Icicles: a click or Enter zooms, Escape zooms out, arrows go from frame to frame.
  const framesOf = (icicle) => all(".step-frame", icicle).map((frame) => ({
    frame,
    level: Number(frame.dataset.level),
    left: Number(frame.dataset.left),
    width: Number(frame.dataset.width),
  }));
  const overlap = (a, b) => a.left < b.left + b.width - 1e-9 && b.left < a.left + a.width - 1e-9;
  const zoom = (icicle, target) => {
    const frames = framesOf(icicle);
    const into = frames.find((each) => each.frame === target) ?? frames[0];
    for (const each of frames) {
      const left = Math.max(0, (each.left - into.left) / into.width);
      const right = Math.min(1, (each.left + each.width - into.left) / into.width);
      const visible = overlap(each, into) && right > left;
      each.frame.toggleAttribute("hidden", !visible);
      each.frame.setAttribute("x", `${100 * left}%`);
      each.frame.setAttribute("width", `${Math.max(0, 100 * (right - left))}%`);
    }
    say(`zoomed into ${into.frame.querySelector("title").textContent}`);
  };
  const moveFrame = (icicle, frame, key) => {
    const frames = framesOf(icicle).filter((each) => !each.frame.hasAttribute("hidden"));
    const now = frames.find((each) => each.frame === frame);
    const row = frames.filter((each) => each.level === now.level);
    const at = row.indexOf(now);
    const next = {
      ArrowRight: () => row[at + 1],
      ArrowLeft: () => row[at - 1],
      ArrowDown: () => frames.find((each) => each.level === now.level + 1 && overlap(each, now)),
      ArrowUp: () => frames.find((each) => each.level === now.level - 1 && overlap(each, now)),
    }[key]?.();
    if (!next) return false;
    frame.setAttribute("tabindex", "-1");
    next.frame.setAttribute("tabindex", "0");
    next.frame.focus();
    return true;
  };
  for (const icicle of all("svg.icicle")) {
    icicle.addEventListener("click", (event) => {
      const frame = event.target.closest(".step-frame");
      if (frame) { frame.focus(); zoom(icicle, frame); }
    });
  }

  // Downloads: from the data in this file.
  const bytesOf = async (file) => {
    if (file.text !== undefined) return new Blob([file.text]);
    const packed = Uint8Array.from(atob(file.gzip), (character) => character.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).blob();
  };
  const download = async (file) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await bytesOf(file));
    link.download = file.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    say(`${file.name} is ready`);
  };
  for (const button of all("button[data-file]")) {
    button.addEventListener("click", () => download(data.files[Number(button.dataset.file)]));
  }

  const keys = document.getElementById("keys");
  const openAll = (open) => { for (const part of all(".case")) part.open = open; };
  // A link to a case opens it; so does the address that the page was opened with.
  const follow = () => {
    const part = location.hash ? document.getElementById(location.hash.slice(1)) : null;
    if (part?.matches("details")) { part.open = true; part.scrollIntoView(); }
  };
  addEventListener("hashchange", follow);
  addEventListener("beforeprint", () => openAll(true));
  follow();

  for (const button of all("[data-action]")) {
    button.addEventListener("click", () => (button.dataset.action === "theme" ? switchTheme() : keys.showModal()));
  }
  const GLOBAL = {
    "/": () => document.querySelector("input[data-filters]")?.focus(),
    "?": () => keys.showModal(),
    t: switchTheme,
    e: () => openAll(true),
    c: () => openAll(false),
  };
  const onRow = (event, row) => {
    if (event.key !== "Enter") return moveRow(row, event.key);
    const link = row.querySelector("a");
    link?.click();
    return Boolean(link);
  };
  const onFrame = (event, frame) => {
    const icicle = frame.closest("svg.icicle");
    if (event.key === "Enter") { zoom(icicle, frame); return true; }
    if (event.key === "Escape") { zoom(icicle, null); return true; }
    return moveFrame(icicle, frame, event.key);
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
    const target = event.target;
    if (target instanceof HTMLInputElement) {
      if (event.key === "Escape") { target.value = ""; filter(target); target.blur(); }
      return;
    }
    const handled = target instanceof HTMLTableRowElement ? onRow(event, target)
      : target.classList?.contains("step-frame") ? onFrame(event, target) : false;
    if (handled) { event.preventDefault(); return; }
    const act = GLOBAL[event.key];
    if (act) { event.preventDefault(); act(); }
  });
})();

// The page: its numbers are in <script id="data">, and nothing is fetched.
(function () {
  "use strict";
  const page = JSON.parse(document.getElementById("data").textContent);
  const find = (name) => document.getElementById(name);
  const build = sextonBuild(page);

  page.clock = function (second) {
    if (page.wall === null) return "+" + (Math.round(second * 100) / 100) + " s";
    return new Date((page.wall + second + page.offset) * 1000).toISOString().slice(11, 19);
  };

  // Per column, core and stack, what was counted: for ranges that are chosen by hand.
  function decoded(stacks) {
    const bytes = Uint8Array.from(atob(stacks.packed), (letter) => letter.charCodeAt(0));
    const column = new Uint32Array(stacks.entries), core = new Int32Array(stacks.entries);
    const node = new Uint32Array(stacks.entries), count = new Uint32Array(stacks.entries);
    let at = 0;
    function next() {
      let value = 0, shift = 0, byte;
      do { byte = bytes[at++]; value += (byte & 127) * 2 ** shift; shift += 7; } while (byte & 128);
      return value;
    }
    let key = 0;
    const nodes = stacks.depth.length, cores = stacks.cores.length;
    for (let entry = 0; entry < stacks.entries; entry++) {
      key += next();
      count[entry] = next();
      node[entry] = key % nodes;
      core[entry] = Math.floor(key / nodes) % cores;
      column[entry] = Math.floor(key / nodes / cores);
    }
    return { column, core, node, count };
  }

  let entries = null;
  function counted(range) {
    const stacks = page.stacks;
    entries = entries || decoded(stacks);
    const first = Math.floor((range.start - stacks.first) / stacks.column + 1e-6);
    const last = Math.ceil((range.end - stacks.first) / stacks.column - 1e-6);
    const wanted = stacks.cores.map((core) => core === null || !range.cores || range.cores.includes(core));
    const own = new Array(stacks.depth.length).fill(0);
    for (let at = 0; at < entries.node.length; at++) {
      const column = entries.column[at];
      if (column >= first && column < last && wanted[entries.core[at]]) own[entries.node[at]] += entries.count[at];
    }
    const total = own.slice(), line = [];
    for (let at = 0; at < own.length; at++) {       // in pre-order: what is above is on the line
      line.length = stacks.depth[at];
      for (const above of line) total[above] += own[at];
      line.push(at);
    }
    const kept = [];
    for (let at = 0; at < total.length; at++) if (total[at] > 0) kept.push(at);
    return {
      label: "chosen range", depth: kept.map((at) => stacks.depth[at]),
      frame: kept.map((at) => stacks.frame[at]), own: kept.map((at) => own[at]),
      counts: [kept.map((at) => total[at])],
    };
  }

  function hint(range) {
    const digits = (value) => String(Math.max(Math.round(value * 100) / 100, 0));
    const last = range.cores ? range.cores.length - 1 : -1;
    const cores = last < 0 || range.cores.includes(-1) ? ""
      : " --cpu " + range.cores[0] + (last ? "-" + range.cores[last] : "");
    return "sexton profile flame " + page.file + " --from " + digits(range.start) + " --to " + digits(range.end) + cores;
  }

  const tabs = find("tabs"), place = find("flame"), caption = find("caption");
  let live = null;

  function show(shown, note) {
    live = null;
    caption.textContent = note;
    if (!shown || !shown.depth.length || !shown.counts.some((side) => side[0])) {
      place.textContent = "no sample of a running task in this choice";
      return;
    }
    live = build(shown, place);
  }

  function select(button) {
    for (const each of tabs.querySelectorAll("button")) {
      const chosen = each === button;
      each.setAttribute("aria-selected", chosen);
      each.tabIndex = chosen ? 0 : -1;
    }
    place.setAttribute("aria-labelledby", button.id);
  }

  function tab(label, id, action) {
    const button = document.createElement("button");
    button.type = "button";
    button.id = id;
    button.setAttribute("role", "tab");
    button.textContent = label;
    button.addEventListener("click", () => { select(button); action(); });
    tabs.append(button);
    return button;
  }

  const buttons = page.pictures.map((shown, at) => tab(shown.label, "tab" + at, () => show(shown, shown.note)));
  let handTab = null;
  tabs.addEventListener("keydown", (event) => {
    const every = Array.from(tabs.querySelectorAll("button"));
    const at = every.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (at < 0 || !step) return;
    const next = every[(at + step + every.length) % every.length];
    next.focus();
    next.click();
  });

  const tip = find("tip");
  const heats = [];
  function chosenRange(range) {
    const cores = range.cores === null ? "all cores" : range.cores.length === 1 ? "core " + range.cores[0]
      : range.cores.length + " cores";
    const some = page.stacks && page.stacks.cores[0] === null && range.cores !== null;
    const span = page.clock(range.start) + " to " + page.clock(range.end) + " · "
      + (some ? "all cores (this page does not hold them apart)" : cores);
    const action = () => {
      if (page.stacks) show(counted(range), span + " · " + hint(range));
      else show(null, "the stacks of other ranges are not in this page: " + hint(range));
    };
    if (handTab) handTab.remove();
    handTab = tab("chosen: " + span, "tabhand", action);
    select(handTab);
    action();
  }

  for (const heat of page.heats) {
    heats.push(sextonHeat(find("heat-" + heat.kind), heat, page, {
      told(text, x, y) {
        tip.textContent = text;
        tip.hidden = !text;
        tip.style.left = Math.min(x + 14, window.innerWidth - tip.offsetWidth - 8) + "px";
        tip.style.top = Math.min(y + 16, window.innerHeight - 40) + "px";
      },
      chosen: chosenRange,
    }));
  }
  window.addEventListener("resize", () => heats.forEach((heat) => heat.draw()));

  for (const link of document.querySelectorAll("[data-picture]")) {
    link.hidden = false;
    link.addEventListener("click", () => {
      buttons[Number(link.dataset.picture)].click();
      tabs.scrollIntoView({ block: "start" });
    });
  }
  if (buttons.length) buttons[page.first].click();
})();

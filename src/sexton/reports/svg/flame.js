// One flame graph: zoom, search, keys. Works on what is already drawn, so that the picture is there
// without it. `svg` holds <g class="boxes">, whose children are boxes in pre-order, each with its
// depth (data-d), its counts (data-n: samples, or "before,after") and a title; `bar` takes the
// controls. Nothing is fetched, and every text goes in as text.
function sextonFlame(svg, bar) {
  "use strict";
  const ROW = 17, PAD = 10, LEAST = 0.4;
  const XHTML = "http://www.w3.org/1999/xhtml";
  const head = Number(svg.dataset.head);
  const boxes = Array.from(svg.querySelector(".boxes").children, (g, index) => {
    const title = g.querySelector("title").textContent;
    return {
      g, index, title, name: title.split("\n", 1)[0],
      rect: g.querySelector("rect"), text: g.querySelector("text"),
      depth: Number(g.dataset.d), counts: g.dataset.n.split(",").map(Number),
      x: 0, width: 0, parent: null, end: index + 1,
    };
  });
  if (!boxes.length) return null;
  const byElement = new Map(boxes.map((box) => [box.g, box]));
  const deepest = boxes.reduce((most, box) => Math.max(most, box.depth), 0);
  const sides = boxes[0].counts.map((total) => Math.max(total, 1));
  let side = sides.length - 1;       // of a difference, the side that gives the widths; 2 is both
  // A flame that is taller than the window would show its tips and hide who they belong to.
  let icicle = svg.dataset.icicle === "1" || head + deepest * ROW > window.innerHeight;
  let focus = boxes[0], cursor = null, letter = 7, pattern = null;

  function measure() {
    const probe = svg.ownerDocument.createElementNS("http://www.w3.org/2000/svg", "text");
    probe.textContent = "m".repeat(64);
    svg.querySelector(".boxes").appendChild(probe);
    letter = probe.getComputedTextLength() / 64 || 7;
    probe.remove();
  }

  // A box stands where its parent begins and its elder siblings end.
  function lay() {
    const next = [0], line = [];
    for (const box of boxes) {
      line.length = box.depth;
      box.parent = box.depth ? line[box.depth - 1] : null;
      line.push(box);
      box.width = side < 2 ? box.counts[side] / sides[side]
        : (box.counts[0] / sides[0] + box.counts[1] / sides[1]) / 2;
      box.x = next[box.depth] || 0;
      next[box.depth] = box.x + box.width;
      next[box.depth + 1] = box.x;
    }
    for (let at = boxes.length - 1; at > 0; at--) {
      const box = boxes[at];
      box.parent.end = Math.max(box.parent.end, box.end);
    }
  }

  function columns(character) {
    return character.codePointAt(0) >= 0x1100 ? 2 : 1;
  }

  function fit(name, room) {
    let free = Math.floor(room / letter), kept = "";
    if (free < 3) return "";
    for (const character of name) {
      free -= columns(character);
      if (free < 0) return kept.slice(0, -1) + "…";
      kept += character;
    }
    return kept;
  }

  function place(box, x, width) {
    const shown = width >= LEAST;
    box.g.toggleAttribute("hidden", !shown);
    box.g.setAttribute("display", shown ? "inline" : "none");
    if (!shown) return;
    const level = icicle ? box.depth : deepest - box.depth;
    const y = head + level * ROW;
    box.rect.setAttribute("x", x.toFixed(2));
    box.rect.setAttribute("y", y);
    box.rect.setAttribute("width", Math.max(width - (width > 3 ? 0.6 : 0), 0.3).toFixed(2));
    box.text.setAttribute("x", (x + 3).toFixed(2));
    box.text.setAttribute("y", y + 12);
    box.text.textContent = fit(box.name, width - 5);
  }

  function draw() {
    const wide = svg.clientWidth || svg.getBoundingClientRect().width || 1200;
    const room = wide - 2 * PAD;
    svg.removeAttribute("viewBox");
    svg.setAttribute("height", head + (deepest + 1) * ROW + PAD);
    const legend = svg.querySelector(".legend");
    if (legend) {
      legend.setAttribute("transform", "translate(" + (wide - 1200) + " 0)");
      legend.setAttribute("display", wide < 900 ? "none" : "inline");
    }
    const above = new Set();
    for (let box = focus.parent; box; box = box.parent) above.add(box);
    const scale = focus.width > 0 ? room / focus.width : 0;
    for (const box of boxes) {
      const within = box.index >= focus.index && box.index < focus.end;
      box.g.classList.toggle("above", above.has(box));
      if (above.has(box)) place(box, PAD, room);
      else if (within) place(box, PAD + (box.x - focus.x) * scale, box.width * scale);
      else place(box, 0, 0);
    }
    bar.querySelector(".reset").disabled = focus === boxes[0];
  }

  function zoom(box) {
    focus = box;
    draw();
    tell(box);
  }

  function tell(box) {
    bar.querySelector(".told").textContent = box ? box.title.split("\n").join("  ·  ") : "";
  }

  function percent(share) {
    return (100 * share).toFixed(share < 0.01 ? 2 : 1) + " %";
  }

  // The share of what was found, counting a function that calls itself once.
  function search(text) {
    pattern = null;
    if (text) {
      try { pattern = new RegExp(text, "i"); }
      catch { pattern = new RegExp(text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"), "i"); }
    }
    let found = 0, until = -1, share = 0;
    for (const box of boxes) {
      const hit = pattern !== null && box.depth > 0 && pattern.test(box.name);
      box.g.classList.toggle("hit", hit);
      if (!hit) continue;
      found += 1;
      if (box.index >= until) { share += box.width; until = box.end; }
    }
    svg.classList.toggle("searched", pattern !== null);
    bar.querySelector(".found").textContent = pattern === null ? ""
      : found ? percent(share / boxes[0].width) + " in " + found + (found > 1 ? " boxes" : " box")
      : "not found";
  }

  function move(to) {
    if (!to) return;
    if (cursor) cursor.g.classList.remove("cursor");
    cursor = to;
    cursor.g.classList.add("cursor");
    tell(cursor);
  }

  function beside(box, step) {
    for (let at = box.index + step; at >= 0 && at < boxes.length; at += step) {
      if (boxes[at].depth < box.depth) return null;
      if (boxes[at].depth === box.depth) return boxes[at];
    }
    return null;
  }

  function widest(box) {
    let best = null;
    for (let at = box.index + 1; at < box.end; at++) {
      const each = boxes[at];
      if (each.depth === box.depth + 1 && (!best || each.width > best.width)) best = each;
    }
    return best;
  }

  function key(event) {
    const here = cursor || focus;
    const inwards = icicle ? "ArrowDown" : "ArrowUp", outwards = icicle ? "ArrowUp" : "ArrowDown";
    const moves = {
      [inwards]: () => move(widest(here)), [outwards]: () => move(here.parent),
      ArrowLeft: () => move(beside(here, -1)), ArrowRight: () => move(beside(here, 1)),
      Enter: () => zoom(here), Escape: () => { zoom(boxes[0]); },
      "/": () => bar.querySelector(".search").focus(),
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moves[event.key]();
  }

  function boxOf(event) {
    const g = event.target.closest ? event.target.closest("g[data-d]") : null;
    return g ? byElement.get(g) || null : null;
  }

  function control(tag, name, settings, listeners) {
    const made = bar.ownerDocument.createElementNS(XHTML, tag);
    made.className = name;
    Object.assign(made, settings);
    for (const [kind, listener] of Object.entries(listeners || {})) {
      made.addEventListener(kind, listener);
    }
    bar.appendChild(made);
    return made;
  }

  function controls() {
    bar.textContent = "";
    control("input", "search", { type: "search", placeholder: "search ( / )" }, {
      input: (event) => search(event.target.value),
      keydown: (event) => { if (event.key === "Escape") { event.target.value = ""; search(""); svg.focus(); } },
    }).setAttribute("aria-label", "search functions, a regular expression");
    control("span", "found", {}).setAttribute("role", "status");
    control("button", "reset", { type: "button", textContent: "reset zoom" }, {
      click: () => zoom(boxes[0]),
    });
    control("button", "flip", { type: "button", textContent: "upside down" }, {
      click: () => { icicle = !icicle; draw(); },
    });
    if (sides.length > 1) {
      const names = ["widths: before", "widths: after", "widths: both"];
      control("button", "side", { type: "button", textContent: names[side] }, {
        click: (event) => {
          side = (side + 1) % 3;
          event.target.textContent = names[side];
          lay(); draw();
        },
      });
    }
    control("span", "told", {}).setAttribute("aria-live", "polite");
  }

  controls();
  measure();
  lay();
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("click", (event) => { const box = boxOf(event); if (box) zoom(box); });
  svg.addEventListener("mouseover", (event) => tell(boxOf(event) || cursor));
  svg.addEventListener("keydown", key);
  svg.ownerDocument.defaultView.addEventListener("resize", draw);
  svg.classList.add("live");
  draw();
  return { draw, zoom, search, boxes };
}

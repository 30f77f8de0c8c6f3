// Flame graphs from the numbers of the page: the same drawing as in an SVG file of its own.
function sextonBuild(page) {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";

  function percent(share) {
    const value = 100 * share;
    if (value === 0) return "0 %";
    return value < 0.01 ? "<0.01 %" : value.toFixed(value < 1 ? 2 : 1) + " %";
  }

  function element(kind, attributes, text) {
    const made = document.createElementNS(SVG, kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function told(shown, at, sides) {
    const frame = shown.frame[at];
    const module = page.modules[page.module[frame]];
    const lead = module ? module + " · " : "";
    const counts = shown.counts.map((side) => side[at]);
    if (counts.length === 1) {
      const own = shown.own[at] ? " · itself " + percent(shown.own[at] / sides[0]) : "";
      return lead + counts[0].toLocaleString("en") + " samples · " + percent(counts[0] / sides[0]) + own;
    }
    const q = shown.q[at];
    const sure = q === null ? "not tested" : "q " + (q < 0.001 ? q.toExponential(0) : q.toFixed(3))
      + (q <= page.significant ? "" : " (may be chance)");
    return lead + shown.sides[0] + " " + percent(counts[0] / sides[0]) + " (" + counts[0].toLocaleString("en")
      + ") → " + shown.sides[1] + " " + percent(counts[1] / sides[1]) + " ("
      + counts[1].toLocaleString("en") + ") · " + sure;
  }

  // `shown`: depth, frame, counts (one list, or before and after), own, and of a difference shade, q.
  return function (shown, place) {
    place.textContent = "";
    const bar = document.createElement("div");
    bar.className = "bar";
    const svg = element("svg", {
      class: "flame", width: "100%", role: "img", "aria-label": shown.label,
      "data-head": "6", "data-icicle": shown.icicle === false ? "0" : "1",
    });
    const boxes = element("g", { class: "boxes" });
    const sides = shown.counts.map((side) => Math.max(side[0] || 0, 1));
    for (let at = 0; at < shown.depth.length; at++) {
      const frame = shown.frame[at];
      const box = element("g", {
        class: shown.shade ? shown.shade[at] : at ? page.shade[frame] : "r",
        "data-d": shown.depth[at], "data-n": shown.counts.map((side) => side[at]).join(","),
      });
      const name = at ? page.names[frame] : "all";
      box.append(element("title", {}, name + "\n" + told(shown, at, sides)),
        element("rect", { height: "16", rx: "1.5" }), element("text", {}));
      boxes.append(box);
    }
    svg.append(boxes);
    place.append(bar, svg);
    return sextonFlame(svg, bar);
  };
}

// A heatmap on a canvas: hover tells a cell, drawing over it or Shift and arrows choose a range.
// `heat`: rows, columns, cells (base64 of 16-bit numbers, 65535: not sampled), scale, most, first
// and column (seconds from the capture's start). `listen` has told(text, x, y), chosen(range).
function sextonHeat(canvas, heat, page, listen) {
  "use strict";
  const LEFT = 58, TOP = 18, BOTTOM = 22, NONE = 65535;
  const bytes = Uint8Array.from(atob(heat.cells), (letter) => letter.charCodeAt(0));
  const cells = new Uint16Array(heat.rows.length * heat.columns);
  for (let at = 0; at < cells.length; at++) cells[at] = bytes[2 * at] | (bytes[2 * at + 1] << 8);
  const subsecond = heat.kind === "subsecond";
  const painted = document.createElement("canvas");
  let chosen = null, cursor = null, anchor = null;

  if (!subsecond) {
    canvas.style.height = Math.min(Math.max(heat.rows.length * 14, 90), 520) + TOP + BOTTOM + "px";
  }

  function valueAt(row, column) {
    const value = cells[row * heat.columns + column];
    return value === NONE ? null : value / heat.scale;
  }

  const night = window.matchMedia("(prefers-color-scheme: dark)");

  function paint() {
    const palette = night.matches ? page.palettes.dark : page.palettes.light;
    painted.width = heat.columns;
    painted.height = heat.rows.length;
    const pen = painted.getContext("2d");
    const image = pen.createImageData(painted.width, painted.height);
    const full = Math.max(heat.full || heat.most, 1e-9);
    for (let row = 0; row < heat.rows.length; row++) {
      const drawn = subsecond ? heat.rows.length - 1 - row : row;   // a second runs upwards
      for (let column = 0; column < heat.columns; column++) {
        const value = valueAt(row, column);
        if (value === null) continue;
        const step = value <= 0 ? 1 : 2 + Math.min(Math.floor(value / full * (palette.length - 2)), palette.length - 3);
        const colour = palette[step];
        image.data.set([colour[0], colour[1], colour[2], 255], 4 * (drawn * heat.columns + column));
      }
    }
    pen.putImageData(image, 0, 0);
  }

  function box() {
    return { x: LEFT, y: TOP, width: canvas.clientWidth - LEFT - 8, height: canvas.clientHeight - TOP - BOTTOM };
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1, area = box();
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(canvas.clientHeight * ratio);
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(canvas);
    pen.scale(ratio, ratio);
    pen.imageSmoothingEnabled = false;
    pen.fillStyle = style.getPropertyValue("--none");
    pen.fillRect(area.x, area.y, area.width, area.height);
    pen.strokeStyle = style.getPropertyValue("--line");
    pen.strokeRect(area.x - 0.5, area.y - 0.5, area.width + 1, area.height + 1);
    pen.drawImage(painted, area.x, area.y, area.width, area.height);
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = style.getPropertyValue("--soft");
    rowLabels(pen, area);
    clock(pen, area);
    marks(pen, area, style);
    if (chosen) outline(pen, area, chosen, style.getPropertyValue("--mark"), 2);
    if (cursor) outline(pen, area, { row0: cursor.row, row1: cursor.row, column0: cursor.column, column1: cursor.column }, style.getPropertyValue("--mark"), 1);
  }

  function rowLabels(pen, area) {
    const rows = heat.rows.length, each = area.height / rows;
    const every = subsecond ? 10 : Math.max(Math.ceil(13 / each), 1);
    pen.textAlign = "right";
    for (let row = 0; row < rows; row += every) {
      const drawn = subsecond ? rows - 1 - row : row;
      const text = subsecond ? heat.rows[row] + " ms" : heat.rows[row] < 0 ? "?" : "core " + heat.rows[row];
      pen.fillText(text, LEFT - 6, area.y + (drawn + 0.5) * each + 4);
    }
    pen.textAlign = "left";
  }

  function clock(pen, area) {
    let last = -Infinity;
    const span = heat.columns * heat.column;
    const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200].find((each) => span / each <= area.width / 80) || 14400;
    for (let at = 0; at < span; at += step) {
      const x = area.x + at / span * area.width;
      if (x - last < 62 || x + 50 > area.x + area.width) continue;
      pen.fillRect(x, area.y + area.height, 1, 4);
      pen.fillText(page.clock(heat.first + at), x, area.y + area.height + 16);
      last = x;
    }
  }

  function columnOf(second) { return (second - heat.first) / heat.column; }

  function marks(pen, area, style) {
    page.spikes.forEach((spike, number) => {
      const start = Math.max(columnOf(spike.start_s), 0), end = Math.min(columnOf(spike.end_s), heat.columns);
      if (end <= 0 || start >= heat.columns) return;
      const x = area.x + start / heat.columns * area.width;
      const width = Math.max((end - start) / heat.columns * area.width, 3);
      pen.fillStyle = style.getPropertyValue("--mark");
      pen.fillRect(x, area.y - 4, width, 3);
      pen.fillText(String(number + 1), x + width / 2 - 3, area.y - 7);
      if (subsecond || !spike.cores.length) return;
      pen.strokeStyle = style.getPropertyValue("--mark");
      pen.lineWidth = 1.5;
      const each = area.height / heat.rows.length;
      for (const core of spike.cores) {
        const row = heat.rows.indexOf(core);
        if (row >= 0) pen.strokeRect(x - 1, area.y + row * each, width + 2, Math.max(each, 2));
      }
    });
  }

  function outline(pen, area, range, colour, width) {
    const rows = heat.rows.length, each = area.height / rows, wide = area.width / heat.columns;
    const top = subsecond ? 0 : range.row0, bottom = subsecond ? rows - 1 : range.row1;
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.strokeRect(area.x + range.column0 * wide, area.y + top * each,
      (range.column1 - range.column0 + 1) * wide, (bottom - top + 1) * each);
  }

  function cellAt(event) {
    const area = box(), bounds = canvas.getBoundingClientRect();
    const x = (event.clientX - bounds.left - area.x) / area.width * heat.columns;
    const y = (event.clientY - bounds.top - area.y) / area.height * heat.rows.length;
    const column = Math.min(Math.max(Math.floor(x), 0), heat.columns - 1);
    let row = Math.min(Math.max(Math.floor(y), 0), heat.rows.length - 1);
    if (subsecond) row = heat.rows.length - 1 - row;
    return { row, column, inside: x >= 0 && x < heat.columns && y >= 0 && y < heat.rows.length };
  }

  function words(cell) {
    const value = valueAt(cell.row, cell.column);
    const row = heat.rows[cell.row];
    const where = subsecond ? "+" + row + " to " + (row + 20) + " ms" : row < 0 ? "core not told" : "core " + row;
    const said = value === null ? "not sampled" : value.toLocaleString("en", { maximumFractionDigits: 1 })
      + (subsecond ? " busy samples" : " busy samples a second");
    return page.clock(heat.first + cell.column * heat.column) + " · " + where + " · " + said;
  }

  function range(one, other) {
    return {
      row0: Math.min(one.row, other.row), row1: Math.max(one.row, other.row),
      column0: Math.min(one.column, other.column), column1: Math.max(one.column, other.column),
    };
  }

  function choose() {
    if (!chosen) return;
    listen.chosen({
      start: heat.first + chosen.column0 * heat.column,
      end: heat.first + (chosen.column1 + 1) * heat.column,
      cores: subsecond ? null : heat.rows.slice(chosen.row0, chosen.row1 + 1),
    });
  }

  canvas.addEventListener("pointerdown", (event) => {
    anchor = cellAt(event);
    if (!anchor.inside) { anchor = null; return; }
    canvas.setPointerCapture(event.pointerId);
    chosen = range(anchor, anchor);
    draw();
  });
  canvas.addEventListener("pointermove", (event) => {
    const cell = cellAt(event);
    if (anchor) { chosen = range(anchor, cell); draw(); }
    listen.told(cell.inside || anchor ? words(cell) : "", event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerup", () => { if (anchor) { anchor = null; choose(); } });
  canvas.addEventListener("pointerleave", () => { if (!anchor) listen.told("", 0, 0); });
  canvas.addEventListener("keydown", (event) => {
    const up = subsecond ? 1 : -1;
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [up, 0], ArrowDown: [-up, 0] };
    if (event.key === "Enter" && cursor) { chosen = chosen || range(cursor, cursor); choose(); event.preventDefault(); return; }
    if (event.key === "Escape") { chosen = cursor = anchor = null; draw(); return; }
    if (!steps[event.key]) return;
    event.preventDefault();
    const from = cursor || { row: 0, column: 0 };
    const to = {
      row: Math.min(Math.max(from.row + steps[event.key][0], 0), heat.rows.length - 1),
      column: Math.min(Math.max(from.column + steps[event.key][1], 0), heat.columns - 1),
    };
    if (event.shiftKey) { canvas.from = canvas.from || from; chosen = range(canvas.from, to); }
    else { canvas.from = null; chosen = null; }
    cursor = to;
    draw();
    const bounds = canvas.getBoundingClientRect();
    listen.told(words(cursor), bounds.left + LEFT, bounds.top + TOP, true);
  });
  night.addEventListener("change", () => { paint(); draw(); });
  paint();
  draw();
  return { draw, clear() { chosen = cursor = null; draw(); } };
}

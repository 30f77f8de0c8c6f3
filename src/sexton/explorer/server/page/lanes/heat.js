// @ts-check
// Cores × time. The colour of a cell shows what the core did most: a core held by the kernel is
// vermilion, one busy in user space blue, an idle one has the colour of zero.

import {rgbOf} from "../theme.js";
import {drawPieces} from "./pieces.js";
import {TILE_COLUMNS} from "../data/tiles.js";

const NO_CELL = 255, FULL = 200;
/** Small values must be visible too: a core that is 10 % busy has a quarter of the colour. */
const STRENGTH = Float32Array.from({ length: 256 }, (_, level) => Math.min(level / FULL, 1) ** 0.62);

/** @param {import("../data/tiles.js").Tile} tile @param {string} plane @param {import("../theme.js").Look} look @returns {HTMLCanvasElement} */
function heatBitmap(tile, plane, look) {
  const key = plane + look.name, found = tile.bitmaps.get(key);
  if (found) return found;
  const { strip, offset } = tile, rows = strip.names.length, cells = strip.planes[plane];
  const canvas = document.createElement("canvas");
  canvas.width = TILE_COLUMNS;
  canvas.height = Math.max(rows, 1);
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = pen.createImageData(canvas.width, canvas.height);
  const out = new Uint32Array(image.data.buffer);
  const colours = strip.channels.map((name) => rgbOf(look.channels[name] || look.channels.user));
  const [zr, zg, zb] = look.zero, plane0 = rows * strip.columns, channels = strip.channels.length;
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < TILE_COLUMNS; column++) {
      let at = row * strip.columns + offset + column, sum = 0, all = 0, red = 0, green = 0, blue = 0, none = false;
      for (let channel = 0; channel < channels; channel++, at += plane0) {
        const value = cells[at];
        if (value === NO_CELL) { none = true; break; }
        // Squared: what a core did most gives the hue; a plain mixture would be grey.
        const colour = colours[channel], weight = value * value;
        sum += value;
        all += weight;
        red += weight * colour[0];
        green += weight * colour[1];
        blue += weight * colour[2];
      }
      if (none) continue;
      const strong = sum ? STRENGTH[Math.min(sum, 255)] : 0, share = all ? strong / all : 0;
      out[row * TILE_COLUMNS + column] = (255 << 24 | (zb * (1 - strong) + blue * share) << 16
        | (zg * (1 - strong) + green * share) << 8 | (zr * (1 - strong) + red * share)) >>> 0;
    }
  }
  pen.putImageData(image, 0, 0);
  tile.bitmaps.set(key, canvas);
  return canvas;
}

/** Cells in which the kernel held a core, as row and column alternating. A page without a limit (a capture) has none.
 *  @param {import("../data/tiles.js").Tile} tile @param {string} plane @param {number | null | undefined} limit per cent @returns {number[]} */
function stallsOf(tile, plane, limit) {
  const found = tile.stalls.get(plane);
  if (found) return found;
  const { strip, offset } = tile, rows = strip.names.length, cells = strip.planes[plane], stalls = [];
  const least = typeof limit === "number" ? limit / 100 * FULL : Infinity;
  const system = strip.channels.indexOf("system") * rows, softirq = strip.channels.indexOf("softirq") * rows;
  for (let row = 0; row < rows && system >= 0 && softirq >= 0; row++) {
    for (let column = 0; column < TILE_COLUMNS; column++) {
      const one = cells[(system + row) * strip.columns + offset + column], other = cells[(softirq + row) * strip.columns + offset + column];
      if (one !== NO_CELL && one + other >= least) stalls.push(row, column);
    }
  }
  // If that is the rule rather than the exception, nothing is highlighted.
  const kept = stalls.length / 2 > rows * TILE_COLUMNS * 0.04 ? [] : stalls;
  tile.stalls.set(plane, kept);
  return kept;
}

/** @type {import("./pieces.js").Drawer} */
export const heatDrawer = {
  height(about, names, tall) {
    const rows = Math.max(names.length, 1);
    if (tall) return Math.max(rows * 14, 96) + 2;
    // Whole pixels per core, so that all have the same height; and room for the readings.
    return rows * Math.max(Math.min(Math.floor(290 / rows), 20), Math.ceil(94 / rows), 2) + 2;
  },

  paint(pen, box, lane) {
    drawPieces(pen, box, lane, (tile, from, to, x0, x1) => {
      const bitmap = heatBitmap(tile, lane.plane, lane.look);
      const left = (from - tile.start) / tile.column, wide = (to - from) / tile.column;
      pen.imageSmoothingEnabled = false;
      pen.drawImage(bitmap, left, 0, wide, bitmap.height, x0, 1, x1 - x0, box.height - 2);
      const rowHeight = (box.height - 2) / bitmap.height, column = (x1 - x0) / wide;
      if (rowHeight >= 4 && column >= 4) return;
      // Five bad seconds in twelve hours are less than a pixel: drawn large enough to be seen.
      const stalls = stallsOf(tile, lane.plane, lane.about.limit), tall = Math.max(rowHeight, 4), broad = Math.max(column, 4);
      pen.fillStyle = lane.look.channels.system;
      for (let at = 0; at < stalls.length; at += 2) {
        const x = x0 + (stalls[at + 1] - left + 0.5) * column;
        if (x >= x0 && x <= x1) pen.fillRect(Math.round(x - broad / 2), Math.round(1 + (stalls[at] + 0.5) * rowHeight - tall / 2), broad, tall);
      }
    });
  },

  /** The core under the pointer, else the worst one in this column. */
  read(tile, column, lane, row) {
    const { strip } = tile, cells = strip.planes[lane.plane], rows = strip.names.length;
    const value = (/** @type {number} */ channel, /** @type {number} */ of) => cells[(channel * rows + of) * strip.columns + tile.offset + column];
    let shown = row;
    if (shown === null || shown >= rows) {
      let most = -1;
      shown = null;
      for (let index = 0; index < rows; index++) {
        let kernel = 0;
        strip.channels.forEach((name, channel) => { if (name === "system" || name === "softirq") kernel += value(channel, index); });
        if (value(0, index) !== NO_CELL && kernel > most) { most = kernel; shown = index; }
      }
    }
    if (shown === null) return { title: "not recorded", values: strip.channels.map((name) => [name, NaN, NaN]) };
    const of = shown;
    return {
      title: (row === null ? "worst: " : "") + coreName(strip.names[of]),
      values: strip.channels.map((name, channel) => [name, value(channel, of) === NO_CELL ? NaN : value(channel, of) / 2, NaN]),
    };
  },
};

/** @param {string} name @returns {string} */
export function coreName(name) {
  return /^\d+$/.test(name) ? "core " + name : name;
}

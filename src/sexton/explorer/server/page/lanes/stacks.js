// @ts-check
// Samples within the second: seconds across, 20 ms up (FlameScope's picture); below one second the
// 20 ms columns themselves.

import {drawPieces} from "./pieces.js";
import {TILE_COLUMNS} from "../tiles.js";

const NO_SAMPLES = 65535;

/** Full colour is what the busiest cells of a strip have; a few outliers must not pale the rest.
 *  @param {import("../tiles.js").Strip} strip @param {string} plane */
function fullOf(strip, plane) {
  if (strip.most) return strip.most;
  const counts = new Uint32Array(1024), cells = strip.planes[plane];
  let total = 0;
  for (let at = 0; at < cells.length; at++) {
    const value = cells[at];
    if (value === NO_SAMPLES || value === 0) continue;
    counts[Math.min(value, 1023)]++;
    total++;
  }
  let seen = 0, most = 1;
  for (let value = 1; value < 1024; value++) {
    seen += counts[value];
    if (counts[value]) most = value;
    if (seen >= total * 0.998) break;
  }
  strip.most = most;
  return most;
}

/** @param {import("../tiles.js").Tile} tile @param {string} plane @param {import("../theme.js").Look} look */
function stacksBitmap(tile, plane, look) {
  const key = plane + look.name, found = tile.bitmaps.get(key);
  if (found) return found;
  const { strip, offset } = tile, cells = strip.planes[plane];
  const rows = Math.max(Math.round(cells.length / strip.columns), 1);
  const canvas = document.createElement("canvas");
  canvas.width = TILE_COLUMNS;
  canvas.height = rows;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = pen.createImageData(canvas.width, canvas.height), out = new Uint32Array(image.data.buffer);
  const full = fullOf(strip, plane), [zr, zg, zb] = look.zero;
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < TILE_COLUMNS; column++) {
      const value = cells[row * strip.columns + offset + column];
      if (value === NO_SAMPLES) continue;
      const [red, green, blue] = value === 0 ? [zr, zg, zb] : look.ramp[Math.min(Math.floor(value / full * 63), 63)];
      out[(rows - 1 - row) * TILE_COLUMNS + column] = (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
    }
  }
  pen.putImageData(image, 0, 0);
  tile.bitmaps.set(key, canvas);
  return canvas;
}

/** @type {import("./pieces.js").Drawer} */
export const stacksDrawer = {
  height(about, names, tall) {
    return tall ? 202 : 102;
  },

  paint(pen, box, lane) {
    drawPieces(pen, box, lane, (tile, from, to, x0, x1) => {
      const bitmap = stacksBitmap(tile, lane.plane, lane.look);
      const left = (from - tile.start) / tile.column, wide = (to - from) / tile.column;
      pen.imageSmoothingEnabled = false;
      pen.drawImage(bitmap, left, 0, wide, bitmap.height, x0, 1, x1 - x0, box.height - 2);
    });
  },

  read(tile, column, lane, row) {
    const { strip, offset } = tile, cells = strip.planes.mean;
    const rows = Math.max(Math.round(cells.length / strip.columns), 1);
    let sum = 0, seen = false, most = 0;
    for (let index = 0; index < rows; index++) {
      const value = cells[index * strip.columns + offset + column];
      if (value === NO_SAMPLES) continue;
      seen = true;
      sum += value;
      most = Math.max(most, value);
    }
    const values = [["samples", seen ? sum : NaN, NaN]];
    if (rows > 1) values.push(["busiest 20 ms", seen ? most : NaN, NaN]);
    if (rows > 1 && row !== null && row < rows) {
      const value = cells[(rows - 1 - row) * strip.columns + offset + column];
      return { title: `+${(rows - 1 - row) * 20} ms`, values: [["here", value === NO_SAMPLES ? NaN : value, NaN], ...values] };
    }
    return { title: "", values };
  },
};

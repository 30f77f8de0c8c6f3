// @ts-check
// Samples within each second, as in FlameScope: a column per second, a row per 20 ms; zoomed in below a
// second, a column per 20 ms.

import {drawPieces, laneLevel} from "./pieces.js";
import {roundUp} from "./lines.js";
import {TILE_COLUMNS} from "../data/tiles.js";
import {ticksOf, timeToX} from "../axis.js";
import {clockText, dayText, numberText, withUnit} from "../words.js";

const NO_SAMPLES = 65535, AXIS = 15, SCALE_WIDE = 64, SCALE_TALL = 7;
/** The readings beside the lane. */
export const STACK_VALUES = ["in a second", "busiest 20 ms"];

/** Pixels of the rows, without the time axis below them. @param {number} height of the lane */
export function stackHeight(height) {
  return height - 2 - AXIS;
}

/** The value of the busiest cells of a strip, without a few outliers that would make the rest pale.
 *  @param {import("../data/tiles.js").Strip} strip @param {string} plane */
function fullOf(strip, plane) {
  if (strip.most[plane]) return strip.most[plane];
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
  strip.most[plane] = most;
  return most;
}

/** The value with full colour, one for the whole picture, so that equal colours are equal numbers.
 *  @param {import("./pieces.js").LaneView} lane @param {import("./picture.js").Box} box */
function fullFor(lane, box) {
  const level = laneLevel(lane, (box.end - box.start) / box.width);
  const from = Math.max(box.start, lane.whole.start), to = Math.min(box.end, lane.whole.end);
  let most = 1;
  for (const { tile } of lane.tiles.cover(lane.id, level, from, to, lane.about.levels[1])) if (tile) most = Math.max(most, fullOf(tile.strip, lane.plane));
  return Math.ceil(roundUp(most));
}

/** @param {import("../data/tiles.js").Tile} tile @param {import("./pieces.js").LaneView} lane */
function stacksBitmap(tile, lane) {
  const { plane, look, top: full } = lane, key = plane + look.name + full, found = tile.bitmaps.get(key);
  if (found) return found;
  // The scale changes with the view: bitmaps of other scales are not kept for long.
  if (tile.bitmaps.size > 3) tile.bitmaps.clear();
  const { strip, offset } = tile, cells = strip.planes[plane];
  const rows = Math.max(Math.round(cells.length / strip.columns), 1);
  const canvas = document.createElement("canvas");
  canvas.width = TILE_COLUMNS;
  canvas.height = rows;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = pen.createImageData(canvas.width, canvas.height), out = new Uint32Array(image.data.buffer);
  const [zr, zg, zb] = look.zero;
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
    return (tall ? 202 : 102) + AXIS;
  },

  paint(pen, box, lane) {
    lane.top = fullFor(lane, box);
    lane.isFine = laneLevel(lane, (box.end - box.start) / box.width) < 0;
    drawPieces(pen, box, lane, (tile, from, to, x0, x1) => {
      const bitmap = stacksBitmap(tile, lane);
      const left = (from - tile.start) / tile.column, wide = (to - from) / tile.column;
      pen.imageSmoothingEnabled = false;
      pen.drawImage(bitmap, left, 0, wide, bitmap.height, x0, 1, x1 - x0, stackHeight(box.height));
    });
    drawClock(pen, box, lane);
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
    const [second, busiest] = STACK_VALUES, values = [[busiest, seen ? most : NaN, NaN]];
    if (rows > 1) values.push([second, seen ? sum : NaN, NaN]);
    if (rows === 1 || row === null || row >= rows) return { title: "", values };
    const value = cells[(rows - 1 - row) * strip.columns + offset + column];
    return { title: `+${(rows - 1 - row) * 20} ms: ${value === NO_SAMPLES ? "not recorded" : withUnit(numberText(value), lane.about.unit)}`, values };
  },
};

/** The time axis below the rows. @param {CanvasRenderingContext2D} pen @param {import("./picture.js").Box} box @param {import("./pieces.js").LaneView} lane */
function drawClock(pen, box, lane) {
  const { step, times } = ticksOf(box, box.width), top = box.height - AXIS;
  pen.fillStyle = lane.look.card;
  pen.fillRect(0, top, box.width, AXIS);
  pen.fillStyle = lane.look.soft;
  pen.font = '10.5px system-ui, "DejaVu Sans", sans-serif';
  for (const time of times) {
    const x = Math.round(timeToX(box, box.width, time));
    pen.fillRect(x, top, 1, 4);
    pen.fillText(step >= 86400 ? dayText(time) : clockText(time, step), x + 3, top + 11);
  }
}

/** A background for text over the colours. @param {CanvasRenderingContext2D} pen @param {import("./pieces.js").LaneView} lane
 *  @param {number} left @param {number} right @param {number} [top] */
function plate(pen, lane, left, right, top = 1) {
  pen.fillStyle = lane.look.paper;
  pen.globalAlpha = 0.8;
  pen.fillRect(left, top, right - left, 13);
  pen.globalAlpha = 1;
}

/** The time within the second at the left, and the colour scale at the right.
 *  @param {CanvasRenderingContext2D} pen @param {{width: number, height: number, lane: import("./pieces.js").LaneView}} item
 *  @param {(text: string, x: number, y: number) => void} label */
export function drawStackAxes(pen, { width, height, lane }, label) {
  const tall = stackHeight(height);
  if (!lane.top) return;
  if (!lane.isFine) {
    for (const [share, text] of /** @type {[number, string][]} */ ([[0, "0 ms"], [0.5, "500 ms"], [1, "1 s"]])) {
      const y = Math.min(Math.round(1 + (1 - share) * tall), tall);
      pen.fillStyle = lane.look.ink;
      pen.fillRect(0, y, 5, 1);
      const foot = Math.min(Math.max(y + 4, 11), tall);
      plate(pen, lane, 6, 11 + pen.measureText(text).width, foot - 10);
      label(text, 8, foot);
    }
  }
  const text = `≥ ${numberText(lane.top)} ${lane.about.unit}`, wide = pen.measureText(text).width, right = width - 6 - wide, left = right - SCALE_WIDE - 4;
  plate(pen, lane, left - 14, width);
  label("0", left - 10, 11);
  lane.look.ramp.forEach(([red, green, blue], at) => {
    pen.fillStyle = `rgb(${red} ${green} ${blue})`;
    pen.fillRect(left + at * SCALE_WIDE / lane.look.ramp.length, 4, SCALE_WIDE / lane.look.ramp.length + 0.5, SCALE_TALL);
  });
  label(text, right, 11);
}

// @ts-check
// Series over time, as steps: a line at each column's mean and a shade up to its peak, so that five
// bad seconds are visible in twelve hours. A series that was not recorded has no line.

import {drawPieces, laneLevel} from "./pieces.js";
import {columnsUnder, fillRecorded, shadeSeries, sheetFor, stepSeries} from "./sheet.js";
import {rgbOf, seriesColour} from "../theme.js";
import {numberText} from "../words.js";

/** @param {number} value @returns {number} the next round number */
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 5, 7.5, 10].map((entry) => entry * unit).find((entry) => entry >= value - 1e-9) || 10 * unit;
}

/** The top of the scale; for shares at least 100. @param {import("./pieces.js").LaneView} lane @param {import("./picture.js").Box} box */
function topOf(lane, box) {
  const level = laneLevel(lane, (box.end - box.start) / box.width);
  let most = 0;
  const from = Math.max(box.start, lane.whole.start), to = Math.min(box.end, lane.whole.end);
  for (const { tile, start, end } of lane.tiles.cover(lane.id, level, from, to, lane.about.levels[1])) {
    if (!tile) continue;
    const { strip, offset } = tile, peak = strip.planes.peak;
    const first = Math.max(Math.floor((start - tile.start) / tile.column), 0);
    const last = Math.min(Math.ceil((end - tile.start) / tile.column), 256);
    for (let series = 0; series < strip.names.length; series++) {
      const base = series * strip.columns + offset;
      for (let column = first; column < last; column++) if (peak[base + column] > most) most = peak[base + column];
    }
  }
  // A share may read slightly above 100 %.
  return lane.about.unit.startsWith("%") && most < 110 ? 100 : roundUp(most * 1.02);
}

/** @type {import("./pieces.js").Drawer} */
export const linesDrawer = {
  height(about, names, tall) {
    return Math.max(62, 26 + 14 * Math.min(names.length, 7)) * (tall ? 2 : 1);
  },

  paint(pen, box, lane) {
    lane.top = topOf(lane, box);
    const sheet = sheetFor(Math.round(box.width * box.ratio), Math.round(box.height * box.ratio));
    const perSecond = sheet.wide / (box.end - box.start), y = heights(lane.top, box);
    /** @type {Map<string, number>} */ const before = new Map();
    let drawn = -1;
    drawPieces(pen, box, lane, (tile, from, to) => {
      const first = Math.max(Math.ceil((from - box.start) * perSecond - 0.5), 0), last = Math.min(Math.ceil((to - box.start) * perSecond - 0.5), sheet.wide);
      if (first !== drawn) before.clear();
      drawn = last;
      const columns = columnsUnder(tile, first, last, (x) => box.start + (x + 0.5) / perSecond);
      fillRecorded(sheet, tile, columns, lane.look.paper);
      const { names } = tile.strip;
      for (let series = names.length - 1; series >= 0; series--) {
        const colour = rgbOf(seriesColour(lane.look, names[series], Math.max(lane.names.indexOf(names[series]), 0)));
        // A dashboard (a coarse grain) shows no peaks: that is what it hides.
        if (lane.plane === "peak" && lane.grain === null) shadeSeries(sheet, tile, series, columns, colour, y);
        before.set(names[series], stepSeries(sheet, tile, series, columns, { colour, y, thick: 1.25 * box.ratio, before: before.get(names[series]) }));
      }
    });
    pen.imageSmoothingEnabled = false;
    pen.drawImage(sheet.shown(), 0, 0, sheet.wide, sheet.tall, 0, 0, box.width, box.height);
  },

  read(tile, column, lane) {
    const { strip, offset } = tile;
    return {
      title: "",
      values: strip.names.map((name, series) => {
        const at = series * strip.columns + offset + column;
        return [name, strip.planes.mean[at], strip.planes.peak[at]];
      }),
    };
  },
};

/** @param {number} top of the scale @param {import("./picture.js").Box} box @returns {(value: number) => number} rows of pixels */
function heights(top, box) {
  const high = (box.height - 5) * box.ratio, room = high - 5 * box.ratio;
  // In the middle of a pixel row, so that a line is not blurred over two.
  return (value) => Math.floor(high - Math.min(value / top, 1) * room) + 0.5;
}

/** The scale's top, drawn over the lane. @param {import("./pieces.js").LaneView} lane @returns {string} */
export function scaleText(lane) {
  const { unit } = lane.about;
  return lane.top ? `${numberText(lane.top)}${unit.startsWith("/") ? "" : " "}${unit}`.trim() : "";
}

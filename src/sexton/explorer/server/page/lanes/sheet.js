// @ts-check
// Step lines drawn pixel by pixel. A line that is only horizontal and vertical needs no path: a browser
// without a graphics card takes several milliseconds to stroke a thousand steps, and a frame has sixteen.

/** Pixels that are drawn on directly; one sheet is enough, since it is copied at once. */
class Sheet {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    this.wide = 0;
    this.tall = 0;
    this.image = new ImageData(1, 1);
    this.whole = new Uint32Array(1);
  }

  /** @param {number} wide @param {number} tall */
  clear(wide, tall) {
    if (wide === this.wide && tall === this.tall) { this.whole.fill(0); return; }
    Object.assign(this, { wide, tall, image: new ImageData(wide, tall) });
    this.whole = new Uint32Array(this.image.data.buffer);
    this.canvas.width = wide;
    this.canvas.height = tall;
  }

  /** Draws a run in one column of pixels; its ends may lie within a pixel.
   *  @param {number} x @param {number} top @param {number} foot @param {number[]} colour @param {number} strength */
  run(x, top, foot, colour, strength) {
    const { data } = this.image, [red, green, blue] = colour, last = Math.min(foot, this.tall);
    for (let row = Math.max(Math.floor(top), 0); row < last; row++) {
      const share = strength * (Math.min(foot, row + 1) - Math.max(top, row)), at = 4 * (row * this.wide + x);
      data[at] += (red - data[at]) * share;
      data[at + 1] += (green - data[at + 1]) * share;
      data[at + 2] += (blue - data[at + 2]) * share;
    }
  }

  shown() {
    this.pen.putImageData(this.image, 0, 0);
    return this.canvas;
  }
}

const sheet = new Sheet();

/** @param {number} wide @param {number} tall @returns {Sheet} empty and transparent */
export function sheetFor(wide, tall) {
  sheet.clear(Math.max(wide, 1), Math.max(tall, 1));
  return sheet;
}

/** Which column of a tile is under each pixel: `under[i]` for the pixel `first + i`.
 *  @typedef {{first: number, under: Int16Array}} Columns */

/** @param {import("../data/tiles.js").Tile} tile @param {number} first @param {number} last @param {(x: number) => number} time @returns {Columns} */
export function columnsUnder(tile, first, last, time) {
  const under = new Int16Array(Math.max(last - first, 0));
  for (let at = 0; at < under.length; at++) under[at] = Math.min(Math.max(Math.floor((time(first + at) - tile.start) / tile.column), 0), 255);
  return { first, under };
}

/** Fills the columns in which any series was recorded. @param {Sheet} on @param {import("../data/tiles.js").Tile} tile @param {Columns} columns @param {string} paper "#rrggbb" */
export function fillRecorded(on, tile, { first, under }, paper) {
  const { strip, offset } = tile, { mean } = strip.planes, colour = parseInt(paper.slice(1), 16);
  const value = (255 << 24 | (colour & 255) << 16 | (colour >> 8 & 255) << 8 | colour >> 16) >>> 0;
  let known = -1, is = false;
  for (let at = 0; at < under.length; at++) {
    if (under[at] !== known) {
      known = under[at];
      is = false;
      for (let index = offset + known; index < mean.length && !is; index += strip.columns) is = mean[index] === mean[index];
    }
    if (is) for (let here = first + at; here < on.whole.length; here += on.wide) on.whole[here] = value;
  }
}

/** From each column's mean up to its peak; a column narrower than a pixel keeps its peak.
 *  @param {Sheet} on @param {import("../data/tiles.js").Tile} tile @param {number} series @param {Columns} columns @param {number[]} colour @param {(value: number) => number} y */
export function shadeSeries(on, tile, series, { first, under }, colour, y) {
  const { strip, offset } = tile, { mean, peak } = strip.planes, base = series * strip.columns + offset;
  for (let at = 0; at < under.length; at++) {
    let most = peak[base + under[at]];
    for (let index = at ? under[at - 1] + 1 : under[at]; index < under[at]; index++) if (peak[base + index] > most) most = peak[base + index];
    const low = mean[base + under[at]];
    if (most > low) on.run(first + at, y(most), y(low), colour, 0.28);
  }
}

/** The line: horizontal at each mean, vertical between them. @param {Sheet} on @param {import("../data/tiles.js").Tile} tile @param {number} series
 *  @param {Columns} columns @param {{colour: number[], y: (value: number) => number, thick: number, before: number | undefined}} how
 *  @returns {number} its height at the end, for the tile that follows */
export function stepSeries(on, tile, series, { first, under }, { colour, y, thick, before }) {
  const { strip, offset } = tile, { mean } = strip.planes, base = series * strip.columns + offset;
  let last = before ?? NaN;
  for (let at = 0; at < under.length; at++) {
    let top = last, foot = last;
    for (let index = at ? Math.min(under[at - 1] + 1, under[at]) : under[at]; index <= under[at]; index++) {
      last = y(mean[base + index]);
      // Comparisons with NaN are false: a column without data neither begins nor joins a line.
      if (!(top <= last)) top = last;
      if (!(foot >= last)) foot = last;
    }
    if (top === top && last === last) on.run(first + at, top - thick / 2, foot + thick / 2, colour, 1);
  }
  return last;
}

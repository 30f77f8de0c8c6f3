// @ts-check
// The time axis above the lanes, and the overview of the whole recording above it.

import {byId, clockText, dayText, fromToText, spanText, zoneText} from "../words.js";
import {ticksOf, timeToX} from "../axis.js";
import {columnSeconds, levelFor} from "../data/tiles.js";
import {hatchOf} from "../theme.js";

const RULER_HEIGHT = 24, OVERVIEW_HEIGHT = 34, SPAN_WIDTH = 330, SPAN_HEIGHT = 20;

/** @param {HTMLCanvasElement} canvas @param {number} width @param {number} height @returns {CanvasRenderingContext2D} */
function sized(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2), wide = Math.round(width * ratio), tall = Math.round(height * ratio);
  if (canvas.width !== wide || canvas.height !== tall) {
    canvas.width = wide;
    canvas.height = tall;
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
  }
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

/** @param {import("../state.js").PageState} state @param {number} width @param {import("../theme.js").Look} look */
export function drawRuler(state, width, look) {
  const pen = sized(byId("ruler"), width, RULER_HEIGHT), { view } = state;
  pen.clearRect(0, 0, width, RULER_HEIGHT);
  const { step, times } = ticksOf(view, width);
  pen.font = '11px system-ui, "DejaVu Sans", sans-serif';
  pen.fillStyle = look.soft;
  for (const time of times) {
    const x = Math.round(timeToX(view, width, time));
    pen.fillRect(x, RULER_HEIGHT - 5, 1, 5);
    if (x > 0 && x < width - 50) pen.fillText(step >= 86400 ? dayText(time) : clockText(time, step), x + 3, RULER_HEIGHT - 8);
  }
  for (const [span, colour] of /** @type {const} */ ([[state.baseline, look.series[2]], [state.select, look.mark]])) {
    if (!span) continue;
    const left = timeToX(view, width, span.start), right = timeToX(view, width, span.end);
    pen.fillStyle = colour;
    pen.fillRect(left, RULER_HEIGHT - 4, Math.max(right - left, 1), 4);
  }
  if (state.cursor === null) return;
  const text = clockText(state.cursor, (view.end - view.start) / width);
  const wide = pen.measureText(text).width + 8;
  const x = Math.min(Math.max(timeToX(view, width, state.cursor) - wide / 2, 0), width - wide);
  pen.fillStyle = look.ink;
  pen.beginPath();
  pen.roundRect(x, 2, wide, 16, 4);
  pen.fill();
  pen.fillStyle = look.paper;
  pen.fillText(text, x + 4, 14);
}

/** The visible span as text. On a canvas: text that changes with every frame would repaint the whole page.
 *  @param {import("../axis.js").Span} view @param {import("../theme.js").Look} look */
export function drawVisible(view, look) {
  const pen = sized(byId("visibleCanvas"), SPAN_WIDTH, SPAN_HEIGHT);
  pen.clearRect(0, 0, SPAN_WIDTH, SPAN_HEIGHT);
  pen.font = '600 13px system-ui, "DejaVu Sans", sans-serif';
  pen.fillStyle = look.ink;
  pen.fillText(visibleText(view), 0, 14.5);
}

/** @param {import("../axis.js").Span} view */
export function visibleText(view) {
  return `${fromToText(view.start, view.end)} ${zoneText()} · ${spanText(view.end - view.start)}`;
}

/** The mean over the sampled cores, in percent. @param {import("../data/tiles.js").Strip} strip @param {number} channel @param {number} column */
function meanOfCores(strip, channel, column) {
  let sum = 0, cores = 0;
  for (let row = 0; row < strip.names.length; row++) {
    const value = strip.planes.mean[(channel * strip.names.length + row) * strip.columns + column];
    if (value === 255) continue;
    sum += value;
    cores++;
  }
  return cores ? sum / cores / 2 : NaN;
}

/** The whole recording in one line: the machine's average, warnings, gaps. */
export class Overview {
  /** @param {import("../data/tiles.js").TileCache} tiles @param {import("../data/source.js").RecordingAbout} recording */
  constructor(tiles, recording) {
    this.tiles = tiles;
    this.gaps = recording.gaps || [];
    /** @type {import("../data/source.js").LaneAbout | null} */ this.about = null;
    /** @type {any[]} */ this.marks = [];
    this.dirty = true;
    this.choose(recording.lanes);
    /** Everything except the frame around the visible span, which moves. */
    this.ground = document.createElement("canvas");
  }

  /** Chooses the lane to draw: the machine's average if there is one. @param {import("../data/source.js").LaneAbout[]} lanes */
  choose(lanes) {
    const lines = lanes.filter((lane) => lane.kind === "lines");
    this.about = lines.find((lane) => (lane.series || []).some((name) => name.startsWith("system"))) || lines[0] || lanes.find((lane) => lane.kind === "heat") || null;
    this.dirty = true;
  }

  /** @param {number} width */
  level(width) {
    const { start, end } = this.tiles.whole;
    return this.about ? levelFor(this.about.levels, (end - start) / Math.max(width, 1)) : 0;
  }

  /** @param {number} width @param {import("../theme.js").Look} look */
  drawGround(width, look) {
    this.dirty = false;
    const pen = sized(this.ground, width, OVERVIEW_HEIGHT), { whole } = this.tiles;
    const x = (/** @type {number} */ time) => (time - whole.start) / (whole.end - whole.start) * width;
    pen.fillStyle = look.loading;
    pen.fillRect(0, 0, width, OVERVIEW_HEIGHT);
    if (this.about) this.average(pen, width, look, x);
    pen.fillStyle = hatchOf(pen, look, 1);
    for (const [start, end] of this.gaps) pen.fillRect(x(start), 0, Math.max(x(end) - x(start), 2), OVERVIEW_HEIGHT);
    for (const severity of ["warning", "critical"]) {
      pen.fillStyle = look.severity[severity];
      for (const mark of this.marks) if (mark.severity === severity && mark.kind !== "finding") pen.fillRect(Math.round(x(mark.time)) - 1, 0, 2, severity === "critical" ? 11 : 6);
    }
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} width @param {import("../theme.js").Look} look @param {(time: number) => number} x */
  average(pen, width, look, x) {
    const about = /** @type {import("../data/source.js").LaneAbout} */ (this.about), level = this.level(width), { whole } = this.tiles;
    this.tiles.want("overview", about, level, whole);
    for (const { tile, start, end } of this.tiles.cover(about.id, level, whole.start, whole.end, about.levels[1])) {
      if (!tile) continue;
      const { strip, offset } = tile, column = columnSeconds(strip.level);
      pen.fillStyle = look.paper;
      pen.fillRect(x(start), 0, x(end) - x(start), OVERVIEW_HEIGHT);
      const isHeat = about.kind === "heat", names = isHeat ? strip.channels : strip.names;
      const order = [...names.keys()].filter((entry) => ["user", "system", "softirq"].includes(names[entry].split(" ")[0]));
      for (let at = Math.max(Math.floor((start - tile.start) / column), 0); at < 256 && tile.start + at * column < end; at++) {
        let foot = OVERVIEW_HEIGHT;
        const left = x(Math.max(tile.start + at * column, start)), wide = x(Math.min(tile.start + (at + 1) * column, end)) - left;
        for (const series of order) {
          const value = isHeat ? meanOfCores(strip, series, offset + at) : strip.planes.mean[series * strip.columns + offset + at];
          if (!(value > 0)) continue;
          const tall = Math.min(value, 100) / 100 * (OVERVIEW_HEIGHT - 12);
          pen.fillStyle = look.channels[names[series].split(" ")[0]] || look.series[series];
          pen.fillRect(left, foot - tall, wide, tall);
          foot -= tall;
        }
      }
    }
  }

  /** @param {import("../axis.js").Span} view @param {number} width @param {import("../theme.js").Look} look */
  draw(view, width, look) {
    if (this.dirty) this.drawGround(width, look);
    const { whole } = this.tiles, scale = width / (whole.end - whole.start), pen = sized(byId("overviewCanvas"), width, OVERVIEW_HEIGHT);
    const left = Math.max((view.start - whole.start) * scale, 0), right = Math.min((view.end - whole.start) * scale, width);
    pen.drawImage(this.ground, 0, 0, width, OVERVIEW_HEIGHT);
    pen.fillStyle = pen.strokeStyle = look.mark;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.roundRect(left + 0.75, 0.75, Math.max(right - left, 3) - 1.5, OVERVIEW_HEIGHT - 1.5, 3);
    pen.globalAlpha = 0.12;
    pen.fill();
    pen.globalAlpha = 1;
    pen.stroke();
  }
}

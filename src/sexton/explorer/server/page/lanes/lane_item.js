// @ts-check
// One lane: its title and readings at the left, its canvas, its picture.

import {LanePicture} from "./picture.js";
import {element, numberText, setText, shortened, withUnit} from "../words.js";
import {seriesColour} from "../theme.js";
import {ticksOf, timeToX} from "../axis.js";
import {columnSeconds, TILE_COLUMNS} from "../data/tiles.js";
import {laneLevel} from "./pieces.js";
import {heatDrawer, coreName} from "./heat.js";
import {linesDrawer, scaleText} from "./lines.js";
import {marksDrawer, marksNear} from "./marks.js";
import {drawStackAxes, stackHeight, stacksDrawer, STACK_VALUES} from "./stacks.js";
import {drawBadges} from "./badges.js";

const DRAWERS = { heat: heatDrawer, lines: linesDrawer, marks: marksDrawer, stacks: stacksDrawer };
const MOST_READ = 7, LENS = 13;

export class LaneItem {
  /** @param {import("./pieces.js").LaneView} lane */
  constructor(lane) {
    this.lane = lane;
    this.id = lane.id;
    this.drawer = DRAWERS[/** @type {keyof typeof DRAWERS} */ (lane.about.kind)] || linesDrawer;
    this.picture = new LanePicture();
    this.folded = false;
    this.tall = false;
    this.onScreen = true;
    this.dirty = true;
    this.isWaiting = true;
    this.width = 0;
    this.height = 0;
    this.ratio = 1;
    /** @type {number | null} the row under the pointer, or moved to by keys */ this.row = null;
    this.pinned = false;
    /** Is it pinned to the top? */ this.isOnTop = false;
    /** @type {import("./badges.js").Badge[]} */ this.badges = [];
    /** `brief` is without the peak, for a narrow window. @type {{series: string, words: Text, shown: string, brief: string}[]} */ this.readings = [];
    const [title] = lane.about.title.split(": ");
    this.title = title;
    this.grip = element("button", "grip", "⠿");
    this.fold = element("button", "fold", shortened(title, 22));
    this.pin = element("button", "pin", "⤒");
    this.more = element("button", "more", "↕");
    this.table = element("button", "asTable", "table");
    this.headingBox = element("div", "readout");
    /** Heading of the column: which core, or why there is no value. */ this.heading = "";
    this.list = element("ul", "reading");
    this.root = element("li", "lane waiting");
    this.root.dataset.lane = lane.id;
    this.root.dataset.kind = lane.about.kind;
    this.stage = element("div", "stage");
    /** Over the picture: what does not move with it. */
    this.canvas = document.createElement("canvas");
    /** @type {CanvasRenderingContext2D | null} a canvas that is never drawn on costs nothing */ this.pen = null;
    this.scale = element("span", "scale");
    this.coming = element("span", "coming", "loading …");
    this.build();
  }

  build() {
    const { about } = this.lane, gutter = element("div", "gutter"), name = element("div", "name");
    const [title, ...rest] = about.title.split(": ");
    for (const button of [this.grip, this.fold, this.pin, this.more, this.table]) button.setAttribute("type", "button");
    this.grip.setAttribute("aria-label", `move lane ${title}: drag, or press Alt and an arrow key`);
    this.grip.title = "drag to reorder (Alt ↑ ↓)";
    this.fold.title = [rest.join(": "), about.about, about.unit && `Unit: ${about.unit}`].filter(Boolean).join("\n");
    this.fold.setAttribute("aria-controls", "canvas-" + this.id);
    this.pin.setAttribute("aria-label", `pin ${title} to the top`);
    this.pin.title = "keep at the top (p)";
    this.more.setAttribute("aria-label", `${title}: taller or normal height`);
    this.more.title = "taller (x)";
    this.table.setAttribute("aria-label", `${title} as a table`);
    this.table.title = "visible span as a table (t)";
    name.append(this.grip, this.fold, this.more, this.table, this.pin);
    gutter.append(name, this.headingBox, this.list);
    this.canvas.id = "canvas-" + this.id;
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", title);
    const hint = about.kind === "heat" ? `${this.lane.names.length} ${this.lane.names.length === 1 ? "core" : "cores"}, collapsed; press c to show them` : rest.join(": ");
    this.stage.append(this.picture.canvas, this.scale, this.coming, this.canvas);
    this.root.append(gutter, this.stage, element("p", "hint soft", hint));
    this.legend();
  }

  /** The names beside the lane, with their colours; the values come with the crosshair. */
  legend() {
    const { about, look } = this.lane;
    const names = about.kind === "heat" ? about.channels || ["user", "system", "softirq", "iowait_steal"] : about.kind === "stacks" ? STACK_VALUES
      : this.lane.names;
    this.list.textContent = "";
    this.readings = names.slice(0, about.kind === "marks" ? names.length : MOST_READ).map((text, at) => {
      const row = element("li"), swatch = element("i"), name = element("span", "of", shortened(wordsOf(text), 25)), value = element("span", "value");
      if (about.kind === "marks") swatch.hidden = true;
      else swatch.style.background = about.kind === "stacks" ? `rgb(${look.ramp[40].join(" ")})` : seriesColour(look, text, at);
      name.title = text;
      const words = document.createTextNode("");
      value.append(words);
      row.append(swatch, name, value);
      this.list.append(row);
      return { series: text, words, shown: "", brief: "" };
    });
  }

  /** @param {number} width @param {number} ratio */
  resize(width, ratio) {
    const height = this.drawer.height(this.lane.about, this.lane.names, this.tall);
    if (width === this.width && height === this.height && ratio === this.ratio) return;
    Object.assign(this, { width, height, ratio, dirty: true });
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    for (const part of [this.stage, this.canvas]) {
      part.style.height = height + "px";
      part.style.width = width + "px";
    }
    this.picture.stale = true;
  }

  /** @param {boolean} folded @param {boolean} tall @param {boolean} onTop */
  shape(folded, tall, onTop) {
    this.folded = folded;
    this.tall = tall;
    this.isOnTop = onTop;
    this.pin.setAttribute("aria-pressed", String(onTop));
    this.root.classList.toggle("folded", folded);
    this.fold.setAttribute("aria-expanded", String(!folded));
  }

  get isDrawn() {
    return !this.folded && !this.root.hidden && this.onScreen && this.width > 0;
  }

  /** @param {import("../axis.js").Span} view @param {boolean} moving */
  urgency(view, moving) {
    if (!this.isDrawn) return 0;
    if (this.isWaiting && this.lane.about.kind !== "marks" && !this.ask(view, (view.end - view.start) / this.width)) return 0;
    return this.picture.urgency(view, this.width, this.height, moving);
  }

  /** @param {import("../axis.js").Span} view */
  paint(view) {
    const { lane } = this;
    this.picture.paint(view, this.width, this.height, this.ratio, (pen, box) => {
      this.drawer.paint(pen, box, lane);
      pen.fillStyle = lane.look.soft;
      pen.globalAlpha = 0.16;
      for (const time of ticksOf(box, box.width).times) pen.fillRect(Math.round(timeToX(box, box.width, time)), 0, 1, box.height);
      pen.globalAlpha = 1;
      if (this.pinned) this.drawLens(pen, box);
      drawBadges(pen, box, lane, this.badges);
    });
    if (lane.about.kind === "stacks") this.dirty = true;
    if (lane.about.kind === "lines") setText(this.scale, scaleText(lane));
    if (lane.about.kind === "marks") return;
    if (this.ask(this.picture, (view.end - view.start) / this.width) && this.isWaiting) this.wait(false);
  }

  /** Requests the tiles of a span. There is no picture to draw as long as none is loaded.
   *  @param {import("../axis.js").Span} span @param {number} perPixel seconds @returns {boolean} is any loaded? */
  ask(span, perPixel) {
    const { lane } = this, level = laneLevel(lane, perPixel);
    lane.tiles.want(this.id, lane.about, level, span);
    return !this.isWaiting || lane.tiles.cover(this.id, level, span.start, span.end, lane.about.levels[1]).some((piece) => piece.tile);
  }

  /** A lane says so until its first data is loaded. @param {boolean} waiting */
  wait(waiting) {
    this.isWaiting = waiting;
    this.root.classList.toggle("waiting", waiting);
  }

  /** Moves the picture; redraws what lies over it only if that has changed. @param {import("../axis.js").Span} view */
  draw(view) {
    if (this.dirty && this.lane.about.kind === "heat") this.drawOver();
    if (this.dirty && this.lane.about.kind === "stacks") this.drawAxes();
    this.dirty = false;
    this.picture.place(view, this.width, this.ratio);
  }

  /** The names of rows, and a frame around the one under the pointer. */
  drawOver() {
    const { lane, ratio } = this, rows = Math.max(lane.names.length, 1), rowHeight = (this.height - 2) / rows;
    const pen = this.pen ??= /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    const every = Math.max(Math.ceil(13 / rowHeight), 1);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = '10.5px system-ui, "DejaVu Sans", sans-serif';
    for (let row = 0; row < rows; row += every) {
      const y = Math.max(1 + row * rowHeight + Math.min(rowHeight / 2 + 4, 11), 10);
      if (y < this.height - 2) this.label(pen, (lane.names[row] || String(row)).replace(/^core /, ""), 4, y);
    }
    if (this.row === null || this.row >= rows) return;
    const { y, tall } = this.rowBox(this.row);
    pen.fillStyle = lane.look.mark;
    pen.fillRect(0, y - 1.5, this.width, 1.5);
    pen.fillRect(0, y + tall, this.width, 1.5);
    if (this.pinned) this.label(pen, coreName(lane.names[this.row] || ""), 4, y + Math.min(tall / 2 + 4, 11));
  }

  /** What a row and a colour of the stacks mean. */
  drawAxes() {
    const pen = this.pen ??= /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = '10.5px system-ui, "DejaVu Sans", sans-serif';
    drawStackAxes(pen, this, (text, x, y) => this.label(pen, text, x, y));
  }

  /** A frame goes around a core, not over it; a selected one that is too low to read is magnified.
   *  @param {number} row */
  rowBox(row) {
    const rowHeight = (this.height - 2) / Math.max(this.lane.names.length, 1), top = 1 + row * rowHeight;
    const tall = this.pinned ? Math.max(rowHeight, LENS) : rowHeight;
    return { rowHeight, top, tall, y: Math.min(Math.max(Math.round(top + rowHeight / 2 - tall / 2), 1), this.height - 1 - tall) };
  }

  /** @param {CanvasRenderingContext2D} pen @param {import("./picture.js").Box} box */
  drawLens(pen, box) {
    if (this.row === null) return;
    const { rowHeight, top, tall, y } = this.rowBox(this.row), { canvas, ratio } = this.picture;
    if (tall <= rowHeight) return;
    pen.imageSmoothingEnabled = false;
    pen.drawImage(canvas, 0, (top + rowHeight * 0.25) * ratio, canvas.width, rowHeight * 0.5 * ratio, 0, y, box.width, tall);
  }

  /** @param {CanvasRenderingContext2D} pen @param {string} text @param {number} x @param {number} y */
  label(pen, text, x, y) {
    const { lane } = this;
    pen.lineWidth = 3;
    pen.lineJoin = "round";
    pen.strokeStyle = lane.look.paper;
    pen.globalAlpha = 0.85;
    pen.strokeText(text, x, y);
    pen.globalAlpha = 1;
    pen.fillStyle = lane.look.soft;
    pen.fillText(text, x, y);
  }

  /** The values at a time, for the readings beside the lanes. @param {number | null} time @param {import("../axis.js").Span} view @returns {string} the same as text */
  readAt(time, view) {
    const reply = time === null ? null : this.lane.about.kind === "marks" ? this.nearMarks(time, view) : this.valuesAt(time, view);
    this.heading = reply ? shortened(reply.title, 27) : "";
    const words = reply && reply.title ? [reply.title] : [];
    for (const reading of this.readings) {
      const name = reading.series;
      const [, mean, peak] = (reply && reply.values.find((value) => value[0] === name)) || ["", undefined, NaN];
      const shown = mean === undefined ? "" : typeof mean === "string" ? mean : Number.isNaN(mean) ? "not recorded" : valueText(mean, peak, this.lane.about.unit);
      reading.shown = shown;
      reading.brief = typeof mean === "number" && !Number.isNaN(mean) ? valueText(mean, NaN, this.lane.about.unit) : shown;
      if (shown) words.push(`${name} ${shown}`);
    }
    return words.join(", ");
  }

  /** Writes the readings as text. */
  writeDown() {
    setText(this.headingBox, this.heading);
    for (const { series, words, shown } of this.readings) {
      const text = this.lane.about.kind === "marks" ? shortened(shown, Math.max(31 - series.length, 8)) : shown;
      if (words.data !== text) words.data = text;
    }
  }

  /** @param {number} time @param {import("../axis.js").Span} view @returns {import("./pieces.js").Reading | null} */
  valuesAt(time, view) {
    const { lane } = this;
    if (time < lane.whole.start || time > lane.whole.end) return { title: "outside the recording", values: [] };
    const level = laneLevel(lane, (view.end - view.start) / this.width);
    const [piece] = lane.tiles.cover(this.id, level, time, time + columnSeconds(level) * 1e-3, lane.about.levels[1]);
    if (!piece || !piece.tile) return { title: lane.tiles.isComing(this.id) ? "loading …" : "", values: [] };
    const { tile } = piece;
    const column = Math.min(Math.max(Math.floor((time - tile.start) / tile.column + 1e-9), 0), TILE_COLUMNS - 1);
    return this.drawer.read(tile, column, lane, lane.about.kind === "lines" ? null : this.row);
  }

  /** The marks near the crosshair. @param {number} time @param {import("../axis.js").Span} view @returns {import("./pieces.js").Reading} */
  nearMarks(time, view) {
    const near = marksNear(this.lane.marks, time, 7 * (view.end - view.start) / Math.max(this.width, 1));
    return { title: "", values: near.map((mark) => [mark.kind, mark.text, NaN]) };
  }

  /** @param {number} y within the canvas @returns {number | null} */
  rowAt(y) {
    const rows = this.lane.about.kind === "heat" ? Math.max(this.lane.names.length, 1) : this.lane.about.kind === "stacks" ? 50 : 0;
    if (!rows) return null;
    const tall = this.lane.about.kind === "stacks" ? stackHeight(this.height) : this.height - 2;
    return Math.min(Math.max(Math.floor((y - 1) / tall * rows), 0), rows - 1);
  }
}

/** @param {number} mean @param {number} peak @param {string} unit */
function valueText(mean, peak, unit) {
  const shown = numberText(mean);
  return peak > mean && numberText(peak) !== shown ? `${shown} ▴${withUnit(numberText(peak), unit)}` : withUnit(shown, unit);
}

/** @param {string} name as the lane calls it */
function wordsOf(name) {
  return name === "iowait_steal" ? "iowait, steal" : name.replaceAll("_", " ");
}

/** @param {LaneItem} item @param {string} core its name @returns {number | null} */
export function rowOfCore(item, core) {
  const found = item.lane.names.findIndex((name) => name === core || coreName(name) === "core " + core);
  return found < 0 ? null : found;
}

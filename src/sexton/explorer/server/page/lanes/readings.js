// @ts-check
// The values at the crosshair, beside the lanes. They are drawn on a canvas: thirty texts that change
// with every frame would make the browser lay out and paint the page each time. At rest they are
// written as text.

import {byId} from "../words.js";

const LEFT = 24, EDGE = 9, HEAD = 22, TITLE = 15, ROW_OF = 14, AT_REST = 120;
/** Below this width there is little room beside the names; the colours of the series stay visible. */
const NARROW = 150, SWATCH = 13;
const LARGE = '600 11.5px system-ui, "DejaVu Sans", sans-serif', SMALL = '600 10px system-ui, "DejaVu Sans", sans-serif';

export class ReadingSheet {
  /** @param {string} id of its canvas */
  constructor(id) {
    /** @type {HTMLCanvasElement} */ this.canvas = byId(id);
    this.pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    /** @type {Map<string, number>} */ this.tops = new Map();
    this.wide = 0;
    this.tall = 0;
    this.ratio = 1;
    this.timer = 0;
    this.isEmpty = true;
  }

  /** Measures where the lanes are; reads the layout, so call it only after that has changed.
   *  @param {Iterable<import("./lane_item.js").LaneItem>} items @param {number} wide @param {number} tall @param {number} ratio */
  place(items, wide, tall, ratio) {
    for (const item of items) this.tops.set(item.id, item.root.offsetTop);
    if (wide === this.wide && tall === this.tall && ratio === this.ratio) return;
    Object.assign(this, { wide, tall, ratio, isEmpty: true });
    this.canvas.width = Math.round(wide * ratio);
    this.canvas.height = Math.round(tall * ratio);
    this.canvas.style.width = wide + "px";
    this.canvas.style.height = tall + "px";
  }

  /** @param {import("./lane_item.js").LaneItem[]} items those that are seen @param {import("../theme.js").Look} look */
  draw(items, look) {
    const { pen, ratio } = this, isEmpty = !items.some((item) => item.heading || item.readings.some((entry) => entry.shown));
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => { for (const item of items) item.writeDown(); }, AT_REST);
    if (isEmpty && this.isEmpty) return;
    this.isEmpty = isEmpty;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.wide, this.tall);
    const isNarrow = this.wide < NARROW, edge = isNarrow ? 3 : EDGE, left = isNarrow ? 8 : LEFT, room = this.wide - edge - LEFT - SWATCH;
    for (const item of items) {
      const { kind } = item.lane.about;
      if (kind === "marks") continue;
      const top = this.tops.get(item.id) || 0;
      let y = top + HEAD + (kind === "lines" ? 0 : TITLE);
      pen.textAlign = "left";
      pen.fillStyle = kind === "lines" ? look.soft : look.ink;
      pen.font = isNarrow ? SMALL : LARGE;
      if (item.heading) pen.fillText(item.heading, left, kind === "lines" ? top + item.height - 4 : top + HEAD + 11, this.wide - left - edge);
      pen.textAlign = "right";
      for (const { shown: all, brief } of item.readings) {
        if (all) {
          pen.font = LARGE;
          const shown = pen.measureText(all).width > room ? brief : all;
          if (pen.measureText(shown).width > room) pen.font = SMALL;
          const long = pen.measureText(shown).width + 4;
          pen.fillStyle = look.card;
          pen.fillRect(this.wide - edge - long, y, long + edge - 1, ROW_OF);
          pen.fillStyle = look.ink;
          pen.fillText(shown, this.wide - edge, y + 11, this.wide - left - edge);
        }
        y += ROW_OF;
      }
    }
  }
}

// @ts-check
// A lane's picture, drawn once for a span somewhat wider than the view. A frame only moves it: shifted
// for a pan, stretched for a zoom, until it is redrawn when the view rests. The browser's compositor
// moves it, so a frame costs the page hardly anything.

/** @typedef {{start: number, end: number, width: number, height: number, ratio: number}} Box */

const MARGIN = 0.4;

export class LanePicture {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.canvas.className = "picture";
    this.canvas.setAttribute("aria-hidden", "true");
    this.placed = "";
    this.pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d", { alpha: false }));
    this.start = 0;
    this.end = 0;
    this.perSecond = 0;
    this.height = 0;
    this.ratio = 1;
    this.stale = true;
  }

  /** How urgently it must be redrawn: 0 not at all, 1 when there is time, 2 now.
   *  @param {import("../axis.js").Span} view @param {number} width @param {number} height @param {boolean} moving */
  urgency(view, width, height, moving) {
    if (!this.perSecond || this.height !== height) return 3;
    const perSecond = width / (view.end - view.start), ratio = perSecond / this.perSecond;
    if (this.start > view.start || this.end < view.end || ratio > 1.8 || ratio < 0.55) return 2;
    if (this.stale) return 1.5;
    if (!moving && Math.abs(ratio - 1) > 1e-6) return 1;
    const air = (view.end - view.start) * 0.1;
    return Math.abs(ratio - 1) < 1e-5 && (this.start > view.start - air || this.end < view.end + air) ? 0.5 : 0;
  }

  /** @param {import("../axis.js").Span} view @param {number} width @param {number} height @param {number} ratio
   *  @param {(pen: CanvasRenderingContext2D, box: Box) => void} draw */
  paint(view, width, height, ratio, draw) {
    const length = view.end - view.start, perSecond = width / length;
    const pad = Math.round(width * MARGIN), wide = width + 2 * pad;
    const needed = Math.round(wide * ratio), tall = Math.round(height * ratio);
    if (this.canvas.width !== needed || this.canvas.height !== tall) {
      this.canvas.width = needed;
      this.canvas.height = tall;
      this.canvas.style.width = wide + "px";
      this.canvas.style.height = height + "px";
    }
    this.start = view.start - pad / perSecond;
    this.end = this.start + wide / perSecond;
    Object.assign(this, { perSecond, height, ratio, stale: false });
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw(this.pen, { start: this.start, end: this.end, width: wide, height, ratio });
  }

  /** Moves it to the view. At its own scale it lies on whole pixels: at rest it is exact.
   *  @param {import("../axis.js").Span} view @param {number} width @param {number} ratio */
  place(view, width, ratio) {
    const perSecond = width / (view.end - view.start), stretch = perSecond / this.perSecond;
    const left = (this.start - view.start) * perSecond, same = Math.abs(stretch - 1) < 1e-6;
    const placed = same ? `translateX(${Math.round(left * ratio) / ratio}px)` : `translateX(${left.toFixed(2)}px) scaleX(${stretch.toFixed(6)})`;
    if (placed === this.placed) return;
    this.placed = placed;
    this.canvas.style.transform = placed;
  }
}

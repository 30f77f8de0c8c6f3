// @ts-check
// The one loop that draws. It sleeps when nothing changes.

export class DrawLoop {
  /** @param {(now: number) => boolean} frame returns whether there is more to draw */
  constructor(frame) {
    this.frame = frame;
    this.asleep = true;
    this.spent = 0;
    this.run = (/** @type {number} */ now) => {
      this.asleep = true;
      const began = performance.now();
      if (this.frame(now)) this.wake();
      this.spent = performance.now() - began;
    };
  }

  wake() {
    if (!this.asleep) return;
    this.asleep = false;
    requestAnimationFrame(this.run);
  }
}

const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

/** An animation from one view to another; a jump if the user prefers reduced motion. */
export class Glide {
  constructor() {
    /** @type {{from: import("./axis.js").Span, to: import("./axis.js").Span, began: number, lasts: number} | null} */
    this.way = null;
  }

  /** @param {import("./axis.js").Span} from @param {import("./axis.js").Span} to @param {number} [lasts] milliseconds */
  begin(from, to, lasts = 180) {
    this.way = { from, to, began: -1, lasts: calm.matches ? 0 : lasts };
  }

  stop() {
    this.way = null;
  }

  /** @param {number} now @returns {import("./axis.js").Span | null} where it is */
  at(now) {
    const way = this.way;
    if (!way) return null;
    if (way.began < 0) way.began = now - 16;
    const part = way.lasts ? Math.min((now - way.began) / way.lasts, 1) : 1;
    if (part >= 1) { this.way = null; return way.to; }
    const eased = 1 - (1 - part) ** 3;
    const length0 = way.from.end - way.from.start, length1 = way.to.end - way.to.start;
    // Lengths change by a ratio, so that a zoom looks even; the start follows the length.
    const length = length0 * (length1 / length0) ** eased;
    const share = length1 === length0 ? eased : (length - length0) / (length1 - length0);
    const start = way.from.start + (way.to.start - way.from.start) * share;
    return { start, end: start + length };
  }
}

// @ts-check
// Loads the marks around the view; again when the view leaves them, or when so many were left out
// that zooming in shows more. Those of the whole recording are requested once.

import {covers} from "../axis.js";

const AGAIN_MS = 10_000;

/** @typedef {{arrived: (marks: any[]) => void, all: (marks: any[]) => void, refused: (why: string) => void, wake: () => void}} MarkCallbacks */

export class MarkLoader {
  /** @param {any} source @param {import("../axis.js").Span} whole @param {MarkCallbacks} tell */
  constructor(source, whole, tell) {
    this.source = source;
    this.whole = whole;
    this.tell = tell;
    /** @type {import("../axis.js").Span | null} */ this.span = null;
    this.leftOut = 0;
    /** @type {AbortController | null} */ this.stop = null;
    /** @type {import("../axis.js").Span | null} */ this.asking = null;
    /** @type {any[]} of the whole recording */ this.everything = [];
    /** The end of their span. */ this.until = -Infinity;
    this.isAskingAll = false;
    this.retrying = 0;
  }

  /** @param {import("../axis.js").Span} view */
  ensure(view) {
    const length = view.end - view.start;
    const clipped = { start: Math.max(view.start, this.whole.start), end: Math.min(view.end, this.whole.end) };
    if (clipped.end <= clipped.start) return;
    const held = this.span;
    if (held && covers(held, clipped) && (!this.leftOut || held.end - held.start < 5 * length)) return;
    if (this.asking && covers(this.asking, clipped)) return;
    const wanted = { start: Math.max(view.start - length / 2, this.whole.start), end: Math.min(view.end + length / 2, this.whole.end) };
    this.fetch(wanted);
  }

  /** @param {import("../axis.js").Span} span */
  async fetch(span) {
    this.stop?.abort();
    const stop = this.stop = new AbortController();
    this.asking = span;
    try {
      const reply = await this.source.marks(span.start, span.end, stop.signal);
      if (stop.signal.aborted) return;
      this.span = span;
      this.leftOut = reply.left_out || 0;
      const marks = inTime(reply.marks);
      this.tell.arrived(marks);
      if (span.start <= this.whole.start && span.end >= this.whole.end) this.takeAll(marks, span.end);
      else if (this.until === -Infinity) this.fetchAll();
      // New marks are near the end, where a recorder is followed.
      else if (span.end > this.until && span.start <= this.until) this.takeAll([...this.everything, ...marks.filter((mark) => mark.time > this.until)], span.end);
    } catch (fault) {
      if (/** @type {Error} */ (fault).name === "AbortError") return;
      this.span = span;
      this.failed(fault);
    }
    if (this.asking === span) this.asking = null;
  }

  /** For the overview, whatever is visible. */
  async fetchAll() {
    if (this.isAskingAll) return;
    this.isAskingAll = true;
    const { start, end } = this.whole;
    try {
      this.takeAll(inTime((await this.source.marks(start, end)).marks), end);
    } catch (fault) {
      this.failed(fault);
    }
    this.isAskingAll = false;
  }

  /** @param {any[]} marks @param {number} until */
  takeAll(marks, until) {
    this.everything = marks;
    this.until = until;
    this.tell.all(marks);
  }

  /** Shown at once, and retried a little later. @param {unknown} fault */
  failed(fault) {
    this.tell.refused(/** @type {Error} */ (fault).message);
    window.clearTimeout(this.retrying);
    this.retrying = window.setTimeout(() => { this.forget(); this.tell.wake(); }, AGAIN_MS);
  }

  forget() {
    this.span = null;
  }
}

/** @param {any[]} marks */
function inTime(marks) {
  return [...marks].sort((one, other) => one.time - other.time);
}

// @ts-check
// All lanes, one below the other: their order, which are folded, and the frame that draws them.

import {LaneItem, rowOfCore} from "./lane_item.js";
import {ReadingSheet} from "./readings.js";
import {byId} from "./words.js";
import {kindsOf} from "./lanes/marks.js";
import {columnSeconds} from "./tiles.js";
import {laneLevel} from "./lanes/pieces.js";

/** Milliseconds of a frame that may go into new pictures; a frame has sixteen, of which we want half. */
const PAINT_MS = 3, MOST_MOVING = 2, MOST_AT_REST = 3;
/** The width of the names beside the lanes, `--gutter` in page.css. */
const GUTTER_WIDE = 208, GUTTER_NARROW = 116;

function gutterWidth() {
  return window.matchMedia("(max-width: 600px)").matches ? GUTTER_NARROW : GUTTER_WIDE;
}

export class LaneBoard {
  /** @param {import("./source.js").RecordingAbout} recording @param {import("./state.js").PageState} state
   *  @param {import("./tiles.js").TileCache} tiles @param {import("./theme.js").Look} look @param {() => void} wake */
  constructor(recording, state, tiles, look, wake) {
    this.state = state;
    this.tiles = tiles;
    this.wake = wake;
    this.width = 0;
    /** Where the lanes begin. */ this.left = gutterWidth();
    this.list = byId("laneList");
    /** @type {Map<string, LaneItem>} */ this.items = new Map();
    this.recording = recording;
    this.look = look;
    this.sheet = new ReadingSheet();
    this.seen = this.watch();
    for (const about of recording.lanes) this.add(about);
    this.place();
  }

  /** @param {import("./source.js").LaneAbout} about @returns {LaneItem} */
  add(about) {
    const { recording, state, tiles, look } = this;
    const names = about.kind === "heat" && !(about.series || []).length ? Array.from({ length: recording.node.cores || 1 }, (_, at) => String(at))
      : about.series || [];
    const item = new LaneItem({ id: about.id, about, tiles, look, plane: state.plane, grain: state.grain, whole: tiles.whole, gaps: recording.gaps, names, marks: [], top: 0 });
    this.items.set(about.id, item);
    this.seen.observe(item.root);
    if (this.width) item.resize(this.width, Math.min(window.devicePixelRatio || 1, 2));
    return item;
  }

  /** @returns {IntersectionObserver} of the lanes that are on the screen */
  watch() {
    new ResizeObserver((entries) => {
      const box = entries[entries.length - 1].contentRect;
      this.left = gutterWidth();
      this.width = Math.max(Math.floor(box.width) - this.left, 50);
      this.resize();
      this.sheet.place(this.items.values(), this.left, Math.ceil(box.height), Math.min(window.devicePixelRatio || 1, 2));
      this.readAll(this.state.cursor);
    }).observe(this.list);
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const item = this.items.get(/** @type {HTMLElement} */ (entry.target).dataset.lane || "");
        if (item) { item.onScreen = entry.isIntersecting; item.dirty = true; }
      }
      if (this.state.cursor !== null) this.readAll(this.state.cursor);
      this.wake();
    }, { root: byId("lanes"), rootMargin: "120px" });
    return seen;
  }

  resize() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    for (const item of this.items.values()) item.resize(this.width, ratio);
    this.wake();
  }

  /** The state's order and folds, onto the page. */
  place() {
    const { order, folded, tall } = this.state;
    const now = Array.from(this.list.children, (child) => /** @type {HTMLElement} */ (child).dataset.lane);
    if (now.join() !== order.join()) {
      const focused = document.activeElement;
      for (const id of order) { const item = this.items.get(id); if (item) this.list.append(item.root); }
      if (focused instanceof HTMLElement && this.list.contains(focused)) focused.focus({ preventScroll: true });
    }
    for (const [id, item] of this.items) {
      item.shape(folded.has(id), tall.has(id));
      if (folded.has(id)) this.tiles.unwant(id);
      if (this.width) item.resize(this.width, item.ratio);
      item.dirty = true;
    }
    if (this.width) this.sheet.place(this.items.values(), this.left, this.sheet.tall, this.sheet.ratio);
    this.wake();
  }

  /** @param {import("./theme.js").Look} look */
  relook(look) {
    this.look = look;
    for (const item of this.items.values()) {
      item.lane.look = look;
      item.legend();
      item.picture.stale = item.dirty = true;
    }
    this.wake();
  }

  /** Mean or peak, and how coarse. */
  replane() {
    for (const item of this.items.values()) {
      item.lane.plane = this.state.plane;
      item.lane.grain = this.state.grain;
      item.picture.stale = true;
    }
    this.wake();
  }

  /** @param {string} id */
  arrived(id) {
    const item = this.items.get(id);
    if (item) {
      const names = this.namesOf(id);
      if (names && names.join("\n") !== item.lane.names.join("\n")) {
        item.lane.names = names;
        item.legend();
        item.resize(this.width, item.ratio);
      }
      item.picture.stale = true;
    }
    this.wake();
  }

  /** Series may be known only once a strip was read. @param {string} id @returns {string[] | null} */
  namesOf(id) {
    const kind = this.items.get(id)?.lane.about.kind;
    return kind === "heat" || kind === "lines" ? this.tiles.names.get(id) || null : null;
  }

  /** @param {any[]} marks */
  setMarks(marks) {
    for (const item of this.items.values()) {
      if (item.lane.about.kind !== "marks") continue;
      item.lane.marks = marks;
      item.wait(false);
      const names = [...new Set([...item.lane.names, ...kindsOf(marks)])];
      if (names.length !== item.lane.names.length) { item.lane.names = names; item.legend(); }
      item.resize(this.width, item.ratio);
      item.picture.stale = true;
    }
    this.wake();
  }

  /** Why there are none. Those that are here stay. @param {string} why */
  refuseMarks(why) {
    for (const item of this.items.values()) if (item.lane.about.kind === "marks") item.coming.textContent = `could not be read: ${why}`;
  }

  /** @param {{lane: string, number: number, start: number, end: number, lit: boolean}[]} badges */
  setBadges(badges) {
    for (const [id, item] of this.items) {
      const own = badges.filter((badge) => badge.lane === id);
      if (own.length || item.badges.length) item.picture.stale = true;
      item.badges = own;
    }
    this.wake();
  }

  /** The chosen core, in every lane of cores. @param {string | null} core */
  pin(core) {
    for (const item of this.items.values()) {
      if (item.lane.about.kind !== "heat") continue;
      item.row = core === null ? null : rowOfCore(item, core);
      item.pinned = item.row !== null;
      item.picture.stale = item.dirty = true;
    }
    this.wake();
  }

  /** One frame. @param {import("./axis.js").Span} view @param {boolean} moved since the last @returns {boolean} is there more to draw? */
  frame(view, moved) {
    const began = performance.now(), queue = [];
    for (const item of this.items.values()) {
      const urgency = item.urgency(view, moved);
      if (urgency > 0) queue.push({ item, urgency });
    }
    queue.sort((one, other) => other.urgency - one.urgency);
    let at = 0;
    // A picture costs once more when it is first copied from, so they are counted as well as timed.
    const most = !this.tiles.held.size ? queue.length : moved ? MOST_MOVING : MOST_AT_REST;
    while (at < queue.length && at < most && (at === 0 || performance.now() - began < PAINT_MS)) {
      if (moved && at > 0 && queue[at].urgency < 2) break;
      queue[at++].item.paint(view);
    }
    for (const item of this.items.values()) if (item.isDrawn) item.draw(view);
    return at < queue.length;
  }

  /** Is everything drawn that can be seen, with numbers rather than with the promise of some? @param {import("./axis.js").Span} view */
  isComplete(view) {
    for (const item of this.items.values()) {
      if (!item.isDrawn) continue;
      if (item.picture.stale || item.urgency(view, false) > 0.6) return false;
      if (item.lane.about.kind !== "marks" && !this.tiles.has(item.lane.about, laneLevel(item.lane, (view.end - view.start) / this.width), view)) return false;
    }
    return true;
  }

  /** @param {number | null} time */
  readAll(time) {
    const seen = [...this.items.values()].filter((item) => !item.folded && item.onScreen);
    for (const item of seen) item.readAt(time, this.state.view);
    const [first] = seen;
    if (first) this.sheet.draw(seen, first.lane.look);
  }

  /** The finest column any open lane is drawn with: a step of the crosshair. */
  stepSeconds() {
    const perPixel = (this.state.view.end - this.state.view.start) / Math.max(this.width, 1);
    let least = Infinity;
    for (const item of this.items.values()) {
      if (item.folded || item.lane.about.kind === "marks") continue;
      least = Math.min(least, columnSeconds(laneLevel(item.lane, perPixel)));
    }
    return Number.isFinite(least) ? least : Math.max(perPixel, 0.02);
  }

  /** @param {EventTarget | null} target @returns {LaneItem | null} */
  itemOf(target) {
    const root = target instanceof Element ? target.closest(".lane") : null;
    return root instanceof HTMLElement ? this.items.get(root.dataset.lane || "") || null : null;
  }

  /** Labels of the canvases for screen readers; updated only at rest. @param {(item: LaneItem) => string} words */
  describe(words) {
    for (const item of this.items.values()) item.canvas.setAttribute("aria-label", words(item));
  }
}

// @ts-check
// All lanes, one below the other: their order, which are pinned, folded or searched for, and the frame
// that draws them.

import {LaneItem, rowOfCore} from "./lane_item.js";
import {ReadingSheet} from "./readings.js";
import {byId, shortened} from "../words.js";
import {kindsOf} from "./marks.js";
import {columnSeconds} from "../data/tiles.js";
import {laneLevel} from "./pieces.js";
import {searchNames} from "../search.js";

/** Milliseconds per frame for new pictures (a frame has sixteen, of which we use half), and pictures per frame. */
const PAINT_MS = 3, MOST_MOVING = 2, MOST_AT_REST = 3;
/** The width of the names beside the lanes, `--gutter` in page.css. */
const GUTTER_WIDE = 208, GUTTER_NARROW = 116;

function gutterWidth() {
  return window.matchMedia("(max-width: 600px)").matches ? GUTTER_NARROW : GUTTER_WIDE;
}

export class LaneBoard {
  /** @param {import("../data/source.js").RecordingAbout} recording @param {import("../state.js").PageState} state
   *  @param {import("../data/tiles.js").TileCache} tiles @param {import("../theme.js").Look} look @param {() => void} wake */
  constructor(recording, state, tiles, look, wake) {
    this.state = state;
    this.tiles = tiles;
    this.wake = wake;
    this.width = 0;
    /** Where the lanes begin. */ this.left = gutterWidth();
    this.list = byId("laneList");
    this.pinnedList = byId("pinnedList");
    /** What was typed into the search; a search from the URL is never a pattern. */ this.typed = "";
    /** @type {Map<string, LaneItem>} */ this.items = new Map();
    this.recording = recording;
    this.look = look;
    this.sheet = new ReadingSheet("readings");
    this.pinnedSheet = new ReadingSheet("pinnedReadings");
    /** Observers that know which lanes are on the screen. */ this.seen = { lanes: this.watch("lanes"), pinned: this.watch("pinned") };
    this.measure();
    for (const about of recording.lanes) this.add(about);
    this.place();
  }

  /** @param {import("../data/source.js").LaneAbout} about @returns {LaneItem} */
  add(about) {
    const { recording, state, tiles, look } = this;
    const names = about.kind === "heat" && !(about.series || []).length ? Array.from({ length: recording.node.cores || 1 }, (_, at) => String(at))
      : about.series || [];
    const item = new LaneItem({ id: about.id, about, tiles, look, plane: state.plane, grain: state.grain, whole: tiles.whole, gaps: recording.gaps, names, marks: [], top: 0 });
    this.items.set(about.id, item);
    this.seen.lanes.observe(item.root);
    if (this.width) item.resize(this.width, Math.min(window.devicePixelRatio || 1, 2));
    return item;
  }

  /** Runs when the lists change their size. */
  measure() {
    const watch = new ResizeObserver((entries) => {
      const ratio = Math.min(window.devicePixelRatio || 1, 2);
      for (const { target, contentRect: { width, height } } of entries) {
        const isMain = target === this.list;
        this.left = gutterWidth();
        if (isMain) { this.width = Math.max(Math.floor(width) - this.left, 50); this.resize(); }
        (isMain ? this.sheet : this.pinnedSheet).place(this.within(!isMain), this.left, Math.ceil(height), ratio);
      }
      this.readAll(this.state.cursor);
    });
    for (const list of [this.list, this.pinnedList]) watch.observe(list);
  }

  /** @param {boolean} onTop @returns {LaneItem[]} those at the top, or the others */
  within(onTop) {
    return [...this.items.values()].filter((item) => item.isOnTop === onTop);
  }

  /** @param {string} root what the lanes scroll in @returns {IntersectionObserver} */
  watch(root) {
    return new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const item = this.items.get(/** @type {HTMLElement} */ (entry.target).dataset.lane || "");
        if (item) { item.onScreen = entry.isIntersecting; item.dirty = true; }
      }
      if (this.state.cursor !== null) this.readAll(this.state.cursor);
      this.wake();
    }, { root: byId(root), rootMargin: "120px" });
  }

  resize() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    for (const item of this.items.values()) item.resize(this.width, ratio);
    this.wake();
  }

  /** Applies the state's order, pins, folds and search to the page. */
  place() {
    const { order, folded, tall, pins } = this.state, found = this.found(), focused = document.activeElement;
    for (const [list, ids] of /** @type {const} */ ([[this.pinnedList, order.filter((id) => pins.has(id))], [this.list, order.filter((id) => !pins.has(id))]])) {
      const now = Array.from(list.children, (/** @type {any} */ child) => child.dataset.lane);
      if (now.join() !== ids.join()) for (const id of ids) { const item = this.items.get(id); if (item) list.append(item.root); }
    }
    if (focused instanceof HTMLElement && focused !== document.activeElement && focused.closest(".lane")) focused.focus({ preventScroll: true });
    byId("pinned").hidden = !this.pinnedList.childElementCount;
    for (const [id, item] of this.items) {
      if (item.isOnTop !== pins.has(id)) this.observe(item, pins.has(id));
      item.shape(folded.has(id), tall.has(id), pins.has(id));
      item.root.hidden = found !== null && !found.has(id) && !pins.has(id);
      if (folded.has(id) || item.root.hidden) this.tiles.unwant(id);
      if (this.width) item.resize(this.width, item.ratio);
      item.dirty = true;
    }
    if (this.width) {
      this.sheet.place(this.within(false), this.left, this.sheet.tall, this.sheet.ratio);
      this.pinnedSheet.place(this.within(true), this.left, this.pinnedSheet.tall, this.sheet.ratio);
    }
    this.wake();
  }

  /** @param {LaneItem} item @param {boolean} onTop */
  observe(item, onTop) {
    this.seen[onTop ? "lanes" : "pinned"].unobserve(item.root);
    this.seen[onTop ? "pinned" : "lanes"].observe(item.root);
  }

  /** The lanes that match the search, by the name of the lane or of a series. @returns {Set<string> | null} `null` without a search */
  found() {
    const { find } = this.state;
    if (!find) { byId("lanesFound").textContent = ""; return null; }
    const texts = new Map([...this.items].map(([id, { lane }]) => [id, [lane.about.title, id, ...lane.names].join("\n")]));
    const { found } = searchNames(texts.values(), find, find === this.typed), ids = [...texts].filter(([, text]) => found.has(text)).map(([id]) => id);
    byId("lanesFound").textContent = `${ids.length || "none"} of ${this.items.size} lanes ${ids.length === 1 ? "matches" : "match"} “${shortened(find, 40)}” · Esc in the search clears it`;
    return new Set(ids);
  }

  /** @param {import("../theme.js").Look} look */
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
        if (this.state.find) this.place();
      }
      item.picture.stale = true;
    }
    this.wake();
  }

  /** Some series are known only after a strip was read. @param {string} id @returns {string[] | null} */
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

  /** Shows why marks could not be read; those already loaded stay. @param {string} why */
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

  /** One frame. @param {import("../axis.js").Span} view @param {boolean} moved since the last @returns {boolean} is there more to draw? */
  frame(view, moved) {
    const began = performance.now(), queue = [];
    for (const item of this.items.values()) {
      const urgency = item.urgency(view, moved);
      if (urgency > 0) queue.push({ item, urgency });
    }
    queue.sort((one, other) => other.urgency - one.urgency);
    let at = 0;
    // A picture costs again when it is first copied, so they are counted as well as timed.
    const most = !this.tiles.held.size ? queue.length : moved ? MOST_MOVING : MOST_AT_REST;
    while (at < queue.length && at < most && (at === 0 || performance.now() - began < PAINT_MS)) {
      if (moved && at > 0 && queue[at].urgency < 2) break;
      queue[at++].item.paint(view);
    }
    for (const item of this.items.values()) if (item.isDrawn) item.draw(view);
    return at < queue.length;
  }

  /** Is everything visible drawn, with loaded data? @param {import("../axis.js").Span} view */
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
    for (const onTop of [true, false]) {
      const seen = this.within(onTop).filter((item) => !item.folded && !item.root.hidden && item.onScreen);
      for (const item of seen) item.readAt(time, this.state.view);
      (onTop ? this.pinnedSheet : this.sheet).draw(seen, this.look);
    }
  }

  /** The finest column any open lane is drawn with: a step of the crosshair. */
  stepSeconds() {
    const perPixel = (this.state.view.end - this.state.view.start) / Math.max(this.width, 1);
    let least = Infinity;
    for (const item of this.items.values()) {
      if (item.folded || item.root.hidden || item.lane.about.kind === "marks") continue;
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

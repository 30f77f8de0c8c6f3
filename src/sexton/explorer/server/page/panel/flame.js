// @ts-check
// A flame graph on a canvas: zoom, search, keys; of one span, or of one span against another.

import {byId, clockText, countText, percentText, shortened} from "../words.js";
import {heaviestFirst, sandwichOf} from "./flame_views.js";
import {searchNames} from "../search.js";
import {changeColour, frameColour} from "../theme.js";
import {COLOURS} from "../colours.js";

const FLAME_ROW = 17, LETTER = 6.7, LEAST = 0.4;

/** `start` is a time, only in the order of time. @typedef {{name: string, kind: string, parent: number, depth: number, end: number, samples: number, before: number, own: number, module: string, q: number | null, x: number, width: number, start?: number}} FlameBox */

/** The server's kinds, as one letter. @param {any} kind */
function kindLetter(kind) {
  const text = String(kind);
  return text.startsWith("k") || text === "1" ? "k" : text.startsWith("u") || text === "2" ? "u" : text.startsWith("t") || text === "0" ? "t" : "o";
}

/** Boxes in pre-order, siblings as the server has them: by name, or by time.
 *  @param {any} reply a `sexton.flame/1` document @returns {FlameBox[]} */
export function boxesOf(reply) {
  const { parent, name, samples, before, kind, q, own, module, start } = reply.nodes, count = parent.length;
  /** @type {number[][]} */ const children = Array.from({ length: count }, () => []);
  /** @type {number[]} */ const roots = [];
  for (let at = 0; at < count; at++) (parent[at] >= 0 && parent[at] !== at ? children[parent[at]] : roots).push(at);
  /** @type {FlameBox[]} */ const boxes = [];
  const sum = (/** @type {number[]} */ of) => roots.reduce((all, at) => all + of[at], 0);
  if (roots.length !== 1) boxes.push({ name: "all", kind: "o", parent: -1, depth: 0, end: 0, samples: sum(samples), before: before ? sum(before) : 0, own: 0, module: "", q: 0, x: 0, width: 1 });
  /** @type {[number, number, number][]} node, parent box, depth */ const todo = [];
  for (const root of roots.reverse()) todo.push([root, boxes.length ? 0 : -1, boxes.length ? 1 : 0]);
  while (todo.length) {
    const [at, above, depth] = /** @type {[number, number, number]} */ (todo.pop());
    const here = boxes.length;
    boxes.push({ name: reply.names[name[at]] || "all", kind: kindLetter(kind ? kind[at] : "o"), parent: above, depth, end: here + 1, samples: samples[at], before: before ? before[at] : 0, own: own ? own[at] : 0, module: module ? reply.modules[module[at]] : "", q: q ? q[at] : 0, x: 0, width: 0, start: start?.[at] });
    for (let index = children[at].length - 1; index >= 0; index--) todo.push([children[at][index], here, depth + 1]);
  }
  for (let at = boxes.length - 1; at > 0; at--) boxes[boxes[at].parent].end = Math.max(boxes[boxes[at].parent].end, boxes[at].end, at + 1);
  if (boxes.length) boxes[0].end = boxes.length;
  return boxes;
}

/** Widths are shares of the samples: the span's, the baseline's, or the mean of both.
 *  @param {FlameBox[]} boxes @param {string} side "after", "before" or "both" */
export function layBoxes(boxes, side) {
  if (!boxes.length) return;
  const total = Math.max(boxes[0].samples, 1), earlier = Math.max(boxes[0].before, 1);
  /** Where the next box of a row begins; the rows of callers are below zero. @type {Map<number, number>} */ const next = new Map();
  for (const box of boxes) {
    const after = box.samples / total, before = box.before / earlier;
    box.width = side === "both" ? (after + before) / 2 : side === "before" ? before : after;
    box.x = next.get(box.depth) || 0;
    next.set(box.depth, box.x + box.width);
    if (box.depth >= 0) next.set(box.depth + 1, box.x);
    if (box.depth <= 0) next.set(box.depth - 1, box.x);
  }
}

/** The significance of a change. @param {number | null} q */
function qText(q) {
  if (q === null) return "not tested";
  if (q === 0) return "";
  return `q ${q < 0.001 ? q.toExponential(0) : q.toFixed(3)}${q <= 0.05 ? "" : " (may be chance)"}`;
}

export class FlameGraph {
  /** @param {() => void} wake @param {(text: string) => void} tell @param {(name: string) => void} [pick] a function was chosen */
  constructor(wake, tell, pick = () => {}) {
    this.wake = wake;
    this.tell = tell;
    this.pick = pick;
    /** @type {any} the document the boxes are made of */ this.reply = null;
    /** The arrangement, one of `FLAME_VIEWS`. */ this.view = "name";
    /** The function of the sandwich. */ this.of = "";
    /** All samples, of the span and of the baseline. */ this.total = { samples: 1, before: 1 };
    /** The uppermost row, of callers. */ this.highest = 0;
    /** @type {HTMLCanvasElement} */ this.canvas = byId("flame");
    this.pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    /** @type {FlameBox[]} */ this.boxes = [];
    this.compared = false;
    /** What the widths of a difference show. */ this.side = "both";
    /** The root at the bottom. */ this.flipped = false;
    this.sides = ["baseline", ""];
    this.focus = 0;
    this.cursor = -1;
    this.deepest = 0;
    this.width = 0;
    this.dirty = true;
    /** Names that match the search. @type {Set<string> | null} */ this.hits = null;
    /** The last search and its result. @type {[string, boolean, FlameBox[], string]} */ this.searched = ["", false, this.boxes, ""];
    this.coreSeconds = 0;
    this.listen();
  }

  listen() {
    new ResizeObserver((entries) => { this.width = Math.floor(entries[0].contentRect.width); this.touch(); }).observe(byId("flameBox"));
    this.canvas.addEventListener("pointermove", (event) => this.point(this.boxAt(event.offsetX, event.offsetY)));
    this.canvas.addEventListener("pointerleave", () => this.point(-1));
    this.canvas.addEventListener("click", (event) => { const at = this.boxAt(event.offsetX, event.offsetY); if (at > 0 && event.shiftKey) this.pick(this.boxes[at].name); else if (at >= 0) this.zoom(at); });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  touch() {
    this.dirty = true;
    this.wake();
  }

  /** @param {any} reply @param {boolean} [again] the same span in more detail: focus and cursor stay */
  show(reply, again = false) {
    this.reply = reply;
    this.arrange(again);
  }

  /** @param {boolean} again */
  arrange(again) {
    const { reply } = this, focus = again ? this.path(this.focus) : [], cursor = again && this.cursor >= 0 ? this.path(this.cursor) : null;
    if (!reply) return;
    const boxes = boxesOf(reply);
    this.boxes = this.view === "heavy" ? heaviestFirst(boxes) : this.view === "sandwich" ? sandwichOf(boxes, this.of) : boxes;
    this.compared = Boolean(reply.nodes.before);
    this.total = { samples: Math.max(reply.all ?? boxes[0]?.samples ?? 0, 1), before: Math.max(reply.all_before ?? boxes[0]?.before ?? 0, 1) };
    // Stacks that are too narrow to draw contain the function as well.
    if (this.view === "sandwich" && this.boxes.length && reply.all !== undefined) Object.assign(this.boxes[0], { samples: reply.total, before: reply.before ?? 0 });
    this.coreSeconds = reply.core_seconds || 0;
    this.sides = reply.sides || ["baseline", ""];
    layBoxes(this.boxes, this.compared ? this.side : "after");
    this.deepest = this.boxes.reduce((most, box) => Math.max(most, box.depth), 0);
    this.highest = this.boxes.reduce((least, box) => Math.min(least, box.depth), 0);
    this.focus = Math.max(this.find(focus), 0);
    this.cursor = cursor ? this.find(cursor) : -1;
    this.touch();
  }

  flip() {
    this.flipped = !this.flipped;
    this.touch();
  }

  /** The next of the three widths of a difference. @returns {string} */
  nextSide() {
    this.side = { both: "after", after: "before", before: "both" }[this.side] || "both";
    layBoxes(this.boxes, this.compared ? this.side : "after");
    this.touch();
    return this.side;
  }

  /** Where a row is drawn. @param {number} depth */
  rowY(depth) {
    return (this.flipped ? this.deepest - depth : depth - this.highest) * FLAME_ROW;
  }

  /** The names from the first below the root to a box. @param {number} at @returns {string[]} */
  path(at) {
    const names = [];
    for (; at > 0 && this.boxes[at]; at = this.boxes[at].parent) names.unshift(this.boxes[at].name);
    return names;
  }

  /** @param {string[]} path @returns {number} the box, or -1 */
  find(path) {
    let at = 0;
    for (const name of path) {
      const parent = at;
      at = this.boxes.findIndex((box, number) => number > parent && box.parent === parent && box.name === name);
      if (at < 0) return -1;
    }
    return at;
  }

  clear() {
    this.boxes = [];
    this.reply = null;
    this.touch();
  }

  /** @param {string} text plain words, or a regular expression @param {boolean} mayBePattern @returns {string} how much was found */
  search(text, mayBePattern) {
    const [before, was, boxes, said] = this.searched;
    if (before === text && was === mayBePattern && boxes === this.boxes) return said;
    const { found, isPlain } = searchNames(new Set(this.boxes.slice(1).map((box) => box.name)), text, mayBePattern);
    this.hits = text ? new Set(found.keys()) : null;
    const reply = this.hits && this.boxes.length ? this.foundWords(this.hits) + (isPlain ? ", matched as plain text" : "") : "";
    this.searched = [text, mayBePattern, this.boxes, reply];
    this.touch();
    return reply;
  }

  /** @param {Set<string>} hits @returns {string} */
  foundWords(hits) {
    let found = 0, until = -1, share = 0;
    this.boxes.forEach((box, at) => {
      if (at === 0 || !hits.has(box.name)) return;
      found++;
      if (at >= until) { share += box.samples; until = box.end; }
    });
    const boxes = `${found} ${found > 1 ? "boxes" : "box"}`;
    // Callers and callees of one function have the same samples.
    return !found ? "not found" : this.view === "sandwich" ? boxes : `${percentText(share / this.total.samples)} in ${boxes}`;
  }

  /** @param {number} at */
  zoom(at) {
    this.focus = this.focus === at ? 0 : at;
    this.touch();
    this.tell(this.words(at));
  }

  /** @param {number} at */
  words(at) {
    const box = this.boxes[at];
    if (!box) return "";
    const total = this.total.samples, share = box.samples / total;
    const reply = [box.name, countText(box.samples, "sample"), percentText(share)];
    if (box.module) reply.splice(1, 0, box.module);
    if (box.own && at > 0) reply.push(`self ${percentText(box.own / total)}`);
    if (this.coreSeconds && !this.compared) reply.push(countText(share * this.coreSeconds, "core second"));
    if (this.view === "sandwich" && at > 0) reply.push(`${percentText(box.samples / Math.max(this.boxes[0].samples, 1))} of ${shortened(this.of, 40)}`);
    if (box.start !== undefined && at > 0) reply.push(`from ${clockText(box.start, 0.01)} on`);
    if (this.compared) {
      const earlier = box.before / this.total.before;
      reply.push(`${this.sides[0]} ${percentText(earlier)} (${countText(box.before, "sample")})`, `${share >= earlier ? "+" : "−"}${percentText(Math.abs(share - earlier))}`, qText(box.q));
    }
    return reply.filter(Boolean).join("  ·  ");
  }

  /** @param {import("../theme.js").Look} look */
  draw(look) {
    this.dirty = false;
    const { pen, boxes, width } = this, ratio = Math.min(window.devicePixelRatio || 1, 2);
    const height = Math.max((this.deepest - this.highest + 1) * FLAME_ROW + 2, 20);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = height + "px";
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (!boxes.length) return;
    pen.font = '11.5px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
    const above = new Set();
    for (let at = this.focus; at >= 0; at = boxes[at].parent) above.add(at);
    const focus = boxes[this.focus], scale = focus.width > 0 ? width / focus.width : 0;
    for (let at = 0; at < boxes.length; at++) {
      const box = boxes[at];
      if (above.has(at) && at !== this.focus) { this.box(at, box, 0, width, look); continue; }
      if (at < this.focus) continue;
      if (at >= focus.end) break;
      const wide = box.width * scale;
      if (wide >= LEAST) this.box(at, box, (box.x - focus.x) * scale, wide, look);
    }
  }

  /** @param {number} at @param {FlameBox} box @param {number} x @param {number} wide @param {import("../theme.js").Look} look */
  box(at, box, x, wide, look) {
    const { pen } = this, y = this.rowY(box.depth), hit = this.hits !== null && at > 0 && this.hits.has(box.name);
    pen.globalAlpha = at < this.focus ? 0.55 : this.hits && !hit ? 0.45 : 1;
    pen.fillStyle = hit ? COLOURS.found : this.colour(box, at, look);
    pen.fillRect(x, y, Math.max(wide - (wide > 3 ? 0.7 : 0), 0.4), FLAME_ROW - 1);
    if (at === this.cursor || (at === 0 && this.view === "sandwich")) {
      pen.strokeStyle = look.ink;
      pen.lineWidth = 1.4;
      pen.strokeRect(x + 0.7, y + 0.7, Math.max(wide - 2, 1), FLAME_ROW - 2.4);
    }
    const letters = Math.floor((wide - 6) / LETTER);
    if (letters < 3) { pen.globalAlpha = 1; return; }
    pen.fillStyle = hit ? look.filled : look.ink;
    pen.fillText(box.name.length > letters ? box.name.slice(0, letters - 1) + "…" : box.name, x + 3, y + 12);
    pen.globalAlpha = 1;
  }

  /** @param {FlameBox} box @param {number} at @param {import("../theme.js").Look} look */
  colour(box, at, look) {
    if (!this.compared) return at === 0 && this.view !== "sandwich" ? changeColour(look, 0) : frameColour(look, box.kind, box.name);
    const share = box.samples / this.total.samples, earlier = box.before / this.total.before;
    // A change that may be chance is pale if it is large, and has no hue if it is small.
    const change = share - earlier, sure = box.q !== null && box.q <= 0.05;
    return changeColour(look, sure || Math.abs(change) >= COLOURS.large ? change : 0, sure);
  }

  /** @param {number} x @param {number} y @returns {number} */
  boxAt(x, y) {
    const row = Math.floor(y / FLAME_ROW), depth = this.flipped ? this.deepest - row : row + this.highest, { boxes } = this;
    if (!boxes.length) return -1;
    for (let at = this.focus; at >= 0; at = boxes[at].parent) if (at !== this.focus && boxes[at].depth === depth) return at;
    const focus = boxes[this.focus], scale = focus.width > 0 ? this.width / focus.width : 0;
    for (let at = this.focus; at < focus.end; at++) {
      const box = boxes[at], left = (box.x - focus.x) * scale;
      if (box.depth === depth && x >= left && x < left + box.width * scale) return at;
    }
    return -1;
  }

  /** @param {number} at */
  point(at) {
    if (at === this.cursor) return;
    this.cursor = at;
    this.tell(this.words(at));
    this.touch();
  }

  /** @param {number} at @param {number} step @returns {number} a sibling */
  beside(at, step) {
    const { depth } = this.boxes[at];
    for (let index = at + step; index > 0 && index < this.boxes.length; index += step) {
      if (Math.abs(this.boxes[index].depth) < Math.abs(depth)) return at;
      if (this.boxes[index].depth === depth) return index;
    }
    return at;
  }

  /** The box one row down or up: the parent, or the widest child. @param {number} at @param {number} way 1 or -1 @returns {number} */
  step(at, way) {
    if (this.boxes[at].depth * way < 0) return Math.max(this.boxes[at].parent, 0);
    let best = -1;
    for (let index = at + 1; index < this.boxes[at].end; index++) {
      if (this.boxes[index].depth === this.boxes[at].depth + way && (best < 0 || this.boxes[index].width > this.boxes[best].width)) best = index;
    }
    return best < 0 ? at : best;
  }

  /** Arrows walk the boxes, Enter zooms. @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || !this.boxes.length) return;
    const here = this.cursor >= 0 ? this.cursor : this.focus;
    /** @type {Record<string, () => void>} */ const moves = {
      [this.flipped ? "ArrowUp" : "ArrowDown"]: () => this.point(this.step(here, 1)),
      [this.flipped ? "ArrowDown" : "ArrowUp"]: () => this.point(this.step(here, -1)),
      ArrowLeft: () => this.point(this.beside(here, -1)), ArrowRight: () => this.point(this.beside(here, 1)), Enter: () => this.zoom(here),
    };
    if (event.key === "Escape" && this.focus !== 0) moves.Escape = () => this.zoom(0);
    if (!moves[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    moves[event.key]();
  }
}

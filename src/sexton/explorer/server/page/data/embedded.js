// @ts-check
// The source of an HTML file: all data is embedded in it. Tiles are base64 of zlib; a tile that is
// not embedded is drawn from a coarser one, or is absent.
import {PackedStacks} from "./packed.js";
import {SourceError} from "./source.js";
import {columnSeconds, TILE_COLUMNS} from "./tiles.js";
import {clockText, zoneText} from "../words.js";

const MOST_FUNCTIONS = 2000;
/** Cells of 20 ms in a second. */
const EMBEDDED_CELLS = 50;
/** Array types, and the value that means absent. @type {Record<string, [any, number]>} */
const EMBEDDED_TYPES = { uint8: [Uint8Array, 255], uint16: [Uint16Array, 65535], float32: [Float32Array, NaN] };

/**
 * @typedef {{names: string[], channels: string[], dtype: string,
 *   tiles: Record<string, Record<string, string>>}} EmbeddedLane
 * @typedef {{from: number, to: number, document: any, baseline?: number[] | null}} EmbeddedSpan
 */

export class EmbeddedSource {
  /** @param {any} data the embedded data, `sexton.page/1` */
  constructor(data) {
    this.data = data;
    /** @type {Map<string, Promise<Record<string, any>>>} */
    this.opened = new Map();
    /** @type {PackedStacks | null} */ this.stacks = data.stacks ? new PackedStacks(data.stacks) : null;
    /** Is it a flame graph without a time axis? */ this.untimed = Boolean(data.profile) && !data.recording?.lanes.length;
    /** Can it make flame graphs of several cores? */ this.manyCores = this.stacks !== null;
    /** Has it flame graphs in the order of time? */ this.inOrder = this.stacks !== null || (data.flames || []).some((/** @type {any} */ entry) => entry.order);
  }

  async recording() {
    return this.data.recording;
  }

  /** @param {string} lane @param {number} level @param {number} first @param {number} count */
  async strip(lane, level, first, count) {
    const known = this.data.lanes[lane];
    if (known === undefined) throw new SourceError(404, `no lane ${lane} in this file`);
    const [Numbers, absent] = EMBEDDED_TYPES[known.dtype];
    const names = level < 0 ? ["all cores"] : known.names;
    const lines = names.length * known.channels.length;
    const width = count * TILE_COLUMNS;
    /** @type {Record<string, any>} */
    const planes = {};
    for (const plane of ["mean", "peak"]) planes[plane] = new Numbers(lines * width).fill(absent);
    for (let tile = 0; tile < count; tile += 1) {
      const found = await this.tile(known, lane, level, first + tile);
      if (found === null) continue;
      for (const plane of ["mean", "peak"]) {
        for (let line = 0; line < lines; line += 1) {
          const from = line * TILE_COLUMNS;
          const piece = found[plane].subarray(from, from + TILE_COLUMNS);
          planes[plane].set(piece, line * width + tile * TILE_COLUMNS);
        }
      }
    }
    return {
      schema: "sexton.strip/1", lane, level, first, count, columns: width,
      names, channels: known.channels, dtype: known.dtype, planes,
    };
  }

  /**
   * One tile, from a coarser one if it is not embedded.
   * @param {EmbeddedLane} known @param {string} lane @param {number} level @param {number} tile
   * @returns {Promise<Record<string, any> | null>}
   */
  async tile(known, lane, level, tile) {
    if (level < 0) return this.fine(known, lane, tile);
    const key = `${level}/${tile}`;
    if (known.tiles[key] !== undefined) return this.unpacked(known, lane, key);
    const from = tile * TILE_COLUMNS * columnSeconds(level);
    for (let above = level + 1; above <= this.data.top; above += 1) {
      const column = columnSeconds(above);
      const over = Math.floor(from / (TILE_COLUMNS * column) + 1e-9);
      if (known.tiles[`${above}/${over}`] === undefined) continue;
      const coarse = await this.unpacked(known, lane, `${above}/${over}`);
      const skip = (from - over * TILE_COLUMNS * column) / column;
      const wide = column / columnSeconds(level);
      return Object.fromEntries(Object.entries(coarse).map(
        ([plane, values]) => [plane, embeddedStretched(values, skip, wide)],
      ));
    }
    return null;
  }

  /**
   * Columns of 20 ms: the rows of each second in turn.
   * @param {EmbeddedLane} known @param {string} lane @param {number} tile
   */
  async fine(known, lane, tile) {
    const [Numbers, absent] = EMBEDDED_TYPES[known.dtype];
    const row = new Numbers(TILE_COLUMNS).fill(absent);
    for (let column = 0; column < TILE_COLUMNS; column += 1) {
      const cell = tile * TILE_COLUMNS + column;
      const second = Math.floor(cell / EMBEDDED_CELLS);
      const key = `0/${Math.floor(second / TILE_COLUMNS)}`;
      if (known.tiles[key] === undefined) continue;
      const found = await this.unpacked(known, lane, key);
      row[column] = found.mean[(cell % EMBEDDED_CELLS) * TILE_COLUMNS + (second % TILE_COLUMNS)];
    }
    return { mean: row, peak: row };
  }

  /** @param {EmbeddedLane} known @param {string} lane @param {string} key */
  unpacked(known, lane, key) {
    const name = `${lane}/${key}`;
    let found = this.opened.get(name);
    if (found === undefined) {
      found = embeddedPlanes(known.tiles[key], EMBEDDED_TYPES[known.dtype][0]);
      this.opened.set(name, found);
    }
    return found;
  }

  /** @param {number} from @param {number} to */
  async marks(from, to) {
    const all = this.data.marks;
    const seen = all.marks.filter((/** @type {any} */ entry) => entry.time <= to && (entry.end ?? entry.time) >= from);
    return { ...all, marks: seen };
  }

  /** @param {string} lane @param {number} from @param {number} to */
  async table(lane, from, to) {
    return embeddedNearest(this.data.tables[lane], { from, to }, `no table of ${lane} in this file`);
  }

  /** An embedded flame graph of exactly this span, else counted from the embedded stacks, else the nearest.
   *  @param {import("./source.js").FlameQuery} query */
  async flame(query) {
    const flames = this.data.flames.filter((/** @type {any} */ entry) => (entry.order ?? null) === (query.order ?? null)), against = query.baseline_from !== undefined && query.baseline_from !== null;
    const exact = query.task || query.cgroup ? null : flames.find((/** @type {any} */ entry) => isOf(entry, query));
    if (this.stacks && !exact) return this.counted(query, against);
    const found = embeddedNearest(exact ? [exact] : this.chosen(flames, query, against), query, "no stacks in this file");
    if (found.baseline && !this.data.profile) found.note = embeddedNotes(found.note, `compared with ${embeddedClock(found.baseline)}`);
    return found;
  }

  /** @param {import("./source.js").FlameQuery} query */
  async functions(query) {
    if (!this.stacks) return embeddedNearest(this.chosen(this.data.functions, query, false), query, "no stacks in this file");
    this.refuseCgroup(query);
    return { ...this.stacks.functions(query, MOST_FUNCTIONS), note: this.noteOf(query) };
  }

  /** @param {import("./source.js").FlameQuery} query @param {boolean} against */
  counted(query, against) {
    this.refuseCgroup(query);
    const stacks = /** @type {PackedStacks} */ (this.stacks);
    const baseline = against ? { ...query, from: Number(query.baseline_from), to: Number(query.baseline_to) } : null;
    const note = embeddedNotes(baseline ? "change not tested: sexton profile diff tests it" : "", this.noteOf(query));
    return { ...(query.order ? stacks.ordered(query) : stacks.flame(query, baseline)), note };
  }

  /** @param {import("./source.js").FlameQuery} query */
  refuseCgroup(query) {
    if (query.cgroup) throw new SourceError(404, "this file cannot filter by cgroup: use sexton profile flame --cgroup");
  }

  /** Notes: what is shown if it is not the selected range, and the same as a command.
   *  @param {import("./source.js").FlameQuery} query */
  noteOf(query) {
    const { origin, command, stacks } = this.data;
    const { from, to } = this.stacks ? this.stacks.rangeOf(query) : query;
    const seconds = (/** @type {number} */ time) => String(Math.max(Math.round((time - origin) * 100) / 100, 0));
    const together = stacks && stacks.cores[0] === null && query.cpu ? "all cores: this file does not hold them separately" : "";
    const whole = from <= this.data.recording.start && to >= this.data.recording.end;
    const range = whole ? "" : ` --from ${seconds(from)} --to ${seconds(to)}`;
    return embeddedNotes(together, `sexton profile flame ${command}${range}${query.cpu ? ` --cpu ${query.cpu}` : ""}${query.task ? ` --task '${query.task}'` : ""}`);
  }

  /**
   * Filters that the file has no data for are refused.
   * @param {any[]} held @param {import("./source.js").FlameQuery} query @param {boolean} compared
   */
  chosen(held, query, compared) {
    const instead = this.data.profile ? this.noteOf(query) : "sexton serve has all of them";
    if (query.task || query.cgroup) throw new SourceError(404, `this file cannot filter by task or cgroup: ${instead}`);
    const found = held.filter((entry) => sameCore(entry.cpu, query.cpu) && Boolean(entry.baseline) === compared);
    if (!found.length && held.length) {
      const what = query.order ? `time order only of core ${held.map((entry) => entry.cpu).join(" and ")}` : compared ? "no such comparison" : `no samples of core ${query.cpu} alone`;
      throw new SourceError(404, `${what} in this file: ${instead}`);
    }
    return found;
  }

  async explain() {
    const { start, end } = this.data.recording;
    return { ...this.data.explain, of: { start, end } };
  }

  /** @param {string} kind @param {number} after @param {boolean} back */
  async next(kind, after, back) {
    const times = this.data.moments[kind] ?? [];
    const there = times.filter((/** @type {any} */ entry) => (back ? entry.time < after : entry.time > after));
    return there[back ? there.length - 1 : 0] ?? { time: null, text: `no ${kind} in this file` };
  }

  async tour() {
    throw new SourceError(404, "no tour in this file");
  }

  live() {
    return () => {};
  }
}

/** @param {any} one @param {any} other */
function sameCore(one, other) {
  return String(one ?? "") === String(other ?? "");
}

/** Does this document answer exactly that query? @param {any} entry @param {import("./source.js").FlameQuery} query */
function isOf(entry, query) {
  const wanted = [query.from, query.to, query.baseline_from, query.baseline_to], found = [entry.from, entry.to, ...(entry.baseline ?? [undefined, undefined])];
  const isNear = wanted.every((time, at) => (time ?? null) === null ? (found[at] ?? null) === null : Math.abs(Number(time) - Number(found[at])) < 2e-3);
  return isNear && sameCore(entry.cpu, query.cpu);
}

/**
 * A part of a coarse tile in the columns of a finer one.
 * @param {any} values @param {number} skip @param {number} wide
 */
function embeddedStretched(values, skip, wide) {
  const made = values.slice();
  for (let start = 0; start < values.length; start += TILE_COLUMNS) {
    for (let column = 0; column < TILE_COLUMNS; column += 1) {
      const from = Math.min(Math.floor(skip + column / wide + 1e-9), TILE_COLUMNS - 1);
      made[start + column] = values[start + from];
    }
  }
  return made;
}

/** @param {Record<string, string>} packed @param {any} Numbers */
async function embeddedPlanes(packed, Numbers) {
  const mean = new Numbers(await embeddedBytes(packed.mean));
  return { mean, peak: packed.peak === undefined ? mean : new Numbers(await embeddedBytes(packed.peak)) };
}

/** @param {string} text */
async function embeddedBytes(text) {
  const plain = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([plain]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/**
 * The embedded document that overlaps the requested span best, with a note of its span.
 * @param {EmbeddedSpan[] | undefined} held @param {{from: number, to: number}} wanted @param {string} none
 * @returns {any}
 */
function embeddedNearest(held, wanted, none) {
  let best = null;
  let most = -1;
  for (const entry of held ?? []) {
    const shared = Math.max(0, Math.min(wanted.to, entry.to) - Math.max(wanted.from, entry.from));
    const whole = Math.max(wanted.to, entry.to) - Math.min(wanted.from, entry.from);
    const score = whole > 0 ? shared / whole : 0;
    if (score > most) {
      most = score;
      best = entry;
    }
  }
  if (best === null) throw new SourceError(404, none);
  const note = most > 0.99 ? "" : `this file holds ${embeddedClock([best.from, best.to])} only, not the chosen span`;
  const said = embeddedNotes(note, best.document.note);
  return { ...best.document, from: best.from, to: best.to, baseline: best.baseline ?? null, note: said };
}

/** @param {(string | undefined)[]} notes */
function embeddedNotes(...notes) {
  return notes.filter(Boolean).join(" · ");
}

/** @param {number[]} span */
function embeddedClock(span) {
  return `${clockText(span[0])} to ${clockText(span[1])} ${zoneText()}`;
}

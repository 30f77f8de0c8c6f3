// @ts-check
// The source of a report: everything is in the page itself, and nothing is asked of anybody.
// Tiles are base64 of zlib; a tile that is not in the page is drawn from a coarser one, or is absent.
import {SourceError} from "./source.js";

const EMBEDDED_COLUMNS = 256;
/** Of 20 ms, in a second. */
const EMBEDDED_CELLS = 50;
/** Arrays by type, and what stands for none. @type {Record<string, [any, number]>} */
const EMBEDDED_TYPES = { uint8: [Uint8Array, 255], uint16: [Uint16Array, 65535], float32: [Float32Array, NaN] };

/**
 * @typedef {{names: string[], channels: string[], dtype: string,
 *   tiles: Record<string, Record<string, string>>}} EmbeddedLane
 * @typedef {{from: number, to: number, document: any, baseline?: number[] | null}} EmbeddedSpan
 */

export class EmbeddedSource {
  /** @param {any} data what stands in the page, `sexton.page/1` */
  constructor(data) {
    this.data = data;
    /** @type {Map<string, Promise<Record<string, any>>>} */
    this.opened = new Map();
  }

  async recording() {
    return this.data.recording;
  }

  /** @param {string} lane @param {number} level @param {number} first @param {number} count */
  async strip(lane, level, first, count) {
    const known = this.data.lanes[lane];
    if (known === undefined) throw new SourceError(404, `no lane ${lane} in this report`);
    const [Numbers, absent] = EMBEDDED_TYPES[known.dtype];
    const names = level < 0 ? ["all cores"] : known.names;
    const lines = names.length * known.channels.length;
    const width = count * EMBEDDED_COLUMNS;
    /** @type {Record<string, any>} */
    const planes = {};
    for (const plane of ["mean", "peak"]) planes[plane] = new Numbers(lines * width).fill(absent);
    for (let tile = 0; tile < count; tile += 1) {
      const found = await this.tile(known, lane, level, first + tile);
      if (found === null) continue;
      for (const plane of ["mean", "peak"]) {
        for (let line = 0; line < lines; line += 1) {
          const from = line * EMBEDDED_COLUMNS;
          const piece = found[plane].subarray(from, from + EMBEDDED_COLUMNS);
          planes[plane].set(piece, line * width + tile * EMBEDDED_COLUMNS);
        }
      }
    }
    return {
      schema: "sexton.strip/1", lane, level, first, count, columns: width,
      names, channels: known.channels, dtype: known.dtype, planes,
    };
  }

  /**
   * One tile, from a coarser one where the page does not hold it.
   * @param {EmbeddedLane} known @param {string} lane @param {number} level @param {number} tile
   * @returns {Promise<Record<string, any> | null>}
   */
  async tile(known, lane, level, tile) {
    if (level < 0) return this.fine(known, lane, tile);
    const key = `${level}/${tile}`;
    if (known.tiles[key] !== undefined) return this.unpacked(known, lane, key);
    const from = tile * EMBEDDED_COLUMNS * embeddedColumn(level);
    for (let above = level + 1; above <= this.data.top; above += 1) {
      const column = embeddedColumn(above);
      const over = Math.floor(from / (EMBEDDED_COLUMNS * column) + 1e-9);
      if (known.tiles[`${above}/${over}`] === undefined) continue;
      const coarse = await this.unpacked(known, lane, `${above}/${over}`);
      const skip = (from - over * EMBEDDED_COLUMNS * column) / column;
      const wide = column / embeddedColumn(level);
      return Object.fromEntries(Object.entries(coarse).map(
        ([plane, values]) => [plane, embeddedStretched(values, skip, wide)],
      ));
    }
    return null;
  }

  /**
   * Columns of 20 ms: the rows of each second, one after the other.
   * @param {EmbeddedLane} known @param {string} lane @param {number} tile
   */
  async fine(known, lane, tile) {
    const [Numbers, absent] = EMBEDDED_TYPES[known.dtype];
    const row = new Numbers(EMBEDDED_COLUMNS).fill(absent);
    for (let column = 0; column < EMBEDDED_COLUMNS; column += 1) {
      const cell = tile * EMBEDDED_COLUMNS + column;
      const second = Math.floor(cell / EMBEDDED_CELLS);
      const key = `0/${Math.floor(second / EMBEDDED_COLUMNS)}`;
      if (known.tiles[key] === undefined) continue;
      const found = await this.unpacked(known, lane, key);
      row[column] = found.mean[(cell % EMBEDDED_CELLS) * EMBEDDED_COLUMNS + (second % EMBEDDED_COLUMNS)];
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
    const seen = all.marks.filter((/** @type {any} */ each) => each.time <= to && (each.end ?? each.time) >= from);
    return { ...all, marks: seen };
  }

  /** @param {string} lane @param {number} from @param {number} to */
  async table(lane, from, to) {
    return embeddedNearest(this.data.tables[lane], { from, to }, `no table of ${lane} in this report`);
  }

  /** @param {import("./source.js").FlameQuery} query */
  async flame(query) {
    const compared = query.baseline_from !== undefined && query.baseline_from !== null;
    const found = embeddedNearest(this.chosen(this.data.flames, query, compared), query, "no stacks in this report");
    if (found.baseline) found.note = embeddedNotes(found.note, `compared with ${embeddedClock(found.baseline)}`);
    return found;
  }

  /** @param {import("./source.js").FlameQuery} query */
  async functions(query) {
    return embeddedNearest(this.chosen(this.data.functions, query, false), query, "no stacks in this report");
  }

  /**
   * What a report cannot choose it does not pretend to have chosen.
   * @param {any[]} held @param {import("./source.js").FlameQuery} query @param {boolean} compared
   */
  chosen(held, query, compared) {
    if (query.task || query.cgroup) throw new SourceError(404, "a report cannot choose by task or cgroup: sexton serve does");
    const asked = query.cpu === undefined || query.cpu === null || query.cpu === "" ? null : Number(query.cpu);
    const found = held.filter((each) => (each.cpu ?? null) === asked && Boolean(each.baseline) === compared);
    if (!found.length && held.length) {
      const what = compared ? "no such comparison" : `no samples of core ${asked} alone`;
      throw new SourceError(404, `${what} in this report: sexton serve has all`);
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
    const there = times.filter((/** @type {any} */ each) => (back ? each.time < after : each.time > after));
    return there[back ? there.length - 1 : 0] ?? { time: null, text: `no ${kind} there in this report` };
  }

  async tour() {
    throw new SourceError(404, "a report has no tour");
  }

  live() {
    return () => {};
  }
}

/** @param {number} level */
function embeddedColumn(level) {
  return 2 ** level;
}

/**
 * A part of a coarse tile in the columns of a finer one.
 * @param {any} values @param {number} skip @param {number} wide
 */
function embeddedStretched(values, skip, wide) {
  const made = values.slice();
  for (let start = 0; start < values.length; start += EMBEDDED_COLUMNS) {
    for (let column = 0; column < EMBEDDED_COLUMNS; column += 1) {
      const from = Math.min(Math.floor(skip + column / wide + 1e-9), EMBEDDED_COLUMNS - 1);
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
 * Of what the page holds, the one that shares most with the asked span: it says what it is of.
 * @param {EmbeddedSpan[] | undefined} held @param {{from: number, to: number}} asked @param {string} none
 * @returns {any}
 */
function embeddedNearest(held, asked, none) {
  let best = null;
  let most = -1;
  for (const each of held ?? []) {
    const shared = Math.max(0, Math.min(asked.to, each.to) - Math.max(asked.from, each.from));
    const whole = Math.max(asked.to, each.to) - Math.min(asked.from, each.from);
    const score = whole > 0 ? shared / whole : 0;
    if (score > most) {
      most = score;
      best = each;
    }
  }
  if (best === null) throw new SourceError(404, none);
  const note = most > 0.99 ? "" : `this report holds ${embeddedClock([best.from, best.to])} only, not what was chosen`;
  const said = embeddedNotes(note, best.document.note);
  return { ...best.document, from: best.from, to: best.to, baseline: best.baseline ?? null, note: said };
}

/** @param {(string | undefined)[]} notes */
function embeddedNotes(...notes) {
  return notes.filter(Boolean).join(" · ");
}

/** @param {number[]} span */
function embeddedClock(span) {
  const told = span.map((each) => new Date(each * 1000).toISOString().slice(11, 19));
  return `${told[0]} to ${told[1]} UTC`;
}

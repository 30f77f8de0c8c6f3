// @ts-check
// Tiles: which level a zoom needs, what is loaded, what is pending, what to request next. A finished
// tile never changes, so it is kept as long as there is room.

/** @typedef {{lane: string, level: number, first: number, count: number, columns: number, names: string[],
 *   channels: string[], planes: Record<string, any>, most: Record<string, number>}} Strip */
/** @typedef {{strip: Strip, index: number, offset: number, start: number, column: number, used: number, bytes: number, isOld: boolean,
 *   bitmaps: Map<string, HTMLCanvasElement>, stalls: Map<string, number[]>}} Tile */
/** @typedef {{tile: Tile | null, start: number, end: number}} Piece */

export const TILE_COLUMNS = 256;
const MOST_BYTES = 100e6, MOST_FAILURES = 2;
/** Milliseconds after which a failed tile may be requested again. */
const FORGIVEN_AFTER = 10e3;
/** Stacks are decoded minutes after they were taken: tiles that ended this many seconds ago are requested again, at most once per so many milliseconds. */
const LATE_SECONDS = 600, LATE_EVERY = 15e3;
/** Concurrent requests: a browser has six connections, and a lane that the server has yet to read must
 *  delay neither the cores nor everything else. */
const MOST_PENDING = 5, MOST_PENDING_HEAT = 2;

/** @param {number} level @returns {number} seconds */
export function columnSeconds(level) {
  return level < 0 ? 0.02 : 2 ** level;
}

/** @param {number} level @returns {number} seconds */
export function tileSeconds(level) {
  return columnSeconds(level) * TILE_COLUMNS;
}

/** A column is one to two pixels wide; stacks get their finest level only when 20 ms are visible.
 *  @param {number[]} levels least and most @param {number} perPixel seconds */
export function levelFor(levels, perPixel) {
  if (levels[0] < 0 && perPixel < 0.01) return -1;
  const wanted = Math.ceil(Math.log2(Math.max(perPixel, 1e-6)) - 1e-9);
  return Math.max(Math.min(Math.max(wanted, 0), levels[1]), Math.max(levels[0], 0));
}

const READERS = { uint8: Uint8Array, uint16: Uint16Array, float32: Float32Array };

/** @param {any} text base64, or numbers already @param {string} dtype @returns {any} a typed array */
export function numbersOf(text, dtype) {
  if (typeof text !== "string") return text;
  const Kind = READERS[/** @type {keyof typeof READERS} */ (dtype)];
  const direct = /** @type {any} */ (Uint8Array).fromBase64;
  if (direct) return new Kind(direct.call(Uint8Array, text).buffer);
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  return new Kind(bytes.buffer);
}

export class TileCache {
  /** @param {any} source @param {{start: number, end: number}} whole @param {(lane: string) => void} arrived @param {(lane: string, why: string) => void} refused */
  constructor(source, whole, arrived, refused) {
    this.source = source;
    this.whole = whole;
    this.arrived = arrived;
    this.refused = refused;
    this.bytes = 0;
    /** @type {Map<string, Tile>} */ this.held = new Map();
    /** @type {Map<string, {lane: string, heat: boolean, level: number, first: number, last: number, most: number, start: number, end: number}>} */ this.wanted = new Map();
    /** @type {Map<string, {keys: string[], heat: boolean, stop: AbortController}>} */ this.pending = new Map();
    /** Number and time of failures. @type {Map<string, {times: number, at: number}>} */ this.failed = new Map();
    /** Lanes whose data comes late. @type {Set<string>} */ this.late = new Set();
    this.lateAsked = -Infinity;
    /** Series by lane, as the last answer names them. @type {Map<string, string[]>} */ this.names = new Map();
    this.timer = 0;
    this.clock = 0;
  }

  /** @param {string} lane @param {number} level @param {number} index */
  key(lane, level, index) {
    return lane + " " + level + " " + index;
  }

  /** @param {string} lane @param {number} level @param {number} index @returns {Tile | undefined} */
  get(lane, level, index) {
    const found = this.held.get(this.key(lane, level, index));
    if (found) found.used = ++this.clock;
    return found;
  }

  /** The tiles that cover a span: of this level, else the nearest coarser or finer ones, else none yet.
   *  @param {string} lane @param {number} level @param {number} start @param {number} end @param {number} top @returns {Piece[]} */
  cover(lane, level, start, end, top) {
    const seconds = tileSeconds(level), pieces = [];
    for (let index = Math.floor(start / seconds); index * seconds < end; index++) {
      const from = Math.max(start, index * seconds), to = Math.min(end, (index + 1) * seconds);
      const tile = this.get(lane, level, index);
      if (tile) pieces.push({ tile, start: from, end: to });
      else pieces.push(...this.instead(lane, level, from, to, top));
    }
    return pieces;
  }

  /** @param {string} lane @param {number} level @param {number} from @param {number} to @param {number} top @returns {Piece[]} */
  instead(lane, level, from, to, top) {
    for (let up = level + 1; up <= top; up++) {
      const tile = this.get(lane, up, Math.floor((from + 1e-6) / tileSeconds(up)));
      // A coarser tile may end before the finer one does only below one second.
      if (tile && tile.start + tileSeconds(up) >= to - 1e-6) return [{ tile, start: from, end: to }];
    }
    if (level >= 1) {
      const seconds = tileSeconds(level - 1), first = Math.floor((from + 1e-6) / seconds);
      const found = [];
      for (let index = first; index * seconds < to - 1e-6; index++) {
        const tile = this.held.get(this.key(lane, level - 1, index)) || null;
        found.push({ tile, start: Math.max(from, index * seconds), end: Math.min(to, (index + 1) * seconds) });
      }
      if (found.some((entry) => entry.tile)) return found;
    }
    return [{ tile: null, start: from, end: to }];
  }

  /** Registers the tiles a lane or the overview needs; requested a little later, in one batch.
   *  @param {string} owner @param {import("./source.js").LaneAbout} about @param {number} level @param {import("../axis.js").Span} span */
  want(owner, about, level, span) {
    const { start, end } = span, most = Math.min(about.most_tiles || 8, 8);
    const seconds = tileSeconds(level);
    const first = Math.floor(Math.max(start, this.whole.start) / seconds);
    const last = Math.floor(Math.min(end, this.whole.end) / seconds);
    const before = this.wanted.get(owner);
    const isSame = before && before.level === level && before.first === first && before.last === last;
    if (before && isSame && before.start === start && before.end === end) return;
    if (about.kind === "stacks") this.late.add(about.id);
    this.wanted.set(owner, { lane: about.id, heat: about.kind === "heat", level, first, last, most, start, end });
    if (this.forgive() || !isSame) this.later(this.held.size ? 25 : 0);
  }

  /** When the view or the recording moves, tiles that failed a while ago get one more try. @returns {boolean} does anything? */
  forgive() {
    let any = false;
    for (const failed of this.failed.values()) {
      if (failed.times <= MOST_FAILURES || performance.now() - failed.at < FORGIVEN_AFTER) continue;
      failed.times = MOST_FAILURES;
      any = true;
    }
    return any;
  }

  /** @param {string} key */
  isRefused(key) {
    return (this.failed.get(key)?.times || 0) > MOST_FAILURES;
  }

  /** @param {string} owner */
  unwant(owner) {
    if (this.wanted.delete(owner)) this.later(25);
  }

  /** @param {number} wait milliseconds */
  later(wait) {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.ask(), wait);
  }

  ask() {
    const wanted = new Set();
    for (const want of this.wanted.values()) {
      for (let index = want.first; index <= want.last; index++) wanted.add(this.key(want.lane, want.level, index));
    }
    for (const [name, pending] of this.pending) {
      if (pending.keys.some((key) => wanted.has(key))) continue;
      pending.stop.abort();
      this.pending.delete(name);
    }
    const coming = new Set([...this.pending.values()].flatMap((pending) => pending.keys));
    for (const want of this.wanted.values()) {
      const { lane, heat } = want, most = heat ? MOST_PENDING_HEAT : MOST_PENDING;
      for (let index = want.first; index <= want.last; index++) {
        if ([...this.pending.values()].filter((pending) => pending.heat === heat).length >= most) break;
        const key = this.key(lane, want.level, index);
        if (this.isFresh(key) || coming.has(key) || this.isRefused(key)) continue;
        let count = 1;
        while (count < want.most && index + count <= want.last && !this.isFresh(this.key(lane, want.level, index + count))
          && !coming.has(this.key(lane, want.level, index + count))) count++;
        this.fetch(want, index, count);
        for (const last = index + count; index < last; index++) coming.add(this.key(lane, want.level, index));
        index--;
      }
    }
  }

  /** @param {{lane: string, level: number, heat: boolean}} want @param {number} first @param {number} count */
  async fetch({ lane, level, heat }, first, count) {
    const stop = new AbortController(), name = this.key(lane, level, first) + " " + count;
    const keys = Array.from({ length: count }, (_, at) => this.key(lane, level, first + at));
    this.pending.set(name, { keys, heat, stop });
    try {
      this.take(await this.source.strip(lane, level, first, count, stop.signal));
      this.arrived(lane);
    } catch (fault) {
      if (/** @type {Error} */ (fault).name !== "AbortError") {
        for (const key of keys) this.failed.set(key, { times: (this.failed.get(key)?.times || 0) + 1, at: performance.now() });
        if (keys.some((key) => this.isRefused(key))) this.refused(lane, /** @type {Error} */ (fault).message);
        this.later(500);
        this.arrived(lane);
      }
    } finally {
      this.pending.delete(name);
      this.ask();
    }
  }

  /** @param {import("./source.js").StripDocument} reply */
  take(reply) {
    /** @type {Record<string, any>} */ const planes = {};
    for (const [name, text] of Object.entries(reply.planes)) planes[name] = numbersOf(text, reply.dtype);
    if (!planes.mean) planes.mean = Object.values(planes)[0];
    if (!planes.peak) planes.peak = planes.mean;
    const columns = reply.columns || TILE_COLUMNS * reply.count;
    const strip = {
      lane: reply.lane, level: reply.level, first: reply.first, count: reply.count, columns, planes,
      names: reply.names, channels: reply.channels && reply.channels.length ? reply.channels : [""], most: {},
    };
    const bytes = Object.values(planes).reduce((sum, plane) => sum + plane.byteLength, 0) / reply.count;
    if (reply.names.length) this.names.set(reply.lane, reply.names);
    for (let at = 0; at < reply.count; at++) {
      const index = reply.first + at, key = this.key(reply.lane, reply.level, index);
      this.bytes += bytes - (this.held.get(key)?.bytes || 0);
      this.failed.delete(key);
      this.held.set(key, {
        strip, index, offset: at * TILE_COLUMNS, start: index * tileSeconds(reply.level),
        column: columnSeconds(reply.level), used: ++this.clock, bytes, isOld: false, bitmaps: new Map(), stalls: new Map(),
      });
    }
    if (this.bytes > MOST_BYTES) this.forget();
  }

  forget() {
    const oldest = [...this.held].sort((one, other) => one[1].used - other[1].used);
    for (const [key, tile] of oldest) {
      if (this.bytes < MOST_BYTES * 0.8) return;
      this.held.delete(key);
      this.bytes -= tile.bytes;
    }
  }

  /** @param {string} key */
  isFresh(key) {
    const tile = this.held.get(key);
    return tile !== undefined && !tile.isOld;
  }

  /** The recording grew: unfinished tiles are requested again, and shown until the new ones arrive.
   *  @param {number} from @param {number} to */
  moved(from, to) {
    this.whole.end = to;
    const now = performance.now(), isDue = now - this.lateAsked >= LATE_EVERY;
    if (isDue) this.lateAsked = now;
    for (const tile of this.held.values()) {
      const since = isDue && this.late.has(tile.strip.lane) ? Math.min(from - 2, to - LATE_SECONDS) : from - 2;
      if (tile.start + tile.column * TILE_COLUMNS > since) tile.isOld = true;
    }
    this.forgive();
    this.later(0);
  }

  /** Are all tiles of a span loaded? @param {import("./source.js").LaneAbout} about @param {number} level @param {import("../axis.js").Span} span */
  has(about, level, span) {
    const seconds = tileSeconds(level), end = Math.min(span.end, this.whole.end);
    for (let index = Math.floor(Math.max(span.start, this.whole.start) / seconds); index * seconds < end; index++) {
      if (!this.isFresh(this.key(about.id, level, index))) return false;
    }
    return true;
  }

  /** Is anything of this lane being loaded? @param {string} lane */
  isComing(lane) {
    return [...this.pending.keys()].some((name) => name.startsWith(lane + " "));
  }
}

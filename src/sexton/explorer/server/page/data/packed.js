// @ts-check
// The stacks of a short capture, embedded in the page: one count per column of time, core and stack.
// From these any range, core and task gets its flame graph and its functions without a server.

/** @typedef {{first: number, column: number, cores: (number | null)[], depth: number[], name: number[], module: number[],
 *   kind: string[], names: string[], modules: string[], entries: number, packed: string}} PackedDocument */
/** @typedef {{from: number, to: number, cpu?: string, task?: string, function?: string}} PackedQuery */

/** Slices of time, and the smallest share of a box that is drawn. */
const ORDERED_SLICES = 200, ORDERED_SHARE = 1 / 4000;

/** Cores of a list like "0,3-5". @param {string} text @returns {Set<number>} */
export function coresOf(text) {
  const cores = new Set();
  for (const part of text.split(",")) {
    const [first, last] = part.split("-").map(Number);
    for (let core = first; core <= (last ?? first); core++) cores.add(core);
  }
  return cores;
}

export class PackedStacks {
  /** @param {PackedDocument} stacks */
  constructor(stacks) {
    this.stacks = stacks;
    /** @type {{column: Uint32Array, core: Int32Array, node: Uint32Array, count: Float64Array} | null} */ this.entries = null;
  }

  /** Keys are varint differences, each followed by its count. */
  decoded() {
    if (this.entries) return this.entries;
    const { packed, entries, depth, cores } = this.stacks;
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const column = new Uint32Array(entries), core = new Int32Array(entries), node = new Uint32Array(entries), count = new Float64Array(entries);
    let at = 0, key = 0;
    const next = () => {
      let value = 0, scale = 1, byte;
      do { byte = bytes[at++]; value += (byte & 127) * scale; scale *= 128; } while (byte & 128);
      return value;
    };
    for (let entry = 0; entry < entries; entry++) {
      key += next();
      count[entry] = next();
      node[entry] = key % depth.length;
      core[entry] = Math.floor(key / depth.length) % cores.length;
      column[entry] = Math.floor(key / depth.length / cores.length);
    }
    return this.entries = { column, core, node, count };
  }

  /** The range in whole columns. @param {PackedQuery} query @returns {{from: number, to: number}} */
  rangeOf({ from, to }) {
    const { first, column } = this.stacks;
    const low = Math.floor((from - first) / column + 1e-6), high = Math.max(Math.ceil((to - first) / column - 1e-6), low + 1);
    return { from: first + low * column, to: first + high * column };
  }

  /** @param {PackedQuery} query @param {(node: number, count: number, place: number) => void} take selected entries, with their place in the range, 0 to 1 */
  visit(query, take) {
    const { first, column, cores } = this.stacks, entries = this.decoded();
    const range = this.rangeOf(query), low = Math.round((range.from - first) / column), high = Math.round((range.to - first) / column);
    const chosen = query.cpu ? coresOf(query.cpu) : null;
    const wanted = cores.map((core) => core === null || !chosen || chosen.has(core));
    const tasks = query.task ? this.nodesOf(query.task) : null;
    for (let at = 0; at < entries.node.length; at++) {
      const here = entries.column[at], node = entries.node[at];
      if (here >= low && here < high && wanted[entries.core[at]] && (!tasks || tasks[node])) take(node, entries.count[at], (here - low) / (high - low));
    }
  }

  /** Samples that end in each node; with a function, only those of stacks that contain it. @param {PackedQuery} query @returns {Float64Array} */
  own(query) {
    const own = new Float64Array(this.stacks.depth.length);
    this.visit(query, (node, count) => { own[node] += count; });
    if (query.function) this.inside(query.function).forEach((isInside, at) => { if (!isInside) own[at] = 0; });
    return own;
  }

  /** Per node: is it the function, or called by it? @param {string} text its name @returns {boolean[]} */
  inside(text) {
    const { depth, name, names } = this.stacks;
    let from = Infinity;
    return depth.map((level, at) => {
      if (level <= from) from = level > 0 && names[name[at]] === text ? level : Infinity;
      return level >= from;
    });
  }

  /** Nodes below tasks whose name contains the text. @param {string} text @returns {boolean[]} */
  nodesOf(text) {
    const { depth, kind, name, names } = this.stacks;
    let inside = false;
    return depth.map((level, at) => {
      if (level <= 1) inside = kind[at] === "task" && names[name[at]].includes(text);
      return inside;
    });
  }

  /** @param {Float64Array} own @returns {{totals: Float64Array, parents: number[]}} */
  summed(own) {
    const { depth } = this.stacks, totals = own.slice(), line = [], parents = [];
    for (let at = 0; at < own.length; at++) {
      line.length = depth[at];
      parents.push(depth[at] ? line[depth[at] - 1] : -1);
      if (own[at]) for (const above of line) totals[above] += own[at];
      line.push(at);
    }
    return { totals, parents };
  }

  /** A `sexton.flame/1` document, against a baseline if there is one. @param {PackedQuery} query @param {PackedQuery | null} baseline */
  flame(query, baseline) {
    const { name, module, kind, names, modules } = this.stacks, own = this.own(query), { totals, parents } = this.summed(own);
    const before = baseline ? this.summed(this.own(baseline)).totals : null;
    /** @type {number[]} */ const kept = [], place = [];
    totals.forEach((total, at) => { if (total > 0 || (before && before[at] > 0)) { place[at] = kept.length; kept.push(at); } });
    const pick = (/** @type {ArrayLike<any>} */ of) => kept.map((at) => of[at]);
    /** @type {Record<string, any[]>} */ const nodes = {
      parent: kept.map((at) => (parents[at] < 0 ? -1 : place[parents[at]])),
      name: pick(name), module: pick(module), kind: pick(kind), samples: pick(totals), own: pick(own),
    };
    if (before) nodes.before = pick(before);
    const document = { schema: "sexton.flame/1", names, modules, nodes, total: totals[0] || 0, before: before ? before[0] : null, core_seconds: null, pruned: 0 };
    if (!query.function) return document;
    const count = (/** @type {PackedQuery} */ of) => this.own({ ...of, function: undefined }).reduce((sum, samples) => sum + samples, 0);
    return { ...document, all: count(query), all_before: baseline && count(baseline) };
  }

  /** The same in the order of time, as the server makes it: equal stacks are one box only while they follow one another. @param {PackedQuery} query */
  ordered(query) {
    const { name, module, kind, names, modules, depth } = this.stacks, { totals, parents } = this.summed(this.own(query)), total = totals[0] || 0;
    /** @type {Map<number, number>[]} */ const slices = Array.from({ length: ORDERED_SLICES }, () => new Map());
    this.visit(query, (node, count, place) => {
      while (node > 0 && totals[node] < total * ORDERED_SHARE) node = parents[node];
      const slice = slices[Math.floor(place * ORDERED_SLICES)];
      slice.set(node, (slice.get(node) || 0) + count);
    });
    const { from, to } = this.rangeOf(query), ends = depth.map((_, at) => at + 1);
    for (let at = depth.length - 1; at > 0; at--) ends[parents[at]] = Math.max(ends[parents[at]], ends[at]);
    /** @type {{node: number, parent: number, samples: number, own: number, start: number, seen: number}[]} */ const made = [{ node: 0, parent: -1, samples: 0, own: 0, start: from, seen: 0 }];
    /** The open boxes from the root on, as indexes into `made`. */ let open = [0];
    slices.forEach((slice, at) => {
      // The order within a slice is unknown: open boxes first, and callees before the samples of their caller itself.
      const before = open, common = (/** @type {number} */ node) => before.filter((box) => made[box].node <= node && node < ends[made[box].node]).length;
      for (const [node, count] of [...slice].sort(([one], [other]) => common(other) - common(one) || ends[one] - ends[other] || other - one)) {
        const level = depth[node];
        if (level < open.length && made[open[level]].node === node) {
          if (level + 1 < open.length && made[open[level + 1]].seen !== at) open = open.slice(0, level + 1);
        } else {
          const path = [];
          for (let above = node; above >= 0; above = parents[above]) path[depth[above]] = above;
          let same = 1;
          while (same < path.length && same < open.length && made[open[same]].node === path[same]) same++;
          open = open.slice(0, same);
          for (const below of path.slice(same)) {
            made.push({ node: below, parent: open[open.length - 1], samples: 0, own: 0, start: from + (to - from) * at / ORDERED_SLICES, seen: at });
            open.push(made.length - 1);
          }
        }
        for (const box of open.slice(0, level + 1)) { made[box].samples += count; made[box].seen = at; }
        made[open[level]].own += count;
      }
    });
    /** @type {number[]} */ const place = [];
    let number = 0;
    const kept = made.filter((box, at) => {
      const isWide = at === 0 || box.samples >= total * ORDERED_SHARE;
      if (isWide) place[at] = number++;
      return isWide;
    });
    return { schema: "sexton.flame/1", names, modules, total, before: null, core_seconds: null, pruned: made.length - kept.length,
      nodes: { parent: kept.map((box) => (box.parent < 0 ? -1 : place[box.parent])), name: kept.map((box) => name[box.node]), module: kept.map((box) => module[box.node]), kind: kept.map((box) => kind[box.node]),
        samples: kept.map((box) => box.samples), own: kept.map((box) => box.own), start: kept.map((box) => box.start) } };
  }

  /** A `sexton.functions/1` document; a recursive function counts once per stack. @param {PackedQuery} query @param {number} most */
  functions(query, most) {
    const { name, module, kind, names, modules, depth } = this.stacks, own = this.own(query), { totals } = this.summed(own);
    /** @type {Map<string, any>} */ const rows = new Map();
    const line = [];
    for (let at = 1; at < own.length; at++) {
      line.length = depth[at];
      const key = `${name[at]} ${module[at]}`, seen = line.includes(key);
      line[depth[at]] = key;
      if (!totals[at] || kind[at] === "task") continue;
      const row = rows.get(key) || { name: names[name[at]], module: modules[module[at]], kind: kind[at], self: 0, total: 0, share: null };
      row.self += own[at];
      if (!seen) row.total += totals[at];
      rows.set(key, row);
    }
    const samples = totals[0] || 0, sorted = [...rows.values()].sort((one, other) => other.self - one.self || other.total - one.total);
    for (const row of sorted) row.share = samples ? row.self / samples : null;
    return { schema: "sexton.functions/1", rows: sorted.slice(0, most), samples, left_out: Math.max(sorted.length - most, 0) };
  }
}

// @ts-check
// The data source of the page: a server. `embedded.js` has the one for HTML files.

/** @typedef {{id: string, title: string, kind: string, unit: string, about: string, series: string[],
 *   channels?: string[], levels: number[], limit?: number | null, most_tiles?: number}} LaneAbout */
/** @typedef {{schema: string, id?: string, node: any, start: number, end: number, live: boolean,
 *   lanes: LaneAbout[], finding_lanes: Record<string, string[]>, gaps: number[][], problems?: string[], tour?: boolean, clock?: {offset: number, zone: string, relative: boolean}}} RecordingAbout */
/** @typedef {{lane: string, level: number, first: number, count: number, columns: number, names: string[],
 *   dtype: string, planes: Record<string, any>, channels: string[]}} StripDocument */
/** @typedef {{from: number, to: number, cpu?: string, task?: string, cgroup?: string,
 *   baseline_from?: number, baseline_to?: number, function?: string, order?: string, quick?: number}} FlameQuery */

/** @typedef {{end: number, live?: boolean, lanes?: number}} LiveEvent */

/** An error response of the server. */
export class SourceError extends Error {
  /** @param {number} status @param {string} text */
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export class FetchSource {
  constructor() {
    this.of = "";
    /** The data may change while the page is open. */ this.follows = true;
    /** Has it flame graphs in the order of time? */ this.inOrder = true;
  }

  /** @param {string} path @param {Record<string, any>} [query] @param {AbortSignal} [signal] @returns {Promise<any>} */
  async ask(path, query = {}, signal = undefined) {
    const words = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined && value !== null && value !== "") words.set(name, String(value));
    }
    const address = words.size ? `api/${path}?${words}` : `api/${path}`;
    for (let attempt = 0; ; attempt++) {
      const answer = await fetch(address, { signal }).catch((/** @type {Error} */ fault) => {
        throw fault.name === "AbortError" ? fault : new SourceError(0, "the server is not responding");
      });
      if (answer.ok) return answer.json();
      if (answer.status === 503 && attempt < 20) {
        const seconds = Number(answer.headers.get("Retry-After")) || 1;
        await new Promise((go) => setTimeout(go, Math.min(seconds, 2) * 1000));
        if (signal && signal.aborted) throw new DOMException("superseded", "AbortError");
        continue;
      }
      const reply = await answer.json().catch(() => ({}));
      throw new SourceError(answer.status, reply.error || `the server returned ${answer.status}`);
    }
  }

  /** @returns {Promise<RecordingAbout>} */
  async recording() {
    const about = await this.ask("recording");
    this.of = about.id || "";
    return about;
  }

  /** @param {string} lane @param {number} level @param {number} first @param {number} count @param {AbortSignal} [signal] @returns {Promise<StripDocument>} */
  strip(lane, level, first, count, signal) {
    return this.ask("strip/" + encodeURIComponent(lane), { level, first, count, of: this.of }, signal);
  }

  /** @param {number} from @param {number} to @param {AbortSignal} [signal] */
  marks(from, to, signal) {
    return this.ask("marks", { from, to }, signal);
  }

  /** @param {string} lane @param {number} from @param {number} to @param {AbortSignal} [signal] */
  table(lane, from, to, signal) {
    return this.ask("table/" + encodeURIComponent(lane), { from, to }, signal);
  }

  /** @param {FlameQuery} query @param {AbortSignal} [signal] */
  flame(query, signal) {
    return this.ask("flame", query, signal);
  }

  /** @param {FlameQuery} query @param {AbortSignal} [signal] */
  functions(query, signal) {
    return this.ask("functions", query, signal);
  }

  /** @param {number} from @param {number} to @param {AbortSignal} [signal] */
  explain(from, to, signal) {
    return this.ask("explain", { from, to }, signal);
  }

  /** @param {string} kind @param {number} after @param {boolean} back */
  next(kind, after, back) {
    return this.ask("next", { kind, after, back: back ? 1 : 0 });
  }

  tour() {
    return this.ask("tour");
  }

  /** @param {(event: LiveEvent) => void} moved @param {() => void} lost the recorder has stopped */
  live(moved, lost) {
    const stream = new EventSource("api/live");
    stream.addEventListener("message", (event) => moved(JSON.parse(event.data)));
    stream.addEventListener("error", () => { if (stream.readyState === EventSource.CLOSED) lost(); });
    return () => stream.close();
  }
}

// @ts-check
// Searching names: plain words, or a pattern between slashes. Text without slashes is tried as both.

/** Milliseconds a pattern may take for all names; limits on its repeats, so that one name cannot take longer. */
const PATTERN_MS = 50, PATTERN_COST = 8, REPEAT_COST = 3;
const SPECIAL = /[\\^$.*+?()[\]{}|]/;

/** The text as a regular expression; `null` if it is none, or one that could backtrack for hours:
 *  a repeat of a group with repeats or alternatives, too many of either, or a backreference.
 *  @param {string} text @returns {RegExp | null} */
export function patternOf(text) {
  /** Per open group: has it repeats or alternatives? @type {boolean[]} */ const open = [];
  let cost = 0, wasBusy = false, isRepeated = false;
  const parts = text.match(/\\.|\[(?:\\.|[^\]\\])*\]|\((?:\?(?:[:=!]|<[=!]|<\w+>))?|\{\d+(?:,\d*)?\}|[^]/g) || [];
  for (const part of parts) {
    const isRepeat = part === "*" || part === "+" || (part.startsWith("{") && part.length > 1);
    if (/^\\[1-9k]/.test(part) || (isRepeat && wasBusy)) return null;
    if (isRepeat || (part === "?" && !isRepeated) || (part === "|" && open.length)) {
      cost += isRepeat ? REPEAT_COST : 1;
      open.fill(true);
    }
    if (part.startsWith("(")) open.push(false);
    wasBusy = part === ")" && (open.pop() || false);
    isRepeated = isRepeat || (part === "?" && !isRepeated);
  }
  if (!text || cost > PATTERN_COST) return null;
  try { return new RegExp(text, "i"); }
  catch { return null; }
}

/** Start and end of the match in each name; `isPlain` if what looks like a pattern was taken as words.
 *  @typedef {{found: Map<string, [number, number]>, isPlain: boolean}} NameSearch */

/** Upper and lower case are the same. @param {Iterable<string>} names @param {string} text @param {boolean} mayBePattern @returns {NameSearch} */
export function searchNames(names, text, mayBePattern) {
  const listed = [...names], slashes = /^\/(.+)\/$/.exec(text), words = slashes ? slashes[1] : text;
  const pattern = mayBePattern && (slashes || SPECIAL.test(words)) ? patternOf(words) : null, matched = pattern && matchedNames(listed, pattern);
  if (matched && slashes) return { found: matched, isPlain: false };
  const found = matched || new Map(), wanted = words.toLowerCase();
  for (const name of listed) {
    const at = wanted ? name.toLowerCase().indexOf(wanted) : -1;
    if (at >= 0) found.set(name, [at, at + wanted.length]);
  }
  return { found, isPlain: !matched && (SPECIAL.test(words) || slashes !== null) };
}

/** @param {string[]} names @param {RegExp} pattern @returns {Map<string, [number, number]> | null} `null` if that takes too long */
function matchedNames(names, pattern) {
  const until = performance.now() + PATTERN_MS, found = new Map();
  for (const name of names) {
    const hit = pattern.exec(name);
    if (hit) found.set(name, [hit.index, hit.index + hit[0].length]);
    if (performance.now() > until) return null;
  }
  return found;
}

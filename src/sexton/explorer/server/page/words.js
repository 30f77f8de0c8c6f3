// @ts-check
// Times, spans and numbers as text. Times are UTC, as everywhere in Sexton, except in the page of a
// capture, whose data has its own offset and zone.

/** Seconds to add to a time before it is shown, and the name of the zone. */
const shownClock = { offset: 0, zone: "UTC", relative: false };

/** @param {Partial<typeof shownClock>} clock */
export function setClock(clock) {
  Object.assign(shownClock, clock);
}

/** @returns {string} the zone's name, to put after a time */
export function zoneText() {
  return shownClock.relative ? "from the start" : shownClock.zone;
}

/** @param {number} time @param {number} [step] seconds between neighbours, for the precision
 *  @returns {string} */
export function clockText(time, step = 1) {
  const shown = time + shownClock.offset;
  if (shownClock.relative) return `+${shown.toFixed(step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3)} s`;
  const iso = new Date(Math.round(shown * 1000)).toISOString();
  if (step >= 1) return iso.slice(11, 19);
  return iso.slice(11, step >= 0.1 ? 21 : step >= 0.01 ? 22 : 23);
}

/** @param {number} time @returns {string} the day */
export function dayText(time) {
  return shownClock.relative ? "" : new Date((time + shownClock.offset) * 1000).toISOString().slice(0, 10);
}

/** @param {number} seconds @returns {string} */
export function spanText(seconds) {
  if (seconds < 0.9995) return Math.round(seconds * 1000) + " ms";
  if (seconds < 60) return (seconds < 10 ? seconds.toFixed(1) : String(Math.round(seconds))) + " s";
  const whole = Math.round(seconds);
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60, rest = whole % 60;
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${rest} s`;
}

/** @param {number} start @param {number} end @returns {string} */
export function fromToText(start, end) {
  const step = end - start < 20 ? 0.01 : 1;
  return `${clockText(start, step)} – ${clockText(end, step)}`;
}

/** Exact up to four figures; absent is never shown as zero.
 *  @param {number | null | undefined} value @returns {string} */
export function numberText(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) {
    const [unit, name] = size >= 1e9 ? [1e9, "G"] : [1e6, "M"];
    return grouped(Number((value / unit).toPrecision(4))) + " " + name;
  }
  if (size >= 1000) return grouped(Math.round(value));
  if (Number.isInteger(value)) return String(value);
  return String(Number(value.toPrecision(3)));
}

/** With commas; a browser's own formatting is too slow for the readings of every frame. @param {number} value @returns {string} */
function grouped(value) {
  const [whole, part] = String(value).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? "." + part : "");
}

/** A number with its noun. @param {number} count @param {string} one the singular @returns {string} */
export function countText(count, one) {
  return `${numberText(count)} ${one}${count === 1 ? "" : "s"}`;
}

/** A number with its unit from the catalogue of metrics; "% of a core" is shortened to "%".
 *  @param {string} text the number @param {string} unit @returns {string} */
export function withUnit(text, unit) {
  const [short] = unit.split(/ (?:of|in) /);
  if (!short || text === "–") return text;
  if (short === "bytes" && / [MG]$/.test(text)) return text + "B";
  if (short.startsWith("/")) return text + short;
  return `${text} ${text === "1" && /^[a-z]{3,}s$/.test(short) ? short.slice(0, -1) : short}`;
}

/** @param {number} share 0 to 1 @returns {string} */
export function percentText(share) {
  return (100 * share).toFixed(share > 0 && share < 0.01 ? 2 : 1) + " %";
}

/** An element with text, which is never parsed as HTML.
 *  @param {string} tag @param {string} [name] class @param {string} [text] @returns {HTMLElement} */
export function element(tag, name = "", text = "") {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text) made.textContent = text;
  return made;
}

/** @param {string} id @returns {any} the element of the page's shell */
export function byId(id) {
  return document.getElementById(id);
}

/** Cut to a width, with an ellipsis. @param {string} text @param {number} most letters */
export function shortened(text, most) {
  const letters = Array.from(text);
  return letters.length <= most ? text : letters.slice(0, Math.max(most - 1, 1)).join("") + "…";
}

/** Sets text only if it differs: a write makes a browser lay out again. @param {HTMLElement} of @param {string} text */
export function setText(of, text) {
  if (of.textContent !== text) of.textContent = text;
}

// @ts-check
// The colours that a canvas draws with.

import {COLOURS} from "./colours.js";

/** @typedef {{name: string, paper: string, card: string, ink: string, soft: string, filled: string, hatch: string,
 *   hatchOn: string, loading: string, outside: string, zero: number[], mark: string,
 *   channels: Record<string, string>, series: string[], severity: Record<string, string>,
 *   ramp: number[][]}} Look */

/** @param {string} hex "rrggbb" @returns {number[]} */
export function rgbOf(hex) {
  const from = hex.startsWith("#") ? 1 : 0;
  return [0, 2, 4].map((at) => parseInt(hex.slice(from + at, from + at + 2), 16));
}

/** @param {string[]} anchors @returns {number[][]} 64 colours */
function rampOf(anchors) {
  const points = anchors.map(rgbOf), made = [];
  for (let step = 0; step < 64; step++) {
    const place = step / 63 * (points.length - 1), low = Math.min(Math.floor(place), points.length - 2);
    made.push(points[low].map((entry, at) => Math.round(entry + (points[low + 1][at] - entry) * (place - low))));
  }
  return made;
}

const night = window.matchMedia("(prefers-color-scheme: dark)");

/** Applies a theme; its colours are those of colours.css. @param {string} chosen "light", "dark" or "" for what the system prefers @returns {Look} */
export function lookOf(chosen) {
  const name = chosen || (night.matches ? "dark" : "light"), root = document.documentElement;
  root.dataset.theme = name;
  const style = getComputedStyle(root), of = (/** @type {string} */ colour) => style.getPropertyValue("--" + colour).trim();
  return {
    name, paper: of("back"), card: of("card"), ink: of("text"), soft: of("soft"), filled: of("filled"), mark: of("mark"),
    hatch: of("hatch"), hatchOn: of("hatch-on"), loading: of("loading"), outside: of("outside"), zero: rgbOf(of("zero")),
    channels: { user: of("user"), system: of("system"), softirq: of("softirq"), iowait_steal: of("waiting") },
    series: ["blue", "system", "green", "softirq", "warning", "sky", "soft", "violet"].map(of),
    severity: { critical: of("critical"), warning: of("warning"), info: of("possible") },
    ramp: rampOf(COLOURS.ramps[name === "dark" ? "dark" : "light"]),
  };
}

/** @param {() => void} changed */
export function watchNight(changed) {
  night.addEventListener("change", changed);
}

const SEMANTIC = { user: "user", system: "system", softirq: "softirq", iowait_steal: "iowait_steal", steal: "iowait_steal" };

/** Series with a known meaning have a fixed colour. @param {Look} look @param {string} name @param {number} at */
export function seriesColour(look, name, at) {
  const word = name.split(" ")[0].toLowerCase();
  const channel = SEMANTIC[/** @type {keyof typeof SEMANTIC} */ (word)];
  return channel ? look.channels[channel] : look.series[at % look.series.length];
}

/** @type {Map<string, CanvasPattern>} */
const hatches = new Map();

/** Diagonal lines: not recorded. @param {CanvasRenderingContext2D} pen @param {Look} look @param {number} ratio */
export function hatchOf(pen, look, ratio) {
  const key = look.name + ratio;
  let found = hatches.get(key);
  if (!found) {
    const size = Math.round(7 * ratio), tile = document.createElement("canvas");
    tile.width = tile.height = size;
    const draw = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
    draw.fillStyle = look.hatchOn;
    draw.fillRect(0, 0, size, size);
    draw.strokeStyle = look.hatch;
    draw.lineWidth = ratio;
    draw.beginPath();
    for (const shift of [-size, 0, size]) { draw.moveTo(shift, size); draw.lineTo(shift + size, 0); }
    draw.stroke();
    found = /** @type {CanvasPattern} */ (pen.createPattern(tile, "repeat"));
    hatches.set(key, found);
  }
  return found;
}

/** A hue per kind, a shade per name, as in the SVG files. @param {Look} look @param {string} kind @param {string} name */
export function frameColour(look, kind, name) {
  const [first, last, strong] = COLOURS.hues[/** @type {keyof typeof COLOURS.hues} */ (kind)] || COLOURS.hues.o;
  let sum = 0;
  for (let at = 0; at < name.length; at++) sum = (sum * 31 + name.charCodeAt(at)) >>> 0;
  const step = sum % COLOURS.shades, dark = look.name === "dark";
  const light = dark ? 33 + step * 7 % 9 : 66 + step * 7 % 9;
  return `hsl(${first + (last - first) * step / (COLOURS.shades - 1)} ${strong * (dark ? 0.62 : 1)}% ${light}%)`;
}

/** Red grew, blue shrank; no change has no hue, and a change that may be chance is pale. @param {Look} look @param {number} change of a share, -1 to 1 @param {boolean} sure */
export function changeColour(look, change, sure = true) {
  const dark = look.name === "dark", size = Math.abs(change), most = COLOURS.strengths.length + 1;
  if (size === 0) return dark ? COLOURS.neutral.dark : COLOURS.neutral.light;
  const step = (1 + COLOURS.strengths.filter((entry) => size > entry).length) / most;
  const tone = dark ? 26 + 14 * step : 92 - 30 * step, strong = dark ? 22 + 48 * step : 45 + 45 * step;
  return `hsl(${change > 0 ? COLOURS.grew : COLOURS.shrank} ${strong}% ${tone}%${sure ? "" : ` / ${COLOURS.pale}`})`;
}

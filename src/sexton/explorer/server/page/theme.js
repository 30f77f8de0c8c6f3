// @ts-check
// Colours. Okabe and Ito's for what is told apart by hue, ramps whose lightness alone tells the
// order. What was not recorded is hatched, what is on its way is plain, zero is a colour.

/** @typedef {{name: string, paper: string, card: string, ink: string, soft: string, line: string, hatch: string,
 *   hatchOn: string, loading: string, outside: string, zero: number[], mark: string,
 *   channels: Record<string, string>, series: string[], severity: Record<string, string>,
 *   ramp: number[][], strength: Record<string, string>}} Look */

/** The reports' ramps, without their idle. */
const RAMP_LIGHT = ["fff0d2", "fddca4", "f9b668", "f08544", "d95045", "a92a5c", "64176a", "250a47"];
const RAMP_DARK = ["3b1f63", "6a1f7c", "9c2a74", "cb3e5c", "ee623e", "fa942a", "fbc84b", "fdf3b0"];

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
    made.push(points[low].map((each, at) => Math.round(each + (points[low + 1][at] - each) * (place - low))));
  }
  return made;
}

/** @type {Record<string, Look>} */
export const LOOKS = {
  light: {
    name: "light", paper: "#ffffff", card: "#f7f8fa", ink: "#16181d", soft: "#555b66", line: "#dfe2e8",
    hatch: "#b9bfca", hatchOn: "#f1f2f5", loading: "#e9ecf1", outside: "#dadde4",
    zero: [245, 247, 250], mark: "#0369a1",
    channels: { user: "#5b9bd5", system: "#d55e00", softirq: "#b5468f", iowait_steal: "#8d8d3f" },
    series: ["#0072b2", "#d55e00", "#009e73", "#b5468f", "#b07400", "#3c93c8", "#555b66", "#6a4fb3"],
    severity: { critical: "#c2410c", warning: "#b07400", info: "#6b7280" },
    strength: { proven: "#15803d", likely: "#a16207", possible: "#6b7280" },
    ramp: rampOf(RAMP_LIGHT),
  },
  dark: {
    name: "dark", paper: "#14161b", card: "#1b1e25", ink: "#eef0f4", soft: "#a3a9b5", line: "#333845",
    hatch: "#4a5060", hatchOn: "#1d2027", loading: "#22262e", outside: "#0c0d11",
    zero: [27, 30, 37], mark: "#38bdf8",
    channels: { user: "#3d7fbf", system: "#ff7a2e", softirq: "#d977b8", iowait_steal: "#b5b255" },
    series: ["#56b4e9", "#ff7a2e", "#2bc79a", "#e08cc3", "#f0b429", "#8ab8ff", "#a3a9b5", "#b79cf2"],
    severity: { critical: "#ff7a2e", warning: "#f0b429", info: "#9aa1ad" },
    strength: { proven: "#4ade80", likely: "#facc15", possible: "#9aa1ad" },
    ramp: rampOf(RAMP_DARK),
  },
};

const night = window.matchMedia("(prefers-color-scheme: dark)");

/** @param {string} chosen "light", "dark" or "" for what the system prefers @returns {Look} */
export function lookOf(chosen) {
  return LOOKS[chosen || (night.matches ? "dark" : "light")] || LOOKS.light;
}

/** @param {() => void} changed */
export function watchNight(changed) {
  night.addEventListener("change", changed);
}

/** @param {Look} look */
export function applyLook(look) {
  document.documentElement.dataset.theme = look.name;
}

const SEMANTIC = { user: "user", system: "system", softirq: "softirq", iowait_steal: "iowait_steal", steal: "iowait_steal" };

/** A series has the colour of its meaning where it has one. @param {Look} look @param {string} name @param {number} at */
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

const HUES = { k: [14, 42, 88], u: [164, 206, 52], t: [246, 282, 38], o: [62, 98, 42] };

/** The reports' colours: a hue per kind, a shade per name. @param {Look} look @param {string} kind @param {string} name */
export function frameColour(look, kind, name) {
  const [first, last, strong] = HUES[/** @type {keyof typeof HUES} */ (kind)] || HUES.o;
  let sum = 0;
  for (let at = 0; at < name.length; at++) sum = (sum * 31 + name.charCodeAt(at)) >>> 0;
  const step = sum % 8, dark = look.name === "dark";
  const light = dark ? 33 + step * 7 % 9 : 66 + step * 7 % 9;
  return `hsl(${first + (last - first) * step / 7} ${strong * (dark ? 0.62 : 1)}% ${light}%)`;
}

/** Red grew, blue shrank; what hardly changed has no hue. @param {Look} look @param {number} change -1 to 1 */
export function changeColour(look, change) {
  const dark = look.name === "dark", size = Math.min(Math.abs(change), 1);
  if (size < 0.02) return dark ? "#3a3f4a" : "#d5d8de";
  const step = Math.ceil(size * 5) / 5;
  const tone = dark ? 26 + 14 * step : 92 - 30 * step, strong = dark ? 22 + 48 * step : 45 + 45 * step;
  return `hsl(${change > 0 ? 2 : 215} ${strong}% ${tone}%)`;
}

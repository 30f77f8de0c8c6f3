// @ts-check
// Colours shared with SVG files; written by `python -m sexton.reports.svg.colours`.

export const COLOURS = {
  hues: {"k": [14, 42, 88], "u": [164, 206, 52], "t": [246, 282, 38], "o": [62, 98, 42]},
  shades: 8,
  strengths: [0.005, 0.02, 0.08, 0.2],
  large: 0.01,
  pale: 0.45,
  grew: 2,
  shrank: 215,
  neutral: {"light": "#d5d8de", "dark": "#3a3f4a"},
  found: "#c026d3",
  ramps: {"light": ["fff0d2", "fddca4", "f9b668", "f08544", "d95045", "a92a5c", "64176a", "250a47"], "dark": ["3b1f63", "6a1f7c", "9c2a74", "cb3e5c", "ee623e", "fa942a", "fbc84b", "fdf3b0"]},
};

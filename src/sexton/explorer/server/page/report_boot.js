// @ts-check
// Starts the page of a report on what is embedded in it. Without scripts its text is all there is.
import {start} from "./main.js";
import {EmbeddedSource} from "./embedded.js";

const held = /** @type {HTMLElement} */ (document.getElementById("sexton-data"));
const told = JSON.parse(held.textContent ?? "{}");
/** @type {HTMLElement} */ (document.getElementById("explorer")).hidden = false;
const linked = location.hash.length > 1;
start(new EmbeddedSource(told)).then((explorer) => {
  if (explorer === null || linked) return;
  // A ticket is read once: what it is about is open.
  const folded = new Set(explorer.state.folded);
  for (const lane of told.recording.lanes) if (lane.kind === "heat") folded.delete(lane.id);
  explorer.state.set({ folded });
  const [start, end] = told.event;
  const whole = start <= told.recording.start && end >= told.recording.end;
  /** Of the held core alone, where that is in the page. @param {any} each */
  const alone = (each) => each.cpu !== null && each.from === start && each.to === end;
  const core = told.flames.find(alone)?.cpu ?? null;
  explorer.show({ select: whole ? null : [start, end], flame: told.flames.length > 0, core });
  window.scrollTo(0, 0);
});

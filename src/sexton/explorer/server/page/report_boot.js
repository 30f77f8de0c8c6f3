// @ts-check
// Starts the page of an HTML file on its embedded data, with its event selected. Without JavaScript
// only the text around it is shown.
import {start} from "./main.js";
import {EmbeddedSource} from "./data/embedded.js";

const embeddedData = JSON.parse(document.getElementById("sexton-data")?.textContent || "{}");
/** @type {HTMLElement} */ (document.getElementById("explorer")).hidden = false;
const isLinked = location.hash.length > 1;
const embeddedSource = new EmbeddedSource(embeddedData);
if (embeddedData.profile) document.body.classList.add("profile");
if (embeddedSource.untimed) document.body.classList.add("untimed");
start(embeddedSource).then((explorer) => {
  if (explorer === null) return;
  for (const button of document.querySelectorAll("[data-spike]")) {
    /** @type {HTMLElement} */ (button).hidden = false;
    button.addEventListener("click", () => {
      explorer.goSpike(Number(/** @type {HTMLElement} */ (button).dataset.spike));
      document.getElementById("explorer")?.scrollIntoView();
    });
  }
  if (isLinked) return;
  const folded = new Set(explorer.state.folded);
  for (const lane of embeddedData.recording.lanes) if (lane.kind === "heat") folded.delete(lane.id);
  explorer.state.set({ folded });
  if (embeddedData.profile) openProfile(explorer);
  else openIncident(explorer);
  window.scrollTo(0, 0);
});

/** @param {import("./explorer.js").Explorer} explorer */
function openIncident(explorer) {
  const { event: [from, to], recording, flames } = embeddedData;
  const isWhole = from <= recording.start && to >= recording.end;
  /** A flame graph of one core only. @param {any} entry */
  const isOneCore = (entry) => entry.cpu !== null && entry.from === from && entry.to === to;
  const core = flames.find(isOneCore)?.cpu ?? null;
  explorer.show({ select: isWhole ? null : [from, to], flame: flames.length > 0, core });
}

/** @param {import("./explorer.js").Explorer} explorer */
function openProfile(explorer) {
  const { open, spikes, recording } = embeddedData, { order } = explorer.state;
  if (open.kind === "subsecond") explorer.state.set({ order: [...order].reverse() });
  if (open.kind === "cores") explorer.state.set({ plane: "mean" });
  if (!open.select) return;
  const isWhole = open.select[0] <= recording.start && open.select[1] >= recording.end;
  if (spikes.length && !isWhole) explorer.goSpike(0);
  else explorer.state.set({ select: { start: open.select[0], end: open.select[1] }, panel: true });
}

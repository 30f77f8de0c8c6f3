// @ts-check
// Builds the page from its HTML and a data source.

import {Explorer} from "./explorer.js";
import {actionsOf} from "./actions.js";
import {wireKeys} from "./keys.js";
import {wirePointer, wireReorder} from "./pointer.js";
import {wireDialogs} from "./table.js";
import {keepAddress, stateOfHash} from "./state.js";
import {watchNight} from "./theme.js";
import {byId, element, setClock} from "./words.js";
import {clampSpan} from "./axis.js";
import {startTour} from "./tour/tour.js";
import {everySoOften} from "./data/live.js";
import {problemsText, showProblems, wireProblems} from "./notice.js";

/** @param {any} source see data/source.js @returns {Promise<Explorer | null>} */
export async function start(source) {
  wireDialogs();
  wireProblems();
  let recording;
  try {
    recording = await source.recording();
  } catch (fault) {
    byId("node").textContent = "";
    return nothing(`The recording could not be read: ${/** @type {Error} */ (fault).message}`);
  }
  const { node } = recording;
  if (recording.clock) setClock(recording.clock);
  if (node) {
    byId("node").textContent = [node.host || node.hostname, `${node.cores} ${node.cores === 1 ? "core" : "cores"}`, `Linux ${node.kernel}`, `cgroup ${node.hierarchy}`].filter((entry) => !/null|undefined/.test(String(entry))).join(" · ");
    document.title = `${node.host || node.hostname || "node"} · sexton`;
  }
  if (recording.start === null || recording.start === undefined || !(recording.lanes.length || source.untimed)) {
    if (source.follows) everySoOften(async () => {
      const now = await source.recording().catch(() => null);
      if (now && typeof now.start === "number" && now.lanes.length) location.reload();
    });
    const { problems } = recording;
    if (problems && problems.length) return nothing(`Nothing to show: ${problemsText(problems)}.`, problems);
    return nothing("Nothing recorded yet. Start `sexton record`; this page will follow it.");
  }
  const explorer = new Explorer(source, recording);
  showProblems(recording.problems || []);
  const said = stateOfHash(location.hash, explorer.known);
  apply(explorer, said);
  explorer.relook();
  wirePointer(explorer);
  wireReorder(explorer);
  wireKeys(actionsOf(explorer));
  keepAddress(explorer.state, (other) => {
    apply(explorer, other);
    const span = explorer.state.select || explorer.about;
    if (span) explorer.explain(span);
  }, explorer.known);
  explorer.state.set({});
  watchNight(() => explorer.relook());
  const heat = recording.lanes.find((/** @type {any} */ lane) => lane.kind === "heat");
  explorer.panel.offerCores(heat && heat.series.length ? heat.series : Array.from({ length: node?.cores || 0 }, (_, at) => String(at)));
  explorer.panel.update();
  explorer.live.begin();
  window.setTimeout(() => explorer.beginExplaining(), 4000);
  if (recording.tour && source.tour) startTour(await source.tour(), (/** @type {any} */ view) => explorer.show(view));
  document.dispatchEvent(new CustomEvent("sexton-ready"));
  return explorer;
}

/** @param {Explorer} explorer @param {Partial<import("./state.js").PageState>} said */
function apply(explorer, said) {
  if (said.view) said.view = clampSpan(said.view, explorer.whole);
  // The URL says whether to follow; without one, a running recorder is followed.
  said.follow = explorer.recording.live && (said.follow ?? true);
  explorer.glide.stop();
  explorer.state.set(said);
  explorer.live.slide();
  explorer.chain.light(explorer.state.link);
}

/** @param {string} text @param {string[]} [why] @returns {null} */
function nothing(text, why = []) {
  const list = element("ul");
  for (const entry of why) list.append(element("li", "", entry));
  byId("empty").replaceChildren(element("p", "", text), ...(why.length ? [list] : []));
  byId("empty").hidden = false;
  document.body.classList.add("nothing");
  document.dispatchEvent(new CustomEvent("sexton-ready"));
  return null;
}

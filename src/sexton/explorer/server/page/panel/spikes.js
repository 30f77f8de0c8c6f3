// @ts-check
// The spikes of a capture, beside the lanes: the counterpart of the explanation of a recording.

import {byId, element} from "../words.js";

/** @typedef {{select: number[] | null, core: string | null, baseline: number[] | null}} SpikeView */
/** @typedef {{title: string, busy: string, grew: string, open: SpikeView}} SpikeAbout */

export class SpikeList {
  /** @param {any} source @param {(at: number) => void} chosen */
  constructor(source, chosen) {
    const { spikes, verdict } = source.data;
    /** @type {SpikeAbout[]} */ this.spikes = spikes;
    /** @type {any[]} the interface of `ChainView` */ this.steps = spikes;
    this.body = byId("chainBody");
    this.span = null;
    byId("chainTitle").textContent = "Spikes";
    byId("chain").querySelector("[data-do=explain]").hidden = true;
    if (verdict) this.show(verdict, chosen);
    else document.body.classList.add("noChain");
  }

  /** @param {any} verdict @param {(at: number) => void} chosen */
  show(verdict, chosen) {
    const head = element("p", "verdict"), list = element("ol", "links");
    head.append(element("span", "word exit" + verdict.exit, verdict.word));
    this.spikes.forEach((spike, at) => list.append(this.item(spike, at, chosen)));
    /** @type {HTMLElement[]} */ const parts = [head, list];
    if (!this.spikes.length) parts.push(element("p", "", verdict.text));
    if (verdict.recurring.length) {
      const habits = element("ul");
      for (const text of verdict.recurring) habits.append(element("li", "", text));
      parts.push(element("h3", "", "Recurring"), habits);
    }
    this.body.replaceChildren(...parts);
  }

  /** @param {SpikeAbout} spike @param {number} at @param {(at: number) => void} chosen */
  item(spike, at, chosen) {
    const item = element("li"), button = element("button", "finding critical");
    button.setAttribute("type", "button");
    button.addEventListener("click", () => chosen(at));
    button.append(element("span", "number", String(at + 1)), element("span", "id", spike.title), element("span", "when"), element("span", "summary", spike.busy));
    if (spike.grew) button.append(element("span", "evidence", spike.grew));
    item.append(button);
    return item;
  }

  /** @param {import("../axis.js").Span} _span @param {() => void} done */
  async explain(_span, done) {
    done();
  }

  /** @param {string} _why */
  fail(_why) {}

  /** @param {string} _words */
  date(_words) {}

  /** @param {number | null} link */
  light(link) {
    this.body.querySelectorAll(".finding").forEach((/** @type {Element} */ button, /** @type {number} */ at) => {
      if (at === link) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    });
  }

  /** @param {string[]} lanes @param {number | null} lit */
  badges(lanes, lit) {
    return this.spikes.flatMap(({ open: { select } }, at) => (select && lanes.includes("cores")
      ? [{ lane: "cores", number: at + 1, start: select[0], end: select[1], lit: at === lit }] : []));
  }
}

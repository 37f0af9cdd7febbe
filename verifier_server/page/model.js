// What is served: the model, its engine and its limits, and what a pass costs by its width.

import { make, visible } from "./dom.js";
import { bytes, counted, time, whole } from "./numbers.js";
import { draw } from "./svg.js";

const WIDTH = 100;
const HEIGHT = 60;

export class ModelPart {
  constructor(place) {
    this.facts = make("dl", { className: "facts" });
    this.dots = draw("g", { class: "dots" });
    this.line = draw("polyline", { class: "line" });
    this.most = make("span", {});
    this.widest = make("span", {});
    const box = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" };
    this.picture = draw("svg", { ...box, "aria-label": "Time of a pass by its width" }, this.dots, this.line);
    const axis = make("div", { className: "axis" }, this.most, make("span", {}, "Time"), make("span", {}, "0"));
    const below = make("p", { className: "below note" }, make("span", {}, "1 token"), this.widest);
    const plot = make("div", { className: "plot" }, axis, this.picture, make("span", {}), below);
    this.figure = make("figure", { hidden: true }, make("figcaption", {}, "A pass by its tokens: measured at the start (line), the last ones (points)"), plot);
    place.append(this.facts, this.figure);
    this.clear();
  }

  // Begin anew.
  clear() {
    this.costs = [];
    this.figure.hidden = true;
    this.facts.replaceChildren(make("div", {}, make("dt", {}, "Model"), make("dd", {}, "not loaded yet")));
  }

  show(model) {
    const slots = `${whole(model.rows)} of ${whole(model.context_length)} tokens, ${bytes(model.kv_bytes)}`;
    const facts = {
      Model: model.model,
      Engine: model.threads ? `${model.backend}, ${counted(model.threads, "CPU thread")}` : model.backend,
      "KV cache slots": slots,
      "Draft tokens of a request": `at most ${whole(model.max_draft_tokens)}`,
      "Server-side drafting": model.draft_model ?? "none",
      Strategies: model.strategies.join(", "),
      Vocabulary: `${whole(model.vocabulary.size)} tokens`,
      Identity: model.identity,
    };
    const refused = Object.keys(model.refused ?? {});
    if (refused.length) facts["Not served"] = refused.join(", ");
    this.facts.replaceChildren(
      ...Object.entries(facts).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, ...visible(value)))),
    );
    this.costs = model.pass_ms;
    this.figure.hidden = this.costs.length < 2;
    this.widest.textContent = `${this.costs.length} tokens`;
  }

  // Put the passes that judged into the picture of the costs.
  draw(passes) {
    const { costs } = this;
    if (costs.length < 2) return;
    const judging = passes.filter((each) => !each.prefilled && each.tokens <= costs.length);
    const most = 1.1 * Math.max(...costs, ...judging.map((each) => Math.min(each.took_ms, 3 * costs.at(-1))));
    const x = (tokens) => (((tokens - 0.5) * WIDTH) / costs.length).toFixed(2);
    const y = (milliseconds) => (HEIGHT - (Math.min(milliseconds, most) / most) * HEIGHT).toFixed(2);
    this.line.setAttribute("points", costs.map((cost, at) => `${x(at + 1)},${y(cost)}`).join(" "));
    // A line of no length with round ends is a round point, also in a picture that is stretched.
    this.dots.replaceChildren(
      ...judging.map((each) => draw("path", { d: `M${x(each.tokens)} ${y(each.took_ms)}h0`, class: "dot" })),
    );
    this.most.textContent = time(most);
  }
}

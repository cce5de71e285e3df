/* The calls of one run as a tree, some of them open. A call is a number; what is in a call follows it. Call 0 is the
   root, which is not shown. */

const GRAPH_OUTCOMES = { f: "fail", w: "warn", p: "pass", s: "skip", " ": "" };
const GRAPH_SEVERITY = { " ": 0, s: 1, p: 2, w: 3, f: 4 };
const GRAPH_CAUSES = { c: "culprit", i: "inherited" };
const NAMED_APIS = 3;

class ModuleTree {
  constructor(run) {
    const { names, parents, outcomes } = run, count = names.length;
    Object.assign(this, { run, count });
    this.last = Int32Array.from(names, (_, node) => node); // the last call inside of each
    this.depth = new Int32Array(count);
    this.children = names.map(() => []);
    this.worst = [...outcomes]; // the worst outcome of each with all inside of it
    this.wrong = new Int32Array(count); // how many failed inside of each
    this.open = new Uint8Array(count);
    this.rowOf = new Int32Array(count); // the row that shows each, or the closed block that it is in
    for (let node = 1; node < count; node++) {
      this.depth[node] = this.depth[parents[node]] + 1;
      this.children[parents[node]].push(node);
    }
    for (let node = count - 1; node > 0; node--) {
      const parent = parents[node];
      this.last[parent] = Math.max(this.last[parent], this.last[node]);
      this.wrong[parent] += this.wrong[node] + (outcomes[node] === "f");
      if (GRAPH_SEVERITY[this.worst[node]] > GRAPH_SEVERITY[this.worst[parent]]) this.worst[parent] = this.worst[node];
    }
    this.setOpen(0, true);
  }

  isBlock(node) { return this.last[node] > node; }
  isOpen(node) { return this.isBlock(node) && Boolean(this.open[node]); }

  /* What came of a call; of a closed block also what came of all inside of it. */
  outcome(node, isOpen) { return GRAPH_OUTCOMES[(isOpen ? this.run.outcomes : this.worst)[node]]; }
  cause(node) { return GRAPH_CAUSES[this.run.causes[node]]; }

  #layOut() {
    this.rows = [];
    for (let node = 1; node < this.count;) {
      const end = this.open[node] ? node : this.last[node];
      this.rowOf.fill(this.rows.length, node, end + 1);
      this.rows.push(node);
      node = end + 1;
    }
  }

  setOpen(node, isOpen) {
    this.open[node] = isOpen;
    // What has no alternative is no choice.
    for (let inside = this.children[node]; isOpen && inside.length === 1; inside = this.children[inside[0]]) {
      this.open[inside[0]] = 1;
    }
    this.#layOut();
  }

  setAllOpen(isOpen) {
    this.open.fill(isOpen);
    this.setOpen(0, true);
  }

  around(node) {
    const found = [];
    for (let at = this.run.parents[node]; at > 0; at = this.run.parents[at]) found.push(at);
    return found;
  }

  reveal(node) {
    const closed = this.around(node).filter((block) => !this.open[block]);
    for (const block of closed) this.open[block] = 1;
    if (closed.length) this.#layOut();
  }

  // Calls outside of modules are known by their APIs.
  #collectionLabel(node) {
    const names = this.run.names.slice(node + 1, this.last[node] + 1);
    const apis = [...new Set(names.map((name) => name.split(".")[1]))], more = apis.length > NAMED_APIS ? ["…"] : [];
    return [[...apis.slice(0, NAMED_APIS), ...more].join(", "), `${plural(names.length, "call")} outside of modules`];
  }

  /* The name without what the blocks around it say already, and what kind of call it is. */
  label(node) {
    const name = this.run.names[node], words = name.split(".");
    if (this.run.kinds[node] === "c") return this.#collectionLabel(node);
    const isModule = /^(Module|Cell)$/.test(words[0]), pass = /^(forward|backward|parameters_grad)$/;
    const end = words.findLastIndex((word) => pass.test(word)), isBackward = words[end] === "backward";
    if (end < 2) return [name, ""];
    const path = words.slice(1, end - 1), outer = this.run.names[this.run.parents[node]].split(".").slice(1);
    if (!isModule) return [path.join("."), `${words[0]} ${words[end - 1]}${isBackward ? " backward" : ""}`];
    const shared = path.findIndex((word, place) => word !== outer[place]);
    const own = (shared < 0 ? path : path.slice(shared)).join(".") || path.join(".") || words[end - 1];
    const about = words[end] === "forward" ? "" : isBackward ? " backward" : " parameters' gradients";
    return [own, `${words[end - 1]}${about}${words[end + 1] > 0 ? ` ${words[end + 1]}` : ""}`];
  }
}

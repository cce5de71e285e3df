/* Where a module has many children, those that follow each other and are alike are one stack, until it is spread. */

const LEAST_STACK = 4, DIGIT_0 = 48, DIGIT_9 = 57;

class CallStacks {
  constructor(tree, most) {
    Object.assign(this, { tree, most, starts: new Map(), areSpread: new Set() });
  }

  /* The places among a block's children at which a box begins: one that is alone, or a stack. */
  of(block) {
    if (!this.starts.has(block)) this.starts.set(block, this.#startsIn(block));
    return this.starts.get(block);
  }

  spread(block) {
    this.areSpread.add(block);
    this.starts.delete(block);
  }

  /* Whether a child, by its place, is in a stack. */
  isIn(block, child) {
    const starts = this.of(block), place = starts.findLastIndex((start) => start <= child);
    return (starts[place + 1] ?? this.tree.children(block).length) - starts[place] > 1;
  }

  #startsIn(block) {
    const inside = this.tree.children(block);
    if (inside.length <= this.most || this.areSpread.has(block)) return inside.map((_, place) => place);
    const looks = inside.map((node) => this.#looksOf(node)), starts = [];
    for (let from = 0; from < inside.length;) {
      let to = from + 1;
      while (to < inside.length && looks[to] === looks[from]) to++;
      if (to - from >= LEAST_STACK) starts.push(from);
      else for (let place = from; place < to; place++) starts.push(place);
      from = to;
    }
    return starts;
  }

  /* What a child with all inside of it looks like: how many calls, their names without numbers, and what came of them. */
  #looksOf(node) {
    const { run, last } = this.tree, add = (code) => { looks = (Math.imul(looks, 31) + code) | 0; };
    let looks = 0;
    for (let inside = node; inside <= last[node]; inside++) {
      const name = run.names[inside];
      for (let at = 0; at < name.length; at++) {
        const code = name.charCodeAt(at);
        if (code < DIGIT_0 || code > DIGIT_9) add(code);
      }
      add(run.outcomes.charCodeAt(inside));
      add(run.causes.charCodeAt(inside));
    }
    return `${last[node] - node} ${looks}`;
  }
}

// Keeps the end of a list in view while that is where the reader is.

const NEAR = 80; // pixels from the end that count as the end

export class Follower {
  constructor(list) {
    this.list = list;
    this.low = true; // whether the reader is at the end
    this.top = 0;
    this.sizes = new ResizeObserver(() => this.follow());
    list.addEventListener("scroll", () => this.scrolled());
  }

  // Show `nodes` instead of those before, from their end.
  show(nodes) {
    this.sizes.disconnect();
    this.list.replaceChildren(...nodes);
    for (const each of [this.list, ...nodes]) this.sizes.observe(each);
    this.low = true;
    this.follow();
  }

  follow() {
    if (this.low) this.list.scrollTop = this.list.scrollHeight;
  }

  // Only who scrolls up leaves the end: while the list grows, the end moves away by itself.
  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.list;
    if (scrollHeight - scrollTop - clientHeight < NEAR) this.low = true;
    else if (scrollTop < this.top) this.low = false;
    this.top = scrollTop;
  }
}

// Draws in slices: no frame takes long, however much there is to draw.

const BUDGET = 4; // milliseconds of a frame after which no further slice begins; layout and paint take a multiple of it

const PAUSE = 50; // milliseconds between two drawings of what grows: each takes time of a processor that may be drafting

const due = new Set(); // what has something left to draw
let frame = 0;
let pause = 0; // the timer after which what has grown is drawn
let drawn = 0; // when something was drawn last

// Have `view` drawn in the next frames: `view.slice()` draws a bounded part and returns whether that was the last one.
// Whoever asked last is drawn first.
export function drawSoon(view) {
  due.delete(view);
  due.add(view);
  frame ||= requestAnimationFrame(drawDue);
}

// Have `view`, which grows by a little, drawn soon, and not in each frame.
export function drawGrown(view) {
  if (due.has(view)) return;
  due.add(view);
  if (frame || pause) return;
  pause = setTimeout(() => (frame ||= requestAnimationFrame(drawDue)), Math.max(0, drawn + PAUSE - performance.now()));
}

// Draw now what one frame has time for, and the rest in the next ones.
export function drawDue() {
  cancelAnimationFrame(frame);
  clearTimeout(pause);
  frame = pause = 0;
  drawn = performance.now();
  const end = drawn + BUDGET;
  do {
    const view = [...due].at(-1);
    if (view?.slice()) due.delete(view);
  } while (due.size && performance.now() < end);
  if (due.size) frame = requestAnimationFrame(drawDue);
}

// Draw nothing more of `view`, which has been taken off the page.
export function drop(view) {
  due.delete(view);
}

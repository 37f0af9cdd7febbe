// Draws in slices: no frame takes long, however much there is to draw.

const BUDGET = 4; // milliseconds of a frame after which no further slice begins; layout and paint take a multiple of it

const due = new Set(); // what has something left to draw
let frame = 0;

// Have `view` drawn in the next frames: `view.slice()` draws a bounded part and returns whether that was the last one.
// Whoever asked last is drawn first.
export function drawSoon(view) {
  due.delete(view);
  due.add(view);
  frame ||= requestAnimationFrame(drawDue);
}

// Draw now what one frame has time for, and the rest in the next ones.
export function drawDue() {
  cancelAnimationFrame(frame);
  frame = 0;
  const end = performance.now() + BUDGET;
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

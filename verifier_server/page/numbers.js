// Numbers in words.

export const whole = (number) => Math.round(number).toLocaleString("en-US");

export const counted = (number, noun) => `${whole(number)} ${noun}${number === 1 ? "" : "s"}`;

// A rate: with a decimal while it is small.
export const rate = (number) => (number < 100 ? number.toFixed(1) : whole(number));

export const percent = (part, all) => (all ? `${((100 * part) / all).toFixed(0)} %` : "–");

export function time(milliseconds) {
  if (milliseconds < 10) return `${milliseconds.toFixed(1)} ms`;
  return milliseconds < 1000 ? `${milliseconds.toFixed(0)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}

// How long something has lasted, in its two greatest units.
export function lasted(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${Math.floor(seconds)} s`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days ${hours % 24} h`;
}

export function bytes(number) {
  return number < 2 ** 30 ? `${(number / 2 ** 20).toFixed(0)} MiB` : `${(number / 2 ** 30).toFixed(1)} GiB`;
}

// The value below which so many of the sorted values lie; `share`: 0 to 1.
export const quantile = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];

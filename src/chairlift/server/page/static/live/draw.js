// Numbers in words, colours from the style, and canvases that are as sharp as the screen.

function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return (value / 1e6).toFixed(size < 1e7 ? 1 : 0) + "M";
  if (size >= 1e4) return (value / 1e3).toFixed(size < 1e5 ? 1 : 0) + "k";
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return size >= 10 ? value.toFixed(1) : size >= 1 ? value.toFixed(2) : size >= 0.01 ? value.toFixed(3).replace(/0$/, "") : value.toPrecision(2);
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (value >= 1) return (value >= 100 ? Math.round(value) : value.toFixed(value >= 10 ? 1 : 2)) + " s";
  const ms = 1000 * value;
  return (ms >= 10 ? Math.round(ms) : ms >= 0.1 ? ms.toFixed(1) : ms.toFixed(2)) + " ms";
}

function duration(value) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const index = Math.max(0, units.findIndex(([size]) => value >= size));
  const [[size, unit], next] = [units[value < 1 ? 3 : index], units[index + 1]];
  const whole = Math.floor(value / size);
  return next ? `${whole} ${unit} ${Math.floor((value % size) / next[0])} ${next[1]}` : `${whole} ${unit}`;
}

const percent = (share) => (share === null ? "–" : Math.round(100 * Math.min(share, 1)) + "%");

let colours = {};
function repaint() {
  colours = {};
  for (const each of document.querySelectorAll("i[data-colour]")) each.style.background = colour(each.dataset.colour);
}

function colour(name) {
  return (colours[name] ??= getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim());
}

function swatch(name) {
  const made = element("i");
  made.style.background = colour(name);
  made.dataset.colour = name;
  return made;
}

// The canvas' pen, sized to its element; width and height are in the page's pixels.
function pen(canvas, height = canvas.clientHeight) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  return { context, width, height };
}

function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999);
}

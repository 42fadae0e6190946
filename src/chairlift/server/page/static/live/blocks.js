// The KV cache as a map: each cell a block, or some, in the colour of what it is.

function mixed(parts) {
  const total = [0, 0, 0];
  for (const [share, name] of parts) {
    const hex = colour(name).slice(1);
    for (let i = 0; i < 3; i++) total[i] += share * parseInt(hex.slice(2 * i, 2 * i + 2), 16);
  }
  return `rgb(${total.map(Math.round).join(",")})`;
}

function drawMap(canvas, map, held) {
  const { context, width, height } = pen(canvas);
  const cells = map.held.length;
  if (!cells || width < 50) return;
  // As many columns as make the cells nearly square.
  let across = Math.max(1, Math.min(cells, Math.ceil(Math.sqrt((cells * width) / height))));
  while (Math.ceil(cells / across) * Math.floor(width / across) > height && across < cells) across++;
  const size = Math.min(36, width / across, height / Math.ceil(cells / across));
  const gap = size > 8 ? 2 : 1;
  for (let cell = 0; cell < cells; cell++) {
    const own = map.held[cell] / 9, cached = map.cached[cell] / 9;
    context.fillStyle = mixed([[own, held], [cached, "teal"], [Math.max(0, 1 - own - cached), "free"]]);
    context.beginPath();
    context.roundRect((cell % across) * size, Math.floor(cell / across) * size, size - gap, size - gap, size > 8 ? 2 : 0);
    context.fill();
  }
}

const memoryKey = {};
function makeMemory() {
  for (const [name, hue] of Object.entries({ held: "blue", cached: "teal", free: "free", swapped: "red" })) {
    const item = element("li");
    memoryKey[name] = element("b", "–");
    item.append(swatch(hue), name, memoryKey[name]);
    byId("memory-key").append(item);
  }
}

function drawMemory() {
  const tick = last();
  if (!tick || !state.blocks) return;
  memoryKey.held.textContent = short(tick.held);
  memoryKey.cached.textContent = short(tick.cached);
  memoryKey.free.textContent = short(tick.blank);
  memoryKey.swapped.textContent = short(tick.swapped);
  const { per_cell: each, blocks } = state.blocks;
  const size = state.about?.limits?.block_size;
  byId("memory-note").textContent = (each > 1 ? `${each} blocks a cell` : "one block a cell") + (size ? `, ${size} tokens a block, ${short(blocks * size)} tokens in all` : "");
  drawMap(byId("blocks"), state.blocks, "blue");
  byId("host").hidden = !state.host.blocks;
  if (state.host.blocks) drawMap(byId("host-blocks"), state.host, "red");
}

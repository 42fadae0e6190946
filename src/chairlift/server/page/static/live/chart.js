// One chart over the last five minutes: lines, or areas on top of each other; a key with the values at the pointer.

const LEFT = 50, RIGHT = 8, TOP = 8, BOTTOM = 18;
const charts = [];
let pointed = null; // the time under the pointer, in all charts

class Chart {
  constructor({ title, unit, series, stacked = false, show = short, least = 1, most = Infinity, whole = false }) {
    Object.assign(this, { series, stacked, show, least, most, whole, top: 0 });
    const card = element("article", undefined, "card chart");
    const head = element("div", undefined, "head");
    this.unit = element("span", unit, "unit");
    head.append(element("h2", title), this.unit);
    this.key = element("ul", undefined, series.length > 3 ? "key many" : "key");
    for (const one of series) {
      const item = element("li");
      one.value = element("b", "–");
      item.append(swatch(one.colour), one.name, one.value);
      this.key.append(item);
    }
    this.canvas = element("canvas");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", title);
    card.append(head, this.key, this.canvas);
    byId("charts").append(card);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { pointed = null; drawCharts(); });
    charts.push(this);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    pointed = share < 0 || share > 1 ? null : share;
    drawCharts();
  }

  // Rows of [time, value of each series]; a pause has one at both of its ends.
  rows(end) {
    const rows = [];
    for (const tick of state.ticks) {
      const values = this.series.map((one) => one.of(tick));
      if (tick.seconds > 3) rows.push([Math.max(tick.at - tick.seconds + 0.5, end - SPAN_S), ...values]);
      rows.push([tick.at, ...values]);
    }
    return rows;
  }

  draw() {
    const { context, width, height } = pen(this.canvas);
    if (width < 80) return;
    const end = now(), start = end - SPAN_S;
    const rows = this.rows(end).filter((row) => row[0] >= start - 2);
    const x = (at) => LEFT + ((at - start) / SPAN_S) * (width - LEFT - RIGHT);
    let most = this.least;
    for (const row of rows) {
      const values = row.slice(1).filter((value) => value !== null);
      if (values.length) most = Math.max(most, this.stacked ? values.reduce((a, b) => a + b, 0) : Math.max(...values));
    }
    most = Math.min(most * 1.02, this.most);
    let step = roundStep(most / 4);
    if (this.whole) step = Math.max(1, Math.ceil(step));
    this.top = step * Math.ceil(most / step - 1e-9);
    const y = (value) => height - BOTTOM - (value / this.top) * (height - TOP - BOTTOM);
    this.axes(context, width, height, step, x, y, end);
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT - RIGHT, height - BOTTOM + 1);
    context.clip();
    if (this.stacked) this.areas(context, rows, x, y); else this.lines(context, rows, x, y);
    context.restore();
    this.values(context, rows, height, x, start);
  }

  axes(context, width, height, step, x, y, end) {
    context.lineWidth = 1;
    context.fillStyle = colour("faint");
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let value = 0; value <= this.top * 1.001; value += step) {
      const at = Math.round(y(value)) + 0.5;
      context.strokeStyle = value === 0 ? colour("line") : colour("grid");
      context.beginPath(); context.moveTo(LEFT, at); context.lineTo(width - RIGHT, at); context.stroke();
      context.fillText(this.show(value).replace(/\.0+(?= |$)|(\.\d*[1-9])0+(?= |$)/, "$1"), LEFT - 7, at);
    }
    context.textBaseline = "alphabetic";
    for (let minute = width > 420 ? 5 : 4; minute >= 0; minute -= width > 420 ? 1 : 2) {
      context.textAlign = minute === 5 ? "left" : minute === 0 ? "right" : "center";
      context.fillText(minute ? `−${minute} min` : "now", x(end - 60 * minute), height - 4);
    }
  }

  lines(context, rows, x, y) {
    context.lineWidth = 1.7;
    context.lineJoin = "round";
    this.series.forEach((one, index) => {
      context.strokeStyle = colour(one.colour);
      context.beginPath();
      let pause = true;
      for (const row of rows) {
        const value = row[index + 1];
        if (value === null) { pause = true; continue; }
        if (pause) context.moveTo(x(row[0]), y(value)); else context.lineTo(x(row[0]), y(value));
        pause = false;
      }
      context.stroke();
    });
  }

  areas(context, rows, x, y) {
    const below = rows.map(() => 0);
    this.series.forEach((one, index) => {
      const above = rows.map((row, i) => below[i] + (row[index + 1] ?? 0));
      context.fillStyle = colour(one.colour);
      context.beginPath();
      rows.forEach((row, i) => context.lineTo(x(row[0]), y(above[i])));
      for (let i = rows.length - 1; i >= 0; i--) context.lineTo(x(rows[i][0]), y(below[i]));
      context.fill();
      above.forEach((value, i) => { below[i] = value; });
    });
  }

  values(context, rows, height, x, start) {
    let row = rows[rows.length - 1];
    if (pointed !== null && rows.length) {
      const at = start + pointed * SPAN_S;
      row = rows.reduce((best, each) => (Math.abs(each[0] - at) < Math.abs(best[0] - at) ? each : best));
      context.strokeStyle = colour("faint");
      context.setLineDash([3, 3]);
      context.beginPath(); context.moveTo(x(row[0]), TOP); context.lineTo(x(row[0]), height - BOTTOM); context.stroke();
      context.setLineDash([]);
    }
    this.series.forEach((one, index) => { one.value.textContent = row ? this.show(row[index + 1]) : "–"; });
  }
}

function drawCharts() { for (const chart of charts) chart.draw(); }

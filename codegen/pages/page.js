"use strict";
// What the page is about stands in #model: see codegen/pages/page.py. The model itself is WebAssembly of plain C.
const model = JSON.parse(document.getElementById("model").textContent);
const $ = (id) => document.getElementById(id);
const Real = model.dtype === "float32" ? Float32Array : Float64Array;
const ARRAYS = { pixels: Uint8Array, floats: Real, label: Uint8Array, tokens: Int32Array };
const [STEPS_BACK, MOST_BUTTONS, MOST_BARS] = [20, 20, 64];
let wasm; // the model's functions
let inputs, targets, state; // views of the model's memory, which never grows

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const className = (i) => model.classes?.[i] ?? String(i);
const shown = (x) => (Number.isFinite(x) ? String(+x.toPrecision(4)) : String(x));

// ---- The model

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function float16(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction; // all of them are finite
  return bits >> 15 ? -size : size;
}

// Narrow numbers -> those that the model computes with.
const WIDENED = {
  float64: (bytes) => new Float64Array(bytes),
  float32: (bytes) => new Float32Array(bytes),
  float16: (bytes) => Float64Array.from(new Uint16Array(bytes), float16),
  bfloat16: (bytes) => new Float32Array(Uint32Array.from(new Uint16Array(bytes), (bits) => bits << 16).buffer),
  int8: (bytes) => Float64Array.from(new Int8Array(bytes)),
};

// Each row of int8 numbers has a scale; their products are exact.
function scaled(numbers, scales, rows) {
  let [i, row] = [0, 0];
  for (const [count, length] of rows)
    for (const end = row + count; row < end; row++) for (const last = i + length; i < last; i++) numbers[i] *= scales[row];
  return numbers;
}

async function start() {
  const { instance } = await WebAssembly.instantiate(await unpacked(model.wasm));
  wasm = instance.exports;
  const views = (parts, place) =>
    parts.map((part, i) => new ARRAYS[part.kind](wasm.memory.buffer, wasm[place + i](), part.count));
  inputs = views(model.inputs, "input");
  targets = views(model.targets, "target");
  const numbers = WIDENED[model.weights.kind](await unpacked(model.weights.numbers));
  if (model.weights.scales) scaled(numbers, new Float32Array(await unpacked(model.weights.scales)), model.weights.rows);
  new Real(wasm.memory.buffer, wasm.parameters(), numbers.length).set(numbers);
  wasm.start();
  state = new Uint8Array(wasm.memory.buffer, wasm.state(), wasm.state_bytes());
}

const outputs = () =>
  model.outputs.map(({ count }, i) => Array.from(new Real(wasm.memory.buffer, wasm["output" + i](), count)));

// ---- The answer

const bars = model.outputs.map((output, i) => {
  const rows = Array.from({ length: Math.min(output.count, MOST_BARS) }, (_, k) => {
    const name = output.count === model.classCount ? className(k) : output.count === 1 ? output.name : String(k);
    const row = { name: element("dt", {}, name), bar: element("span"), number: element("dd", { className: "number" }) };
    row.track = element("dd", { className: "track" }, row.bar);
    return row;
  });
  const list = element("dl", { className: "bars" }, ...rows.flatMap((row) => [row.name, row.track, row.number]));
  if (i === model.main) $("bars").append(list);
  else $("others").append(element("h3", {}, output.name), list);
  return rows;
});
$("more").hidden = model.outputs.length < 2;

function showBars(rows, numbers, best) {
  const isShare = numbers.length > 1 && Math.min(...numbers) >= 0 && Math.abs(numbers.reduce((a, x) => a + x) - 1) < 1e-4;
  const low = isShare ? 0 : Math.min(0, ...numbers);
  const width = (isShare ? 1 : Math.max(0, ...numbers)) - low || 1;
  rows.forEach((row, i) => {
    const x = numbers[i];
    row.bar.style.left = `${(100 * (Math.min(x, 0) - low)) / width}%`;
    row.bar.style.width = `${(100 * Math.abs(x)) / width}%`;
    row.bar.className = x < 0 ? "below" : "";
    row.number.textContent = isShare ? `${(100 * x).toFixed(1)} %` : shown(x);
    for (const part of [row.name, row.number]) part.classList.toggle("best", i === best);
  });
}

let answerOfModel = null; // the class; null without one

function refresh() {
  const found = outputs();
  const numbers = found[model.main];
  answerOfModel = model.classCount ? wasm.predict() : null;
  const text = model.classCount ? className(answerOfModel) : numbers.length === 1 ? shown(numbers[0]) : "";
  $("answer").textContent = text;
  $("answer").classList.toggle("words", text.length > 3);
  found.forEach((each, i) => showBars(bars[i], each, each.length === model.classCount ? answerOfModel : -1));
}

// ---- A drawing, for models of pictures

const strokes = [];
const pen = $("pad").getContext("2d", { willReadFrequently: true });

function preparePad() {
  const { width, height } = model.picture;
  const zoom = Math.max(1, Math.round(320 / Math.max(width, height)));
  Object.assign($("pad"), { width: width * zoom, height: height * zoom });
  Object.assign($("eye"), { width, height });
  $("drawing").hidden = $("seen").hidden = false;
  $("looks").hidden = !model.looks;
  $("clear").onclick = () => change(() => strokes.splice(0));
  $("unstroke").onclick = () => change(() => strokes.pop());
  $("overlay").onchange = () => showEye();
  matchMedia("(prefers-color-scheme: dark)").onchange = () => change(() => {});
  const point = (event) => [event.offsetX * zoom, event.offsetY * zoom].map((x) => (x * width) / $("pad").clientWidth);
  let stroke = null;
  $("pad").onpointerdown = (event) => {
    if (event.button || stroke) return;
    $("pad").setPointerCapture(event.pointerId);
    change(() => strokes.push((stroke = [point(event)])));
  };
  $("pad").onpointermove = (event) => {
    if (stroke) change(() => stroke.push(...(event.getCoalescedEvents?.() ?? [event]).map(point), point(event)));
  };
  $("pad").onpointerup = $("pad").onpointercancel = () => (stroke = null);
  change(() => {});
}

let isAsked = false;

// Changes the strokes; what they mean is computed once before the next frame.
function change(edit) {
  edit();
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    redraw();
    look();
  });
}

function redraw() {
  const { width, height } = $("pad");
  pen.clearRect(0, 0, width, height);
  pen.strokeStyle = getComputedStyle($("pad")).color;
  Object.assign(pen, { lineCap: "round", lineJoin: "round", lineWidth: Math.min(width, height) / 14 });
  for (const [[x, y], ...rest] of strokes) {
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(x + 0.01, y); // a dot is a stroke too
    for (const next of rest) pen.lineTo(...next);
    pen.stroke();
  }
}

let levels; // of the model's pixels, 0 to 255

function look() {
  levels = centred($("pad").width, $("pad").height);
  const { low, high } = model.picture;
  const [part] = inputs;
  for (let i = 0; i < part.length; i++) part[i] = low + ((high - low) * levels[i % levels.length]) / 255;
  refresh();
  if (!strokes.length) $("answer").textContent = "–";
  showEye();
}

// As MNIST's digits were made: shrunk into a box, 20 x 20 of 28 x 28 pixels, its centre of mass in the middle.
function centred(padWidth, padHeight) {
  const { width, height, box } = model.picture;
  const result = new Uint8Array(width * height);
  const ink = pen.getImageData(0, 0, padWidth, padHeight).data.filter((_, i) => i % 4 === 3);
  let [left, top, right, bottom] = [padWidth, padHeight, 0, 0];
  ink.forEach((level, i) => {
    if (level < 26) return;
    const [x, y] = [i % padWidth, Math.floor(i / padWidth)];
    [left, right] = [Math.min(left, x), Math.max(right, x + 1)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y + 1)];
  });
  if (!right) return result;
  const scale = Math.min(box[1] / (right - left), box[0] / (bottom - top));
  const [w, h] = [right - left, bottom - top].map((length) => Math.max(1, Math.round(length * scale)));
  const small = new Float64Array(w * h);
  let [mass, xMass, yMass] = [0, 0, 0];
  for (let i = 0; i < small.length; i++) {
    const [x, y] = [i % w, Math.floor(i / w)];
    const [dx, dy] = [(right - left) / w, (bottom - top) / h];
    small[i] = mean(ink, padWidth, left + x * dx, left + (x + 1) * dx, top + y * dy, top + (y + 1) * dy);
    mass += small[i];
    xMass += small[i] * (x + 0.5);
    yMass += small[i] * (y + 0.5);
  }
  const at = (centre, free) => Math.max(0, Math.min(Math.round(centre), free));
  const [x0, y0] = [at(width / 2 - xMass / mass, width - w), at(height / 2 - yMass / mass, height - h)];
  small.forEach((level, i) => {
    result[(y0 + Math.floor(i / w)) * width + x0 + (i % w)] = Math.round(level);
  });
  return result;
}

// The mean level of a rectangle, whose sides may lie within pixels.
function mean(ink, padWidth, left, right, top, bottom) {
  let sum = 0;
  for (let y = Math.floor(top); y < bottom; y++)
    for (let x = Math.floor(left); x < right; x++)
      sum += ink[y * padWidth + x] * (Math.min(x + 1, right) - Math.max(x, left)) * (Math.min(y + 1, bottom) - Math.max(y, top));
  return sum / ((right - left) * (bottom - top));
}

// The levels; over them, blue or orange, the gradient of the answer's logit with respect to each pixel.
function showEye() {
  const image = new ImageData(model.picture.width, model.picture.height);
  const isOver = model.looks && $("overlay").checked && strokes.length > 0;
  $("legend").hidden = !(model.looks && $("overlay").checked);
  const gradient = new Float64Array(levels.length);
  if (isOver)
    new Real(wasm.memory.buffer, wasm.look(answerOfModel), inputs[0].length).forEach(
      (g, i) => (gradient[i % levels.length] += g * (model.picture.high - model.picture.low)),
    );
  const most = gradient.reduce((a, g) => Math.max(a, Math.abs(g)), 0) || 1;
  levels.forEach((level, i) => {
    const share = Math.sqrt(Math.abs(gradient[i]) / most);
    const colour = gradient[i] > 0 ? [59, 130, 246] : [249, 115, 22];
    colour.forEach((c, k) => (image.data[4 * i + k] = level * (1 - 0.7 * share) + c * 0.8 * share));
    image.data[4 * i + 3] = 255;
  });
  $("eye").getContext("2d").putImageData(image, 0, 0);
}

// ---- A form, for all other models

function fieldset(part, i, fields) {
  const [legend, group] = [element("legend", {}, part.name), element("fieldset")];
  if (part.name) group.append(legend);
  group.append(...Array.from({ length: part.count }, (_, k) => fields(part, i, k)));
  return group;
}

function fieldName(part, k) {
  return part.names?.[k] ?? (part.count === 1 ? part.name || "x" : `${part.name || "x"}[${k}]`);
}

// A number, with a slider where it has a range. `set` gets what is typed.
function field(part, id, k, value, set) {
  const name = fieldName(part, k);
  const whole = part.kind !== "floats";
  const number = element("input", { id, type: "number", step: whole ? 1 : "any", value });
  const [low, high] = whole ? [0, part.classes ? part.classes - 1 : 255] : [part.low?.[k], part.high?.[k]];
  if (whole) Object.assign(number, { min: low, max: high });
  const made = element("div", { className: "field" }, element("label", { htmlFor: id }, name));
  if (low < high) {
    const slider = element("input", { type: "range", min: low, max: high, step: whole ? 1 : (high - low) / 200, value });
    slider.setAttribute("aria-label", name);
    slider.oninput = () => take((number.value = slider.value));
    number.oninput = () => take((slider.value = number.value), number.value);
    made.append(slider);
  } else number.oninput = () => take(number.value);
  function take(typed, exact = typed) {
    if (exact !== "" && number.validity.valid) set(Number(exact));
  }
  set(value);
  made.append(number);
  return made;
}

function prepareForm() {
  let isReady = false;
  $("form").hidden = false;
  $("form").onsubmit = (event) => event.preventDefault();
  const fields = (part, i, k) =>
    field(part, `input${i}.${k}`, k, part.start?.[k] ?? 0, (x) => {
      inputs[i][k] = x;
      if (isReady) refresh();
    });
  $("fields").append(...model.inputs.map((part, i) => fieldset(part, i, fields)));
  isReady = true;
  refresh();
}

// ---- Training

const past = []; // states of the model
let untrained;

function prepareTraining() {
  untrained = state.slice();
  $("training").hidden = false;
  $("rate").value = model.rate;
  const [only] = model.targets;
  if (model.targets.length === 1 && only.kind === "label") {
    $("targets").append(only.classes > MOST_BUTTONS ? choice(only) : classButtons(only));
  } else {
    const fields = (part, i, k) => field(part, `target${i}.${k}`, k, 0, (x) => (targets[i][k] = x));
    $("targets").append(...model.targets.map((part, i) => fieldset(part, i, fields)), trainButton());
  }
  $("undo").onclick = () => back(past.pop(), "Undone.");
  $("reset").onclick = () => back((past.splice(0), untrained), "As it came.");
}

const trainButton = () => element("button", { type: "button", onclick: teach }, "Train");

function classButtons(label) {
  const button = (_, i) =>
    element("button", { type: "button", onclick: () => teach((targets[0][0] = i)), ariaLabel: `It is ${className(i)}` }, className(i));
  const made = element("div", { className: "choices" }, ...Array.from({ length: label.classes }, button));
  made.setAttribute("role", "group");
  made.setAttribute("aria-label", "The right answer");
  return made;
}

function choice(label) {
  const options = Array.from({ length: label.classes }, (_, i) => element("option", { value: i }, className(i)));
  const select = element("select", { onchange: () => (targets[0][0] = select.value), ariaLabel: "The right answer" }, ...options);
  return element("div", { className: "row" }, select, trainButton());
}

function teach() {
  if (model.picture && !strokes.length) return say("Draw something first.");
  for (const id of ["rate", "steps"]) if (!$(id).checkValidity() || $(id).value === "") return $(id).reportValidity();
  past.push(state.slice());
  if (past.length > STEPS_BACK) past.shift();
  const before = wasm.loss();
  for (let step = 0; step < Number($("steps").value); step++) wasm.train(Number($("rate").value));
  const after = wasm.loss();
  shownAgain();
  say(`Loss ${shown(before)} → ${shown(after)}.${after <= before ? "" : " It grew: try a smaller rate, after Undo."}`);
}

function back(to, text) {
  state.set(to);
  shownAgain();
  say(text);
}

function shownAgain() {
  $("undo").disabled = !past.length;
  $("reset").disabled = state.every((byte, i) => byte === untrained[i]);
  if (model.picture) look();
  else refresh();
}

const say = (text) => ($("trained").textContent = text);

start()
  .then(() => {
    if (model.picture) preparePad();
    else prepareForm();
    if (model.trains) prepareTraining();
    document.body.dataset.ready = "";
  })
  .catch((error) => {
    $("failure").hidden = false;
    $("failure").textContent = `This browser cannot run the model: ${error}`;
  });

// The page: maps are coloured in the browser, so that opacity and colours follow the hand, and a finding shows its map
// while the pointer or the keyboard's focus rests on it.
const { methods: METHODS, tables: TABLES } = JSON.parse(document.getElementById("start").textContent);
const SATURATION = 0.4, BRIGHTNESS = 0.8, GAMMA = 0.6, LEAST_LIGHT = 0.36, MOST_LIFT = 0.45; // as readouts/overlay.py
const MARKS = ["point", "box", "regions"];
const NO_ANSWER = "The server gave no answer: try again, or load the page again.";
const drawing = { opacity: 0.6, colours: "evidence", point: true, box: true, regions: true };
const boards = new Set(); // every canvas that shows an image with a map
const kept = new Map(); // images and maps by address, the last few

const find = (selector) => document.querySelector(selector);
const control = (name) => find(`#${name} input, #${name} select`);
const checked = (name) => [...document.querySelectorAll(`#${name} input:checked`)].map((box) => box.value);
const made = (kind, text, more = {}) => Object.assign(document.createElement(kind), { textContent: text, ...more });

// Labels and file names may hold anything, at any length: shown as errors.py shows them on a terminal.
const visible = (text) => {
  const shown = String(text).replace(/(?! )[\p{C}\p{Z}]/gu, (sign) => {
    const code = sign.codePointAt(0).toString(16);
    return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
  });
  return shown.length > 1000 ? `${shown.slice(0, 800)}...${shown.slice(-150)}` : shown;
};

// Drawing.

const remember = (address, make) => {
  if (!kept.has(address)) {
    kept.set(address, make().catch((error) => { kept.delete(address); throw error; }));
    while (kept.size > 60) kept.delete(kept.keys().next().value);
  }
  return kept.get(address);
};

const load = (address) => remember(address, () => new Promise((resolve, reject) => {
  const image = new Image();
  image.onload = () => resolve(image);
  image.onerror = () => reject(new Error("The image is no longer kept by the server: drop it again."));
  image.src = address;
}));

const pixels = (image, width, height) => {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, width, height);
  return context.getImageData(0, 0, width, height);
};

// For each value of a pixel the one that is drawn: the shadows of a dark image are lifted.
const lifted = (data) => {
  let sum = 0;
  for (let i = 0; i < data.length; i += 4) sum += 0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2];
  const mean = sum / (255 * data.length / 4);
  const exponent = mean > 0 && mean < LEAST_LIGHT ? Math.max(MOST_LIFT, Math.log(LEAST_LIGHT) / Math.log(mean)) : 1;
  return Float32Array.from({ length: 256 }, (_, k) => 255 * (k / 255) ** exponent);
};

// The image with less colour and light, and over it the map's colours, the more the more evidence there is.
const blend = (photo, strength, settings) => {
  const out = new ImageData(photo.width, photo.height);
  const table = TABLES[settings.colours] || TABLES.evidence;
  const cover = Float32Array.from({ length: 256 }, (_, k) => (k / 255) ** GAMMA * settings.opacity);
  const from = photo.data, map = strength && strength.data, to = out.data, lift = lifted(from);
  for (let i = 0; i < from.length; i += 4) {
    const grey = 0.299 * lift[from[i]] + 0.587 * lift[from[i + 1]] + 0.114 * lift[from[i + 2]];
    const k = map ? map[i] : 0, share = cover[k], colour = 3 * k;
    for (let c = 0; c < 3; c++) {
      const dimmed = BRIGHTNESS * (grey + SATURATION * (lift[from[i + c]] - grey));
      to[i + c] = dimmed + share * (table[colour + c] - dimmed);
    }
    to[i + 3] = 255;
  }
  return out;
};

const lines = (context, width, path) => {
  for (const [style, extra] of [["#0c0c14", 2], ["#ffffff", 0]]) {
    context.strokeStyle = style;
    context.lineWidth = width + extra * Math.max(1, width / 2);
    context.beginPath();
    path();
    context.stroke();
  }
};

const marks = (context, view, settings, chosen) => {
  const { width, height } = context.canvas;
  const thick = Math.max(1.5, Math.sqrt(width * height) / 240);
  const box = ([x0, y0, x1, y1]) => context.rect(x0 * width, y0 * height, (x1 - x0) * width, (y1 - y0) * height);
  if (settings.box) for (const each of view.boxes) lines(context, thick, () => box(each));
  if (settings.regions) {
    const shown = view.regions.map((region, k) => [region, k]).filter(([, k]) => chosen == null ? k < 3 : chosen === k);
    for (const [region, k] of shown.reverse()) {
      context.setLineDash(k === 0 || chosen === k ? [] : [4 * thick, 3 * thick]);
      lines(context, k === 0 || chosen === k ? thick * 1.4 : thick, () => box(region.box));
      context.setLineDash([]);
      badge(context, region.box[0] * width, region.box[1] * height, String(k + 1), thick);
    }
  }
  if (settings.point && view.point) {
    const [x, y] = [view.point[0] * width, view.point[1] * height];
    lines(context, thick, () => context.arc(x, y, 8 * thick, 0, 7));
    lines(context, thick, () => context.arc(x, y, thick / 2, 0, 7));
  }
};

const badge = (context, x, y, text, thick) => {
  const size = Math.max(14, 8 * thick);
  context.font = `600 ${size}px system-ui, sans-serif`;
  const wide = context.measureText(text).width + size * 0.7;
  const [left, top] = [Math.max(0, x), Math.max(0, y)];
  context.fillStyle = "#0c0c14";
  context.fillRect(left, top, wide, size * 1.3);
  context.fillStyle = "#ffffff";
  context.fillText(text, left + size * 0.35, top + size);
};

const paint = async (canvas, picture, view, settings, side, chosen) => {
  const photo = await load(`${picture.url}?side=${side}`);
  const [width, height] = [photo.naturalWidth, photo.naturalHeight];
  const strength = view ? pixels(await load(view.strength), width, height) : null;
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  if (view) {
    context.putImageData(blend(pixels(photo, width, height), strength, settings), 0, 0);
    marks(context, view, settings, chosen);
  } else {
    context.drawImage(photo, 0, 0);
  }
};

// A canvas with what it shows: a picture, its map, for a moment another map, and perhaps one region of several.
class Board {
  constructor(canvas, side) {
    Object.assign(this, { canvas, side, picture: null, view: null, glance: null, region: null, turn: 0 });
    for (const other of boards) if (!other.canvas.isConnected) boards.delete(other);
    boards.add(this);
  }
  async draw() {
    if (!this.canvas.isConnected) return boards.delete(this);
    if (!this.picture) return;
    const turn = ++this.turn;
    const view = this.glance || this.view;
    const hidden = document.createElement("canvas"); // a slower, older drawing must not come after a newer one
    await paint(hidden, this.picture, view, drawing, this.side, this.glance ? null : this.region);
    if (turn !== this.turn) return;
    this.canvas.width = hidden.width;
    this.canvas.height = hidden.height;
    this.canvas.getContext("2d").drawImage(hidden, 0, 0);
    this.canvas.dataset.shows = view ? visible(view.title) : "photograph";
    this.canvas.setAttribute("aria-label", visible(described(view)));
  }
}

const described = (view) => {
  if (!view) return "The photograph.";
  if (view.point === undefined) return `Evidence for ${view.title}.`; // of a word within a phrase only the map is known
  if (!view.point) return `${view.title}: no evidence in this image.`;
  const [x, y] = view.point.map((share) => Math.round(100 * share));
  return `Evidence for ${view.title}: strongest ${x} per cent from the left and ${y} per cent from the top.`;
};


const main = new Board(find("#stage canvas"), 1024); // the large one
const redraw = (board, error) => board.draw().catch((reason) => { if (error) error.textContent = reason.message; });
const glance = (view) => { main.glance = view; redraw(main); };
const whilePointedAt = (button, show, hide) => {
  for (const event of ["pointerenter", "focus"]) button.addEventListener(event, show);
  for (const event of ["pointerleave", "blur"]) button.addEventListener(event, hide);
};

// Small buttons that show something for as long as they are pointed at or have the focus.
const chips = (list, things, name, show) => {
  list.hidden = !things.length;
  list.querySelector(".chips").replaceChildren(...things.map((thing, k) => {
    const button = made("button", visible(name(thing, k)), { type: "button" });
    whilePointedAt(button, () => show(thing, k), () => show(null, k));
    return button;
  }));
};

const save = async (kind, picture, view) => {
  const name = view.title.normalize("NFKD").replace(/[^\w]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "map";
  if (kind === "json") return hand(new Blob([view.json], { type: "application/json" }), `${name}.json`);
  if (kind === "npy") return hand(await (await fetch(view.npy)).blob(), `${name}.npy`);
  const canvas = document.createElement("canvas");
  if (kind === "overlay") {
    await paint(canvas, picture, view, drawing, 2048, main.region);
  } else {
    const [photo, strength] = [await load(`${picture.url}?side=2048`), await load(view.strength)];
    canvas.width = photo.naturalWidth;
    canvas.height = photo.naturalHeight;
    canvas.getContext("2d").drawImage(strength, 0, 0, canvas.width, canvas.height);
  }
  canvas.toBlob((blob) => hand(blob, `${name}.${kind}.png`), "image/png");
};

const hand = (blob, name) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};


// Asking. Each question has a number: an answer that is older than the one which is shown comes too late.

let chosen = {}; // the image: the key of one that was sent, or the name of an example
let layers = []; // of the classifier
let usualLayer = 0;
let asked = 0;
const shown = { stage: 0, findings: 0, grid: 0, matches: 0 };
const isLate = (what, number) => {
  if (number < shown[what]) return true;
  shown[what] = number;
  return false;
};
const busy = (is) => find(".stage").classList.toggle("is-busy", is);

const fetched = async (address, body) => {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let answer, said;
  try {
    answer = await fetch(address, body && options);
    said = await answer.json();
  } catch {
    throw new Error(NO_ANSWER);
  }
  if (!answer.ok) throw new Error(said.error ? `${said.error[0].toUpperCase()}${said.error.slice(1)}.` : NO_ANSWER);
  return said;
};

// A label may hold letters that an input cannot: it is shown as text, and asked for exactly unless somebody edits it.
let exact = "";
const setQuestion = (text) => { exact = text; control("question").value = visible(text); };
const question = () => { const { value } = control("question"); return value === visible(exact) ? exact : value; };

const settings = () => ({
  ...chosen,
  ...Object.fromEntries(["model", "against", "method"].map((name) => [name, control(name).value])),
  question: question(),
  layer: layers.length ? Number(control("layer").value) : null,
});

const look = async (findings) => {
  const number = ++asked;
  busy(true);
  let said;
  try {
    said = await fetched("page/look", { ...settings(), findings });
  } catch (error) {
    said = { error: error.message };
  }
  if (number === asked) busy(false);
  if (findings && said.findings && !isLate("findings", number)) showFindings(said.findings);
  if (!isLate("stage", number)) showStage(said);
};

let soon = null; // a slider that is held sends many events, of which the last counts
const lookSoon = () => { clearTimeout(soon); soon = setTimeout(() => look(true), 120); };

const showStage = ({ picture, view, error }) => {
  const failed = find(".stage-error");
  failed.textContent = visible(error || "");
  if (picture === undefined) return; // no answer: what was shown stays
  Object.assign(main, { picture, view, glance: null, region: null });
  find(".stage").classList.toggle("is-empty", !picture);
  find(".stage-title").textContent = view ? visible(view.title) : picture ? "The photograph" : "";
  find(".stage-about").textContent = view ? visible(view.about.join(" · ")) : "";
  find(".stage-notes").textContent = view ? visible(view.notes.join(" ")) : "";
  chips(find(".stage-words"), view ? view.words : [], (word) => word.word,
    (word) => glance(word && { ...view, title: word.word, strength: word.strength, regions: [], point: undefined }));
  chips(find(".stage-regions"), view ? view.regions : [], (region, k) => `region ${k + 1}`,
    (region, k) => { main.region = region ? k : null; redraw(main); });
  find(".stage-files").hidden = !view;
  markFindings();
  redraw(main, failed);
};

const markFindings = () => {
  for (const button of document.querySelectorAll(".findings button")) {
    const isShown = Boolean(main.view) && button.dataset.concept === visible(main.view.title);
    button.setAttribute("aria-pressed", String(isShown));
  }
};

const showFindings = (findings) => {
  find(".findings").replaceChildren(...findings.map((one) => {
    const button = made("button", "", { type: "button" }), item = made("li", "");
    const bar = made("span", "", { className: "finding-bar" }), filled = made("i", "");
    button.dataset.concept = visible(one.concept);
    bar.setAttribute("aria-hidden", "true");
    filled.style.width = `${100 * one.probability}%`;
    bar.append(filled);
    button.append(
      made("span", visible(one.concept), { className: "finding-name" }),
      made("span", visible(one.sure), { className: "finding-sure" }), bar);
    whilePointedAt(button, () => glance(one.view), () => glance(null));
    button.addEventListener("click", () => { setQuestion(one.concept); look(false); });
    item.append(button);
    return item;
  }));
  markFindings();
};

const compare = async () => {
  const number = ++asked, failed = find(".grid-error");
  const wanted = { concepts: control("concepts").value, methods: checked("methods"), layers: checked("layers").map(Number) };
  failed.textContent = "Comparing …";
  let said;
  try {
    said = await fetched("page/compare", { ...chosen, model: control("model").value, ...wanted });
  } catch (error) {
    said = { rows: [], error: error.message };
  }
  if (isLate("grid", number)) return;
  failed.textContent = visible(said.error || "");
  const drawn = [];
  find(".grid").replaceChildren(...said.rows.map((row) => {
    const line = made("div", "", { className: "grid-row" });
    line.append(...row.map((view) => {
      const figure = made("figure", ""), caption = made("figcaption", ""), canvas = made("canvas", "");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", visible(view.title)); // until it is drawn
      caption.append(made("b", visible(view.title)), " ", made("span", visible(view.about.join(" · "))));
      figure.append(canvas, caption);
      drawn.push([canvas, view]);
      return figure;
    }));
    return line;
  }));
  for (const [canvas, view] of drawn) { // a board needs a canvas that is in the page
    redraw(Object.assign(new Board(canvas, 420), { picture: said.picture, view }), failed);
  }
};

// Photos by words: small images at once, then the evidence in each, one after the other.

const findPhotos = async () => {
  const number = ++asked, words = control("words").value.trim(), told = find(".find-told");
  if (!words) return;
  told.textContent = "Looking …";
  let said;
  try {
    said = await fetched(`find?${new URLSearchParams({ words })}`);
  } catch (error) {
    said = { error: error.message, matches: [] };
  }
  if (isLate("matches", number)) return;
  const notes = said.error ? [said.error] : [`The ${said.matches.length} most probable of ${said.photos} photos.`];
  if (!said.error && said.hints.length) notes.push(`Ranked again by: ${said.hints.join(", ")}.`);
  if (!said.error && said.unused.length) notes.push(`Words without effect: ${said.unused.join(", ")}.`);
  told.textContent = visible(notes.join(" "));
  told.classList.toggle("is-fault", Boolean(said.error));
  found = said.matches.map((match) => {
    const item = made("li", ""), button = made("button", "", { type: "button" });
    button.append(made("img", "", { alt: "", loading: "lazy", src: `find/${match.number}` }));
    button.append(made("span", visible(`${sure(match.probability)} ${match.photo}`)));
    button.addEventListener("click", () => openPhoto(match, said.shows));
    item.append(button);
    return { match, item, words };
  });
  find(".matches").replaceChildren(...found.map(({ item }) => item));
  markEvidence();
};

let found = []; // photos whose evidence is not yet marked
let marking = false;
const markEvidence = async () => {
  if (marking) return;
  marking = true;
  while (found.length && !find("#find").hidden) { // a photo that is opened comes first
    const { match, item, words } = found.shift();
    try {
      const view = await fetched("page/evidence", { photo: match.number, words });
      const canvas = made("canvas", "");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", visible(match.photo)); // until it is drawn
      item.querySelector("img").replaceWith(canvas);
      await Object.assign(new Board(canvas, 240), { picture: { url: `find/${match.number}` }, view }).draw();
    } catch (error) {
      item.title = visible(error.message); // the small image stays
    }
  }
  marking = false;
};

const sure = (probability) => probability < 0.001 ? "<0.1%" : `${(100 * probability).toFixed(probability < 0.1 ? 1 : 0)}%`;

const openPhoto = (match, shows) => {
  choice++;
  find(".drop-told").textContent = visible(match.photo);
  chosen = { photo: match.number };
  setQuestion(shows);
  control("against").value = "";
  control("model").selectedIndex = 0; // the one that the photos were indexed with
  open(find("#tab-look"));
  find("#tab-look").focus();
  fetchLayers(null).then(() => look(true));
};

// The image.

const choose = (image) => {
  chosen = image;
  setQuestion("");
  control("against").value = "";
  look(true);
};

let choice = 0; // what was chosen last counts, also if an earlier image takes longer to be sent
const send = async (file) => {
  const mine = ++choice, told = find(".drop-told");
  told.textContent = "Sending the image …";
  try {
    const answer = await fetch("pictures", { method: "POST", body: file });
    const said = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
    if (mine !== choice) return;
    if (!answer.ok) throw new Error(said.error);
    told.textContent = visible([`${file.name || "The image"}, ${said.width} × ${said.height}`, ...said.notes].join("; "));
    choose({ picture: said.picture });
  } catch (error) {
    if (mine === choice) told.textContent = visible(`This image was not taken: ${error.message}`);
  } finally {
    control("drop").value = "";
  }
};

const area = find(".drop");
control("drop").addEventListener("change", (event) => { if (event.target.files[0]) send(event.target.files[0]); });
area.addEventListener("dragover", () => area.classList.add("is-over"));
area.addEventListener("dragleave", () => area.classList.remove("is-over"));
area.addEventListener("drop", (event) => {
  area.classList.remove("is-over");
  const file = event.dataTransfer.files[0];
  if (file) send(file);
  else find(".drop-told").textContent = "This is no file: save the image first, then drop it here.";
});
for (const name of ["dragover", "drop"]) { // beside the area too: the browser would leave the page
  window.addEventListener(name, (event) => event.preventDefault());
}
document.addEventListener("paste", (event) => {
  const file = [...((event.clipboardData && event.clipboardData.files) || [])][0];
  if (file) send(file);
});
for (const button of document.querySelectorAll("[data-example]")) {
  button.addEventListener("click", () => {
    choice++;
    find(".drop-told").textContent = button.title;
    choose({ example: button.dataset.example });
  });
}

// The other controls.

const info = (name, text) => { find(`#${name} .info`).textContent = visible(text); };
const describe = () => {
  const index = Number(control("layer").value), usual = index === usualLayer ? "" : `; the usual one is ${layers[usualLayer]}`;
  find("#layer label").textContent = layers.length ? visible(`Layer ${layers[index]}`) : "Layer";
  info("layer", layers.length ? `from the image to the words${usual}` : "");
  info("method", METHODS[control("method").value]);
};

const fetchLayers = async (index) => {
  const model = control("model").value;
  try {
    const said = await fetched(`page/layers?${new URLSearchParams({ model })}`);
    if (model !== control("model").value) return;
    [layers, usualLayer] = [said.layers, said.usual];
  } catch (error) {
    layers = [];
    find(".stage-error").textContent = visible(error.message);
  }
  const range = control("layer");
  range.max = Math.max(0, layers.length - 1);
  range.value = index !== null && index < layers.length ? index : usualLayer;
  find("#layers .choices").replaceChildren(...layers.map((name, k) => {
    const label = made("label", "");
    label.append(made("input", "", { type: "checkbox", value: k }), ` ${visible(name)}`);
    return label;
  }));
  describe();
};

const setDrawing = () => {
  Object.assign(drawing, { opacity: control("opacity").value / 100, colours: control("colours").value });
  for (const mark of MARKS) drawing[mark] = checked("marks").includes(mark);
  info("opacity", control("opacity").value);
  for (const board of boards) redraw(board);
};

const on = (names, event, act) => names.forEach((name) => find(`#${name}`).addEventListener(event, act));
const onEnter = (act) => (event) => { if (event.key === "Enter") act(); };
on(["question", "against"], "keydown", onEnter(() => look(false)));
on(["go"], "click", () => look(false));
on(["concepts"], "keydown", onEnter(compare));
on(["compare"], "click", compare);
on(["method", "layer"], "input", () => { describe(); lookSoon(); });
on(["model"], "input", () => fetchLayers(null).then(() => look(true)));
on(["opacity", "colours", "marks"], "input", setDrawing);
if (find("#find")) {
  find(".find-words").addEventListener("submit", (event) => { event.preventDefault(); findPhotos(); });
}
find(".stage-files").addEventListener("click", (event) => {
  const kind = event.target.dataset.file;
  if (kind && main.view) save(kind, main.picture, main.view);
});

// Tabs: one can be reached with the Tab key, the others from it with the arrows.

const showReport = () => {
  const { value, selectedOptions: [option] } = control("report"), frame = find(".report");
  if (frame.getAttribute("src") !== value) frame.src = value;
  frame.title = option.textContent;
  find(".report-link").href = value;
};
if (find("#report")) on(["report"], "input", showReport);
const tabs = [...document.querySelectorAll("[role=tab]")];
const open = (tab) => {
  for (const one of tabs) {
    one.setAttribute("aria-selected", String(one === tab));
    one.tabIndex = one === tab ? 0 : -1;
    document.getElementById(one.getAttribute("aria-controls")).hidden = one !== tab;
  }
  if (tab.id === "tab-beside") compare();
  if (tab.id === "tab-reports") showReport();
  if (tab.id === "tab-find") markEvidence();
};
tabs.forEach((tab, k) => {
  tab.addEventListener("click", () => open(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const other = tabs[(k + step + tabs.length) % tabs.length];
    other.focus();
    open(other);
  });
});

// A link that brings back the settings, and the image for as long as the server keeps it.

on(["share"], "click", () => {
  const { picture, example, photo, ...rest } = settings();
  const looks = { opacity: control("opacity").value, colours: drawing.colours, show: checked("marks").join(",") };
  const query = new URLSearchParams(example ? { example } : picture ? { picture } : photo !== undefined ? { photo } : {});
  for (const [name, value] of Object.entries({ ...rest, ...looks })) {
    if (name === "show" || (value !== "" && value !== null)) query.set(name, value); // also if nothing is shown
  }
  const address = `${location.origin}${location.pathname}?${query}`;
  history.replaceState(null, "", address);
  if (navigator.clipboard) navigator.clipboard.writeText(address).catch(() => {});
  control("address").value = address;
  find("#address").hidden = false;
});

const start = async () => {
  const query = new URLSearchParams(location.search);
  const number = (name, most) => /^\d{1,5}$/.test(query.get(name)) && query.get(name) <= most ? Number(query.get(name)) : null;
  for (const name of ["model", "method", "colours"]) {
    const wanted = [...control(name).options].find((option) => option.value === query.get(name));
    if (wanted) wanted.selected = true;
  }
  setQuestion(query.get("question") || "");
  control("against").value = query.get("against") || "";
  control("opacity").value = number("opacity", 100) ?? control("opacity").defaultValue;
  for (const box of document.querySelectorAll("#marks input")) {
    box.checked = !query.has("show") || query.get("show").split(",").includes(box.value);
  }
  setDrawing();
  const first = find("[data-example]");
  if (query.get("example")) chosen = { example: query.get("example") };
  else if (query.get("picture")) chosen = { picture: query.get("picture") };
  else if (find("#find") && /^\d{1,9}$/.test(query.get("photo"))) chosen = { photo: Number(query.get("photo")) };
  else if (first) chosen = { example: first.dataset.example };
  await fetchLayers(number("layer", 99999));
  if (chosen.example || chosen.picture || chosen.photo !== undefined) await look(true);
};
start();

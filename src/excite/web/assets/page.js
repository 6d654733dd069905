// What gradio's own components cannot do: maps are coloured in the browser, so that opacity and colours follow the hand,
// and a finding shows its map while the pointer or the keyboard's focus rests on it.
window.excite = (() => {
  "use strict";
  const TABLES = /*TABLES*/ {};
  const SATURATION = 0.15, BRIGHTNESS = 0.8, GAMMA = 0.6; // as readouts/overlay.py
  const look = { opacity: 0.6, colours: "evidence", point: true, box: true, regions: true };
  const boards = new Set(); // every canvas that shows an image with a map
  const kept = new Map(); // images and maps by address, the last few

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

  // The image without much colour or light, and over it the map's colours, the more the more evidence there is.
  const blend = (photo, strength, settings) => {
    const out = new ImageData(photo.width, photo.height);
    const table = TABLES[settings.colours] || TABLES.evidence;
    const cover = Float32Array.from({ length: 256 }, (_, k) => (k / 255) ** GAMMA * settings.opacity);
    const from = photo.data, map = strength && strength.data, to = out.data;
    for (let i = 0; i < from.length; i += 4) {
      const grey = 0.299 * from[i] + 0.587 * from[i + 1] + 0.114 * from[i + 2];
      const k = map ? map[i] : 0, share = cover[k], colour = 3 * k;
      for (let c = 0; c < 3; c++) {
        const dimmed = BRIGHTNESS * (grey + SATURATION * (from[i + c] - grey));
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
    const thick = Math.max(1.5, Math.sqrt(width * height) / 280);
    const box = ([x0, y0, x1, y1]) => context.rect(x0 * width, y0 * height, (x1 - x0) * width, (y1 - y0) * height);
    if (settings.box && view.box) lines(context, thick, () => box(view.box));
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
      await paint(hidden, this.picture, view, look, this.side, this.glance ? null : this.region);
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

  let main = null; // the large board
  const busy = (is) => { for (const one of document.querySelectorAll(".stage")) one.classList.toggle("is-busy", is); };
  const glance = (view) => { if (main) { main.glance = view; main.draw().catch(() => {}); } }; // told when it was shown

  // What was dropped or picked last, and how often something was asked: an answer that is older than the one which is
  // shown comes too late, and is not shown.
  let dropped = null, turn = 0;
  const asked = (values) => {
    busy(true);
    return [{ ...(dropped || values[0] || {}), turn: ++turn }, ...values.slice(1)];
  };
  const failed = () => {
    busy(false);
    for (const one of document.querySelectorAll(".stage-error, .grid-error")) {
      one.textContent = "The server gave no answer: try again, or load the page again.";
    }
  };
  const isLate = (value, shown) => Boolean(shown) && (value.turn || 0) < (shown.turn || 0);

  // Labels and file names may hold anything: control characters and the like are shown as escapes, as in errors.py.
  const visible = (text) => String(text).replace(/(?! )[\p{C}\p{Z}]/gu, (sign) => {
    const code = sign.codePointAt(0).toString(16);
    return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
  });
  const escaped = (text) => visible(text).replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);

  const stage = (element, props) => {
    const find = (name) => element.querySelector(name);
    main = new Board(find("canvas"), 1024);
    let shown = null;
    const refresh = () => {
      const value = props.value || {};
      if (isLate(value, shown)) return;
      shown = value;
      busy(false);
      Object.assign(main, { picture: value.picture || null, view: value.view || null, glance: null, region: null });
      const view = main.view;
      element.querySelector(".stage").classList.toggle("is-empty", !value.picture);
      find(".stage-title").textContent = view ? visible(view.title) : value.picture ? "The photograph" : "";
      find(".stage-about").textContent = view ? visible(view.about.join(" · ")) : "";
      find(".stage-error").textContent = visible(value.error || "");
      find(".stage-notes").textContent = view ? visible(view.notes.join(" ")) : "";
      chips(find(".stage-words"), view ? view.words : [], (word) => word.word,
        (word) => glance(word && { ...view, title: word.word, strength: word.strength, regions: [], point: undefined }));
      chips(find(".stage-regions"), view ? view.regions : [], (region, k) => `region ${k + 1}`,
        (region, k) => { main.region = region ? k : null; main.draw().catch(() => {}); }); // told when it was shown
      find(".stage-files").hidden = !view;
      for (const button of document.querySelectorAll(".findings button")) {
        button.setAttribute("aria-pressed", String(Boolean(view) && button.dataset.concept === visible(view.title)));
      }
      main.draw().catch((error) => { find(".stage-error").textContent = error.message; });
    };
    find(".stage-files").addEventListener("click", (event) => {
      const kind = event.target.dataset.file;
      if (kind && shown && shown.view) save(kind, shown.picture, shown.view);
    });
    refresh();
    return refresh;
  };

  // Small buttons that show something for as long as they are pointed at or have the focus.
  const chips = (list, things, name, show) => {
    list.hidden = !things.length;
    list.querySelector(".chips").replaceChildren(...things.map((thing, k) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = visible(name(thing, k));
      for (const event of ["pointerenter", "focus"]) button.addEventListener(event, () => show(thing, k));
      for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => show(null, k));
      return button;
    }));
  };

  const save = async (kind, picture, view) => {
    const name = view.title.normalize("NFKD").replace(/[^\w]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "map";
    if (kind === "json") return hand(new Blob([view.json], { type: "application/json" }), `${name}.json`);
    if (kind === "npy") return hand(await (await fetch(view.npy)).blob(), `${name}.npy`);
    const canvas = document.createElement("canvas");
    if (kind === "overlay") {
      await paint(canvas, picture, view, look, 2048, main && main.region);
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

  const drop = (element, trigger) => {
    const [input, area, told] = ["input", ".drop", ".drop-told"].map((name) => element.querySelector(name));
    let choice = 0; // what was chosen last counts, also if an earlier image takes longer to be sent
    const send = async (file) => {
      const mine = ++choice;
      told.textContent = "Sending the image …";
      try {
        const answer = await fetch("pictures", { method: "POST", body: file });
        const said = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
        if (mine !== choice) return;
        if (!answer.ok) throw new Error(said.error);
        const name = file.name || "The image";
        told.textContent = visible([`${name}, ${said.width} × ${said.height}`, ...said.notes].join("; "));
        dropped = { picture: said.picture };
        trigger("upload");
      } catch (error) {
        if (mine === choice) told.textContent = visible(`This image was not taken: ${error.message}`);
      } finally {
        input.value = "";
      }
    };
    input.addEventListener("change", () => { if (input.files[0]) send(input.files[0]); });
    area.addEventListener("dragover", (event) => { event.preventDefault(); area.classList.add("is-over"); });
    area.addEventListener("dragleave", () => area.classList.remove("is-over"));
    area.addEventListener("drop", (event) => {
      event.preventDefault();
      area.classList.remove("is-over");
      const file = event.dataTransfer.files[0];
      if (file) send(file);
      else told.textContent = "This is no file: save the image first, then drop it here.";
    });
    document.addEventListener("paste", (event) => {
      const file = [...((event.clipboardData && event.clipboardData.files) || [])][0];
      if (file) send(file);
    });
    for (const name of ["dragover", "drop"]) { // beside the area too: the browser would leave the page
      window.addEventListener(name, (event) => event.preventDefault());
    }
    element.addEventListener("click", (event) => {
      const example = event.target.closest("[data-example]");
      if (!example) return;
      choice++;
      told.textContent = example.title;
      dropped = { example: example.dataset.example };
      trigger("upload");
    });
  };

  const findings = (element, props, trigger) => {
    const list = element.querySelector(".findings");
    let shown = null;
    const refresh = () => {
      const value = props.value || { findings: [] };
      if (isLate(value, shown)) return;
      shown = value;
      list.replaceChildren(...value.findings.map((one) => {
        const button = document.createElement("button");
        button.type = "button";
        button.dataset.concept = visible(one.concept);
        button.setAttribute("aria-pressed", String(Boolean(main && main.view) && main.view.title === one.concept));
        button.innerHTML = `<span class="finding-name">${escaped(one.concept)}</span>` +
          `<span class="finding-sure">${escaped(one.sure)}</span>` +
          `<span class="finding-bar" aria-hidden="true"><i style="width:${100 * one.probability}%"></i></span>`;
        for (const event of ["pointerenter", "focus"]) button.addEventListener(event, () => glance(one.view));
        for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => glance(null));
        button.addEventListener("click", () => trigger("select", { concept: one.concept }));
        const item = document.createElement("li");
        item.append(button);
        return item;
      }));
    };
    refresh();
    return refresh;
  };

  const grid = (element, props) => {
    const place = element.querySelector(".grid");
    const refresh = () => {
      const value = props.value || { picture: null, rows: [], error: null };
      busy(false);
      element.querySelector(".grid-error").textContent = visible(value.error || "");
      place.replaceChildren(...value.rows.map((row) => {
        const line = document.createElement("div");
        line.className = "grid-row";
        line.append(...row.map((view) => {
          const figure = document.createElement("figure"), canvas = document.createElement("canvas");
          const caption = document.createElement("figcaption");
          canvas.setAttribute("role", "img");
          caption.innerHTML = `<b>${escaped(view.title)}</b> <span>${escaped(view.about.join(" · "))}</span>`;
          figure.append(canvas, caption);
          setTimeout(() => { // once it is in the page
            const board = new Board(canvas, 420);
            Object.assign(board, { picture: value.picture, view });
            board.draw().catch((error) => { element.querySelector(".grid-error").textContent = error.message; });
          });
          return figure;
        }));
        return line;
      }));
    };
    refresh();
    return refresh;
  };

  const setLook = (opacity, colours, shown) => {
    Object.assign(look, { opacity: opacity / 100, colours });
    for (const mark of ["point", "box", "regions"]) look[mark] = shown.includes(mark);
    for (const board of boards) board.draw().catch(() => {}); // told when it was shown
  };

  // A link that brings back the settings, and the image for as long as the server keeps it.
  const link = (value, names, values) => {
    const query = new URLSearchParams(), place = dropped || value || {};
    if (place.example) query.set("example", place.example);
    else if (place.picture) query.set("picture", place.picture);
    names.forEach((name, k) => {
      if (Array.isArray(values[k])) query.set(name, values[k].join(",")); // also if nothing is chosen
      else if (values[k] !== null && values[k] !== "" && values[k] !== undefined) query.set(name, values[k]);
    });
    const address = `${location.origin}${location.pathname}?${query}`;
    history.replaceState(null, "", address);
    if (navigator.clipboard) navigator.clipboard.writeText(address).catch(() => {});
    return address;
  };

  return { stage, drop, findings, grid, setLook, link, asked, failed };
})();

"use strict";
// Draws PAGE, the data of the page: texts of tokens, and maps of weights, see attention.py.
const PIXELS = 64; // of a small map, at most
const LEAST = 0.1; // the smallest weight that has a line if no token is chosen
const SHOWN = 10; // of the largest weights of a token, at most

function make(parent, tag, properties = {}) {
  const element = Object.assign(document.createElement(tag), properties);
  parent.append(element);
  return element;
}

// Returns the weight of a query and a key of one head.
function weightOf(map, layer, head, query, key) {
  const index = ((layer * map.heads + head) * map.rows + query) * map.columns + key;
  const code = map.weights.charCodeAt(index);
  const [short, first, next] = PAGE.short;
  return (code < next ? code - first : code - next + short) / PAGE.scale;
}

// Makes one of the items the stop of the Tab key; the arrow keys go to the others.
function walk(container, items, columns, sign) {
  const stop = chosen => items.forEach(item => { item.tabIndex = item === chosen ? 0 : -1; });
  stop(items[0]);
  container.addEventListener("focusin", event => stop(event.target));
  container.addEventListener("keydown", event => {
    const steps = {ArrowRight: sign, ArrowLeft: -sign, ArrowDown: columns, ArrowUp: -columns};
    const next = items[items.indexOf(document.activeElement) + steps[event.key]];
    if (next) {
      next.focus();
      event.preventDefault();
    }
  });
}

// Draws the map of a head; of a long text, a pixel is the largest weight of several tokens.
function drawMap(canvas, map, layer, head) {
  canvas.width = Math.min(map.columns, PIXELS);
  canvas.height = Math.min(map.rows, PIXELS);
  const largest = new Float32Array(canvas.width * canvas.height);
  for (let query = 0; query < map.rows; query++) {
    const row = Math.floor(query * canvas.height / map.rows) * canvas.width;
    for (let key = 0; key < map.columns; key++) {
      const place = row + Math.floor(key * canvas.width / map.columns);
      largest[place] = Math.max(largest[place], weightOf(map, layer, head, query, key));
    }
  }
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(canvas).getPropertyValue("--mark");
  const most = largest.reduce((a, b) => Math.max(a, b), 1 / PAGE.scale);
  largest.forEach((weight, place) => {
    context.globalAlpha = weight / most;
    context.fillRect(place % canvas.width, Math.floor(place / canvas.width), 1, 1);
  });
}

// Makes the small maps of all heads; choose(layer, head) is called for one of them.
function makeHeads(section, map, choose) {
  const grid = make(section, "div", {className: "heads"});
  grid.style.gridTemplateColumns = `repeat(${map.heads + 1}, max-content)`;
  const buttons = [];
  for (let layer = 0; layer < map.layers; layer++) {
    make(grid, "span", {textContent: `layer ${layer + 1}`});
    for (let head = 0; head < map.heads; head++) {
      const title = `layer ${layer + 1}, head ${head + 1}`;
      const button = make(grid, "button", {title, ariaLabel: title, type: "button"});
      drawMap(make(button, "canvas"), map, layer, head);
      button.addEventListener("focus", () => {
        buttons.forEach(other => { other.ariaPressed = String(other === button); });
        choose(layer, head);
      });
      button.addEventListener("click", () => button.focus()); // Safari does not focus buttons
      buttons.push(button);
    }
  }
  walk(grid, buttons, map.heads, 1);
  buttons[0].ariaPressed = "true";
}

// Makes the tokens of a text, those of a word without a space between them; returns their elements.
function makeText(view, text, label) {
  make(view, "div", {className: "side", textContent: label});
  const paragraph = make(view, "p", {dir: text.direction, role: "listbox", ariaLabel: label});
  const elements = text.tokens.map((token, index) => {
    if (index && text.words[index] !== text.words[index - 1]) paragraph.append(" ");
    const className = text.special[index] ? "token special" : "token";
    return make(paragraph, "span", {className, role: "option", textContent: token || "·"});
  });
  walk(paragraph, elements, 1, text.direction === "rtl" ? -1 : 1);
  return elements;
}

// Returns where lines end: the middle of an edge of each element, in the pixels of the view.
function findEnds(view, elements, edge) {
  const frame = view.getBoundingClientRect();
  return elements.map(element => {
    const box = element.getBoundingClientRect();
    return [box.left + box.width / 2 - frame.left, box[edge] - frame.top];
  });
}

function drawLine(svg, [x1, y1], [x2, y2], weight) {
  const line = document.createElementNS(svg.namespaceURI, "line");
  const places = {x1, y1, x2, y2, "stroke-opacity": weight, "stroke-width": 1 + 3 * weight};
  Object.entries(places).forEach(([name, value]) => line.setAttribute(name, value));
  svg.append(line);
}

// Makes a section: all heads of a map, and two lines of text, the tokens that read and those that are read.
function makeSection(map) {
  map.rows = PAGE.texts[map.queries].tokens.length;
  map.columns = PAGE.texts[map.keys].tokens.length;
  const section = make(document.getElementById("maps"), "section");
  make(section, "h2", {textContent: map.name});
  const head = [0, 0];
  let chosen = null; // [side, index of a token], by the keyboard or a click
  makeHeads(section, map, (layer, number) => { head.splice(0, 2, layer, number); draw(chosen); });
  const title = make(section, "h3");
  const view = make(section, "div", {className: "view"});
  view.innerHTML = "<svg aria-hidden='true'></svg>";
  const svg = view.firstChild;
  const texts = [PAGE.texts[map.queries], PAGE.texts[map.keys]];
  const sides = [makeText(view, texts[0], "reads"), makeText(view, texts[1], "is read")];
  const numbers = make(section, "p", {className: "numbers", ariaLive: "polite"});
  let ends = [[], []];

  function draw(choice) {
    const weight = (query, key) => weightOf(map, ...head, query, key);
    title.textContent = `Layer ${head[0] + 1}, head ${head[1] + 1}`;
    svg.replaceChildren();
    sides.flat().forEach(element => {
      element.style.removeProperty("--share");
      element.ariaSelected = "false";
    });
    numbers.textContent = "";
    if (!choice) {
      ends[0].forEach((query, row) => ends[1].forEach((key, column) => {
        const value = weight(row, column);
        if (value >= LEAST) drawLine(svg, query, key, value);
      }));
      return;
    }
    const [side, index] = choice;
    const other = 1 - side;
    const weights = sides[other].map((_, place) => side ? weight(place, index) : weight(index, place));
    sides[side][index].ariaSelected = "true";
    weights.forEach((value, place) => {
      sides[other][place].style.setProperty("--share", value);
      const [query, key] = side ? [place, index] : [index, place];
      if (value) drawLine(svg, ends[0][query], ends[1][key], value);
    });
    const order = weights.map((_, place) => place).sort((a, b) => weights[b] - weights[a]);
    const largest = order.slice(0, SHOWN).filter(place => weights[place] > 0);
    const list = largest.map(place => `${sides[other][place].textContent} ${weights[place].toFixed(3)}`);
    const verb = side ? "is read by" : "reads";
    numbers.textContent = `${sides[side][index].textContent} ${verb} ${list.join(", ") || "nothing"}`;
  }

  sides.forEach((elements, side) => elements.forEach((element, index) => {
    element.addEventListener("mouseenter", () => draw([side, index]));
    element.addEventListener("click", () => element.focus());
    element.addEventListener("focus", () => {
      chosen = [side, index];
      draw(chosen);
    });
  }));
  view.addEventListener("mouseleave", () => draw(chosen));
  section.addEventListener("keydown", event => {
    if (event.key !== "Escape") return;
    chosen = null;
    draw(chosen);
  });
  new ResizeObserver(() => {
    ends = [findEnds(view, sides[0], "bottom"), findEnds(view, sides[1], "top")];
    draw(chosen);
  }).observe(view);
}

PAGE.maps.forEach(makeSection);

"use strict";
// Draws PAGE, the maps of attention.py: all heads of a map, and the tokens of both sides.
const PIXELS = 64; // of a small map
const FAINT = 0.1; // what a small map leaves out, the root of a weight
const LEAST = 0.1; // a weight that has a line if no token is chosen
const SHOWN = 10; // numbers, at most

function make(parent, tag, properties) {
  const element = Object.assign(document.createElement(tag), properties);
  parent.append(element);
  return element;
}

// Calls choose(index) for the item that has the focus, by a click, or by Tab and the arrow keys.
function walk(items, choose, columns, sign = 1) {
  const steps = {ArrowRight: sign, ArrowLeft: -sign, ArrowDown: columns, ArrowUp: -columns};
  items.forEach((item, index) => {
    item.tabIndex = index ? -1 : 0;
    item.onclick = () => item.focus();
    item.onfocus = () => choose(index);
    item.onkeydown = event => {
      const next = items[index + steps[event.key]];
      if (!next) return;
      event.preventDefault();
      next.focus();
    };
  });
}

// Returns the weights of a head as a function of the query and the key.
function headOf(map, number) {
  return (query, key) => {
    const code = map.weights.charCodeAt((number * map.rows + query) * map.columns + key);
    return (code < map.next ? code - map.first : code - map.next + map.short) / map.scale;
  };
}

function drawHead(canvas, map, weight) {
  canvas.width = canvas.height = PIXELS;
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(canvas).color;
  context.scale(PIXELS / map.columns, PIXELS / map.rows);
  for (let query = 0; query < map.rows; query++) {
    for (let key = 0; key < map.columns; key++) {
      const alpha = Math.sqrt(weight(query, key));
      if (alpha < FAINT) continue;
      context.globalAlpha = alpha;
      context.fillRect(key, query, 1, 1);
    }
  }
}

// Makes a button with a small map for each head; returns them.
function makeHeads(section, map) {
  const grid = make(section, "div", {className: "heads"});
  grid.style.setProperty("--heads", map.heads);
  return Array.from({length: map.layers * map.heads}, (_, number) => {
    const layer = Math.floor(number / map.heads) + 1;
    const title = `layer ${layer}, head ${number % map.heads + 1}`;
    const button = make(grid, "button", {title, ariaLabel: title});
    drawHead(make(button, "canvas"), map, headOf(map, number));
    return button;
  });
}

// Makes the tokens of a text, those of a word without a space between them; returns them.
function makeText(view, text, label) {
  make(view, "div", {className: "faint", textContent: label});
  const paragraph = make(view, "p", {dir: text.direction, role: "listbox", ariaLabel: label});
  return text.texts.map((token, index) => {
    if (text.words[index] !== text.words[index - 1]) paragraph.append(" ");
    const className = text.is_special[index] ? "faint" : "";
    return make(paragraph, "span", {className, role: "option", textContent: token || "·"});
  });
}

// Makes the section of a map.
function makeSection(map) {
  const section = make(document.querySelector("main"), "section");
  make(section, "h2", {textContent: map.name});
  const buttons = makeHeads(section, map);
  const title = make(section, "h3");
  const view = make(section, "div", {className: "view"});
  view.innerHTML = "<svg aria-hidden='true'></svg>";
  const sides = [makeText(view, map.queries, "reads"), makeText(view, map.keys, "is read")];
  const numbers = make(section, "p", {className: "numbers", ariaLive: "polite"});
  let head;
  let token = []; // side and index of the chosen one

  // Shows the weights of a token of a side, or the large ones of all tokens.
  function show(side, index) {
    const chosen = sides[side]?.[index];
    const weight = headOf(map, head);
    const pairs = [];
    for (let query = 0; query < map.rows; query++) {
      for (let key = 0; key < map.columns; key++) {
        const value = weight(query, key);
        const isShown = chosen ? value && [query, key][side] === index : value >= LEAST;
        if (isShown) pairs.push({value, ends: [sides[0][query], sides[1][key]]});
      }
    }
    sides.flat().forEach(element => {
      element.ariaSelected = element === chosen;
      element.style.setProperty("--share", 0);
    });
    drawLines(pairs);
    if (!chosen) {
      numbers.textContent = "";
      return;
    }
    pairs.sort((a, b) => b.value - a.value);
    pairs.forEach(pair => pair.ends[1 - side].style.setProperty("--share", pair.value));
    const list = pairs.slice(0, SHOWN).map(({value, ends}) => `${ends[1 - side].textContent} ${value}`);
    numbers.textContent = `${chosen.textContent} ${["reads", "is read by"][side]} ${list.join(", ")}`;
  }

  function drawLines(pairs) {
    const frame = view.getBoundingClientRect();
    const lines = pairs.map(({value, ends}) => {
      const [from, to] = ends.map(element => element.getBoundingClientRect());
      const [x1, x2] = [from, to].map(box => box.left + box.width / 2 - frame.left);
      const ys = `y1="${from.bottom - frame.top}" y2="${to.top - frame.top}"`;
      return `<line x1="${x1}" x2="${x2}" ${ys} opacity="${value}" stroke-width="${1 + 3 * value}"/>`;
    });
    view.firstChild.innerHTML = lines.join("");
  }

  function choose(side, index) {
    token = [side, index];
    show(...token);
  }

  function chooseHead(number) {
    head = number;
    buttons.forEach((button, index) => { button.ariaPressed = index === head; });
    title.textContent = buttons[head].title;
    show(...token);
  }

  sides.forEach((elements, side) => {
    const isLeft = [map.queries, map.keys][side].direction === "rtl";
    walk(elements, index => choose(side, index), 1, isLeft ? -1 : 1);
    elements.forEach((element, index) => { element.onmouseenter = () => show(side, index); });
  });
  walk(buttons, chooseHead, map.heads);
  view.onmouseleave = () => show(...token);
  section.addEventListener("keydown", event => { if (event.key === "Escape") choose(); });
  addEventListener("resize", () => show(...token));
  chooseHead(0);
}

PAGE.forEach(makeSection);

"use strict";
// Draws PAGE, the weights of the maps of attention.py, into the sections of the page.
const PIXELS = 64; // of a small map
const LEAST = 0.1; // a weight that has a line if no token is chosen
const SHOWN = 10; // numbers, at most

// Calls choose(index) for the item with the focus, which a click, Tab, and the arrow keys move.
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

// Calls visit(query, key, weight) for the weights of a head that are not 0, see `encode` of attention.py.
function visitWeights(map, head, visit) {
  const size = map.rows * map.columns;
  for (let place = 0; place < size; place++) {
    const code = map.weights.charCodeAt(head * size + place);
    const weight = (code - (code < 128 ? 65 : 134)) / 1000;
    if (weight) visit(Math.floor(place / map.columns), place % map.columns, weight);
  }
}

function drawHead(canvas, map, head) {
  canvas.width = canvas.height = PIXELS;
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(canvas).color;
  context.scale(PIXELS / map.columns, PIXELS / map.rows);
  visitWeights(map, head, (query, key, weight) => {
    context.globalAlpha = Math.sqrt(weight);
    if (weight > 0.01) context.fillRect(key, query, 1, 1);
  });
}

// Returns a line from a token that reads to one that is read.
function makeLine(view, {weight, ends}) {
  const frame = view.getBoundingClientRect();
  const [from, to] = ends.map(element => element.getBoundingClientRect());
  const [x1, x2] = [from, to].map(box => box.left + box.width / 2 - frame.left);
  const ys = `y1="${from.bottom - frame.top}" y2="${to.top - frame.top}"`;
  return `<line x1="${x1}" x2="${x2}" ${ys} opacity="${weight}" stroke-width="${1 + 3 * weight}"/>`;
}

function drawSection(map, section) {
  const buttons = [...section.querySelectorAll("button")];
  const view = section.querySelector(".view");
  const texts = [...view.querySelectorAll("p")];
  const sides = texts.map(text => [...text.children]);
  const numbers = section.querySelector(".numbers");
  let head = 0;
  let token = []; // side and index of the chosen one

  // Shows the weights of a token of a side; without one, the large ones of all tokens.
  function show([side, index]) {
    const pairs = [];
    visitWeights(map, head, (query, key, weight) => {
      const isShown = side === undefined ? weight >= LEAST : [query, key][side] === index;
      if (isShown) pairs.push({weight, ends: [sides[0][query], sides[1][key]]});
    });
    view.querySelector("svg").innerHTML = pairs.map(pair => makeLine(view, pair)).join("");
    const chosen = sides[side]?.[index];
    sides.flat().forEach(element => {
      element.ariaSelected = element === chosen;
      element.style.setProperty("--share", 0);
    });
    numbers.textContent = "";
    if (!chosen) return;
    pairs.sort((a, b) => b.weight - a.weight);
    pairs.forEach(({weight, ends}) => ends[1 - side].style.setProperty("--share", weight));
    const list = pairs.map(({weight, ends}) => `${ends[1 - side].textContent} ${weight}`);
    const verb = ["reads", "is read by"][side];
    numbers.textContent = `${chosen.textContent} ${verb} ${list.slice(0, SHOWN).join(", ")}`;
  }

  function chooseHead(index) {
    head = index;
    section.querySelector("h3").textContent = buttons[head].title;
    buttons.forEach((button, number) => { button.ariaPressed = number === head; });
    show(token);
  }

  function chooseToken(...chosen) {
    token = chosen;
    show(token);
  }

  buttons.forEach((button, number) => drawHead(button.firstChild, map, number));
  walk(buttons, chooseHead, map.heads);
  sides.forEach((elements, side) => {
    const sign = texts[side].dir === "rtl" ? -1 : 1;
    walk(elements, index => chooseToken(side, index), 1, sign);
    elements.forEach((element, index) => { element.onmouseenter = () => show([side, index]); });
  });
  view.onmouseleave = () => show(token);
  section.onkeydown = event => { if (event.key === "Escape") chooseToken(); };
  addEventListener("resize", () => show(token));
  chooseHead(0);
}

document.querySelectorAll("section").forEach((section, number) => drawSection(PAGE[number], section));

"use strict";
// Draws PAGE, the weights of the maps of attention.py, into the sections of the page.
const PIXELS = 64; // of a small map
const LEAST = 0.1; // a weight that has a line if the pointer is on no token
const SHOWN = 10; // numbers, at most

// Yields [query, key, weight] of the weights of a head that are not 0, see `encode` of attention.py.
function* readWeights({weights, queries, keys}, head) {
  const size = queries * keys;
  for (let place = 0; place < size; place++) {
    const code = weights.charCodeAt(head * size + place);
    const weight = (code - (code < 128 ? 65 : 134)) / 1000;
    if (weight) yield [Math.floor(place / keys), place % keys, weight];
  }
}

function drawHead(canvas, map, head) {
  canvas.width = canvas.height = PIXELS;
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(canvas).color;
  context.scale(PIXELS / map.keys, PIXELS / map.queries);
  for (const [query, key, weight] of readWeights(map, head)) {
    context.globalAlpha = Math.sqrt(weight);
    context.fillRect(key, query, 1, 1);
  }
}

// Returns a line from a token that reads to one that is read.
function makeLine(view, weight, ends) {
  const frame = view.getBoundingClientRect();
  const [from, to] = ends.map(element => element.getBoundingClientRect());
  const [x1, x2] = [from, to].map(box => box.left + box.width / 2 - frame.left);
  const ys = `y1="${from.bottom - frame.top}" y2="${to.top - frame.top}"`;
  return `<line x1="${x1}" x2="${x2}" ${ys} opacity="${weight}" stroke-width="${1 + 3 * weight}"/>`;
}

function drawSection(map, section) {
  const heads = [...section.querySelectorAll(".heads label")];
  const view = section.querySelector(".view");
  const sides = [...view.querySelectorAll("p")].map(text => [...text.children]);

  // Shows the weights of the token with the pointer or the focus; without one, the large ones of all tokens.
  function show() {
    const head = heads.findIndex(label => label.control.checked);
    section.querySelector("h3").textContent = heads[head].title;
    const token = view.querySelector("span:hover") ?? view.querySelector("span:focus");
    const pairs = [...readWeights(map, head)]
      .map(([query, key, weight]) => ({weight, ends: [sides[0][query], sides[1][key]]}))
      .filter(({weight, ends}) => token ? ends.includes(token) : weight >= LEAST)
      .sort((a, b) => b.weight - a.weight);
    view.querySelector("svg").innerHTML = pairs.map(({weight, ends}) => makeLine(view, weight, ends)).join("");
    const side = sides.findIndex(elements => elements.includes(token));
    const others = pairs.map(({weight, ends}) => ({weight, element: ends[1 - side]}));
    sides.flat().forEach(element => element.style.setProperty("--share", 0));
    if (token) others.forEach(({weight, element}) => element.style.setProperty("--share", weight));
    const list = others.slice(0, SHOWN).map(({weight, element}) => `${element?.textContent} ${weight}`);
    section.querySelector(".numbers").textContent =
      token ? `${token.textContent} ${["reads", "is read by"][side]} ${list.join(", ")}` : "";
  }

  heads.forEach((label, head) => drawHead(label.querySelector("canvas"), map, head));
  for (const name of ["mouseover", "mouseleave", "focusin", "focusout"]) view.addEventListener(name, show);
  section.addEventListener("change", show);
  addEventListener("resize", show);
  heads[0].control.checked = true;
  show();
}

document.querySelectorAll("section").forEach((section, number) => drawSection(PAGE[number], section));

// What a person would call broken on this page, as a list of sentences. Run by tools/browser.py; smallest: pixels of a letter.
const smallest = arguments[0];
const faults = new Set();
const wide = innerWidth >= 1000;
const edge = document.documentElement;
const SILENT = "script, style, noscript, title, desc, template, select";

const shown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
const named = (element) => {
  const type = element.tagName.toLowerCase();
  const name = element.getAttribute("class");
  return name ? `${type}.${name.trim().split(/\s+/).join(".")}` : type;
};
const quoted = (text) => `"${text.trim().replace(/\s+/g, " ").slice(0, 60)}"`;

// ---- frames: what cuts an element off, and what scrolls it

function frames(element) {
  const found = [];
  for (let frame = element; frame && frame !== edge && frame !== document.body; frame = frame.parentElement) {
    const style = getComputedStyle(frame);
    const x = style.overflowX, y = style.overflowY;
    if (x !== "visible" || y !== "visible") found.push({ frame, x, y, rect: frame.getBoundingClientRect() });
    if (style.position === "fixed") break;
  }
  return found;
}

function cutOff(rect, around) {
  for (const { x, y, rect: frame } of around) {
    if (x === "auto" || x === "scroll" || y === "auto" || y === "scroll") return false;
    if ((x === "hidden" || x === "clip") && (rect.right > frame.right + 1 || rect.left < frame.left - 1)) return true;
    if ((y === "hidden" || y === "clip") && rect.bottom > frame.bottom + 2) return true;
  }
  return false;
}

function visible(rect, around) {
  let { left, top, right, bottom } = rect;
  for (const { rect: frame } of around) {
    left = Math.max(left, frame.left);
    top = Math.max(top, frame.top);
    right = Math.min(right, frame.right);
    bottom = Math.min(bottom, frame.bottom);
  }
  return { left, top, right, bottom };
}

// ---- colours

const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function rgba(colour) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
}
const over = (top, below) => top.slice(0, 3).map((part, index) => part * top[3] + below[index] * (1 - top[3]));
function luminance(colour) {
  const [r, g, b] = colour.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(element) {
  const layers = [];
  for (let part = element; part; part = part.parentElement) layers.push(rgba(getComputedStyle(part).backgroundColor));
  let below = matchMedia("(prefers-color-scheme: dark)").matches ? [0, 0, 0] : [255, 255, 255];
  for (const layer of layers.reverse()) below = over(layer, below);
  const text = over(rgba(getComputedStyle(element).color), below);
  const [light, dark] = [luminance(text), luminance(below)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

// ---- the page as a whole, after its styles have settled

await new Promise((settled) => requestAnimationFrame(() => requestAnimationFrame(settled)));

if (edge.scrollWidth > edge.clientWidth + 1) {
  const widest = [...document.body.querySelectorAll("*")].filter(shown)
    .filter((element) => element.getBoundingClientRect().right > edge.clientWidth + 1 && !frames(element.parentElement).length);
  faults.add(`the page scrolls sideways: ${edge.scrollWidth} of ${edge.clientWidth} px, by ${widest.slice(0, 3).map(named).join(", ")}`);
}
for (const element of document.body.querySelectorAll("*")) {
  const scrolls = ["auto", "scroll"].includes(getComputedStyle(element).overflowX) && element.scrollWidth > element.clientWidth + 1;
  if (wide && scrolls && shown(element) && element.querySelector("table"))
    faults.add(`a table is wider than its frame: ${element.scrollWidth} of ${element.clientWidth} px, ${named(element)}`);
}

// Nobody sees that a table of a report, or one of options, has more columns beside the edge of a phone.
for (const frame of wide ? [] : document.querySelectorAll(".scroll, .md-typeset__scrollwrap")) {
  const right = Math.min(frame.getBoundingClientRect().right, edge.clientWidth);
  const hidden = [...frame.querySelectorAll("thead th")].filter((title) => shown(title) && title.getBoundingClientRect().left > right - 24);
  const isOurs = frame.matches(".list") || /^(option|key)$/.test(frame.querySelector("thead th")?.textContent.trim());
  if (isOurs && hidden.length) faults.add(`columns are out of sight: ${hidden.map((title) => quoted(title.textContent)).join(", ")}`);
}
for (const cell of document.querySelectorAll(".list td")) {
  if (shown(cell) && !cell.textContent.trim()) faults.add(`an empty cell: ${quoted(cell.dataset.title || "")} of ${quoted(cell.parentElement.textContent)}`);
}
// The first page is what is pasted: a line that is cut is pasted without being read.
if (wide && location.pathname.endsWith("/site/index.html")) {
  for (const block of document.querySelectorAll("pre > code")) {
    if (block.scrollWidth > block.clientWidth + 1) faults.add(`a code block is cut: ${block.scrollWidth} of ${block.clientWidth} px, ${quoted(block.textContent)}`);
  }
}

// ---- texts

const boxes = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const checked = new Map();
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const parent = node.parentElement, text = node.data;
  if (!text.trim() || parent.closest(SILENT) || !shown(parent)) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  const rects = [...range.getClientRects()].filter((rect) => rect.width > 1 && rect.height > 1 && rect.right > 0 && rect.left < edge.scrollWidth);
  if (!rects.length) continue;
  const around = frames(parent);
  const svg = parent.closest("svg");
  if (rects.some((rect) => cutOff(rect, around))) faults.add(`a text is cut off: ${quoted(text)} in ${named(parent)}`);
  if (svg) {
    const frame = svg.getBoundingClientRect();
    if (rects.some((rect) => rect.left < frame.left - 1 || rect.right > frame.right + 1 || rect.bottom > frame.bottom + 1))
      faults.add(`a text is outside of its picture: ${quoted(text)}`);
    const size = parseFloat(getComputedStyle(parent).fontSize) * svg.getScreenCTM().a;
    if (size < smallest) faults.add(`letters of ${size.toFixed(1)} px in a picture: ${quoted(text)}`);
  }
  if (!parent.closest("nav") && !text.startsWith("http") && new Set(rects.map((rect) => Math.round(rect.top))).size > 1) {
    // A name of 28 characters is broken by any column, such as that of a role with its collection.
    const names = [...text.matchAll(/\S{29,}/gu)];
    for (const word of text.matchAll(/\p{L}{2,}/gu)) {
      if (names.some((name) => name.index <= word.index && word.index < name.index + name[0].length)) continue;
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const tops = new Set([...range.getClientRects()].filter((rect) => rect.width > 1).map((rect) => Math.round(rect.top)));
      if (tops.size > 1) faults.add(`a word is broken: ${quoted(word[0])} of ${quoted(text)} in ${named(parent)}`);
    }
  }
  if (!svg) {
    const style = getComputedStyle(parent);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.5 && style.fontWeight >= 600);
    if (!checked.has(parent)) checked.set(parent, contrast(parent));
    const ratio = checked.get(parent);
    if (ratio < (large ? 3 : 4.4)) faults.add(`faint text: contrast ${ratio.toFixed(1)} of ${named(parent)}, ${getComputedStyle(parent).color}: ${quoted(text)}`);
  }
  for (const rect of rects) {
    const { left, top, right, bottom } = visible(rect, around);
    const inset = (bottom - top) * 0.22;
    const moves = around.length && parent.closest("nav");
    if (right - left > 2 && !moves) boxes.push({ left, right, top: top + inset, bottom: bottom - inset, text, parent });
  }
}
for (const sample of document.querySelectorAll("svg .sample")) {
  const { left, right, top, bottom } = sample.getBoundingClientRect();
  boxes.push({ left, right, top: top - 1, bottom: bottom + 1, text: "a line of the legend", parent: sample });
}
boxes.sort((one, other) => one.top - other.top);
boxes.forEach((one, index) => {
  for (let next = index + 1; next < boxes.length && boxes[next].top < one.bottom - 1; next += 1) {
    const other = boxes[next];
    const width = Math.min(one.right, other.right) - Math.max(one.left, other.left);
    if (width > 2 && one.parent !== other.parent) faults.add(`texts overlap: ${quoted(one.text)} and ${quoted(other.text)}`);
  }
});

// ---- pictures that the page loads

const pictures = [...document.images].filter((image) => shown(image) && /\.svg$/.test(image.currentSrc));
for (const image of pictures) {
  const source = await (await fetch(image.currentSrc)).text();
  const [, width] = source.match(/viewBox="0 0 ([\d.]+)/);
  const sizes = [...source.matchAll(/font(?:-size)?:[^;"}]*?([\d.]+)px/g)].map((match) => Number(match[1]));
  const size = (Math.min(...sizes) * image.clientWidth) / width;
  if (size < smallest) faults.add(`letters of ${size.toFixed(1)} px in the picture ${image.currentSrc.split("/").pop()}`);
}
return [...faults];

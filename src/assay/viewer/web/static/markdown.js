// Renders markdown, mathematics and code of untrusted text: no HTML, no links that can be followed, no images, no network.
// The text becomes HTML with HTML disabled, then only known elements and attributes are copied into the page.

const START = "\ue000", END = "\ue001";  // mark what the filters extracted; private characters survive the markdown parser
const vendor = new URL("vendor/", import.meta.url);
const MAX_CODE = 20000;

let parser;
async function loadParser() {
  if (parser) return parser;
  await import(new URL("markdown-it.min.js", vendor));
  parser = globalThis.markdownit({ html: false, linkify: false, typographer: false, breaks: true });
  parser.disable(["image", "code", "reference"]);
  parser.inline.ruler.before("escape", "math", parseInlineMath);
  parser.block.ruler.before("fence", "math_block", parseBlockMath, { alt: ["paragraph", "blockquote", "list"] });
  parser.renderer.rules.math = (tokens, at) => `<code class="math">${parser.utils.escapeHtml(tokens[at].content)}</code>`;
  parser.renderer.rules.math_block = (tokens, at) => `<code class="math display">${parser.utils.escapeHtml(tokens[at].content)}</code>`;
  parser.renderer.rules.link_open = () => '<span class="link">';
  parser.renderer.rules.link_close = (tokens, at) => {
    let open = at;
    while (tokens[open].type !== "link_open") open -= 1;
    return `</span> <span class="faint url">(${parser.utils.escapeHtml(tokens[open].attrGet("href") ?? "")})</span>`;
  };
  parser.renderer.rules.heading_open = (tokens, at) => `<p class="heading ${tokens[at].tag}">`;
  parser.renderer.rules.heading_close = () => "</p>";
  return parser;
}

let katex;
async function loadKatex() {
  if (katex) return katex;
  const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL("katex/katex.min.css", vendor) });
  document.head.append(sheet);
  await import(new URL("katex/katex.min.js", vendor));
  return katex = globalThis.katex;
}

let highlighter;
async function loadHighlighter() {
  return highlighter ??= (await import(new URL("highlight.min.js", vendor))).default;
}

// --- mathematics: $…$, $$…$$, \(…\), \[…\] ------------------------------------------------------------

function parseInlineMath(state, silent) {
  const text = state.src, at = state.pos;
  let open, close;
  if (text.startsWith("\\(", at)) [open, close] = ["\\(", "\\)"];
  else if (text.startsWith("\\[", at)) [open, close] = ["\\[", "\\]"];
  else if (text.startsWith("$$", at)) [open, close] = ["$$", "$$"];
  else if (text[at] === "$" && !/\s/.test(text[at + 1] ?? " ")) [open, close] = ["$", "$"];
  else return false;
  let end = at + open.length;
  const last = Math.min(state.posMax, end + 5000);  // longer formulas are text, and the search takes linear time
  const near = text.slice(0, last + close.length);
  for (;;) {
    end = near.indexOf(close, end);
    if (end < 0 || end > last) return false;
    // A dollar sign before a digit or after a space is money; a backslash escapes it.
    const literal = text[end - 1] === "\\" && close[0] === "$";
    if (!literal && (close !== "$" || !/\s/.test(text[end - 1]) && !/\d/.test(text[end + 1] ?? ""))) break;
    end += close.length;
  }
  const content = text.slice(at + open.length, end);
  if (!content.trim() || content.length > 5000) return false;
  if (!silent) {
    const token = state.push(open === "$" || open === "\\(" ? "math" : "math_block", "code", 0);
    token.content = content;
    token.markup = open;
  }
  state.pos = end + close.length;
  return true;
}

function parseBlockMath(state, startLine, endLine, silent) {
  const line = (number) => state.src.slice(state.bMarks[number] + state.tShift[number], state.eMarks[number]);
  const first = line(startLine);
  const [open, close] = first.startsWith("$$") ? ["$$", "$$"] : first.startsWith("\\[") ? ["\\[", "\\]"] : [];
  if (!open) return false;
  const lines = [];
  for (let number = startLine; number < Math.min(endLine, startLine + 200); number += 1) {
    const given = number === startLine ? first.slice(open.length) : line(number);
    const end = given.indexOf(close);
    if (end >= 0) {
      if (given.slice(end + close.length).trim()) return false;  // text follows: inline
      if (silent) return true;
      lines.push(given.slice(0, end));
      const token = state.push("math_block", "code", 0);
      token.content = lines.join("\n");
      token.block = true;
      state.line = number + 1;
      return true;
    }
    if (number > startLine && !given.trim()) return false;
    lines.push(given);
  }
  return false;
}

// --- only known elements and attributes enter the page -------------------------------------------------

const ALLOWED = new Set("P BR HR STRONG EM S CODE PRE BLOCKQUOTE UL OL LI TABLE THEAD TBODY TR TH TD SPAN".split(" "));
const CLASSES = /^(math|display|link|url|faint|heading|h[1-6]|language-[\w+#.-]{1,30})$/;

function copyAllowed(source, target) {
  for (const node of source.childNodes) {
    if (node.nodeType === Node.TEXT_NODE) target.append(node.data);
    else if (node.nodeType === Node.ELEMENT_NODE) {
      if (!ALLOWED.has(node.tagName)) { target.append(node.textContent); continue; }
      const element = document.createElement(node.tagName);
      for (const name of node.classList) if (CLASSES.test(name)) element.classList.add(name);
      if (node.tagName === "OL" && /^\d{1,9}$/.test(node.getAttribute("start") ?? "")) element.start = Number(node.getAttribute("start"));
      copyAllowed(node, element);
      target.append(element);
    }
  }
}

// --- what the filters extracted ------------------------------------------------------------------------

const MARKER = /^(?:[ \t]*(?:[-*+>]|#{1,6}|\d{1,9}[.)])[ \t]+)+/;

function readSource(place) {
  let source = "";
  for (const node of place.childNodes) {
    if (node.nodeName !== "MARK") { source += node.textContent; continue; }
    // A mark before a list marker or heading would hide it from the parser, and a mark ends at the end of its line.
    source += node.textContent.split("\n").map((line, number) => {
      const atLineStart = number > 0 || !source || source.endsWith("\n");
      const lead = atLineStart ? line.match(MARKER)?.[0] ?? "" : "";
      const rest = line.slice(lead.length);
      return rest.trim() ? lead + START + rest + END : line;
    }).join("\n");
  }
  return source;
}

const unmark = (text) => text.replaceAll(START, "").replaceAll(END, "");

function markExtracted(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  let inside = false;
  for (const node of nodes) {
    const pieces = node.data.split(/([\ue000\ue001])/);
    if (pieces.length === 1 && !inside) continue;
    const fresh = [];
    for (const piece of pieces) {
      if (piece === START) inside = true;
      else if (piece === END) inside = false;
      else if (piece && inside) fresh.push(Object.assign(document.createElement("mark"), { className: "extracted", title: "extracted by the filters", textContent: piece }));
      else if (piece) fresh.push(document.createTextNode(piece));
    }
    node.replaceWith(...fresh);
  }
}

const CODE_LINE = /^(?:def |class |import |from \w+ import |#include|function |public |SELECT |[{}]$)/m;

export async function renderBody(body) {
  const raw = body.querySelector("pre.text");
  if (body.dataset.done || !raw) return;
  body.dataset.done = "1";
  const source = readSource(raw);
  if (!source.includes("```") && CODE_LINE.test(source)) return;  // code without a fence stays as it is
  const markdown = await loadParser();
  const parsed = new DOMParser().parseFromString(markdown.render(source), "text/html");
  const place = document.createElement("div");
  place.className = "markdown";
  copyAllowed(parsed.body, place);
  const formulas = [...place.querySelectorAll("code.math")];
  if (formulas.length) await renderFormulas(formulas);
  const blocks = [...place.querySelectorAll("pre code[class*=language-]")];
  if (blocks.length) await highlightBlocks(blocks);
  markExtracted(place);
  body.append(place);
  body.classList.add("has-markdown");
}

const UNTRUSTED = /\\(?:href|url|includegraphics|html(?:Class|Id|Style|Data))\b/;  // commands that KaTeX refuses stay source text

async function renderFormulas(formulas) {
  const renderer = await loadKatex();
  for (const formula of formulas) {
    const text = unmark(formula.textContent);
    if (UNTRUSTED.test(text)) { formula.classList.remove("math"); continue; }
    const marked = text !== formula.textContent;
    const isDisplay = formula.classList.contains("display");
    const place = document.createElement("span");
    try {
      renderer.render(text, place, { displayMode: isDisplay, throwOnError: true, trust: false, strict: "ignore", maxSize: 20, maxExpand: 200 });
      place.className = isDisplay ? "formula display" : "formula";
      if (marked) { place.classList.add("extracted"); place.title = "extracted by the filters"; }
      formula.replaceWith(place);
    } catch { formula.classList.remove("math"); }  // invalid mathematics stays as source text
  }
}

async function highlightBlocks(blocks) {
  const renderer = await loadHighlighter();
  for (const block of blocks) {
    const language = [...block.classList].find((name) => name.startsWith("language-")).slice(9);
    if (!renderer.getLanguage(language) || block.textContent.length > MAX_CODE || /[\ue000\ue001]/.test(block.textContent)) continue;
    block.innerHTML = renderer.highlight(block.textContent, { language, ignoreIllegals: true }).value;  // escaped by the highlighter
    block.classList.add("hljs");
  }
}

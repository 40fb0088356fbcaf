// The page of a document: rendered or raw text, copy buttons, pictures, sound and video, and the next document without a new page.

import { renderBody } from "./markdown.js";

const root = document.documentElement;
const select = (query, within = document) => within.querySelector(query);
const all = (query, within = document) => [...within.querySelectorAll(query)];

// --- rendered or raw -----------------------------------------------------------------------------------

const site = globalThis.assaySite;  // a static site has no server
const readCookie = (name) => site ? site.recall(name) : document.cookie.split("; ").find((one) => one.startsWith(`${name}=`))?.slice(name.length + 1);
const writeCookie = (name, value) => { if (site) site.keep(name, value); else document.cookie = `${name}=${value}; Path=/; Max-Age=31536000; SameSite=Strict`; };

function setReading(mode, { keep = true } = {}) {
  root.dataset.reading = mode;
  if (keep) writeCookie("assay-reading", mode);
  for (const button of all("button[data-reading]")) button.setAttribute("aria-pressed", String(button.dataset.reading === mode));
  if (mode === "rendered") renderVisible();
}

function renderVisible(within = document) {
  if (root.dataset.reading !== "rendered") return;
  const bodies = all("[data-markdown]:not([data-done])", within).filter((body) => !body.closest("details:not([open])"));
  return Promise.all(bodies.map((body) => renderBody(body).catch(() => { body.dataset.done = "failed"; }))).then(() => dispatchEvent(new Event("resize")));  // rendered text may need scroll boxes
}

document.addEventListener("toggle", (event) => { if (event.target.open) renderVisible(event.target); }, true);

// --- copy ------------------------------------------------------------------------------------------------

async function copyText(button) {
  const box = button.closest(".message, .panel");
  const text = all("pre.text", box).filter((pre) => !pre.closest("details.folded, .s-thinking")).map((pre) => pre.textContent).join("\n");
  const said = await navigator.clipboard.writeText(text).then(() => "copied", () => "not allowed");
  button.textContent = said;
  setTimeout(() => { button.textContent = "copy"; }, 1500);
}

// --- pictures --------------------------------------------------------------------------------------------

let zoom = 1;
function setZoom(value) {
  const image = select("#lightbox img"), stage = select("#lightbox .lightbox-stage");
  if (!image?.naturalWidth) return;
  const fit = Math.min(stage.clientWidth / image.naturalWidth, stage.clientHeight / image.naturalHeight, 8);
  zoom = value === 0 ? fit : Math.min(Math.max(value, 0.05), 16);
  image.width = Math.max(1, Math.round(image.naturalWidth * zoom));
  select("#zoom-level").textContent = `${Math.round(100 * zoom)} %`;
}

function openLightbox(link) {
  const dialog = select("#lightbox"), image = select("img", dialog);
  image.alt = select("img", link)?.alt ?? "";
  image.onload = () => setZoom(0);
  image.src = link.href;
  dialog.showModal();
}

document.addEventListener("wheel", (event) => {
  if (!event.target.closest?.("#lightbox .lightbox-stage")) return;
  event.preventDefault();
  setZoom(zoom * (event.deltaY < 0 ? 1.15 : 1 / 1.15));
}, { passive: false });

// --- sound -----------------------------------------------------------------------------------------------

const MAX_SOUND_BYTES = 30e6, BARS = 300;

async function drawWaveform(place) {
  const audio = select("audio", place.parentElement);
  if (location.protocol === "file:") return place.remove();  // scripts cannot read files
  try {
    const response = await fetch(audio.currentSrc || audio.src);
    if (!response.ok || Number(response.headers.get("content-length")) > MAX_SOUND_BYTES) return place.remove();
    const samples = (await new OfflineAudioContext(1, 1, 22050).decodeAudioData(await response.arrayBuffer())).getChannelData(0);
    const step = Math.max(1, Math.floor(samples.length / BARS));
    const peaks = [];
    for (let at = 0; at < samples.length && peaks.length < BARS; at += step) {
      let peak = 0;
      for (let index = at; index < Math.min(at + step, samples.length); index += 1) peak = Math.max(peak, Math.abs(samples[index]));
      peaks.push(peak);
    }
    const top = Math.max(...peaks, 0.01);
    const path = peaks.map((peak, at) => { const half = Math.max(0.4, 19 * peak / top); return `M${at} ${20 - half}V${20 + half}`; }).join("");
    const ns = "http://www.w3.org/2000/svg";
    const drawing = document.createElementNS(ns, "svg");
    drawing.setAttribute("viewBox", `0 0 ${peaks.length} 40`);
    drawing.setAttribute("preserveAspectRatio", "none");
    const line = document.createElementNS(ns, "path"), cursor = document.createElementNS(ns, "path");
    line.setAttribute("d", path);
    cursor.setAttribute("class", "cursor");
    drawing.append(line, cursor);
    place.replaceChildren(drawing);
    place.classList.add("drawn");
    audio.addEventListener("timeupdate", () => cursor.setAttribute("d", `M${peaks.length * audio.currentTime / (audio.duration || 1)} 0V40`));
    place.addEventListener("click", (event) => {
      const box = place.getBoundingClientRect();
      audio.currentTime = (audio.duration || 0) * (event.clientX - box.left) / box.width;
    });
  } catch { place.remove(); }
}

// --- video that the browser cannot play ------------------------------------------------------------------

async function showFrames(video) {
  const address = video.dataset.frames;
  const response = await fetch(address).catch(() => null);
  const answer = response?.ok ? await response.json() : null;
  const box = document.createElement("div");
  const note = Object.assign(document.createElement("p"), { className: "note" });
  if (answer?.frames) {
    box.className = "frames";
    box.append(...answer.frames.map((time, number) => {
      const link = Object.assign(document.createElement("a"), { href: `${address}/${number}`, target: "_blank", rel: "noreferrer" });
      link.dataset.lightbox = "";
      link.append(Object.assign(document.createElement("img"), { src: `${address}/${number}`, alt: `frame at ${time.toFixed(1)} s`, loading: "lazy" }));
      return link;
    }));
    note.textContent = "This browser cannot play the video; these are frames of it.";
  } else {
    box.className = "missing";
    box.textContent = `This browser cannot play the video${answer?.why ? `: ${answer.why}` : "."}`;
  }
  video.replaceWith(box, ...(note.textContent ? [note] : []));
}

function prepareMedia(within = document) {
  for (const place of all("[data-waveform]:not(.drawn)", within)) if (!place.dataset.begun) { place.dataset.begun = "1"; drawWaveform(place); }
  for (const video of all("video[data-frames]", within)) {
    if (video.error) showFrames(video); else video.addEventListener("error", () => showFrames(video), { once: true });
  }
}

// --- reading: the next document replaces this one --------------------------------------------------------

const loaded = new Map();
const MAX_LOADED = 8;

function load(address) {
  if (!loaded.has(address)) {
    const page = fetch(address, { headers: { accept: "text/html" } }).then((response) => {
      if (!response.ok) throw new Error(String(response.status));
      return response.text();
    }).then((text) => new DOMParser().parseFromString(text, "text/html"));
    page.catch(() => loaded.delete(address));
    loaded.set(address, page);
    if (loaded.size > MAX_LOADED) loaded.delete(loaded.keys().next().value);
  }
  return loaded.get(address);
}

let wanted = "";
async function show(address, { push = true } = {}) {
  wanted = address;
  let page;
  try { page = await load(address); } catch { return location.assign(address); }
  if (wanted !== address) return;  // another document was asked for meanwhile
  const fresh = select("#document", page);
  if (!fresh) return location.assign(address);
  loaded.delete(address);  // its nodes move into this page
  const list = select("#reading-list"), freshList = select("#reading-list", page);
  const top = list?.scrollTop ?? 0;
  const same = list && freshList && all("a[data-read]", list).map((link) => link.pathname).join() === all("a[data-read]", freshList).map((link) => new URL(link.getAttribute("href"), location.href).pathname).join();
  const focused = document.activeElement?.closest?.("#reading-list");
  select("#document").replaceWith(document.adoptNode(fresh));
  if (list && freshList && !same) list.replaceWith(document.adoptNode(freshList));
  else if (list) list.scrollTop = top;
  const crumb = select(".here-crumb"), freshCrumb = select(".here-crumb", page);
  if (crumb && freshCrumb) crumb.textContent = freshCrumb.textContent;
  const up = select("a[rel=up]"), freshUp = select("a[rel=up]", page);
  if (up && freshUp) up.setAttribute("href", freshUp.getAttribute("href"));
  document.title = page.title;
  if (push) history.pushState(null, "", address);
  const path = new URL(address, location.href);
  for (const link of all("#reading-list a[data-read]")) {
    if (link.href === path.href) {
      link.setAttribute("aria-current", "true");
      if (focused) link.focus({ preventScroll: true });
    } else link.removeAttribute("aria-current");
  }
  const article = select("#document");
  if (article.getBoundingClientRect().top < 0) article.scrollIntoView({ block: "start" });
  begin();
}

function keepCurrentVisible() {
  const current = select("#reading-list [aria-current]"), list = select("#reading-list");
  if (!current || !list) return;
  const box = current.getBoundingClientRect(), frame = list.getBoundingClientRect();
  if (box.top < frame.top || box.bottom > frame.bottom) list.scrollTop += box.top - frame.top - frame.height / 2;
}

async function waitForIndex() {
  const list = select("#reading-list[data-index]");
  if (!list || list.dataset.begun) return;
  list.dataset.begun = "1";
  for (;;) {
    const response = await fetch(list.dataset.index).catch(() => null);
    const state = response?.ok ? await response.json() : null;
    if (!list.isConnected || state?.why) return;
    if (state?.ready) break;
    const bar = select("progress", list);
    if (bar && state?.total) { bar.max = state.total; bar.value = state.done; }
    await new Promise((done) => setTimeout(done, 500));
  }
  const page = await load(location.pathname + location.search).catch(() => null);
  loaded.clear();
  if (!page || !list.isConnected) return;
  list.replaceWith(document.adoptNode(select("#reading-list", page)));  // the document itself stays: somebody reads it
  select("#document .around")?.replaceWith(document.adoptNode(select("#document .around", page)));
  keepCurrentVisible();
  prefetch();
}

function prefetch() {
  for (const relation of ["next", "prev"]) {
    const link = select(`#document a[rel="${relation}"][data-read]`);
    if (link) load(link.getAttribute("href")).catch(() => {});
  }
}

function begin() {
  setReading(readCookie("assay-reading") === "raw" ? "raw" : "rendered", { keep: false });
  prepareMedia();
  keepCurrentVisible();
  waitForIndex();
  sessionStorage.setItem("assay:last-document", location.pathname);
  document.dispatchEvent(new Event("assay:document"));
  setTimeout(prefetch, 50);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.reading) return setReading(button.dataset.reading);
  if (button?.matches("[data-copy]")) return copyText(button);
  if (button?.dataset.zoom) return setZoom(button.dataset.zoom === "0" ? 0 : zoom * (button.dataset.zoom === "1" ? 1.5 : 1 / 1.5));
  if (button?.matches("[data-close]")) return select("#lightbox").close();
  if (event.target.id === "lightbox") return event.target.close();
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const link = event.target.closest("a");
  if (link?.matches("[data-lightbox]")) { event.preventDefault(); openLightbox(link); }
  else if (link?.matches("[data-read]")) { event.preventDefault(); show(link.getAttribute("href")); }
});

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (select("#lightbox[open]")) {
    const factors = { "+": 1.5, "=": 1.5, "-": 1 / 1.5 };
    if (factors[event.key]) setZoom(zoom * factors[event.key]);
    if (event.key === "0") setZoom(0);
    return;
  }
  if (event.key === "r") setReading(root.dataset.reading === "raw" ? "rendered" : "raw");
  if (event.key === "l") { const hidden = root.dataset.list === "off"; root.dataset.list = hidden ? "on" : "off"; writeCookie("assay-list", root.dataset.list); }
});

if (!site) addEventListener("popstate", () => show(location.pathname + location.search, { push: false }));

root.dataset.list = readCookie("assay-list") === "off" ? "off" : "on";
begin();

// Behaviour of every page: themes, keyboard shortcuts, filters that update while you type, live updates of running runs.

const root = document.documentElement;
const select = (query, within = document) => within.querySelector(query);
const all = (query, within = document) => [...within.querySelectorAll(query)];
const parse = (html) => new DOMParser().parseFromString(html, "text/html");
const number = new Intl.NumberFormat("en").format;
const site = globalThis.assaySite; // a static site has no server
const counted = (value) => number(value).replaceAll(",", "\u202f");

// --- themes ------------------------------------------------------------------------------------------

function isDark() {
  const chosen = root.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function toggleTheme() {
  const theme = isDark() ? "light" : "dark";
  root.dataset.theme = theme;
  if (site) site.keep("assay-theme", theme);
  else document.cookie = `assay-theme=${theme}; Path=/; Max-Age=31536000; SameSite=Strict`;
  document.dispatchEvent(new Event("assay:theme"));
}

select("#theme").addEventListener("click", toggleTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("assay:theme")));

// --- notifications -----------------------------------------------------------------------------------

let toastTimer;
function toast(text) {
  const place = select("#toast");
  place.textContent = text;
  place.classList.add("on");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => place.classList.remove("on"), 2200);
}

const help = select("#help");
select("#help-open").addEventListener("click", () => help.showModal());

// --- filters that update while you type --------------------------------------------------------------

let requestCount = 0;
let isTypingEntry = false; // whether the last entry of the history was made by typing, which continues to change it
let shownAddress = location.pathname + location.search;
async function swap(address, { keep = true, typing = false, reset = false } = {}) {
  const results = select("#results");
  if (site) return site.open(address);
  if (!results) return location.assign(address);
  const requestNumber = ++requestCount;
  results.classList.add("busy");
  try {
    const response = await fetch(address, { headers: { accept: "text/html" } });
    const page = parse(await response.text());
    if (requestNumber !== requestCount) return;
    const fresh = select("#results", page);
    if (!fresh) return location.assign(address);
    results.replaceWith(fresh);
    const form = select("form[data-live]");
    const freshForm = select("form[data-live]", page);
    if (form && freshForm && (reset || !form.contains(document.activeElement))) form.replaceWith(freshForm), initLiveForms();
    else if (form && freshForm) updateForm(form, freshForm);
    if (keep && address !== shownAddress) {
      if (typing && isTypingEntry) history.replaceState(null, "", address); else history.pushState(null, "", address);
      isTypingEntry = typing;
    }
    shownAddress = location.pathname + location.search;
    document.title = page.title;
    ready();
  } catch (error) {
    results.classList.remove("busy");
    toast("No response from the viewer. Is `assay view` still running?");
  }
}

// Back undoes a filter, a search or a sort.
addEventListener("popstate", () => {
  const address = location.pathname + location.search;
  isTypingEntry = false;
  if (!site && select("#results") && address !== shownAddress) swap(address, { keep: false, reset: true });
});

function updateForm(form, fresh) {
  // Keep the field that has the focus and replace the others: other filters may apply now.
  const busy = document.activeElement;
  for (const child of [...form.children]) if (child !== busy && !child.contains(busy)) child.remove();
  let before = true;
  const held = form.firstElementChild;
  for (const child of [...fresh.children]) {
    const same = held && (child.name && child.name === busy.name || (child.contains && select(`[name="${busy.name}"]`, child) && held.contains(busy) && held !== busy));
    if (same) before = false;
    else if (before && held) form.insertBefore(child, held);
    else form.append(child);
  }
}

function formUrl(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value !== "") query.append(name, value);
  const text = query.toString();
  return form.getAttribute("action") + (text ? `?${text}` : "");
}

function initLiveForms() {
  for (const form of all("form[data-submit]")) form.addEventListener("change", () => form.requestSubmit());
  for (const form of all("form[data-live]")) {
    if (form.dataset.ready) continue;
    form.dataset.ready = "1";
    let timer;
    const go = (typing = false) => swap(formUrl(form), { typing });
    form.addEventListener("focusout", () => { isTypingEntry = false; });
    form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(timer); go(); });
    form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => go(true), 220); });
    form.addEventListener("change", (event) => { if (event.target.tagName === "SELECT") { clearTimeout(timer); go(); } });
  }
}

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const link = event.target.closest("a");
  if (link) {
    if (link.matches("[data-swap]")) { event.preventDefault(); swap(link.getAttribute("href")); }
    return;
  }
  if (event.target.closest("button, input, select, summary, label, audio, video")) return;
  const row = event.target.closest("tr[data-href]");
  if (row && !String(getSelection())) location.assign(row.dataset.href);
});

// --- keyboard shortcuts ------------------------------------------------------------------------------

const rows = () => all("[data-rows] tbody tr[data-href]");
let selectedRow = -1;

function move(step) {
  const listed = rows();
  if (!listed.length) return;
  selectedRow = Math.min(Math.max(selectedRow + step, 0), listed.length - 1);
  listed.forEach((row, place) => row.classList.toggle("selected", place === selectedRow));
  listed[selectedRow].scrollIntoView({ block: "nearest" });
  select("a.row", listed[selectedRow])?.focus({ preventScroll: true });
}

const follow = (relation) => select(`a[rel="${relation}"]`)?.click();

const page = document.body.dataset.page;
const keys = {
  "/": () => { const field = select("#search"); field?.focus(); field?.select(); },
  "?": () => help.open ? help.close() : help.showModal(),
  j: () => page === "document" ? follow("next") : move(1),
  k: () => page === "document" ? follow("prev") : move(-1),
  ArrowRight: () => follow("next"),
  ArrowLeft: () => follow("prev"),
  ArrowDown: () => rows().length && move(1),
  ArrowUp: () => rows().length && move(-1),
  u: () => follow("up"),
  t: toggleTheme,
  c: copyUrl,
  x: () => { const box = rows()[selectedRow] && select("input[type=checkbox]", rows()[selectedRow]); if (box) box.click(); },
};

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey) return;
  const typing = event.target.closest("input:not([type=checkbox]), select, textarea");
  if (typing) { if (event.key === "Escape") event.target.blur(); return; }
  if (event.target.closest("audio, video")) return;
  if (help.open && event.key !== "?") return;
  const arrow = event.key.startsWith("Arrow");
  if (arrow && (event.key === "ArrowDown" || event.key === "ArrowUp") && !rows().length) return;
  const act = keys[event.key];
  if (act) { event.preventDefault(); act(); }
});

async function copyUrl() {
  try { await navigator.clipboard.writeText(location.href); toast(site ? "URL copied" : "URL copied. It opens for people who have the token of this viewer."); }
  catch { toast(location.href); }
}

// --- selecting runs for comparison -------------------------------------------------------------------

function updateSelectionBar() {
  const place = select("#selection-bar");
  if (!place) return;
  const selected = all("input[name=run]:checked").length;
  place.hidden = selected < 1;
  select("#selection-count").textContent = selected;
  select("#selection-compare").disabled = selected < 2;
}
document.addEventListener("change", (event) => { if (event.target.matches("input[name=run]")) updateSelectionBar(); });
select("#selection-clear")?.addEventListener("click", () => { all("input[name=run]:checked").forEach((box) => { box.checked = false; }); updateSelectionBar(); });

// --- tags --------------------------------------------------------------------------------------------

const tagList = select("#tags");
async function saveTags(tags) {
  const response = await fetch(`/runs/${encodeURIComponent(tagList.dataset.key)}/tags`, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ tags }),
  });
  const result = await response.json();
  if (!response.ok) return toast(result.error || "Cannot save the tags");
  tagList.replaceChildren(...result.tags.map((tag) => {
    const chip = document.createElement("span");
    chip.className = "tag";
    chip.append(tag);
    const button = document.createElement("button");
    button.type = "button"; button.className = "quiet"; button.dataset.untag = tag; button.textContent = "×";
    button.setAttribute("aria-label", `Remove tag ${tag}`);
    chip.append(button);
    return chip;
  }));
}
if (tagList) {
  const current = () => all("[data-untag]", tagList).map((button) => button.dataset.untag);
  tagList.addEventListener("click", (event) => {
    const button = event.target.closest("[data-untag]");
    if (button) saveTags(current().filter((tag) => tag !== button.dataset.untag));
  });
  select("#tag-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const field = event.target.elements.tag;
    if (field.value.trim()) saveTags([...current(), field.value]);
    field.value = "";
  });
}

// --- live updates ------------------------------------------------------------------------------------

function drawBar(place, parts) {
  const bar = select("svg.bar", place);
  if (!bar) return;
  const ns = "http://www.w3.org/2000/svg";
  let x = 0;
  bar.replaceChildren(...parts.map(([name, count, share]) => {
    const part = document.createElementNS(ns, "rect");
    for (const [key, value] of Object.entries({ class: `o-${name}`, x, y: 0, width: share, height: 1 })) part.setAttribute(key, value);
    const title = document.createElementNS(ns, "title");
    title.textContent = `${counted(count)} ${name}`;
    part.append(title);
    x += share;
    return part;
  }));
  bar.setAttribute("aria-label", parts.map(([name, count]) => `${count} ${name}`).join(", "));
}

const lastStates = new Map();
const latestEvents = new Map(); // the last event of each run: it may arrive before its row does
function showLatestEvents() {
  for (const state of latestEvents.values()) showRun(state);
}
function showRun(state) {
  const name = CSS.escape(state.key);
  for (const place of all(`[data-run-bar="${name}"]`)) drawBar(place, state.bar);
  for (const holder of all(`[data-run="${name}"]`)) {
    for (const place of all("[data-run-done]", holder)) place.textContent = counted(state.done);
    const legend = select("[data-run-legend] .legend", holder);
    legend?.replaceChildren(...state.bar.map(([ending, count]) => {
      const item = document.createElement("li");
      item.innerHTML = '<span class="outcome"><i aria-hidden="true"></i><span></span></span> <span class="num"></span>';
      item.firstChild.classList.add(`o-${ending}`);
      select(".outcome span", item).textContent = ending;
      select(".num", item).textContent = counted(count);
      return item;
    }));
    const before = lastStates.get(state.key);
    const now = performance.now() / 1000;
    if (before && now > before.now && state.responses >= before.responses) {
      // Smoothed over about ten seconds: single events are uneven.
      const weight = 1 - Math.exp((before.now - now) / 10);
      const smooth = (old, value) => old === undefined ? value : old + weight * (value - old);
      const throughput = before.throughput = smooth(before.throughput, (state.responses - before.responses) / (now - before.now));
      const docs = before.docs = smooth(before.docs, (state.done - before.done) / (now - before.now));
      const left = state.documents - state.done;
      const place = select("[data-run-throughput]", holder);
      if (place) place.textContent = `${throughput.toFixed(throughput < 10 ? 1 : 0)} responses/s` + (docs > 0 && left > 0 ? `, ${formatDuration(left / docs)} left` : "");
    }
    lastStates.set(state.key, { ...before, now, responses: state.responses, done: state.done });
    if (holder.id === "live" && state.tasks) showProgress(state);
    if (holder.id === "live" && state.state !== "running" && holder.dataset.seen === "running") location.reload();
    holder.dataset.seen = state.state;
  }
}

// The page of a running run: its tables come from the same event as its totals.
function showProgress(state) {
  const dollars = (value) => `$${value.toFixed(value < 1 ? 4 : 2)}`;
  const base = location.pathname;
  for (const row of all("tr[data-task-row]")) {
    const parts = state.tasks[row.dataset.taskRow];
    if (!parts) continue;
    drawBar(row, parts);
    select(".links", row).replaceChildren(...parts.flatMap(([name, count], place) => {
      const link = Object.assign(document.createElement("a"), { href: `${base}/documents?${new URLSearchParams({ task: row.dataset.taskRow, outcome: name })}`, textContent: `${counted(count)} ${name}` });
      return place ? [" · ", link] : [link];
    }));
  }
  const cost = select("[data-run-cost]");
  if (cost && state.cost_usd !== null) {
    cost.closest("div").hidden = false;
    cost.textContent = dollars(state.cost_usd) + (state.cost_forecast_usd && state.state === "running" ? `, about ${dollars(state.cost_forecast_usd)} in the end` : "");
  }
  const scores = select("[data-run-scores] tbody");
  if (scores && state.scores.length) {
    scores.closest("section").hidden = false;
    scores.replaceChildren(...state.scores.map((one) => {
      const row = document.createElement("tr");
      const head = Object.assign(document.createElement("th"), { scope: "row", textContent: one.task });
      const cells = [[one.metric, "metric"], [one.value.toFixed(4), "value"], [one.low === null ? "" : `${one.low.toFixed(4)} – ${one.high.toFixed(4)}`, "interval"], [counted(one.count), "documents"]];
      row.append(head, ...cells.map(([text, label], place) => {
        const cell = Object.assign(document.createElement("td"), { textContent: text, className: place ? "num" : "" });
        cell.dataset.label = label;
        return cell;
      }));
      return row;
    }));
  }
  const failures = select("[data-run-failures]");
  if (failures && state.failures.length) {
    failures.closest("section").hidden = false;
    failures.replaceChildren(...state.failures.map((one) => {
      const item = document.createElement("li");
      item.append(Object.assign(document.createElement("a"), { href: `${base}/documents/${encodeURIComponent(one.task)}/${one.position}`, textContent: `${one.task} #${one.position}` }), ` ${one.why}`);
      return item;
    }));
  }
}

function formatDuration(seconds) {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

let source;
function listen() {
  const place = select("[data-events]");
  if (!place || source) return;
  source = new EventSource(place.dataset.events);
  source.addEventListener("run", (event) => {
    const state = JSON.parse(event.data);
    latestEvents.set(state.key, state);
    showRun(state);
  });
  source.addEventListener("error", () => {
    const note = select("[data-run-connection]");
    if (!note) return;
    note.hidden = false;
    if (source.readyState === EventSource.CLOSED) { // refused: the browser does not try again
      note.textContent = "The viewer refuses this page. If it was started again, open the URL that it printed.";
    }
  });
  source.addEventListener("open", () => { const note = select("[data-run-connection]"); if (note) note.hidden = true; });
  source.addEventListener("runs", () => { if (page === "runs") swap(location.pathname + location.search, { keep: false }); });
  addEventListener("pagehide", () => source.close());
}

// --- content loaded after the page -------------------------------------------------------------------

async function countRuns() {
  for (const cell of all("[data-counts]")) {
    const key = cell.dataset.counts;
    cell.removeAttribute("data-counts");
    const response = await fetch(`/counts?run=${encodeURIComponent(key)}`);
    if (!response.ok) continue;
    const fresh = parse(await response.text());
    cell.replaceChildren(...all(".progress", fresh));
    const cost = cell.parentElement && select(".cost", cell.parentElement);
    if (cost) cost.textContent = select("span.cost", fresh)?.textContent ?? "";
  }
  const costs = all("td.cost");
  if (!costs.some((cell) => cell.textContent.trim())) for (const cell of [...costs, ...all("th.cost")]) cell.hidden = true;
  showLatestEvents(); // the counts may be older than the last event
}

async function categories(place, query) {
  const address = `${place.dataset.categories}?${new URLSearchParams(query)}`;
  const response = await fetch(address);
  if (response.status === 202) {
    const state = await response.json();
    const text = select(".waiting-text", place);
    if (text) text.textContent = state.why || `Indexing documents… ${counted(state.done)} of ${counted(state.total)}`;
    if (!state.why) setTimeout(() => categories(place, query), 700);
    return;
  }
  if (!response.ok) { place.textContent = ""; return; }
  const fresh = parse(await response.text());
  const tasks = JSON.parse(place.dataset.tasks);
  const task = select("[data-task]", fresh)?.dataset.task ?? query.task;
  const body = document.createElement("div");
  body.append(...fresh.body.children);
  if (tasks.length > 1) {
    const label = document.createElement("label");
    label.append("task ");
    const choice = document.createElement("select");
    choice.append(...tasks.map((name) => new Option(name, name, false, name === task)));
    choice.addEventListener("change", () => categories(place, { task: choice.value }));
    label.append(choice);
    const bar = select("form", body) ?? Object.assign(document.createElement("p"), { className: "filters small" });
    bar.prepend(label);
    if (!bar.isConnected && !body.contains(bar)) body.prepend(bar);
  }
  select("form", body)?.addEventListener("change", (event) => {
    if (event.target.name) categories(place, Object.fromEntries(new FormData(event.currentTarget)));
  });
  place.replaceChildren(body);
  focusScrollBoxes();
  document.dispatchEvent(new Event("assay:charts"));
}

async function wait(place) {
  if (place.dataset.waiting) {
    const response = await fetch(place.dataset.waiting).catch(() => null);
    const state = response?.ok ? await response.json() : null;
    const bar = select("#index-progress");
    if (state && bar && state.total) { bar.max = state.total; bar.value = state.done; }
    if (state && !state.ready && !state.why) return setTimeout(() => wait(place), 500);
  } else await new Promise((done) => setTimeout(done, 700));
  if (place.matches("[data-reload]")) location.reload();
  else swap(location.pathname + location.search, { keep: false });
}

function selectLastDocument() {
  const last = sessionStorage.getItem("assay:last-document");
  const place = last && page === "documents" ? rows().findIndex((row) => row.dataset.href.split("?")[0] === last) : -1;
  if (place < 0) return;
  sessionStorage.removeItem("assay:last-document");
  move(place + 1);
}

// A box that scrolls must be reachable with the keyboard.
function focusScrollBoxes() {
  for (const box of all(".sheet, pre.json, pre.command, .scrolls, .trace .given pre, .formula.display, .markdown table, .reading-list")) {
    const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
    if (!scrolls) { if (box.dataset.scrolls) { box.removeAttribute("tabindex"); delete box.dataset.scrolls; } continue; }
    box.tabIndex = 0;
    box.dataset.scrolls = "1";
  }
}
addEventListener("resize", focusScrollBoxes);
document.addEventListener("toggle", focusScrollBoxes, true);
document.addEventListener("assay:document", () => setTimeout(focusScrollBoxes, 0));

// The page of a document whose agent is at work: read it again while it is visible. Opened details stay open.
let agentTimer = 0;
function followAgents() {
  clearTimeout(agentTimer);
  if (!select("[data-live-agents]")) return;
  agentTimer = setTimeout(async () => {
    const place = location.href;
    if (!document.hidden) {
      try {
        const page = new DOMParser().parseFromString(await (await fetch(place)).text(), "text/html");
        if (place === location.href) for (const name of ["#agents", "#conversation"]) {
          const [old, fresh] = [select(name), select(name, page)];
          if (!old || !fresh || old.innerHTML === fresh.innerHTML) continue;
          const before = all("details", old), after = all("details", fresh);
          after.forEach((one, index) => { if (before[index] && before[index].open) one.open = true; });
          old.replaceWith(fresh);
        }
      } catch { /* the server stopped */ }
    }
    followAgents();
  }, 2000);
}
document.addEventListener("assay:document", followAgents);

function ready() {
  focusScrollBoxes();
  followAgents();
  selectedRow = -1;
  selectLastDocument();
  initLiveForms();
  updateSelectionBar();
  listen();
  countRuns();
  const waiting = select("[data-waiting], [data-reload]");
  if (waiting && !waiting.dataset.begun) { waiting.dataset.begun = "1"; setTimeout(() => wait(waiting), 400); }
}

const byCategory = select("[data-categories]");
if (byCategory) {
  const tasks = JSON.parse(byCategory.dataset.tasks);
  if (tasks.length) categories(byCategory, {});
}
ready();

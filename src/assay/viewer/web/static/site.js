// A static site: settings, scripts, and the filters of the table of documents, without a server.

globalThis.assaySite = (() => {
  const root = document.documentElement;
  const select = (query, within = document) => within.querySelector(query);
  const all = (query, within = document) => [...within.querySelectorAll(query)];
  const PAGE_SIZE = 50, MAX_LISTED = 20000, FILTERS = ["q", "task", "outcome", "category", "low", "high"];

  // --- settings: a page on a disk has no cookies ---------------------------------------------------------

  function recall(name) { try { return localStorage.getItem(name) ?? undefined; } catch { return undefined; } }
  function keep(name, value) { try { localStorage.setItem(name, value); } catch { /* private window */ } }
  if (["light", "dark"].includes(recall("assay-theme"))) root.dataset.theme = recall("assay-theme");

  // --- scripts that a page loads later -------------------------------------------------------------------

  const loaded = new Map();
  function load(address) {
    const url = String(new URL(address, location.href));
    if (!loaded.has(url)) {
      loaded.set(url, new Promise((done, fail) => {
        const script = Object.assign(document.createElement("script"), { src: url });
        script.onload = () => done(site.imported);
        script.onerror = () => fail(new Error(`cannot load ${url}`));
        document.head.append(script);
      }));
    }
    return loaded.get(url);
  }

  // --- filters and sort orders of the table of documents -------------------------------------------------

  const texts = [];
  let rows;
  function addRows(listed) { texts.push(...listed); }

  async function loadRows() {
    const total = Number(select("[data-site-rows]").dataset.siteRows);
    for (let number = 1; texts.length < total; number += 1) {
      const before = texts.length;
      await load(`rows-${number}.js`).catch(() => {});
      if (texts.length === before) break;
    }
    const holder = document.createElement("template");
    holder.innerHTML = `<table><tbody>${texts.join("")}</tbody></table>`;  // rows of this site's pages, escaped when they were written
    return all("tr", holder.content).map((row, place) => ({
      row, place, words: row.textContent.toLowerCase(), task: row.dataset.task, document: row.dataset.document, outcome: row.dataset.outcome,
      score: row.dataset.score === "" ? NaN : Number(row.dataset.score), length: Number(row.dataset.length), categories: JSON.parse(row.dataset.rowCategories),
    }));
  }

  function matches(one, query) {
    const get = (name) => query.get(name) ?? "";
    if (get("task") && one.task !== get("task")) return false;
    if (query.getAll("outcome").some(Boolean) && !query.getAll("outcome").includes(one.outcome)) return false;
    if (get("category") && !one.categories.includes(get("category"))) return false;
    if (get("low") !== "" && !(one.score >= Number(get("low")))) return false;
    if (get("high") !== "" && !(one.score <= Number(get("high")))) return false;
    return [...get("q").toLowerCase().matchAll(/"([^"]*)"?|#(\d+)(?!\S)|(\S+)/g)].every(([, phrase, number, word]) => number ? one.document === number : one.words.includes(phrase ?? word));
  }

  function order(found, query) {
    const name = query.get("sort"), sign = query.get("order") === "desc" ? -1 : 1;
    const compare = {
      score: (one, other) => Number.isNaN(one.score) || Number.isNaN(other.score) ? sign * (Number(Number.isNaN(one.score)) - Number(Number.isNaN(other.score))) : one.score - other.score,
      length: (one, other) => one.length - other.length,
      outcome: (one, other) => one.outcome.localeCompare(other.outcome),
      document: (one, other) => one.place - other.place,
    }[name];
    return compare ? found.sort((one, other) => sign * compare(one, other) || one.place - other.place) : found;
  }

  const isActive = (query) => [...query].some(([name, value]) => value !== "" && name !== "page");

  function drawPager(page, pages, query) {
    const link = (text, target, relation) => {
      if (target < 1 || target > pages || target === page) return Object.assign(document.createElement("span"), { textContent: text });
      const next = new URLSearchParams(query);
      next.set("page", target);
      const one = Object.assign(document.createElement("a"), { textContent: text, href: `?${next}`, rel: relation });
      one.dataset.swap = "";
      return one;
    };
    const here = Object.assign(document.createElement("span"), { className: "here", textContent: `page ${page} of ${pages}` });
    select(".pager")?.replaceChildren(link("« first", 1, ""), link("‹ previous", page - 1, "prev"), here, link("next ›", page + 1, "next"), link("last »", pages, ""));
  }

  async function apply() {
    const results = select("[data-site-rows]"), query = new URLSearchParams(location.search);
    results.classList.add("busy");
    rows ??= await loadRows();
    const found = order(rows.filter((one) => matches(one, query)), query);
    const pages = Math.max(1, Math.ceil(found.length / PAGE_SIZE));
    const page = Math.min(Math.max(1, Number(query.get("page")) || 1), pages);
    select("tbody", results).replaceChildren(...found.slice((page - 1) * PAGE_SIZE, page * PAGE_SIZE).map((one) => one.row));
    const total = new Intl.NumberFormat("en").format(rows.length), number = new Intl.NumberFormat("en").format(found.length);
    select(".found", results).innerHTML = '<b class="num" id="found"></b> <span></span>';
    select("#found").textContent = number;
    select(".found span", results).textContent = `of ${total} documents`;
    drawPager(page, pages, query);
    for (const head of all("thead th", results)) {
      const link = select("a[data-swap]", head);
      if (!link) continue;
      const name = new URL(link.href).searchParams.get("sort"), down = query.get("order") === "desc";
      select("span", link)?.remove();
      head.removeAttribute("aria-sort");
      if (name !== query.get("sort")) continue;
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const arrow = Object.assign(document.createElement("span"), { textContent: down ? " ↓" : " ↑" });
      arrow.setAttribute("aria-hidden", "true");
      link.append(arrow);
    }
    const form = select("[data-site-filters]");
    for (const name of FILTERS) {
      const control = form.elements[name];
      if (control && control !== document.activeElement) control.value = query.get(name) ?? "";
    }
    const links = found.slice(0, MAX_LISTED).map((one) => select("a.row", one.row).href);
    try { sessionStorage.setItem("assay-list", JSON.stringify({ links, up: location.href })); } catch { /* too long */ }
    results.classList.remove("busy");
  }

  // Open a page, or apply the filters and the sort order of an address to this one.
  function open(address) {
    const target = new URL(address, location.href);
    const holder = select("[data-site-rows]");
    if (!holder || !target.search) return location.assign(target);
    const next = target.searchParams, current = new URLSearchParams(location.search);
    if (next.has("sort")) {
      const name = next.get("sort");
      for (const [key, value] of current) if (!["sort", "order", "page"].includes(key)) next.append(key, value);
      if (current.get("sort") === name) next.set("order", current.get("order") === "desc" ? "asc" : "desc");
    }
    show(next);
  }

  function show(query, { replace = false } = {}) {
    if (!isActive(query)) return location.assign(location.pathname.replace(/[^/]*$/, "index.html"));
    history[replace ? "replaceState" : "pushState"](null, "", `?${query}`);
    apply();
  }

  function startFilters() {
    const form = select("[data-site-filters]");
    if (!form) return;
    let timer, isTyping = false;
    const go = () => {
      const query = new URLSearchParams();
      for (const [name, value] of new FormData(form)) if (value !== "") query.append(name, value);
      for (const name of ["sort", "order"]) { const value = new URLSearchParams(location.search).get(name); if (value) query.set(name, value); }
      show(query, { replace: isTyping });
      isTyping = true;
    };
    form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(timer); go(); });
    form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(go, 200); });
    form.addEventListener("focusout", () => { isTyping = false; });
    addEventListener("popstate", () => { if (isActive(new URLSearchParams(location.search))) apply(); else location.reload(); });
    if (isActive(new URLSearchParams(location.search))) apply();
    else try { sessionStorage.removeItem("assay-list"); } catch { /* private window */ }
  }

  // After a filter, the next document is the next one that the filter found.
  function startReading() {
    const around = select("#document nav.around");
    let kept;
    try { kept = JSON.parse(sessionStorage.getItem("assay-list")); } catch { kept = null; }
    const place = kept?.links.indexOf(location.href.split(/[?#]/)[0]) ?? -1;
    if (!around || place < 0) return;
    const link = (text, target, relation) => Object.assign(document.createElement(target ? "a" : "span"), { className: target ? "button" : "button off", textContent: text, ...(target ? { href: target, rel: relation } : {}) });
    const here = Object.assign(document.createElement("span"), { className: "faint num", textContent: `${place + 1} of ${kept.links.length}` });
    around.replaceChildren(link("‹ previous", kept.links[place - 1], "prev"), here, link("next ›", kept.links[place + 1], "next"));
    select(".crumbs a[rel=up]")?.setAttribute("href", kept.up);
  }

  const site = { recall, keep, load, open, addRows, imported: undefined };
  document.addEventListener("DOMContentLoaded", () => { startFilters(); startReading(); });
  return site;
})();

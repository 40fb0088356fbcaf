// The table of documents: suggestions and errors of the filter box, saved views.

const select = (query, within = document) => within.querySelector(query);
const all = (query, within = document) => [...within.querySelectorAll(query)];

// --- filter box --------------------------------------------------------------------------------------

let shown = [], active = -1, range = [0, 0], asked = 0, timer;
const field = () => select("#where");
const list = () => select("#where-list");

function close() {
  shown = [];
  active = -1;
  const place = list();
  if (place) { place.hidden = true; place.replaceChildren(); }
  field()?.setAttribute("aria-expanded", "false");
  field()?.removeAttribute("aria-activedescendant");
}

function highlight(number) {
  active = number;
  all("li", list()).forEach((item, at) => {
    item.setAttribute("aria-selected", String(at === active));
    if (at === active) item.scrollIntoView({ block: "nearest" });
  });
  if (active >= 0) field().setAttribute("aria-activedescendant", `where-option-${active}`);
  else field().removeAttribute("aria-activedescendant");
}

function draw(suggestions) {
  if (!suggestions.length || document.activeElement !== field()) return close();
  shown = suggestions;
  list().replaceChildren(...suggestions.map((one, number) => {
    const item = document.createElement("li");
    item.id = `where-option-${number}`;
    item.setAttribute("role", "option");
    const code = document.createElement("code"), about = document.createElement("span");
    code.textContent = one.text;
    about.textContent = one.description;
    item.append(code, about);
    return item;
  }));
  list().hidden = false;
  field().setAttribute("aria-expanded", "true");
  highlight(-1);
}

function showError(error) {
  const place = select("#where-error"), box = select(".where");
  box.classList.toggle("wrong", Boolean(error));
  if (error) field().setAttribute("aria-invalid", "true"); else field().removeAttribute("aria-invalid");
  if (!error) return place.replaceChildren();
  const pointer = document.createElement("pre"), text = document.createElement("p"), where = document.createElement("span"), hint = document.createElement("span");
  pointer.setAttribute("aria-hidden", "true");
  pointer.textContent = " ".repeat(error.position) + "^".repeat(error.length);
  where.className = "faint";
  where.textContent = ` (column ${error.position + 1})`;
  hint.className = "hint";
  hint.textContent = error.hint;
  text.append(error.what, where, hint);
  place.replaceChildren(pointer, text);
}

// A valid expression filters at once. An invalid one keeps the last documents; its error appears when you stop typing.
async function check({ suggest = true, patient = true } = {}) {
  const input = field(), number = ++asked;
  const query = new URLSearchParams({ where: input.value, cursor: input.selectionStart });
  const response = await fetch(`${select(".where").dataset.filter}?${query}`).catch(() => null);
  const answer = response?.ok ? await response.json() : null;
  if (!answer?.ready || number !== asked || input !== field()) return;
  range = [answer.start, answer.end];
  if (suggest) draw(answer.suggestions);
  clearTimeout(timer);
  if (!answer.error) { showError(null); apply(); }
  else if (patient) timer = setTimeout(() => { if (number === asked) showError(answer.error); }, 700);
  else showError(answer.error);
}

function apply() {
  const current = new URLSearchParams(location.search).get("where") ?? "";
  if (field().value.trim() !== current.trim()) field().form.requestSubmit();
}

function accept(number) {
  const input = field(), text = shown[number].text, rest = input.value.slice(range[1]);
  const before = input.value.slice(0, range[0]);
  const space = /^(and|or|not|in)$/.test(text) ? " " : "";
  input.value = before + text + space + rest;
  const place = before.length + text.length + space.length;
  input.setSelectionRange(place, place);
  close();
  input.dispatchEvent(new Event("input", { bubbles: true }));
}

let delay;
document.addEventListener("input", (event) => {
  if (event.target !== field()) return;
  event.stopPropagation();  // the form does not send an incomplete expression
  asked += 1;
  clearTimeout(delay);
  clearTimeout(timer);
  delay = setTimeout(check, 120);
}, true);

document.addEventListener("keydown", (event) => {
  if (event.target === field()) {
    const open = shown.length > 0;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) return check();
      const step = event.key === "ArrowDown" ? 1 : -1;
      highlight((active + step + shown.length + (active < 0 && step < 0 ? 1 : 0)) % shown.length);
    } else if (event.key === "Tab" && open && !event.shiftKey) {
      event.preventDefault();
      accept(Math.max(active, 0));
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (open && active >= 0) return accept(active);
      close();
      clearTimeout(delay);
      check({ suggest: false, patient: false });
    } else if (event.key === "Escape" && open) {
      event.stopPropagation();
      close();
    }
    return;
  }
  if (event.metaKey || event.ctrlKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (event.key === "f" && field() && !field().disabled) { event.preventDefault(); field().focus(); field().select(); }
}, true);

document.addEventListener("focusin", (event) => { if (event.target === field()) check(); });
document.addEventListener("focusout", (event) => { if (event.target === field()) setTimeout(() => { if (document.activeElement !== field()) close(); }, 150); });
document.addEventListener("mousedown", (event) => {
  const item = event.target.closest("#where-list li");
  if (!item) return;
  event.preventDefault();  // the field keeps the focus
  accept(all("li", list()).indexOf(item));
});

// --- popups and saved views --------------------------------------------------------------------------

document.addEventListener("click", (event) => {
  for (const popup of all("details.popup[open]")) if (!popup.contains(event.target)) popup.open = false;
});
document.addEventListener("keydown", (event) => {
  const popup = event.key === "Escape" && event.target.closest?.("details.popup[open]");
  if (popup) { popup.open = false; select("summary", popup).focus(); }
});

async function changeViews(content) {
  const response = await fetch("/views", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(content) });
  const answer = await response.json().catch(() => ({}));
  const notice = select("#toast");
  if (!response.ok) { notice.textContent = answer.error || "Cannot save the view"; notice.classList.add("on"); return; }
  location.reload();
}

document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-save-view]")) return;
  event.preventDefault();
  const query = new URLSearchParams(location.search);
  query.delete("page");
  changeViews({ name: event.target.elements.name.value, query: query.toString() });
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-remove-view]");
  if (button) changeViews({ name: button.dataset.removeView, query: null });
});

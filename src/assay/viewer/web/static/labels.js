// Human labels on the page of a document: right, wrong, star and note, by key or by button.

const select = (query, within = document) => within.querySelector(query);
const PERSON = "assay:labeller";
let state = null;

const place = () => /^\/runs\/([^/]+)\/documents\/(.+)\/(\d+)$/.exec(location.pathname);
const mine = () => state?.labels.find((label) => label.who === person());
const person = () => localStorage.getItem(PERSON)?.trim() || state?.who || "";

function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

function notify(text) {
  const toast = select("#toast");
  toast.textContent = text;
  toast.classList.add("on");
  setTimeout(() => toast.classList.remove("on"), 2500);
}

function draw() {
  const article = select("#document") ?? select("main");
  let bar = select("#label-bar");
  if (!bar) {
    bar = make("section", { id: "label-bar", className: "label-bar" });
    bar.setAttribute("aria-label", "Your label");
    const above = select(".verdict-bar", article) ?? select(".headline", article);
    if (above) above.after(bar); else article.prepend(bar);
  }
  const label = mine() ?? { verdict: "", note: "", star: false };
  const button = (text, key, pressed, change) => {
    const one = make("button", { type: "button", textContent: text, title: `${text} (${key})` });
    one.setAttribute("aria-pressed", String(pressed));
    one.dataset.labelKey = key;
    one.addEventListener("click", () => save(change));
    return one;
  };
  const note = make("input", { type: "text", value: label.note, placeholder: "note ( n )", maxLength: 4000, className: "label-note" });
  note.setAttribute("aria-label", "Note");
  note.addEventListener("change", () => save({ note: note.value }));
  note.addEventListener("keydown", (event) => { if (event.key === "Enter") note.blur(); });
  const who = make("input", { type: "text", value: person(), maxLength: 80, className: "label-who", size: Math.max(6, person().length) });
  who.setAttribute("aria-label", "Your name");
  who.addEventListener("change", () => { localStorage.setItem(PERSON, who.value.trim()); draw(); });
  const others = state.labels.filter((one) => one.who !== person());
  bar.replaceChildren(
    button("Right", "1", label.verdict === "right", { verdict: label.verdict === "right" ? "" : "right" }),
    button("Wrong", "2", label.verdict === "wrong", { verdict: label.verdict === "wrong" ? "" : "wrong" }),
    button(label.star ? "★ Starred" : "☆ Star", "s", label.star, { star: !label.star }),
    note, make("span", { className: "label-as" }, "as ", who),
    ...(others.length ? [make("span", { className: "label-others" }, ...others.map((one) => {
      const text = [one.verdict, one.star ? "★" : "", one.note].filter(Boolean).join(" ");
      const shown = make("span", { className: `label-mark l-${one.verdict}`, textContent: `${one.who}: ${text}` });
      shown.title = new Date(1000 * one.at).toLocaleString();
      return shown;
    }))] : []),
  );
  bar.dataset.ready = "1";
}

async function send(options) {
  const found = place();
  if (!found) return;
  const response = await fetch(`/runs/${found[1]}/labels/${found[2]}/${found[3]}`, options).catch(() => null);
  const answer = await response?.json().catch(() => null);
  if (!response?.ok) return notify(answer?.error || "Cannot save the label");
  if (place()?.[0] !== found[0]) return;  // another document is shown by now
  state = answer;
  draw();
}

const save = (change) => send({ method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ ...change, who: person() }) });

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey || event.target.closest("input, select, textarea") || select("dialog[open]")) return;
  if (!select("#label-bar[data-ready]")) return;
  if (event.key === "n") { event.preventDefault(); return select(".label-note").focus(); }
  if (["1", "2", "s"].includes(event.key)) { event.preventDefault(); select(`#label-bar [data-label-key="${event.key}"]`).click(); }
});

const load = () => { state = null; if (place()) send({}); };
document.addEventListener("assay:document", load);
load();

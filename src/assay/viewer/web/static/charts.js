// Draws the figures of a page with plotly in the colours of the theme, and redraws them when the theme changes.

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

// On a phone, a list below the figure replaces its legend, whose entries would be cut off.
function replaceLegend(figure, data, layout) {
  layout.showlegend = false;
  layout.margin = { ...layout.margin, t: 8 };
  const list = figure.querySelector(".chart-legend") ?? figure.appendChild(Object.assign(document.createElement("ul"), { className: "legend chart-legend" }));
  list.replaceChildren(...data.filter((trace) => trace.name).map((trace) => {
    const item = document.createElement("li"), dot = document.createElement("i");
    dot.style.background = trace.marker?.color ?? trace.line?.color;
    const text = new DOMParser().parseFromString(trace.name, "text/html").body.textContent;  // names are escaped for plotly
    item.append(dot, text);
    return item;
  }));
}

// --- downloads ---------------------------------------------------------------------------------------------

const plain = (html) => new DOMParser().parseFromString(String(html ?? "").replaceAll("<br>", " "), "text/html").body.textContent.trim();

function save(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  Object.assign(document.createElement("a"), { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// One row for each point; the name of a row comes from its axis.
function toCsv({ data, layout }) {
  const cell = (value) => {
    if (typeof value === "number") return String(value);
    const text = plain(value);
    return `"${(/^[=+\-@]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;  // no formulas
  };
  const named = (axis, value) => {
    const place = axis?.tickvals?.indexOf(Math.round(value)) ?? -1;
    return typeof value === "number" && axis?.ticktext && place >= 0 ? axis.ticktext[place] : value;
  };
  const lines = [["series", "x", "y", "minus", "plus"].join(",")];
  for (const trace of data) {
    const errors = trace.error_x ?? trace.error_y ?? {};
    const count = Math.max(trace.x?.length ?? 0, trace.y?.length ?? 0);
    for (let at = 0; at < count; at += 1) {
      lines.push([trace.name ?? "", named(layout.xaxis, trace.x?.[at] ?? ""), named(layout.yaxis, trace.y?.[at] ?? ""), errors.arrayminus?.[at] ?? "", errors.array?.[at] ?? ""].map(cell).join(","));
    }
  }
  return `${lines.join("\n")}\n`;
}

function addDownloads(figure) {
  if (figure.querySelector(".chart-downloads")) return;
  const name = (figure.getAttribute("aria-label") ?? "chart").toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const place = figure.querySelector(".plot");
  const svg = async () => {
    const address = await globalThis.Plotly.toImage(place, { format: "svg", width: place.clientWidth, height: place.clientHeight });
    save(`${name}.svg`, "image/svg+xml", decodeURIComponent(address.slice(address.indexOf(",") + 1)));
  };
  const csv = () => save(`${name}.csv`, "text/csv", toCsv(JSON.parse(figure.querySelector("script").textContent).light));
  const bar = Object.assign(document.createElement("div"), { className: "chart-downloads" });
  for (const [label, act] of [["SVG", svg], ["CSV", csv]]) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: label, title: `Download as ${label}` });
    button.addEventListener("click", act);
    bar.append(button);
  }
  figure.append(bar);
}

function draw() {
  for (const figure of document.querySelectorAll("figure.chart")) {
    const given = JSON.parse(figure.querySelector("script").textContent);
    const { data, layout } = given[isDark() ? "dark" : "light"];
    if (layout.showlegend && figure.clientWidth < 560) replaceLegend(figure, data, layout);
    const place = figure.querySelector(".plot");
    globalThis.Plotly.react(place, data, layout, given.config).then(() => { figure.classList.add("drawn"); addDownloads(figure); });
  }
}

document.addEventListener("assay:theme", draw);
document.addEventListener("assay:charts", draw);
draw();

// Draws the figures of a page with plotly in the colours of the theme, and redraws them when the theme changes.

import { buildDownloads } from "./chart_downloads.js";

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

function addDownloads(figure, given) {
  if (figure.querySelector(".chart-downloads")) return;
  const title = figure.getAttribute("aria-label") ?? "chart";
  const getFigure = () => structuredClone(given[isDark() ? "dark" : "light"]);
  figure.append(buildDownloads({ title, place: figure.querySelector(".plot"), getFigure, table: given.table }));
}

function draw() {
  for (const figure of document.querySelectorAll("figure.chart")) {
    const given = JSON.parse(figure.querySelector("script").textContent);
    const { data, layout } = structuredClone(given[isDark() ? "dark" : "light"]);
    if (layout.showlegend && figure.clientWidth < 560) replaceLegend(figure, data, layout);
    const place = figure.querySelector(".plot");
    globalThis.Plotly.react(place, data, layout, given.config).then(() => { figure.classList.add("drawn"); addDownloads(figure, given); });
  }
}

document.addEventListener("assay:theme", draw);
document.addEventListener("assay:charts", draw);
draw();

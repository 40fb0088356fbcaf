"use strict";
const CHARTS_AT_ONCE = 4;
(() => {
  const root = document.documentElement;
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = read("figures");
  const tables = read("figure-tables");
  const config = read("figure-config");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const button = document.querySelector("button.theme");
  const charts = [...document.querySelectorAll("[data-figure]")];
  let chosen = "auto";
  let printing = false;
  let turn = 0;

  const theme = () => (printing ? "light" : chosen === "auto" ? (system.matches ? "dark" : "light") : chosen);

  function draw() {
    root.dataset.theme = theme();
    if (button) button.textContent = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" }[chosen];
    if (typeof Plotly === "undefined") return;
    turn += 1;
    drawFrom(0, turn);
  }

  // Draw a few charts at a time, so that the page can be read and scrolled meanwhile; all at once for printing.
  function drawFrom(start, started) {
    if (started !== turn) return;  // another theme was chosen
    const end = printing ? charts.length : start + CHARTS_AT_ONCE;
    charts.slice(start, end).forEach(drawChart);
    if (end < charts.length) setTimeout(drawFrom, 0, end, started); else root.dataset.charts = "drawn";
  }

  function drawChart(chart) {
    const figure = figures[chart.dataset.figure][theme()];
    const layout = { ...figure.layout };
    if (printing) layout.width = 700;
    chart.textContent && !chart.dataset.drawn && (chart.textContent = "");
    Plotly.react(chart, figure.data, layout, config);
    if (!chart.dataset.drawn) addDownloads(chart);
    chart.dataset.drawn = "yes";
  }

  function addDownloads(chart) {
    const name = chart.dataset.figure;
    const getFigure = () => structuredClone(figures[name][theme()]);
    chart.after(buildDownloads({ title: chart.getAttribute("aria-label"), place: chart, getFigure, table: tables[name] }));
  }

  async function unpack() {
    const packed = document.getElementById("plotly-packed");
    if (!packed || typeof Plotly !== "undefined") return;
    const bytes = Uint8Array.from(atob(packed.textContent.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    packed.remove();
  }

  if (button) {
    button.addEventListener("click", () => {
      chosen = { auto: "dark", dark: "light", light: "auto" }[chosen];
      draw();
    });
  }
  system.addEventListener("change", draw);
  const folded = [];
  window.addEventListener("beforeprint", () => {
    printing = true;
    for (const part of document.querySelectorAll("details:not([open], .plot-data)")) { folded.push(part); part.open = true; }
    draw();
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    for (const part of folded.splice(0)) part.open = false;
    draw();
  });
  // Boxes that scroll must be reachable with the keyboard.
  for (const box of document.querySelectorAll("pre, .scroll")) {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight || box.closest(".plot-data")) box.tabIndex = 0;
  }
  draw();
  unpack().then(draw, () => { root.dataset.charts = "missing"; });
})();

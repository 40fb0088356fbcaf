// Draws the figures of a page with plotly in the colours of the theme, and redraws them when the theme changes.

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

// On a phone, the legend starts at the left edge and long names are cut, so that no entry is outside of the figure.
function fitLegend(data, layout) {
  layout.legend = { ...layout.legend, x: 0, xref: "container", font: { ...layout.legend?.font, size: 11 } };
  for (const trace of data) if (trace.name?.length > 34) trace.name = `${trace.name.slice(0, 33)}…`;
}

function draw() {
  for (const figure of document.querySelectorAll("figure.chart")) {
    const given = JSON.parse(figure.querySelector("script").textContent);
    const { data, layout } = given[isDark() ? "dark" : "light"];
    if (layout.showlegend && figure.clientWidth < 560) fitLegend(data, layout);
    const place = figure.querySelector(".plot");
    globalThis.Plotly.react(place, data, layout, given.config).then(() => figure.classList.add("drawn"));
  }
}

document.addEventListener("assay:theme", draw);
document.addEventListener("assay:charts", draw);
draw();

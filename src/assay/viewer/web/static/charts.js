// Draws the figures of a page with plotly in the colours of the theme, and redraws them when the theme changes.

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

function draw() {
  for (const figure of document.querySelectorAll("figure.chart")) {
    const given = JSON.parse(figure.querySelector("script").textContent);
    const { data, layout } = given[isDark() ? "dark" : "light"];
    const place = figure.querySelector(".plot");
    globalThis.Plotly.react(place, data, layout, given.config).then(() => figure.classList.add("drawn"));
  }
}

document.addEventListener("assay:theme", draw);
document.addEventListener("assay:charts", draw);
draw();

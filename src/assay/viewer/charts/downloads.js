// Downloads of a chart: the figure as SVG and PNG, its numbers as CSV. Web pages import this file; reports contain it.

const PNG_SCALE = 2;
const MIN_WIDTH_PX = 720;

const plain = (html) => new DOMParser().parseFromString(String(html ?? "").replaceAll("<br>", " "), "text/html").body.textContent.trim();

function save(name, blob) {
  const address = URL.createObjectURL(blob);
  Object.assign(document.createElement("a"), { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

const cell = (value) => {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = String(value);
  return `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;  // no formulas
};

const tableToCsv = ({ columns, rows }) => `${[columns, ...rows].map((row) => row.map(cell).join(",")).join("\n")}\n`;

// One row for each point; the name of a row comes from its axis.
function figureToCsv({ data, layout }) {
  const named = (axis, value) => {
    const place = axis?.tickvals?.indexOf(Math.round(value)) ?? -1;
    return typeof value === "number" && axis?.ticktext && place >= 0 ? axis.ticktext[place] : value;
  };
  const lines = [["series", "x", "y", "minus", "plus"].join(",")];
  for (const trace of data) {
    const errors = trace.error_x ?? trace.error_y ?? {};
    const count = Math.max(trace.x?.length ?? 0, trace.y?.length ?? 0);
    for (let at = 0; at < count; at += 1) {
      lines.push([trace.name ?? "", named(layout.xaxis, trace.x?.[at] ?? ""), named(layout.yaxis, trace.y?.[at] ?? ""), errors.arrayminus?.[at] ?? "", errors.array?.[at] ?? ""].map((value) => cell(typeof value === "string" ? plain(value) : value)).join(","));
    }
  }
  return `${lines.join("\n")}\n`;
}

// Draw the figure on the background of its theme, so that dark figures can be read in a document with a white page.
async function drawSvg({ data, layout }, width) {
  const size = { width: Math.max(width, MIN_WIDTH_PX), height: layout.height };
  const background = layout.hoverlabel?.bgcolor ?? "white";
  const drawn = { data, layout: { ...layout, paper_bgcolor: background } };
  const address = await globalThis.Plotly.toImage(drawn, { format: "svg", ...size });
  return { ...size, text: decodeURIComponent(address.slice(address.indexOf(",") + 1)) };
}

async function drawPng(figure, width) {
  const svg = await drawSvg(figure, width);
  const address = URL.createObjectURL(new Blob([svg.text], { type: "image/svg+xml" }));
  try {
    const image = Object.assign(new Image(), { src: address });
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: PNG_SCALE * svg.width, height: PNG_SCALE * svg.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
  } finally {
    URL.revokeObjectURL(address);
  }
}

// `place` contains the drawn figure; `getFigure` returns the figure of the current theme; `table` may be missing.
export function buildDownloads({ title, place, getFigure, table }) {
  const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "chart";
  const acts = {
    SVG: async () => save(`${name}.svg`, new Blob([(await drawSvg(getFigure(), place.clientWidth)).text], { type: "image/svg+xml" })),
    PNG: async () => save(`${name}.png`, await drawPng(getFigure(), place.clientWidth)),
    CSV: () => save(`${name}.csv`, new Blob([table ? tableToCsv(table) : figureToCsv(getFigure())], { type: "text/csv" })),
  };
  const bar = Object.assign(document.createElement("div"), { className: "chart-downloads" });
  for (const [label, act] of Object.entries(acts)) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: label, title: `Download as ${label}` });
    button.setAttribute("aria-label", `Download ${title} as ${label}`);
    button.addEventListener("click", act);
    bar.append(button);
  }
  return bar;
}

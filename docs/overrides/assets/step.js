/* A pointer on the memory of a step: what each way holds in the part of the step below it, line by line. Without this
   script the drawing stands alone; all numbers come with it. */
const WORDS = {
  en: {
    title: "Point at a part of the step", part: "Part of the step", ways: ["all kept", "linear outputs", "inputs"], whole: "together",
    lines: ["weights", "optimizer state", "gradients", "activations", "logits"],
    phases: { forward: "forward", backward: "backward", update: "update" },
    parts: { state: "before it", embedding: "embedding", layer: "layer {n}", norm: "last norm", head: "head", loss: "loss", update: "" },
  },
  zh: {
    title: "指着一步中的任意一处", part: "一步中的位置", ways: ["全部保存", "线性层输出", "只有输入"], whole: "合计",
    lines: ["权重", "优化器状态", "梯度", "激活值", "logits"],
    phases: { forward: "前向", backward: "反向", update: "更新" },
    parts: { state: "开始之前", embedding: "嵌入", layer: "第 {n} 层", norm: "最后的归一化", head: "输出头", loss: "损失", update: "" },
  },
};

const STYLE = `
  .live-step { font-size: 0.76rem; }
  .live-step input { width: 100%; margin: 0; accent-color: var(--md-default-fg-color); }
  .live-step table { width: 100%; margin: 0.4em 0; border-collapse: collapse; font-variant-numeric: tabular-nums; }
  .live-step :is(td, th) { padding: 0.15em 0.3em; text-align: end; }
  .live-step :is(td, th):first-child { text-align: start; font-weight: inherit; }
  .live-step tr:last-child { border-top: 0.05rem solid var(--md-default-fg-color--light); }
`;

/* What a drawing brings along: names of parts, and GiB of each way, line and part. */
const read = ({ parts, held, grid }) => ({
  parts: parts.split(","),
  held: held.split("|").map((way) => way.split(";").map((line) => line.split(",").map((size) => size / 1024))),
  grid: grid.split(" ").map(Number),
});

/* A part in words: "backward layer 3" counts from 0, people from 1. */
function named(part, words) {
  const [phase, what, n] = part.split(" ");
  return [words.phases[phase], words.parts[what].replace("{n}", Number(n) + 1)].filter(Boolean).join(" · ");
}

/* The rows of the table at a part: a line and its GiB of each way; in the last one their sums. */
function rows({ held }, at, words) {
  const lines = words.lines.map((line, n) => [line, ...held.map((way) => way[n][at])]);
  const sums = held.map((way) => way.reduce((sum, line) => sum + line[at], 0));
  return [...lines, [words.whole, ...sums]].map(([line, ...sizes]) => [line, ...sizes.map((size) => size.toFixed(1))]);
}

/* Where a pointer at x of the drawing is. */
const column = ({ grid: [left, wide], parts }, x) => Math.max(0, Math.min(parts.length - 1, Math.floor((x - left) / wide)));

const make = (name, attributes, ...children) => {
  const made = name === "line" ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

export default function (place) {
  const svg = place.previousElementSibling?.querySelector("svg[data-held]");
  if (!svg?.dataset.held) return;
  const words = WORDS[document.documentElement.lang.slice(0, 2)] ?? WORDS.en, step = read(svg.dataset);
  const loss = step.parts.indexOf("backward loss");
  const input = make("input", { type: "range", min: 0, max: step.parts.length - 1, value: loss, "aria-label": words.part });
  const mark = make("line", { class: "stroke-ink", y1: step.grid[2], y2: svg.viewBox.baseVal.height });
  const title = make("b", {}), body = make("tbody", {});
  const row = (kind, cells) => make("tr", {}, ...cells.map((cell) => make(kind, {}, cell)));
  const show = () => {
    const at = Number(input.value), [left, wide] = step.grid, x = left + wide * (at + 0.5);
    mark.setAttribute("x1", x);
    mark.setAttribute("x2", x);
    title.textContent = named(step.parts[at], words);
    input.setAttribute("aria-valuetext", title.textContent);
    body.replaceChildren(...rows(step, at, words).map((cells) => row("td", cells)));
  };
  const point = (event) => {
    const box = svg.getBoundingClientRect();
    input.value = column(step, ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width);
    moved();
  };
  const moved = () => {
    svg.append(mark); // not before: it would run through the headings
    show();
  };
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  input.addEventListener("input", moved);
  place.replaceChildren(make("style", {}, STYLE), make("div", { class: "live-step", role: "group", "aria-label": words.title },
    input, title, make("table", { class: "live-lines" }, make("thead", {}, row("th", ["GiB", ...words.ways])), body)));
  show();
}

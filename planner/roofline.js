/* The tokens that meet a matrix at once, dragged along a card's roof. Times are the library's: roof(), translated; CARDS has
   peaks and bandwidths of its table. */
const WORDS = {
  en: {
    title: "Drag the batch along the roof", card: "Card", tokens: "Tokens at once", axis: "FLOPs for each byte",
    bound: ["limited by memory", "limited by arithmetic"],
    said: "{tokens} tokens: {intensity} FLOPs for each byte, {bound}. Arithmetic takes {arithmetic}, bytes {bytes}, so at most {rate}, {share}\u00a0% of the peak.",
  },
  zh: {
    title: "沿屋顶线拖动批量", card: "卡", tokens: "一次的词元数", axis: "每字节的 FLOPs",
    bound: ["受带宽限制", "受算力限制"],
    said: "{tokens} 个词元：每字节 {intensity} FLOPs，{bound}。计算要 {arithmetic}，搬运字节要 {bytes}，所以最多 {rate}，即峰值的 {share}%。",
  },
};
const D = 4096n, F = 14336n; // a matrix of Llama 3 8B's MLP
const STEPS = 57; // of the slider, four to a doubling of the tokens: 1 to 16,384

const STYLE = `
  .live-roof { max-width: 24rem; margin: 1em 0; font-size: 0.76rem; }
  .live-roof p { margin: 0.4em 0; font-variant-numeric: tabular-nums; min-height: 4.5em; }
  .live-roof input { width: 100%; margin: 0; accent-color: var(--md-default-fg-color); }
  .live-roof select { padding: 0.2em; border: 0.05rem solid var(--md-default-fg-color--light); color: inherit; background: none; font: inherit; }
  .live-roof svg { display: block; width: 100%; margin: 0.4em 0; font-family: var(--md-text-font-family); touch-action: pan-y; cursor: ew-resize; }
`;

const tokensAt = (step) => Math.round(2 ** (step / 4));

/* What so many tokens do on a card: FLOPs a byte, seconds of both, FLOP/s at most, and its share of the peak. */
function reach(tokens, [peak, bandwidth]) {
  const [intensity, arithmetic, bytes] = roof(BigInt(tokens), D, F, peak, bandwidth);
  return { intensity, arithmetic, bytes, rate: peak * Math.min(1, arithmetic / bytes), share: Math.min(1, arithmetic / bytes) };
}

/* Three digits and a unit. */
function short(value, units) {
  const [unit, power] = units.find(([, least]) => value >= least) ?? units.at(-1);
  return `${Number((value / power).toPrecision(3))}\u00a0${unit}`;
}
const SECONDS = [["s", 1], ["ms", 1e-3], ["µs", 1e-6]], RATES = [["PFLOP/s", 1e15], ["TFLOP/s", 1e12], ["GFLOP/s", 1e9]];

const WIDE = 340, HIGH = 198, LEFT = 8, FLOOR = 176; // of the drawing: intensities of 0.5 to 5,000, FLOP/s of 1e12 to 4e15
const across = (intensity) => LEFT + ((WIDE - 2 * LEFT) * Math.log10(intensity / 0.5)) / 4;
const up = (rate) => FLOOR - ((FLOOR - 14) * Math.log10(rate / 1e12)) / Math.log10(4000);

export default function (place) {
  const words = ownWords();
  const drawn = (name, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(text);
    return made;
  };
  const card = element("select", { "aria-label": words.card }, ...Object.keys(CARDS).map((name) => element("option", {}, name)));
  const input = element("input", { type: "range", min: 0, max: STEPS - 1, value: 24, "aria-label": words.tokens });
  const svg = drawn("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "font-size": 13 }), told = element("p", { role: "status" });
  const show = () => {
    const [peak, bandwidth] = CARDS[card.value], tokens = tokensAt(input.value), found = reach(tokens, CARDS[card.value]);
    const [x, y, ridge] = [across(found.intensity), up(found.rate), across(peak / bandwidth)];
    const values = {
      tokens: counted(tokens), intensity: Number(found.intensity.toPrecision(3)), bound: words.bound[Number(found.arithmetic > found.bytes)],
      arithmetic: short(found.arithmetic, SECONDS), bytes: short(found.bytes, SECONDS), rate: short(found.rate, RATES), share: Number((100 * found.share).toPrecision(2)),
    };
    told.textContent = filled(words.said, values);
    input.setAttribute("aria-valuetext", values.tokens);
    svg.setAttribute("aria-label", told.textContent);
    svg.replaceChildren(
      drawn("path", { class: "stroke-ink", d: `M${across(0.5)} ${up(0.5 * bandwidth)}L${ridge} ${up(peak)}H${WIDE - LEFT}` }),
      drawn("line", { class: "stroke-muted", x1: 0, x2: WIDE, y1: FLOOR, y2: FLOOR }),
      drawn("line", { class: "stroke-0", x1: x, x2: x, y1: y, y2: FLOOR }),
      drawn("circle", { class: "fill-0", cx: x, cy: y, r: 7 }),
      drawn("text", { class: "muted", x: ridge, y: FLOOR + 17, "text-anchor": "middle" }, `${Math.round(peak / bandwidth)}`),
      drawn("text", { class: "muted", x: 0, y: FLOOR + 17 }, words.axis),
      drawn("text", { class: "ink", x: WIDE - LEFT, y: up(peak) - 6, "text-anchor": "end" }, short(peak, RATES)),
    );
  };
  /* The step whose mark is nearest to a pointer at x of the drawing. */
  const nearest = (x) => {
    const off = (step) => Math.abs(across(reach(tokensAt(step), CARDS[card.value]).intensity) - x);
    return [...Array(STEPS).keys()].reduce((best, step) => (off(step) < off(best) ? step : best), 0);
  };
  const drag = (event) => {
    if (event.type === "pointermove" && !event.buttons) return;
    const box = svg.getBoundingClientRect();
    input.value = nearest(((event.clientX - box.left) / box.width) * WIDE);
    show();
  };
  svg.addEventListener("pointerdown", drag);
  svg.addEventListener("pointermove", drag);
  card.value = "H100 SXM";
  const form = element("form", { class: "live-roof", "aria-label": words.title }, element("style", {}, STYLE), element("b", {}, words.title), " ", card, svg, input, told);
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  place.replaceChildren(form);
  show();
}

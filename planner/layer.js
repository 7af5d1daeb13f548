/* What one layer keeps as the reader moves tokens and sequences. Its bytes are the library's: layer(), translated. */
const WORDS = {
  en: {
    title: "Move the tokens and the sequences", model: "Model", names: ["GPT-2 small", "Llama 3 8B"], attention: "Attention", kinds: ["fused", "eager"],
    tokens: "Tokens T", sequences: "Sequences b", parts: ["norms", "attention, without scores", "scores", "MLP"],
    said: "One layer keeps {layer}, all {n} layers {all}.",
  },
  zh: {
    title: "移动词元数和序列数", model: "模型", names: ["GPT-2 small", "Llama 3 8B"], attention: "注意力", kinds: ["融合", "普通（eager）"],
    tokens: "词元数 T", sequences: "序列数 b", parts: ["归一化", "注意力（分数除外）", "分数", "MLP"],
    said: "一层保存 {layer}，全部 {n} 层保存 {all}。",
  },
};
const LAYERS = [12, 32];

const STYLE = `
  .live-layer { display: grid; grid-template-columns: fit-content(30%) 1fr max-content; gap: 0.35em 0.8em; align-items: center; margin: 1em 0; font-size: 0.76rem; font-variant-numeric: tabular-nums; }
  .live-layer input { width: 100%; margin: 0; accent-color: var(--md-default-fg-color); }
  .live-layer :is(b, p, select) { grid-column: 1 / -1; margin: 0; }
  .live-layer select { grid-column: 2 / -1; justify-self: start; padding: 0.2em; border: 0.05rem solid var(--md-default-fg-color--light); color: inherit; background: none; font: inherit; }
  .live-layer i { height: 1em; background: var(--book-activations); }
  .live-layer output { text-align: end; }
`;

/* Bytes in the largest unit that leaves one or more before the point. */
function size(bytes) {
  const power = bytes < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(bytes) / 10));
  const scaled = bytes / 1024 ** power;
  return `${scaled.toFixed(scaled < 10 && power ? 1 : 0)}\u00a0${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

export default function (place) {
  const words = ownWords();
  const pick = (label, names, at) => {
    const made = element("select", { "aria-label": label }, ...names.map((name, value) => element("option", { value }, name)));
    made.value = at;
    return made;
  };
  const slide = (label, most, value) => element("input", { type: "range", min: 0, max: most, value, "aria-label": label });
  const model = pick(words.model, words.names, 1), kind = pick(words.attention, words.kinds, 1);
  const tokens = slide(words.tokens, 10, 6), sequences = slide(words.sequences, 7, 0); // powers of two, tokens from 128
  const told = element("p", { role: "status" });
  const rows = words.parts.map((part) => ({ name: element("span", {}, part), bar: element("i"), bytes: element("output") }));
  const counts = [element("output"), element("output")];
  const show = () => {
    const [T, b] = [2 ** (7 + Number(tokens.value)), 2 ** Number(sequences.value)];
    const kept = layer(model.value === "1", BigInt(T), BigInt(b), kind.value === "0").map(Number), whole = kept.reduce((sum, part) => sum + part, 0);
    [T, b].forEach((count, n) => { counts[n].textContent = counted(count); });
    rows.forEach(({ bar, bytes }, n) => {
      bar.style.width = `${(100 * kept[n]) / whole}%`;
      bytes.textContent = size(kept[n]);
    });
    const values = { layer: size(whole), n: LAYERS[model.value], all: size(LAYERS[model.value] * whole) };
    told.textContent = filled(words.said, values);
  };
  const form = element("form", { class: "live-layer", "aria-label": words.title }, element("style", {}, STYLE), element("b", {}, words.title),
    element("span", {}, words.model), model, element("span", {}, words.attention), kind,
    element("span", {}, words.tokens), tokens, counts[0], element("span", {}, words.sequences), sequences, counts[1],
    ...rows.flatMap(({ name, bar, bytes }) => [name, bar, bytes]), told);
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  place.replaceChildren(form);
  show();
}

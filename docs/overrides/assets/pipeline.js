/* A pipeline that the reader sets: ranks, micro-batches and schedule, its passes over time, and the bubble. Without this
   script the drawings stand that the page has. */
const WORDS = {
  en: {
    title: "Set a pipeline", schedule: "Schedule", ranks: "Ranks", batches: "Micro-batches", rank: "rank {n}",
    names: { gpipe: "GPipe", "1f1b": "1F1B", interleaved: "interleaved, two stages a rank" },
    legend: ["forward", "backward", "second stage on the rank"],
    said: "The bubble is {share}\u00a0% of the step. Activations kept at once, in micro-batches of all of a rank's layers: {first} by rank 0, {last} by rank {n}.",
  },
  zh: {
    title: "自己设置一条流水线", schedule: "调度方式", ranks: "rank 数", batches: "微批数", rank: "rank {n}",
    names: { gpipe: "GPipe", "1f1b": "1F1B", interleaved: "交错，每个 rank 两个阶段" },
    legend: ["前向", "反向", "rank 上的第二个阶段"],
    said: "气泡占一步的 {share}%。同时保存的激活值，按一个 rank 全部层的微批计，rank 0 有 {first} 个，rank {n} 有 {last} 个。",
  },
};

const STYLE = `
  .pipeline { display: flex; flex-wrap: wrap; gap: 0.3em 1.4em; align-items: center; margin-bottom: 0.8em; font-size: 0.76rem; }
  .pipeline span { display: inline-flex; gap: 0.5em; align-items: center; }
  .pipeline input { accent-color: var(--md-default-fg-color); }
  .pipeline output { min-width: 1.3em; text-align: end; font-variant-numeric: tabular-nums; }
  .pipeline select { border: 0.05rem solid var(--md-default-fg-color--light); padding: 0.2em; color: inherit; background: none; font: inherit; }
`;

/* The passes of each rank in order, [forward?, stage, micro-batch]: warm-up, then turns, as Megatron-LM and PyTorch have it. */
function order(schedule, ranks, batches) {
  const chunks = schedule === "interleaved" ? 2 : 1, all = batches * chunks;
  const pass = (forward, rank, n) => {
    const chunk = chunks > 1 ? Math.floor(n / ranks) % chunks : 0;
    const batch = chunks > 1 ? Math.floor(n / (ranks * chunks)) * ranks + (n % ranks) : n;
    return [forward, rank + ranks * (forward ? chunk : chunks - 1 - chunk), batch];
  };
  return Array.from({ length: ranks }, (_, rank) => {
    const ahead = { gpipe: all, "1f1b": ranks - rank - 1, interleaved: 2 * (ranks - rank - 1) + (chunks - 1) * ranks };
    const warm = Math.min(all, ahead[schedule]), found = [];
    for (let n = 0; n < warm; n++) found.push(pass(true, rank, n));
    for (let n = 0; n < all; n++) {
      if (warm + n < all) found.push(pass(true, rank, warm + n));
      found.push(pass(false, rank, n));
    }
    return found;
  });
}

/* When each pass starts and ends, if it starts as soon as its rank is free and what it needs is there; a backward pass
   takes twice as long as a forward one, a stage of half the layers half as long. */
function play(schedule, ranks, batches) {
  const chunks = schedule === "interleaved" ? 2 : 1, last = ranks * chunks - 1, ended = new Map();
  const todo = order(schedule, ranks, batches), free = Array(ranks).fill(0), played = todo.map(() => []);
  for (let moved = true; moved;) {
    moved = false;
    todo.forEach((waiting, rank) => {
      while (waiting.length) {
        const [forward, stage, batch] = waiting[0];
        const needs = forward ? [true, stage - 1, batch] : stage === last ? [true, stage, batch] : [false, stage + 1, batch];
        const there = forward && stage === 0 ? 0 : ended.get(`${needs}`);
        if (there === undefined) break;
        const start = Math.max(free[rank], there);
        free[rank] = start + (forward ? 2 : 4) / chunks;
        ended.set(`${waiting.shift()}`, free[rank]);
        played[rank].push([start, free[rank], forward, stage, batch]);
        moved = true;
      }
    });
  }
  const end = Math.max(...free);
  const kept = played.map((passes) => {
    let now = 0;
    return Math.max(...passes.map(([, , forward]) => (now += forward ? 1 : -1))) / chunks;
  });
  return { played, end, share: 1 - (6 * batches) / end, kept };
}

const make = (name, attributes, ...children) => {
  const made = /^(svg|rect|text)$/.test(name) ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

function draw({ played, end }, words, caption) {
  const ranks = played.length, left = 50, width = 400, scale = (width - left) / end, parts = [];
  const box = (x, y, wide, high, css) => parts.push(make("rect", { x, y, width: wide, height: high, class: css }));
  const write = (x, y, text, css, anchor = "start") => parts.push(make("text", { x, y, class: css, "text-anchor": anchor, "font-size": 14 }, text));
  const second = played.some((passes) => passes.some(([, , , stage]) => stage >= ranks));
  const last = Math.max(...played.flat().map(([, , , , batch]) => batch)) + 1, room = 8 * `${last}`.length + 2;
  words.legend.slice(0, second ? 3 : 2).forEach((text, n) => {
    const x = n === 1 ? 110 : 0, y = n === 2 ? 24 : 2; // a second line for the second stage
    box(x, y, 14, 14, `fill-${n}`);
    if (n === 2) box(x + 18, y, 14, 14, "fill-3");
    write(x + (n === 2 ? 38 : 20), y + 12, text, "ink");
  });
  const first = second ? 54 : 32;
  played.forEach((passes, rank) => {
    const top = first + 34 * rank;
    write(0, top + 18, words.rank.replace("{n}", rank), "ink");
    box(left, top, width - left, 26, "faint");
    for (const [start, stop, forward, stage, batch] of passes) {
      const wide = (stop - start) * scale, colour = (forward ? 0 : 1) + (stage >= ranks ? 2 : 0);
      box(left + start * scale, top, Math.max(wide - 1, 0.5), 26, `fill-${colour}`);
      if (wide >= room) write(left + start * scale + (wide - 1) / 2, top + 18, `${batch + 1}`, colour > 1 ? "on-pale" : "paper", "middle");
    }
  });
  return make("svg", { viewBox: `0 0 ${width} ${first + 34 * ranks - 4}`, width, role: "img", "aria-label": caption }, ...parts);
}

function start(place) {
  const words = WORDS[document.documentElement.lang.slice(0, 2)] ?? WORDS.en;
  const schedule = make("select", { name: "schedule" }, ...Object.entries(words.names).map(([value, text]) => make("option", { value }, text)));
  const ranks = make("input", { type: "range", min: 2, max: 8, value: 4, name: "ranks" });
  const batches = make("input", { type: "range", min: 1, max: 32, value: 8, name: "batches" });
  const counts = [ranks, batches].map(() => make("output", {}));
  const frame = make("div", { class: "drawing-frame" }), said = make("figcaption", { "aria-live": "polite" });
  const field = (text, control, count = "") => { // an output takes a label too, so the control says its own
    control.setAttribute("aria-label", text);
    return make("span", {}, `${text} `, count, control);
  };
  schedule.value = "1f1b";
  const show = () => {
    const p = Number(ranks.value), step = schedule.value === "interleaved" ? p : 1; // it takes turns of as many as ranks
    const m = Math.ceil(Number(batches.value) / step) * step;
    counts[0].value = p;
    counts[1].value = m;
    const found = play(schedule.value, p, m), short = (number) => `${Math.round(100 * number) / 100}`;
    const values = { share: (100 * found.share).toFixed(1), first: short(found.kept[0]), last: short(found.kept[p - 1]), n: p - 1 };
    const text = words.said.replace(/\{(\w+)\}/g, (_, name) => values[name]);
    frame.replaceChildren(draw(found, words, text));
    said.textContent = text;
  };
  const form = make("form", { class: "pipeline", "aria-label": words.title }, make("b", {}, words.title),
    field(words.schedule, schedule), field(words.ranks, ranks, counts[0]), field(words.batches, batches, counts[1]));
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  place.replaceChildren(make("figure", { class: "drawing" }, make("style", {}, STYLE), form, frame, said));
  show();
}

export default () => document.querySelectorAll("[data-pipeline]:empty").forEach(start);

/* Out-of-memory messages, number by number: of each its causes, that of most bytes first; and the way to what helps. */
const TENSORS = ["held", "asked", "unsaid", "cut", "bare"]; // where less memory may be what helps
function explain(form) {
  const words = WORDS[document.documentElement.lang] ?? WORDS.en, place = form.querySelector(".planner-answer");
  const field = form.querySelector("textarea"), { model, gpu } = form.elements;
  for (const option of model.options) option.value = called(option);
  const filled = (template, values) => template.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const to = (text, href) => element("a", { href }, text), line = (...parts) => element("p", {}, ...parts);
  let chosen = false; // a card by hand

  /* The card that has about as much; of several the one that is nearest. */
  const guess = (size) => {
    const off = (option) => Math.abs(parseFloat(option.dataset.gib) / parseFloat(size) - 1);
    const near = [...gpu.options].slice(1).filter((option) => off(option) < 0.02).sort((a, b) => off(a) - off(b));
    if (!chosen) gpu.value = near[0]?.value ?? "";
  };

  /* To the whole form, with what is known of the run. */
  const planned = (one, name) => {
    const size = one.get("card"), model_name = model.selectedOptions[0].text;
    const card = gpu.value || (size && filled(words.cards, { card: size.replace("GiB", " GiB") }));
    if (!model.value || !card) return name === "plan" && line(words.to.model);
    const asked = gpu.value ? { gpu: gpu.value } : { gpu: "other", gpu_memory: size };
    const serve = { task: "serve", ...(one.get("length") && { context: one.get("length") }) };
    const query = new URLSearchParams({ ...(name === "serve" && serve), model: model.value, ...asked, gpus: Math.max(one.get("gpus").length, 1) });
    return line(to(filled(words.to[name], { model: model_name, card }), `?${query}#plan`));
  };

  const say = () => {
    const text = field.value, told = decode(text);
    const refused = /MPS backend/.test(text) ? words.mps : /RESOURCE_EXHAUSTED/.test(text) ? words.xla : words.none;
    if (!told.length) return place.replaceChildren(...(text.trim() ? [line(refused)] : []));
    guess(told[0].get("card"));
    place.replaceChildren(...told.flatMap((one) => {
      const values = Object.fromEntries(one), { first, at, gpus } = values;
      const row = ([name, size]) => element("tr", {}, element("td", {}, size), element("td", {}, filled(words.parts[name], values)));
      const table = (name) => (values[name].length ? [line(words[name]), element("table", {}, element("tbody", {}, ...values[name].map(row)))] : []);
      const title = gpus.length > 1 ? filled(words.alike, { ...values, gpus: gpus.join(", ") }) : told.length > 1 && `GPU ${values.gpu}`;
      const helps = TENSORS.includes(first), [before, what, chapter] = (helps && words.at[at]) || [];
      return [
        title && element("p", { class: "planner-title" }, title),
        element("p", { class: "planner-first" }, filled(words.first[first], values)),
        before && line(before, to(what, `../${chapter}`)),
        helps && planned(one, "plan"),
        helps && line(to(words.to.order[0], `../${words.to.order[1]}`)),
        first === "serve" && planned(one, "serve"),
        ...table("causes"),
        ...table("rows"),
      ].filter(Boolean);
    }));
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => {
    chosen ||= target === gpu;
    say();
  });
  say(); // what was pasted while this was fetched
}

const found = () => { for (const form of document.querySelectorAll("form.planner-memory")) explain(form); };
if (globalThis.document$) document$.subscribe(found);
else found();

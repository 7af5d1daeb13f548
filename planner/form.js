/* The planner's form: asks at every key, shows what is said, keeps what was asked in the address. answer() runs in a
   worker, which is this script again, so that nobody waits for a key, and of questions that come while it thinks the last
   one is asked; what three meters will show, in another, for which no answer waits, and which ends with its question. */
const CLASSES = { "fits with room": "fits", "fits on paper": "paper", "does not fit": "misses" };
const PARTS = ["weights", "gradients", "optimizer", "activations", "logits", "other"]; // of the bar, a colour each
const FIRST = { task: "train" }; // of what else is chosen from, what is listed first stands
/* The same question to the command, which shares out sequences, layers and experts too: of many GPUs, or if it does not fit. */
const laid = (command, fits, tokens) => /--gpus\s(\d\d|[2-9])/.test(command) && (!fits || /--gpus\s\d\d/.test(command)) && !/--(lora|base|trained q?lora)\b/.test(command) ? `flops-bytes plan${command.match(/\s--(model|config|shape|gpus?|gpu-\w+|context|micro-batch|trained|recipe|link|node-gpus|network-cards|tokens|days|price)\s(".*?"|'.*?'|\S+)/g).filter((told) => !/--days/.test(told) || !/--tokens/.test(command)).join("")} --global-batch ${tokens} --find` : null;
const standard = ({ name, options }) => FIRST[name] ?? (name === "model" || name === "gpu" ? undefined : options?.[0].value);
const begun = (name) => globalThis.document && new Worker(import.meta.url, { type: "module", name });
const worker = begun("answers");
let meter, turns = 0; // questions so far
if (!worker) onmessage = ({ data }) => (self.name === "meters" ? measure(data) : say(data));
function say(data) {
  const fields = new Map(Object.entries(data)), others = () => import("./planner-stacks.js").then((more) => postMessage(more.default(fields)), () => postMessage({ error: "--model: what plans it was not fetched; reload the page" }));
  if (data.task === "serve") return others();
  try {
    postMessage({ said: answer(fields) });
  } catch ({ message }) { // of a model that is not known here, another script knows more
    if (/^--(model|config):/.test(message)) others();
    else postMessage({ error: message });
  }
}
async function measure({ turn, data, found, language, stack, whole }) {
  const fields = new Map(Object.entries(data)), meters = await import("./planner-meters.js");
  try {
    const { metered, listed, recomputing } = stack ? await (await import("./planner-stacks.js")).meters() : meters.default(shared), said = metered(fields, found);
    postMessage({ turn, said, meters: meters.tell(said, language) });
    postMessage({ turn, more: recomputing(fields) }); // two steps more
    if (whole) postMessage({ turn, ways: { told: meters.ways(language), rows: listed(fields, found) } }); // and some more
  } catch ({ message }) {
    postMessage({ turn, error: message });
  }
}
function start() {
  for (const form of document.querySelectorAll("form.planner:not([data-started])")) new Planner(form);
}

class Planner {
  constructor(form) {
    this.form = form;
    this.words = JSON.parse(form.dataset.words);
    this.strip = form.querySelector(".planner-strip");
    this.place = document.querySelector("form.planner + .planner-answer");
    for (const option of form.elements.model.options) option.value = called(option);
    this.first = this.state();
    this.pressed = []; // fields that a way that fits filled in
    form.dataset.started = "";
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("keydown", ({ key }) => form.classList.toggle("quiet", key === "Escape")); // the help goes
    form.addEventListener("input", ({ target }) => {
      target.told = true;
      this.pressed = this.pressed.filter((name) => name !== target.name);
      this.show(true);
    });
    this.restore();
    this.link(); // whoever goes on at once takes along what the address asks
    worker.onmessage = ({ data }) => form.isConnected && this.hear(data);
    this.show();
  }

  get controls() { return [...this.form.elements].filter(({ name, type, checked }) => name && (type !== "radio" || checked)); }
  get serving() { return this.form.elements.task?.value === "serve"; }
  asked({ name }) { // whether a field is one of the task that is planned
    const task = this.form.querySelector(`[data-name="${name}"]`)?.dataset.task;
    return !task || task === (this.serving ? "serve" : "train");
  }
  /* Fields that a way that fits filled in, or a file did: of other ways they are open. */
  get freed() { return [...this.pressed, ...this.controls.filter(({ brought }) => brought).map(({ name }) => name)]; }
  state() { return Object.fromEntries(this.controls.map((control) => [control.name, control.value])); }

  /* The address holds what is not left as it is: then it says everything that was asked. */
  query() {
    const told = this.controls.filter((control) => this.asked(control) && control.value.trim() && control.value !== standard(control));
    return new URLSearchParams(told.map(({ name, value }) => [name, value])).toString();
  }
  restore() {
    const query = new URLSearchParams(location.search);
    if (!this.controls.some(({ name }) => query.has(name))) return;
    const asked = completed(new Map(query), new Map(Object.entries(this.first)));
    for (const radio of this.form.querySelectorAll("[name=task]")) radio.checked = (radio.value === "serve") === (query.get("task") === "serve");
    for (const control of this.controls.filter((each) => each.type !== "radio" && this.asked(each))) {
      const value = (asked.get(control.name) ?? standard(control) ?? "").replace(/^([\d.]+e) (\d+)$/i, "$1+$2"); // a plus reads as a space
      if (control.tagName === "SELECT" && ![...control.options].some((option) => option.value === value)) control.append(new Option(value, value));
      control.value = value;
      control.told = query.has(control.name);
    }
    const folded = this.form.querySelector("details");
    if (folded) folded.open = [...folded.querySelectorAll("[name]")].some((control) => control.value && control.value !== standard(control));
  }
  remember() {
    const address = new URL(location.href);
    address.search = this.query();
    history.replaceState(history.state, "", address);
  }
  link() { // to the other language, and from the front page to the whole form
    const query = location.search || this.form.dataset.kind === "short" ? this.query() : "";
    for (const link of document.querySelectorAll(".language-switch, .planner-all")) {
      const to = new URL(link.href);
      to.search = link.matches(".planner-all") || location.search ? query : "";
      link.href = to.href;
    }
  }

  show(typed) {
    for (const field of this.form.querySelectorAll("[data-of], [data-task]")) {
      const { name, of } = field.dataset, chosen = this.form.elements[of]?.value;
      field.hidden = !this.asked({ name }) || (chosen != null && (name.startsWith("gpu") ? chosen !== "other" : chosen !== name));
    }
    this.typed ||= typed;
    this.again = this.busy;
    this.strip.setAttribute("aria-busy", "true"); // what stands there answers what was asked before
    if (!this.busy) worker.postMessage(this.state());
    this.busy = true;
    this.turn = ++turns;
  }

  hear({ said, more, ways, error, words, meters, turn }) {
    this.hold();
    if (more) return this.recompute(more);
    if (ways) return ways.rows.length && this.place?.prepend(this.ways(ways));
    this.busy = false;
    if (words) Object.assign(this.words.estimates, (this.words.stack = words[this.words.language]).estimates);
    if (this.again || (said && this.outgrown(said.get("found")))) return this.show();
    const away = error && this.elsewhere();
    let text = "";
    for (const control of this.controls) this.describe(control, text);
    if (said) {
      const found = said.get("found");
      this.fill(found, said.get("shown"), said.get("command"), said.get("ignored"), meters);
      if (!turn && found.get("peaks_at")) this.measure({ turn: this.turn, data: { ...this.state(), pressed: this.freed.join(" ") }, found, language: this.words.language, stack: !!words, whole: !!this.place });
    }
    else if (!away) text = this.refused(error);
    this.strip.classList.toggle("wrong", text);
    if (text || away) this.strip.replaceChildren(element("p", { class: "planner-verdict", id: "planner-error" }, away || text));
    if (text) this.strip.append(...this.unread);
    this.strip.setAttribute("aria-busy", !said && !away && !text); // the words of an error may still come
    this.place?.classList.toggle("stale", text);
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      if (!this.form.isConnected) return;
      if (this.typed) this.remember();
      this.link();
    }, 200);
  }

  /* Drawn lengths take seconds: whoever still measures what was asked before is replaced. */
  measure(asked) {
    if (meter?.busy) meter.terminate();
    if (!meter || meter.busy) meter = begun("meters");
    meter.busy = true;
    meter.onmessage = ({ data }) => {
      meter.busy = data.said;
      if (this.form.isConnected && data.turn === this.turn) this.hear(data);
    };
    meter.postMessage(asked);
  }

  /* The example's data and price are of training all weights: of adapters nobody has asked for them. */
  outgrown(found) {
    const mine = this.controls.filter(({ name, value, told }) => value && !told && /tokens$|price/.test(name) && /lora/.test(found.get("trained")));
    for (const field of mine) field.value = "";
    return mine.length;
  }

  /* What an address leads to below the answer stays where it is while the answer above it grows. */
  hold() {
    const read = document.getElementById(location.hash.slice(1)), place = () => read?.getBoundingClientRect().top, top = place();
    if (top > 0 && top < innerHeight) queueMicrotask(() => scrollBy(0, place() - top));
  }

  /* What the few fields of the front page have no room for is entered in the whole form, which takes along the rest. */
  elsewhere() {
    const { model, gpu } = this.form.elements, all = this.form.querySelector(".planner-all");
    const name = ["config", "shape"].includes(model.value) ? model.value : gpu.value === "other" && "gpu_memory";
    if (!all || !name) return;
    const to = new URL(all.href);
    [to.search, to.hash] = [this.query(), `planner-${name}`];
    return element("a", { href: to.href }, this.words.elsewhere);
  }

  /* An error is read out before what a field is. */
  describe(control, error) {
    if (!control.id) return; // a radio button, or what is not seen
    if (error) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
    control.setAttribute("aria-describedby", `${error} ${control.id}-help`.trim());
  }

  recompute(values) {
    const [text, template, chapter] = this.words.recomputing;
    this.place?.querySelector("[data-group=time] tbody").append(this.row([this.to(text, chapter), this.write(template, Object.fromEntries(values))]));
  }

  /* An error says the field by the name that the page gives it, in the page's language. */
  refused(error) {
    this.unread = [];
    const parts = /^--([\w-]+): ([^]*)$/.exec(error);
    if (!parts) {
      console.error(error);
      return this.words.unexpected;
    }
    if (!this.words.errors) { // they come when the first is needed
      import(new URL("planner-errors.js", import.meta.url)).then((told) => told.default[this.words.language], () => ({ errors: [], fields: [], not_understood: { no_answer: "", about: "{about}: {keys}", reasons: {}, instead: ["", ""] } })).then((told) => {
        Object.assign(this.words, told);
        this.show();
      });
      return "";
    }
    const [why, unread] = parts[2].split(/; not understood: |; a guess, without /);
    if (unread) this.unread = this.notUnderstood(unread);
    if (unread || /flops-bytes count/.test(why)) this.unread.push(this.note(this.to(...this.words.not_understood.instead)));
    let name = parts[1].replaceAll("-", "_");
    if (["mfu", "tokens_per_second", "step_seconds"].includes(name)) name = "speed";
    if (name === "text") name = "tokens";
    if (name === "base" || (name === "lora" && !this.form.elements.lora?.value)) name = "trained";
    const control = this.form.elements[name];
    if (control) this.describe(control, "planner-error");
    const text = this.translated(why), label = (option) => this.words.fields[option.replaceAll("-", "_")] ?? option;
    return this.write(this.words.error, { field: label(name), text: text.replace(/--([\w-]+)/g, (_, option) => `“${label(option)}”`) });
  }

  translated(text) {
    const known = this.words.errors.find(([pattern]) => new RegExp(pattern).test(text));
    return known ? text.replace(new RegExp(known[0]), known[1]) : text;
  }

  /* What is not understood of a configuration, by what it is about: there is no answer, and no shape in its place. */
  notUnderstood(told) {
    const { no_answer, about, reasons } = this.words.not_understood, groups = told.split(" | ").map((group) => group.split(/: (.*)/s));
    return [this.note(no_answer), element("ul", { class: "planner-note" }, ...groups.map(([name, keys]) => element("li", {}, this.write(about, { about: reasons[name] ?? name, keys }))))];
  }

  write(template, values) {
    return template.replace(/\{(\w+)\}/g, (_, name) => {
      const value = values[name];
      return Array.isArray(value) ? `${value[0]} ${this.words.units[value[1]]}` : value;
    });
  }

  /* Money with its currency, as the language writes it. */
  priced(money, currency) {
    const [, less, sum] = /(< )?(.*)/.exec(money?.replace(currency ?? "", "") ?? "");
    return sum && (less ?? "") + this.write(this.words.currencies[currency ?? "none"], { sum });
  }

  /* What the verdict costs: time and money, or the speed if nobody says how much is trained; in a good step and in a whole
     run, where nobody says how fast it is. */
  sentence(found, values) {
    const { run, gpu, language } = this.words, told = { ...values, gpu: values.gpu ?? gpu, mfu: values.assumed ?? values.mfu };
    for (const of of values.run_mfu ? ["", "run_"] : [""]) {
      told[`${of}amount`] = values[`${of}amount`].get(language);
      told[`${of}money`] = this.priced(values[`${of}money`], found.get("currency"));
      told[`${of}cost`] = told[`${of}money`] ? this.write(run.cost, { money: told[`${of}money`] }) : "";
    }
    const kind = values.needed === values.gpus ? "fleet" : !values.time ? "speed" : values.run_mfu && told.amount !== told.run_amount ? "days" : "time";
    return this.write(run[values.run_mfu ? kind : `${kind}_told`], told);
  }

  /* What was assumed, in a sentence. */
  chosen(values) {
    const { chosen, separator } = this.words;
    const parts = [...values].map(([name, value]) => (typeof chosen[name] === "string" ? this.write(chosen[name], { value }) : chosen[name][value]));
    return parts.length ? element("p", { class: "planner-chosen" }, this.write(chosen.all, { list: parts.join(separator) })) : null;
  }

  fill(found, shown, command, ignored, meters) {
    const words = this.words, values = Object.fromEntries(shown), fits = found.get("fits"), late = found.get("in_time") === false;
    const verdict = found.get("verdict"), misses = fits === false;
    const sentence = this.serving || misses ? null : this.sentence(found, values);
    values.money = this.priced(values.money, found.get("currency"));
    values.run_money = this.priced(values.run_money, found.get("currency"));
    values.capacity = words.capacity[found.get("gpu_bytes_are")];
    values.of_kind = words.of_kind[found.get("kind") ? "same" : "nearest"];
    values.how = words.chosen.trained[found.get("trained")];
    const told = this.serving ? words.serving : words, isLeast = !this.serving && !found.get("peaks_at");
    const facts = this.serving ? (fits ? ["each", found.get("latency_seconds") && found.get("latency_seconds") * found.get("reached_per_second")[1] < 1 && "reached", "all", "first", values.money && "money"] : ["fit", values.fewest && "fewest"]) : [
      fits && "room",
      !isLeast && (found.get("largest_micro_batch") ? "micro_batch" : "micro_batch_none"),
      values.format !== values.recipe_format && (values.format === "fp16" ? "cast" : "faster"),
      !misses && found.get("wire")?.get("hidden") === false && (values.waits ? "waits" : "wire"),
      values.usual && "large",
      values.needed && values.needed !== values.gpus && "needed",
      /--model gpt2(?!.*composed)/.test(command) && "gpt2",
    ];
    this.strip.replaceChildren(
      element("p", { class: `planner-verdict ${late ? "misses" : CLASSES[verdict] ?? ""}` }, this.write(late && !misses ? told.late : meters?.verdict ?? told.verdicts[verdict] ?? words.verdicts[verdict] ?? words.stack.least, values)),
      ...(words.meters && found.get("peaks_at") ? [this.meters(found, meters)] : []),
      ...(meters?.said ?? []).map((text) => element("p", { class: "planner-run" }, text)),
      ...(this.words.figures
        ? [this.figures(values, misses), this.bar(found, values), this.chosen(shown.get("chosen"))]
        : [this.chosen(shown.get("chosen")), sentence && element("p", { class: "planner-run" }, sentence), this.bar(found, values)]
      ).filter(Boolean),
      element("p", { class: "planner-facts" }, ...[...facts.filter(Boolean).map((name) => this.write(told.facts?.[name] ?? words.facts[name], values)), ...ignored.filter((name) => this.form.elements[name].type !== "hidden").map((name) => words.ignored[name])].map((text) => element("span", {}, text))),
    );
    if (!this.place) return;
    const title = this.write((isLeast ? words.stack : told).memory_title, { ...values, moment: words.moments[found.get("peaks_at")] });
    const groups = {
      memory: [this.evidence(words.evidence[found.get("kind") ?? ""], found), this.memory(shown), ...(meters ? [this.note(this.to(...meters.title)), this.table(meters.rows.map(([name, size, text, to]) => [name, size, to ? element("a", { href: to }, text) : text]))] : [])],
      time: this.serving ? this.formats(shown) : [],
      scale: [],
    };
    this.place.replaceChildren(...Object.entries(groups).map(([group, tables]) => {
      const rows = this.rows(told.details[group], values), name = group === "memory" ? title : told.groups[group];
      if (rows.length) tables.splice(group === "memory" ? 2 : 0, 0, this.table(rows));
      return element("section", { "data-group": group }, element("p", { class: "planner-title" }, name), ...tables);
    }), this.notes(told, found, command));
  }

  /* What fits, the fastest first: a press fills it in. */
  ways({ told, rows: ways }) {
    const { words } = this, name = (option, value) => ({
      trained: words.chosen.trained[value],
      checkpointing: words.rungs[`${value} checkpointing`]?.[0] ?? words.chosen.checkpointing[value],
      zero: words.rungs[`ZeRO ${value}`]?.[0] ?? told.whole,
      chunks: words.rungs["loss in 8 chunks"][0],
      optimizer: words.rungs["8-bit AdamW"][0],
      offload: words.rungs["state in the host's memory"][0],
    })[option] ?? this.write(told[option], { value });
    const rows = ways.map((way) => {
      const options = [...way.get("options")], given_up = way.get("gives_up"), { speed } = Object.fromEntries(way);
      const taken = options.every(([option, value]) => this.form.elements[option].value === String(value));
      const press = element("button", { type: "button", class: "planner-way", "aria-pressed": taken }, options.map(([option, value]) => name(option, value)).join(words.separator));
      press.addEventListener("click", () => {
        for (const option of this.freed) this.form.elements[option].value = standard(this.form.elements[option]) ?? "";
        for (const [option, value] of options) Object.assign(this.form.elements[option], { value, told: true });
        this.pressed = options.map(([option]) => option);
        this.show(true);
      });
      const changed = given_up.map((each) => told.gives_up[each]).join(words.separator) || told.nothing;
      const needs = this.write(words.then, { needs: way.get("needs"), verdict: words.verdict[way.get("verdict")] });
      return [press, needs, given_up.includes("host") ? this.write(told.at_most, { speed }) : speed, changed];
    });
    const title = ways[0].get("verdict") === "does not fit" ? told.least : told.title;
    return element("section", { "data-group": "ways" }, element("p", { class: "planner-title" }, title), this.table(rows, told.heads));
  }

  /* What it needs, how long it takes and what it costs, for the eye: of good steps, and of a whole run below them. */
  figures(values, misses) {
    const { figures } = this.words, told = { ...values, mfu: values.assumed ?? values.mfu };
    const names = misses ? ["total"] : ["total", values.time ? "time" : "speed", "money"].filter((name) => values[name]);
    return element("div", { class: "planner-figures" }, ...names.map((name) => {
      const [figure, both, one] = figures[name];
      return element("p", {}, element("b", {}, this.write(figure, told)), this.write(values.run_mfu ? both : one, told));
    }));
  }

  /* What three meters will show; until that is known, its places are kept. */
  meters(found, told) {
    const bytes = found.get("memory_bytes"), sizes = told?.sizes ?? [gib(bytes.get("total") - (bytes.get("allowance") ?? 0n)), "…", "…"];
    return element("p", { class: "planner-meters" }, ...this.words.meters.map((name, n) => element("span", {}, name, element("b", {}, sizes[n]))));
  }

  part(line) { return this.words.parts[line] ?? "other"; }
  bar(found, values) {
    const lines = [...found.get("memory_bytes")].filter(([line]) => line !== "total").map(([line, size]) => [this.part(line), Number(size)]);
    const card = Number(found.get("gpu_bytes")), total = Number(found.get("memory_bytes").get("total")), whole = Math.max(card, total);
    const sizes = PARTS.map((part) => [part, lines.reduce((sum, [of, size]) => sum + (of === part ? size : 0), 0)]);
    const parts = sizes.map(([part, size]) => element("i", { class: `part-${part}`, style: `width:${(100 * size) / whole}%` }));
    const bar = element("div", { class: "planner-bar", role: "img", "aria-label": this.write(this.words.bar, values) }, ...parts, element("b", { style: `left:${(100 * card) / whole}%` }));
    const said = this.words.part_names, names = said ? sizes.filter(([, size]) => size).map(([part, size]) => element("span", {}, element("i", { class: `part-${part}` }), `${said[part]} ${gib(size)}`)) : [];
    return element("div", {}, bar, names.length ? element("p", { class: "planner-parts" }, ...names) : null);
  }

  to(text, chapter) { return element("a", { href: `../${chapter}` }, text); }
  row(cells) { return element("tr", {}, ...cells.map((cell, n) => (n ? element("td", {}, cell) : element("th", { scope: "row" }, cell)))); }
  table(rows, head) {
    const heads = head && element("thead", {}, element("tr", {}, ...head.map((cell) => element("th", { scope: "col" }, cell))));
    return element("div", { class: "table-frame" }, element("table", {}, heads, element("tbody", {}, ...rows.map((cells) => this.row(cells)))));
  }

  /* How far off the planner was for runs of this kind, and what this one would need then. */
  evidence([text, chapter, most], found) {
    const [before, link, after] = this.write(text, { needs: most && gib(Number(found.get("memory_bytes").get("total")) * most) }).split(/[[\]]/);
    return this.note(before, link && this.to(link, chapter), after);
  }

  memory(shown) {
    const rows = [...shown.get("lines")].map(([line, size]) => {
      const [text, chapter] = this.words.lines[line] ?? [line, "formulas/#bytes"];
      return [element("span", {}, element("i", { class: `part-${this.part(line)}` }), this.to(text, chapter)), size];
    });
    return this.table([...rows, [element("b", {}, this.words.total), shown.get("total")]]);
  }

  /* What a group holds beside its first table. */
  rows(details, values) {
    const rows = [];
    for (const [name, [text, template, chapter]] of Object.entries(details)) {
      const same = (name === "active" || name === "trained") && values[name] === values.parameters;
      if (same || !values[name]) continue;
      if (name === "stages") for (const [stage, size] of values.stages) rows.push([this.to(this.write(text, { stage }), chapter), size]);
      else rows.push([this.to(text, chapter), this.write(template, values)]);
    }
    return rows;
  }

  formats(shown) {
    const { formats, format, bits, note } = this.words.serving;
    const rows = shown.get("formats").map((row) => {
      const { weights, cache, size, users, alone, all } = Object.fromEntries(row);
      return [this.write(bits, { weights: parseInt(weights), cache: parseInt(cache) }), size, users, alone, all];
    });
    return [this.note(formats), this.table(rows, format), this.note(this.to(...note))];
  }

  note(...parts) { return element("p", { class: "planner-note" }, ...parts); }
  notes(told, found, command) {
    const names = found.get("estimated").map((name) => this.words.estimates[name.replace(/ \(.*/, "")] ?? name).join(this.words.separator);
    const layouts = !this.serving && found.get("verdict") && laid(command, found.get("fits") && found.get("trained") === "all", found.get("step_tokens"));
    const copy = (text) => element("button", { class: "md-code__button", type: "button", title: this.words.copy, "data-clipboard-text": text, "data-md-type": "copy" }); // as the theme's
    const code = (text) => element("pre", { class: "planner-command" }, element("nav", { class: "md-code__nav" }, copy(text)), element("code", { tabindex: "0" }, text));
    return element("section", {},
      names ? this.note(this.write(told.estimated, { names })) : null,
      element("p", { class: "planner-title" }, this.words.command), code(command),
      ...(layouts ? [this.note(this.to(...this.words.layouts)), code(layouts)] : []));
  }
}

/* The theme would fetch the page anew for a link within it, and forget what the address holds. */
worker && document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link?.hash || !location.search || (link.search && link.search !== location.search) || link.pathname !== location.pathname || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (!document.querySelector("form.planner")) return;
  event.preventDefault();
  event.stopPropagation();
  location.hash = link.hash;
}, true);

if (globalThis.document$) document$.subscribe(start);
else if (worker) start();

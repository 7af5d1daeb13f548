/* Files that somebody brings: what was read of them, key by key, and the form's fields filled in. All of it stays here. */
const DATA = loaded(SOFTWARES), WAIT_MS = 150, MOST_TEXT = 2 ** 22; // of a text; of a longer one, which may be a log, the end
const KEPT = ["model", "gpu", "gpus", "tokens_in", "speed_in"]; // fields that a file which does not say them leaves as they are
const FREED = ["trained", "lora", "lora_on", "optimizer", "offload", "checkpointing", "loss", "chunks", "zero"]; // that the ways that fit may change
const OF_COMMANDS = [["snapshot", ({ bytes }) => bytes?.[0] === 0x80 || bytes?.[0] === 0x1f], ["trace", ({ text }) => /"(?:traceEvents|deviceProperties)"\s*:|^\s*\[\s*\{\s*"(?:ph|name|pid)"\s*:/.test(text.slice(0, 2 ** 16))], ["count", ({ name, text }) => /\.py$/.test(name) || (!/\.(json|ya?ml|toml)$/.test(name) && /^(?:import|from) \w/m.test(text))]];
const filled = (template, values) => template.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");

class Box {
  constructor(place) {
    const language = document.documentElement.lang;
    this.words = WORDS[language] ?? WORDS.en;
    [this.place, this.said, this.turn] = [place, place.querySelector(".planner-read"), 0];
    this.form = document.querySelector("form.planner");
    this.marked = new Set(); // names of fields that a file filled in
    this.left = new Map(); // options that the planner refused, and why
    place.dataset.started = "";
    place.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", ({ target }) => this.filling || this.unmark(target));
    const answer = document.querySelector("form.planner + .planner-answer");
    answer.addEventListener("click", ({ target }) => target.closest(".planner-way") && this.unmarkChanged());
    this.written = element("div", { class: "planner-written" });
    this.form.after(this.written);
    document.head.append(element("style", {}, STYLE));
    this.watch();
  }

  get texts() { return [...this.place.querySelectorAll("textarea")]; }

  /* What came: typed or pasted text, or files that were chosen or dropped. */
  async take(files) {
    for (const file of files) {
      const whole = await file.slice(Math.max(file.size - MOST_TEXT, 0)).arrayBuffer(), head = new Uint8Array(await file.slice(0, 2).arrayBuffer());
      const field = this.texts.find((each) => !each.value && !each.bytes) ?? this.another();
      [field.value, field.dataset.name, field.bytes] = [new TextDecoder().decode(whole), file.name, head];
    }
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.read(), files.length ? 0 : WAIT_MS);
  }

  /* A field for one more file of the same run. */
  another() {
    const last = this.texts.at(-1).closest("label"), next = last.cloneNode(true), field = next.querySelector("textarea");
    field.id = `planner-paste-${this.texts.length + 1}`;
    next.htmlFor = field.id;
    [field.value, field.rows, field.placeholder] = ["", 2, ""];
    delete field.dataset.name;
    next.firstChild.data = this.words.another;
    last.after(next);
    return field;
  }

  async read() {
    const turn = ++this.turn, given = this.texts.filter(({ value }) => value.trim()), contents = [], refused = [];
    this.said.setAttribute("aria-busy", "true");
    for (const field of given) {
      const file = { name: field.dataset.name ?? `pasted-${this.texts.indexOf(field) + 1}`, text: field.value.replace(/^\ufeff/, ""), bytes: field.bytes };
      try {
        contents.push(await this.content(file));
        field.rows = 2;
      } catch ({ message }) {
        refused.push(`${file.name}: ${message}`);
      }
    }
    if (turn !== this.turn) return; // more was typed meanwhile
    for (const field of this.texts.slice(0, -1)) if (!field.value.trim() && field !== document.activeElement) field.closest("label").remove();
    if (given.length === this.texts.length) this.another();
    let found;
    try {
      found = refused.length ? null : Object.fromEntries(read_files(contents.map((each) => new Map(Object.entries(each))), DATA, new Map(this.typed("gpu"))));
      if (found) for (const name of ["rows", "problems"]) found[name] = found[name].map((row) => Object.fromEntries(row));
    } catch (error) {
      if (!(error instanceof ValueError)) throw error;
      refused.push(error.message);
    }
    this.left.clear();
    this.contents = contents;
    this.decode(contents.filter(({ kind }) => kind === "message"));
    if (found?.config.size) found.fields.set("config", JSON.stringify(found.config, (_, value) => (value instanceof Map ? Object.fromEntries(value) : typeof value === "bigint" ? Number(value) : value)));
    if (found && given.length) this.fill(found);
    this.found = found;
    this.tell(found, refused, contents);
    this.write();
    this.said.setAttribute("aria-busy", "false");
  }

  async content({ name, text, bytes }) {
    const [command] = OF_COMMANDS.find(([, is]) => is({ name, text, bytes })) ?? [];
    if (command) throw new ValueError(filled(this.words.commands, { command, name }));
    const problems = new Map();
    for (const format of formats_of(name, text)) {
      try {
        return { path: name, kind: "table", text, format, table: await parsed(format, text) };
      } catch (error) {
        if (!(error instanceof ValueError)) throw error;
        problems.set(format, error.message);
      }
    }
    if (decode(text).length || /MPS backend|RESOURCE_EXHAUSTED/.test(text)) return { path: name, kind: "message", text, table: new Map() };
    throw new ValueError(problem_of(name, text, problems));
  }

  /* A message goes where messages are explained. */
  decode(messages) {
    const field = messages.length && document.getElementById("planner-message");
    if (!field) return;
    field.value = messages.map(({ text }) => text).join("\n");
    import("./planner-memory.js").then(() => field.dispatchEvent(new Event("input", { bubbles: true })));
  }

  /* The form */
  typed(...names) { return names.filter((name) => this.form.elements[name].told && !this.marked.has(name)).map((name) => [name, this.form.elements[name].value]); }
  control(name) { return this.form.elements[name] instanceof Element ? this.form.elements[name] : null; }
  put(control, value) {
    if (control.tagName === "SELECT" && ![...control.options].some((option) => option.value === value)) {
      if (control.name !== "model") return false;
      control.append(new Option(value, value));
    }
    control.value = value;
    return true;
  }
  fill({ fields, read, alone }) {
    const before = this.marked, changed = [];
    this.marked = new Set();
    this.unplaced = [];
    for (const [name, value] of fields) {
      const control = this.control(name);
      if (control && this.put(control, value)) {
        this.marked.add(name);
        control.told = true;
        changed.push(control);
      } else this.unplaced.push(name);
    }
    if (read) {
      this.form.querySelector("[name=task][value=train]").checked = true;
      for (const control of this.form.elements) {
        const is_typed = control.told && !before.has(control.name);
        if (!control.name || control.type === "radio" || is_typed || this.marked.has(control.name) || KEPT.includes(control.name)) continue;
        control.value = control.options?.[0].value ?? "";
        control.told = false;
        changed.push(control);
      }
    }
    const gpus = this.control("gpus");
    if (read && alone && !this.typed("gpus").length) gpus.value = "1";
    const folded = this.form.querySelector("details");
    folded.open ||= [...this.marked].some((name) => folded.contains(this.control(name)));
    this.show();
    this.filling = true;
    for (const control of [...changed, gpus]) {
      const told = control.told;
      control.dispatchEvent(new Event("input", { bubbles: true })); // as if it was typed: the form asks
      control.told = told;
    }
    this.filling = false;
  }
  show() {
    for (const mark of this.form.querySelectorAll(".planner-mark")) mark.remove();
    for (const name of this.marked) this.form.querySelector(`[for="planner-${name}"]`)?.append(element("span", { class: "planner-mark" }, this.words.mark));
    for (const name of FREED) this.control(name).brought = this.marked.has(name);
    this.values = new Map([...this.marked].map((name) => [name, this.control(name).value]));
  }
  unmark(control) {
    this.marked.delete(control.name);
    this.show();
    this.write();
  }
  unmarkChanged() {
    for (const [name, value] of this.values ?? []) if (this.control(name).value !== value) this.marked.delete(name);
    this.show();
    this.write();
  }

  /* What the form asks otherwise than the files, as lines to copy into them. */
  write() {
    const { words } = this, fields = [...this.form.elements].filter(({ name, type }) => name && type !== "radio").map(({ name, value }) => [name, value.trim()]);
    let found;
    try {
      found = this.contents && write_files(this.contents.map((each) => new Map(Object.entries(each))), DATA, new Map(fields));
    } catch (error) { // a field that the form refuses as well
      if (!(error instanceof ValueError)) throw error;
    }
    if (!found) return this.written.replaceChildren();
    const { files, cannot, beside } = Object.fromEntries(found), line = (text) => element("p", { class: "planner-note" }, text);
    const copy = (text) => element("button", { class: "md-code__button", type: "button", title: words.copy, "data-clipboard-text": text, "data-md-type": "copy" }); // as the theme's
    this.written.replaceChildren(element("p", { class: "planner-title" }, words.write), ...files.flatMap((each) => {
      const { file, lines, removed } = Object.fromEntries(each), text = lines.join("\n");
      return [
        line(filled(words.lines, { file })),
        text && element("pre", { class: "planner-command" }, element("nav", { class: "md-code__nav" }, copy(text)), element("code", { tabindex: "0" }, text)),
        removed.length && line(filled(words["taken out"], { key: removed.join(", ") })),
      ].filter(Boolean);
    }), ...[["cannot", cannot], ["beside", beside]].filter(([, means]) => means).map(([name, means]) => line(filled(words[name], { means }))));
  }

  /* What the planner does not derive of a file's options of few bytes is left out, and told, as in a terminal. */
  watch() {
    const strip = this.form.querySelector(".planner-strip");
    new MutationObserver(() => {
      const wrong = strip.matches(".wrong[aria-busy=false]") && this.found?.small.find((name) => this.marked.has(name) && this.control(name).getAttribute("aria-invalid"));
      if (!wrong) return;
      const control = this.control(wrong);
      this.left.set(wrong, strip.querySelector(".planner-verdict").textContent);
      control.value = control.options?.[0].value ?? "";
      this.unmark(control);
      control.dispatchEvent(new Event("input", { bubbles: true }));
      this.tell(this.found, [], this.contents);
    }).observe(strip, { attributes: true });
  }

  /* What is said */
  why(text) {
    const { reasons = {}, patterns = [] } = this.words, known = patterns.find(([pattern]) => new RegExp(pattern).test(text));
    return reasons[text] ?? (known ? text.replace(new RegExp(known[0]), known[1]) : text);
  }
  sentence({ sentence, file, line, key, means, why }) {
    const place = line ? filled(this.words.place, { line }) : "", told = this.why(why);
    return filled(this.words[sentence], { file, key, means, place, why: told, taken: why && means ? filled(this.words.taken, { why: told }) : told });
  }
  tell(found, refused, contents) {
    const line = (text) => element("p", {}, text), warning = (text) => element("p", { class: "planner-warning" }, text), { words } = this;
    if (!found) return this.said.replaceChildren(...refused.map((text) => element("p", { class: "planner-refused" }, this.why(text))));
    const rows = found.rows, of = (...names) => rows.filter(({ sentence }) => names.includes(sentence));
    const list = (title, some) => (some.length ? [line(title), element("table", { class: "planner-keys" }, element("tbody", {}, ...some.map((row) => element("tr", {}, element("td", {}, element("code", {}, row.key)), element("td", {}, row.means && element("code", {}, row.means), row.why && filled(row.means ? (row.sentence === "default" ? words.whence : words.taken) : "{why}", { why: this.why(row.why) }))))))] : []);
    const files = [...new Set(rows.filter(({ file }) => file).map(({ file }) => file))];
    const unplaced = (this.unplaced ?? []).filter((name) => found.flags.has(name)), text = (names) => names.map((name) => found.flags.get(name)).join(" ");
    const layout = unplaced.filter((name) => found.layout.includes(name)), small = unplaced.filter((name) => found.small.includes(name)), other = unplaced.filter((name) => !layout.includes(name) && !small.includes(name));
    const { gpu, gpus } = this.form.elements, open = ["gpu", "gpus"].filter((name) => !this.marked.has(name));
    const warned = of("not planned", "unknown");
    const quoted = (text) => (text.includes(" ") ? `"${text}"` : text);
    const command = ["flops-bytes", ...contents.map(({ path }) => quoted(path)), "--gpu", quoted(gpu.value), "--gpus", gpus.value || 1].join(" ");
    const read = rows.filter(({ sentence }) => ["option", "default", "nothing", "no effect"].includes(sentence));
    const each = files.flatMap((file) => {
      const mine = (...names) => of(...names).filter((row) => row.file === file);
      return [...mine("file", "config").map((row) => line(this.sentence(row))), ...list(words.options, mine("option")), ...mine("nothing", "no effect").map((row) => line(this.sentence(row)))];
    });
    this.said.replaceChildren(
      ...found.problems.map((row) => element("p", { class: "planner-refused" }, this.sentence(row))),
      ...of("card").map((row) => line(this.sentence(row))),
      ...(contents.some(({ kind }) => kind === "message") ? [element("p", {}, element("a", { href: "#out-of-memory" }, words.message))] : []),
      ...(read.length && open.length ? [line(filled(open.includes("gpu") ? words.open : words.open_count, { gpu: gpu.value, gpus: gpus.value || 1 }))] : []),
      ...(layout.length ? [warning(filled(words.layout, { flags: text(layout) }))] : []),
      ...(other.length ? [warning(filled(words.no_field, { flags: text(other) }))] : []),
      ...[...this.left].map(([name, why]) => warning(filled(words.left_out, { flags: found.flags.get(name) ?? name, why }))),
      ...warned.map((row) => warning(this.sentence(row))),
      ...(small.length ? [line(filled(words.few_bytes, { flags: text(small) }))] : []),
      ...(layout.length || other.length || small.length ? [element("pre", { class: "planner-command" }, element("code", { tabindex: "0" }, command))] : []),
      ...(rows.length ? [element("details", { open: "" }, element("summary", {}, words.as_read), element("div", { class: "planner-rows", tabindex: "0", role: "region", "aria-label": words.as_read }, ...each, ...list(words.defaults, of("default")), ...of("implied").map((row) => line(this.sentence(row)))))] : []),
    );
  }
}

const boxes = new WeakMap();
export default function (place, files) {
  if (!boxes.has(place)) boxes.set(place, new Box(place));
  boxes.get(place).take(files);
}

/* What is pasted, as keys and values: JSON by the library's own reader, YAML and TOML by parsers from npm, which are fetched
   when the first text looks like theirs. Of YAML only events are asked, whose bare texts the library reads, as it does of
   PyYAML's: each visit counts, so that aliases of aliases end. */
const MOST = { yaml: 2 ** 18, nodes: 20_000, depth: 24 };
const refuse = (kind, why, line) => { throw new ValueError((line ? `line ${line}: ` : "") + `not ${kind}: ${why}`); };
const too_many = "too many values, aliases or levels";
const fetched = (name) => import(`./planner-${name}.js`).then((module) => module.default);

async function parsed(format, text) {
  const kind = format.toUpperCase(), found = await PARSERS[format](text);
  if (!(found instanceof Map)) throw new ValueError(`not ${kind} with keys and values`);
  return found;
}
const PARSERS = {
  json(text) {
    try {
      return loaded(text);
    } catch ({ message }) {
      refuse("JSON", ...(/call stack/i.test(message) ? ["nested too deep"] : broken(text)));
    }
  },
  async toml(text) {
    const { parse } = await fetched("toml");
    try {
      return mapped(parse(text, { integersAsBigInt: true, maxDepth: 100 }), 0);
    } catch ({ message, line }) {
      refuse("TOML", message.replace(/^Invalid TOML document: |\n.*/gs, ""), line);
    }
  },
  async yaml(text) {
    if (text.length > MOST.yaml) refuse("YAML that is read here", `it has more than ${MOST.yaml.toLocaleString("en")} characters`);
    const { parseEvents, getScalarValue } = await fetched("yaml");
    let events;
    try {
      text = text.replace(/^([ \t]*)(?=[\]}])/gm, "$1 "); // a list may end where its key begins, as PyYAML has it
      events = parseEvents(text, {});
    } catch ({ message, reason = message, mark }) {
      refuse("YAML", reason, mark && mark.line + 1);
    }
    return composed(text, events, getScalarValue);
  },
};

/* Where a text ceases to be JSON, which not all browsers say: what stands there in place of what was expected. */
const TOKEN = /\s*(?:([{}[\],:])|("(?:[^"\\\n]|\\.)*")|(-?(?:Infinity|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|NaN|true|false|null))/y;
const EXPECTED = { value: "a value", first: "a value", key: "a name in double quotes", only: "a name in double quotes", ":": "':'", after: "',' or the end" };
function broken(text) {
  const open = [];
  let state = "value", at = 0;
  for (;;) {
    TOKEN.lastIndex = at;
    const [, sign, name, word] = TOKEN.exec(text) ?? [], begins = sign === "{" || sign === "[";
    const ends = sign && sign === { "{": "}", "[": "]" }[open.at(-1)];
    let next;
    if ((state === "value" || state === "first") && (begins || name || word)) next = begins ? (sign === "{" ? "key" : "first") : "after";
    else if (ends && (state === "after" || state === "first" || state === "key")) next = "after";
    else if (name && (state === "key" || state === "only")) next = ":";
    else if (state === ":" && sign === ":") next = "value";
    else if (state === "after" && sign === "," && open.length) next = open.at(-1) === "{" ? "only" : "value";
    if (!next) return [`expecting ${EXPECTED[state]}`, (text.slice(0, at) + /^\s*/.exec(text.slice(at))[0]).split("\n").length];
    if (begins) open.push(sign);
    if (ends) open.pop();
    [state, at] = [next, TOKEN.lastIndex];
  }
}

/* What a parser of TOML gives as what the library's code takes: tables as maps, dates as texts. */
function mapped(value, depth) {
  if (depth > MOST.depth * 4) refuse("TOML", "nested too deep");
  if (Array.isArray(value)) return value.map((each) => mapped(each, depth + 1));
  if (value instanceof Date) return value.toISOString();
  return value && typeof value === "object" ? new Map(Object.entries(value).map(([key, each]) => [key, mapped(each, depth + 1)])) : value;
}

const [DOCUMENT, SEQUENCE, MAPPING, SCALAR, ALIAS, POP] = [1, 2, 3, 4, 5, 6], PLAIN = 1; // js-yaml's events
function composed(text, events, valueOf) {
  if (events.filter(({ type }) => type === DOCUMENT).length > 1) refuse("YAML", "expected a single document");
  const anchors = new Map();
  let at = 0;
  const node = () => { // a tree of nodes, where an alias is the node itself
    const event = events[at++], name = text.slice(event.anchorStart, event.anchorEnd);
    if (event.type === ALIAS) return anchors.get(name) ?? refuse("YAML", `found undefined alias '${name}'`, text.slice(0, event.anchorStart).split("\n").length);
    const made = { event, inner: [] };
    if (event.anchorStart >= 0) anchors.set(name, made);
    if (event.type !== SCALAR) {
      while (events[at].type !== POP) made.inner.push(node());
      at++;
    }
    return made;
  };
  let visits = 0;
  const value = ({ event, inner }, depth) => {
    if (++visits > MOST.nodes || depth > MOST.depth) refuse("YAML that is read here", too_many);
    if (event.type === SCALAR) return ((told) => (event.style === PLAIN ? scalar(told) : told))(valueOf(text, event));
    if (event.type === SEQUENCE) return inner.map((each) => value(each, depth + 1));
    let merged = new Map();
    const own = new Map();
    for (let n = 0; n < inner.length; n += 2) {
      const key = inner[n].event.type === SCALAR ? valueOf(text, inner[n].event) : "", found = value(inner[n + 1], depth + 1);
      if (key === "<<") for (const each of [found].flat()) merged = new Map([...(each instanceof Map ? each : []), ...merged]); // under what stands here
      else own.set(key, found);
    }
    return new Map([...merged, ...own]);
  };
  return events[at++] && events[at].type !== POP ? value(node(), 0) : null;
}

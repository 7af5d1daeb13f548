/* What is said of the meters in a language: the three sizes, the sentences, and of what lies beside PyTorch the lines. */
export function tell(answer, language) {
  const words = WORDS[language], values = Object.fromEntries(answer.get("meters")), { death, draws, lives } = values;
  const mended = values.mended.map((each) => Object.fromEntries(each));
  const write = (template, of) => template.replace(/\{(\w+)\}/g, (_, name) => of[name]);
  const said = draws ? [write(words.drawn, values)] : [];
  if (lives === "retries") said.push(write(words.retries, { ...values, per: words.per[draws ? 1 : 0] }));
  if (death) {
    const of = Object.fromEntries(death);
    of.part = write(words.parts[of.part] ?? "", of);
    said.push(write(words.dies, { ...of, line: words.lines[of.line], place: write(words.at[of.pass], of) }));
  }
  if (lives !== "lives") said.push(...mended.map(({ by, lives }) => write(words.mended[lives], { by: words.by[by] })));
  const source = (line) => {
    const [, repository, issue] = /github\.com\/([^/]+\/[^/]+)(?:\/issues\/(\d+))?/.exec(line.source) ?? [];
    if (repository) return [repository + (issue ? ` #${issue}` : ""), line.source];
    return /^measurements/.test(line.source) ? words.record : [words.asked];
  };
  const rows = values.outside.map((each) => {
    const line = Object.fromEntries(each), [text, to] = source(line), of = words.assumed[line.assumed_of] ?? line.assumed_of;
    return [words.outside[line.line] + (of ? write(words.taken, { of }) : ""), line.size, text, to];
  });
  const verdict = death && answer.get("found").get("headroom_bytes") >= 0 ? words.verdict : undefined; // though it adds up
  const more = mended.filter(({ lives }) => lives !== "dies")
    .map(({ by, reserved }) => [write(words.reserved, { by: words.by[by] }), reserved, ""]);
  return { sizes: [values.allocated, values.reserved, values.smi], said, verdict, title: words.title, rows: [...rows, ...more] };
}
/* With what words the form lists what else fits. */
export function ways(language) { return WORDS[language].ways; }

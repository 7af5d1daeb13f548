/* What figures that readers move share: the page's words, a count as its language writes it, a sentence filled in. */
const ownWords = () => WORDS[document.documentElement.lang.slice(0, 2)] ?? WORDS.en;
const counted = (n) => (n < 1e4 && ownWords() === WORDS.zh ? `${n}` : n.toLocaleString("en")); // four digits have no comma in Chinese
const filled = (template, values) => template.replace(/\{(\w+)\}/g, (_, name) => values[name]);

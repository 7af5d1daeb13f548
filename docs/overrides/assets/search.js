/* What a reader types, put into words that the search's index has. The theme's search takes a query as words between spaces and
   looks for what begins with them: it knows neither a Chinese word that touches a Latin one, nor the words of a question, nor
   the plural of what a page has in the singular. */
const IDLE = // words of a question: they say nothing of the page that answers it
  "a am an and any are as at be by can compute could did do does for from get had has have how i if in into is it its me my of on "
  + "one or our shall should so that the their them there these they this those to too versus vs was we were what when where which "
  + "who why will with would you your "
  + "的 地 得 了 着 吗 呢 吧 啊 是 在 有 和 与 或 跟 把 被 要 会 能 可以 可 应该 该 我 我的 你 它 这 那 这个 那个 怎么 怎么办 怎么样 怎样 如何 "
  + "什么 为什么 为何 多少 多大 多久 几 几个 哪 哪个 哪些 哪里 用 需要 办 请问 想 想要 才 都 也 还 就 算 选 张 块 个 一个 一下 区别 好";
const HAN = /\p{sc=Han}+/gu, isChinese = (word) => /\p{sc=Han}/u.test(word);
/* The theme's own cut of Chinese never looks at the last character, so that it would take 显存 apart. This one, which is in no
   page, is the one that it does not look at. */
const END = "〥";

/** The words of an index's entries: what Chinese is cut into, and what a Latin word can be the beginning of. */
function words(docs) {
  const chinese = new Set(), whole = new Set(), latin = new Set();
  for (const { title, text, tags = [] } of docs) {
    for (const word of `${title} ${text}`.match(HAN) ?? []) chinese.add(word);
    for (const word of tags.join(" ").match(HAN) ?? []) whole.add(word); // what people call it: 显存不足
    for (const word of `${title} ${text} ${tags.join(" ")}`.toLowerCase().match(/[a-z][a-z0-9_]*/g) ?? []) latin.add(word);
  }
  return { chinese, whole: new Set([...chinese, ...whole]), latin: [...latin] };
}

/** A run of Chinese as the longest words of the index, from left to right; characters that begin none are left out. */
function cut(run, known) {
  const found = [];
  for (let at = 0; at < run.length;) {
    let size = run.length - at;
    while (size > 1 && !known.has(run.slice(at, at + size))) size--;
    if (known.has(run.slice(at, at + size))) found.push(run.slice(at, at + size));
    at += size;
  }
  return found;
}

/** The parts of a word that are words themselves, so that 梯度检查点 also finds pages that say 检查点. */
function parts(word, known) {
  const without = { has: (part) => part !== word && known.has(part) };
  const found = cut(word, without);
  return found.join("") === word && found.every((part) => part.length > 1) ? found : [];
}

/** A function from what was typed to what is asked of the index that was made of these entries. */
export function reader({ docs }) {
  const { chinese, whole, latin } = words(docs);
  const idle = new Set(IDLE.split(" "));
  const inChinese = (run) => {
    const found = cut(run, { has: (word) => idle.has(word) || whole.has(word) });
    return found.flatMap((word) => [word, ...parts(word, chinese)]);
  };
  const inLatin = (word) => {
    const bare = word.replace(/^[("']+|[)"'.,:;?!]+$/g, "");
    const one = /[^s]s$/i.test(bare) && bare.length > 3 && !idle.has(bare.toLowerCase()) ? bare.slice(0, -1) : bare;
    const misspelt = /^[a-z]{5,}$/i.test(one) && !latin.some((known) => known.startsWith(one.toLowerCase()));
    return bare ? [misspelt ? `${one}~1` : one] : []; // with one letter more, less or other
  };
  return (typed) => {
    if (/"|(^|\s)[+-]|[*~^]/.test(typed)) return typed; // who knows the search's signs means them
    const pieces = typed.normalize("NFKC").match(/\p{sc=Han}+|[^\p{sc=Han}\s]+/gu) ?? [];
    const found = pieces.flatMap((piece) => (isChinese(piece) ? inChinese(piece) : inLatin(piece)));
    const telling = found.filter((word) => word.length > 1 && !idle.has(word.toLowerCase()));
    const asked = new Set(telling.length ? telling : found);
    return [...asked].map((word) => (isChinese(word) ? `${word}${END}^1` : word)).join(" ") || typed;
  };
}

const SETUP = 0, QUERY = 2; // the theme's kinds of messages to its worker
let read = (typed) => typed;

/** A message to the theme's search, with what was typed as its index has it. */
export function ask(message) {
  if (message.type === SETUP) read = reader(message.data);
  return message.type === QUERY ? { ...message, data: read(message.data) } : message;
}

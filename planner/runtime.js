/* Python's numbers, containers and texts, as far as translated snippets use them (translate.py beside it): an int is a
   BigInt, a float a Number, a dict a Map, a tuple an Array, None null. What Python refuses is refused here too. */
class ValueError extends Error {}
const $ValueError = (text) => new ValueError(text);

/* Numbers */
class $Number10 { // Decimal: coefficient · 10 ** exponent
  constructor(coefficient, exponent) { Object.assign(this, { coefficient, exponent }); }
}
const $refuse = (what) => { throw new TypeError(what); };
const $number = (x) => (typeof x === "boolean" ? BigInt(x) : typeof x === "bigint" || typeof x === "number" ? x : $refuse(`${$repr(x)} is no number`));
const $mixed = (f) => (a, b) => {
  a = $number(a);
  b = $number(b);
  return typeof a === typeof b ? f(a, b) : f(Number(a), Number(b));
};
const $plus = $mixed((a, b) => a + b), $minus = $mixed((a, b) => a - b), $times = $mixed((a, b) => a * b);
const $ints = (a, b) => ([a, b] = [$number(a), $number(b)]).every((x) => typeof x === "bigint") ? [a, b] : $refuse("for ints alone");
const $big = (a, b) => typeof a === "bigint" && typeof b === "bigint"; // by far the most, so asked first
const $add = (a, b) => ($big(a, b) ? a + b : typeof a === "string" || Array.isArray(a) ? a.concat(b) : $plus(a, b));
const $sub = (a, b) => ($big(a, b) ? a - b : a instanceof Set ? new Set([...a].filter((x) => !b.has(x))) : $minus(a, b));
function $mul(a, b) {
  if ($big(a, b)) return a * b;
  if (!(a instanceof $Number10)) return $times(a, b);
  let c = a.coefficient * b, e = a.exponent;
  const over = c.toString().length - 28; // Decimal's digits
  if (over > 0) [c, e] = [$nearest(c, 10n ** BigInt(over)), e + over];
  return new $Number10(c, e);
}
const $neg = (a) => -$number(a);
function $floordiv(a, b) {
  if (!$big(a, b)) [a, b] = $ints(a, b);
  const q = a / b;
  return a < 0n !== b < 0n && q * b !== a ? q - 1n : q;
}
function $mod(a, b) {
  if (a instanceof $Number10) return a.exponent < 0 ? new $Number10(a.coefficient % (b * 10n ** BigInt(-a.exponent)), a.exponent) : new $Number10(0n, 0);
  return $sub(a, $times($floordiv(a, b), b));
}
const $pow = (a, b) => (([a, b]) => a ** b)($ints(a, b));
const $union = (a, b) => (a instanceof Map ? new Map([...a, ...b]) : $refuse("| is for dicts"));
const $EXACT = 2n ** 53n;
const $div = (a, b) => (b == 0 ? $refuse("division by zero") : $quotient(a, b));
const $quotient = $mixed((a, b) => {
  const size = (x) => (x < 0n ? -x : x);
  if (typeof a === "number" || (size(a) <= $EXACT && size(b) <= $EXACT)) return Number(a) / Number(b);
  const hex = (x) => size(x).toString(16).length; // the float nearest to the quotient, from 60 bits of it and whether more follow
  const shift = 64 + 4 * (hex(b) - hex(a)), up = BigInt(Math.max(shift, 0)), down = BigInt(Math.max(-shift, 0));
  const [n, d] = [size(a) << up, size(b) << down];
  return (a < 0n === b < 0n ? 1 : -1) * Number((n / d) | BigInt(n % d !== 0n)) * 2 ** -shift;
});
const $nearest = (n, d) => { // of n / d, both above 0, halves to even
  const q = n / d, twice = (n % d) * 2n;
  return q + BigInt(twice > d || (twice === d && q % 2n === 1n));
};
const $scaled = (x, digits) => { // a float above 0 times 10 ** digits, to the nearest int
  let d = 1n;
  for (; !Number.isInteger(x); x *= 2) d *= 2n;
  const power = 10n ** BigInt(Math.abs(digits));
  return digits < 0 ? $nearest(BigInt(x), d * power) : $nearest(BigInt(x) * power, d);
};
const $int = (x) => {
  if (x instanceof $Number10) return x.exponent < 0 ? x.coefficient / 10n ** BigInt(-x.exponent) : x.coefficient * 10n ** BigInt(x.exponent);
  return BigInt(typeof x === "number" ? Math.trunc(x) : x);
};
const $float = (x) => Number(x instanceof $Number10 ? `${x.coefficient}e${x.exponent}` : x);
const $bool = (x) => $t(x);
const $abs = (x) => ($lt(x, 0n) ? $neg(x) : x);
const $round = (x) => (typeof x === "bigint" ? x : x < 0 ? -$scaled(-x, 0) : $scaled(x, 0));
const $sum = (all) => $list(all).reduce((a, b) => $add(a, b), 0n);
function $Decimal(text) {
  const [, whole, part = "", power = "0"] = /^(\d*)\.?(\d*)(?:e(.*))?$/i.exec(text);
  return new $Number10(BigInt(whole + part), Number(power) - part.length);
}

/* Comparisons, and what counts as true */
const $t = (x) => (x == null ? false : x instanceof Map || x instanceof Set ? x.size > 0 : Array.isArray(x) ? x.length > 0 : x instanceof $Number10 ? x.coefficient !== 0n : !!x);
const $or = (a, b) => ($t(a) ? a : b());
const $and = (a, b) => ($t(a) ? b() : a);
const $order = (a, b) => { // negative, 0 or positive
  if (!(a instanceof $Number10 || b instanceof $Number10)) return a < b ? -1 : a > b ? 1 : 0;
  const [x, y] = [a, b].map((n) => (n instanceof $Number10 ? n : new $Number10(n, 0))), least = Math.min(x.exponent, y.exponent);
  const [p, q] = [x, y].map((n) => n.coefficient * 10n ** BigInt(n.exponent - least));
  return p < q ? -1 : p > q ? 1 : 0;
};
const $lt = (a, b) => $order(a, b) < 0, $le = (a, b) => $order(a, b) <= 0;
const $gt = (a, b) => $order(a, b) > 0, $ge = (a, b) => $order(a, b) >= 0;
function $eq(a, b) {
  if ($big(a, b)) return a === b;
  if (a === b || (a == null && b == null)) return true;
  if (a == null || b == null || typeof a === "string" || typeof b === "string") return false;
  if (typeof a !== "object" || typeof b !== "object") return typeof a !== "object" && typeof b !== "object" && a == b;
  if (a instanceof $Number10) return $order(a, b) === 0;
  const [x, y] = [a, b].map((o) => (o instanceof Map ? [...o.keys(), ...o.values()] : Array.isArray(o) ? o : Object.values(o)));
  return a.constructor === b.constructor && x.length === y.length && x.every((each, n) => $eq(each, y[n]));
}
const $in = (x, all) => (typeof x === "string" && (Array.isArray(all) || typeof all === "string") ? all.includes(x) : all instanceof Map || all instanceof Set ? all.has(x) : all.some((each) => $eq(each, x)));

/* Containers */
const $list = (all) => (Array.isArray(all) ? all : all instanceof Map ? [...all.keys()] : [...all]);
const $tuple = (all) => $list(all);
const $dict = (pairs) => new Map(pairs);
const $set = (all, key, value) => {
  if (key === undefined) return new Set($list(all)); // as Python's set()
  all instanceof Map ? all.set(key, value) : (all[Number(key)] = value);
};
const $dict_fromkeys = (keys, value = null) => new Map($list(keys).map((key) => [key, value]));
const $len = (all) => BigInt(all.size ?? all.length);
function $item(all, at) {
  if (all instanceof Map) return all.has(at) ? all.get(at) : $refuse(`no ${$repr(at)}`);
  return all[at < 0n ? all.length + Number(at) : Number(at)] ?? null;
}
function $slice(all, low, high, step) {
  const part = all.slice(low == null ? 0 : Number(low), high == null ? undefined : Number(high));
  return step == null ? part : part.filter((_, n) => n % Number(step) === 0);
}
const $range = (low, high = null) => {
  if (high === null) [low, high] = [0n, low];
  return Array.from({ length: Math.max(0, Number(high - low)) }, (_, n) => low + BigInt(n));
};
const $zip = (...all) => {
  const { strict } = all.at(-1)?.constructor === Object ? all.pop() : {};
  const lists = all.map($list), least = Math.min(...lists.map((list) => list.length));
  if (strict && lists.some((list) => list.length > least)) $refuse("zip of unequal lengths");
  return lists[0].slice(0, least).map((_, n) => lists.map((list) => list[n]));
};
const $enumerate = (all, start = 0n) => $list(all).map((x, n) => [start + BigInt(n), x]);
const $next = (all, other) => $or($list(all).slice(0, 1), () => [other])[0];
const $any = (all) => $list(all).some($t);
const $all = (all) => $list(all).every($t);
const $extreme = (sign) => (...all) => {
  const { key = (x) => x } = all.at(-1)?.constructor === Object ? all.pop() : {};
  return (all.length > 1 ? all : $list(all[0])).reduce((a, b) => (sign * $order(key(b), key(a)) > 0 ? b : a));
};
const $max = $extreme(1);
const $min = $extreme(-1);
const $sorted = (all, { key = (x) => x } = {}) => [...$list(all)].sort((a, b) => $order(key(a), key(b)));
const $str = (x) => (typeof x === "string" ? x : x instanceof Error ? x.message : $repr(x));
const $Mapping = Map;
const $TYPES = new Map([[$int, (x) => typeof x === "bigint" || typeof x === "boolean"], [$float, (x) => typeof x === "number"], [$str, (x) => typeof x === "string"], [$bool, (x) => typeof x === "boolean"], [$tuple, Array.isArray], [Map, (x) => x instanceof Map]]);
const $isinstance = (x, type) => $TYPES.get(type)(x);

/* Functions that are called with names, and records: NamedTuple and frozen dataclass */
const $named = (f, names, rest = false) => Object.assign(f, { $names: names, $rest: rest });
const $own = Object.fromEntries.bind(Object);
function $call(f, given, named) {
  const names = f.$rest ? f.$names.slice(0, -1) : f.$names, all = given.concat(names.slice(given.length).map((name) => named[name]));
  const others = Object.keys(named).filter((name) => !names.includes(name));
  if (others.length && !f.$rest) $refuse(`${f.name} takes no ${others}`);
  return f(...all, ...(f.$rest ? [new Map(others.map((name) => [name, named[name]]))] : []));
}
function $record(name, fields) {
  class Record {}
  const make = (...given) => {
    const record = new Record();
    fields.forEach(([field, , value], n) => { record[field] = given[n] ?? value ?? (given[n] === null ? null : $refuse(`${name} needs ${field}`)); });
    return record;
  };
  Record.make = make;
  return Object.assign($named(make, fields.map(([field]) => field)), { $fields: fields });
}
const $fields = (make) => make.$fields.map(([name, type]) => ({ name, type }));
const $replace = (record, named) => $call(record.constructor.make, [], { ...record, ...named });

/* Texts */
const $group = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");
const $power = (e) => `e${e < 0 ? "-" : "+"}${String(Math.abs(e)).padStart(2, "0")}`;
const $point = (digits, e) => (e < 0 ? `0.${"0".repeat(-e - 1)}${digits}` : `${digits.slice(0, e + 1).padEnd(e + 1, "0")}.${digits.slice(e + 1)}`);
const $fixed = (x, decimals) => {
  const digits = $scaled(x, decimals).toString().padStart(decimals + 1, "0");
  return decimals ? `${digits.slice(0, -decimals)}.${digits.slice(-decimals)}` : digits;
};
function $general(x, precision) { // as %g
  if (x === 0) return "0";
  let e = Math.floor(Math.log10(x)) + 1, digits = "";
  while (digits.length < precision) digits = $scaled(x, precision - 1 - --e).toString();
  if (digits.length > precision) [digits, e] = [digits.slice(0, precision), e + 1];
  const bare = (text) => (text.includes(".") ? text.replace(/\.?0*$/, "") : text);
  return e < -4 || e >= precision ? bare(`${digits[0]}.${digits.slice(1)}`) + $power(e) : bare($point(digits, e));
}
function $shortest(x) { // as repr writes a float
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : "inf";
  const [mantissa, power] = x.toExponential().split("e"), digits = mantissa.replace(".", ""), e = Number(power);
  return e < -4 || e >= 16 ? mantissa + $power(e) : $point(digits, e).replace(/\.$/, ".0");
}
function $format(x, spec) {
  const [, width, comma, precision, kind] = /^(\d*)(,?)(?:\.(\d+))?([fgd%]?)$/.exec(spec) ?? $refuse(`the format ${spec}`);
  if (typeof x === "string") return x.padEnd(Number(width));
  const size = kind === "f" || kind === "g" || kind === "%" ? Number(x) : $number(x), negative = size < 0 || Object.is(size, -0);
  const digits = Number(precision ?? 6), bare = negative ? -size : size;
  let text = kind === "f" ? $fixed(bare, digits) : kind === "g" ? $general(bare, digits || 1) : kind === "%" ? `${$fixed(bare * 100, digits)}%` : typeof bare === "bigint" ? `${bare}` : $shortest(bare);
  if (comma) text = text.replace(/^\d+/, $group);
  return ((negative ? "-" : "") + text).padStart(Number(width));
}
function $repr(x) {
  if (x == null) return "None";
  if (typeof x === "boolean") return x ? "True" : "False";
  if (typeof x === "number") return (x < 0 || Object.is(x, -0) ? "-" : "") + $shortest(Math.abs(x));
  if (typeof x === "string") {
    const quote = x.includes("'") && !x.includes('"') ? '"' : "'";
    const escape = (c) => ({ "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", [quote]: `\\${quote}` })[c] ?? ((n) => (n < 256 ? `\\x${n.toString(16).padStart(2, "0")}` : n < 65536 ? `\\u${n.toString(16).padStart(4, "0")}` : `\\U${n.toString(16).padStart(8, "0")}`))(c.codePointAt(0));
    return quote + x.replace(new RegExp(`[\\\\${quote}]|(?! )[\\p{C}\\p{Z}]`, "gu"), escape) + quote;
  }
  if (x instanceof Map) return `{${[...x].map(([key, value]) => `${$repr(key)}: ${$repr(value)}`).join(", ")}}`;
  return Array.isArray(x) ? `[${x.map($repr).join(", ")}]` : `${x}`;
}
const $re = { ASCII: 0 };
const $re_compile = (pattern) => ({ whole: new RegExp(`^(?:${pattern})$`), part: new RegExp(pattern) });
const $Path = (text) => text; // on a page a file is the text that was pasted
function $json_loads(text) {
  const exact = text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, (part) => (part[0] === '"' ? `"s${part.slice(1)}` : `"n${part}"`));
  JSON.parse(text); // refuses what is none
  const read = (x) => {
    if (typeof x === "string") return x[0] === "s" ? x.slice(1) : /^-?\d+$/.test(x.slice(1)) ? BigInt(x.slice(1)) : Number(x.slice(1));
    if (x === null || typeof x !== "object") return x;
    return Array.isArray(x) ? x.map(read) : new Map(Object.entries(x).map(([key, value]) => [key.slice(1), read(value)]));
  };
  return read(JSON.parse(exact));
}
const $m = {
  items: (map) => [...map],
  keys: (map) => [...map.keys()],
  values: (map) => [...map.values()],
  get: (map, key, other = null) => (map.has(key) ? map.get(key) : other),
  index: (list, x) => BigInt(list.findIndex((each) => $eq(each, x))),
  append: (list, x) => list.push(x),
  _asdict: (record) => new Map(Object.entries(record)),
  _replace: (record, named) => $replace(record, named),
  strip: (text) => text.trim(),
  lower: (text) => text.toLowerCase(),
  upper: (text) => text.toUpperCase(),
  islower: (text) => /[a-z]/.test(text) && !/[A-Z]/.test(text),
  isdigit: (text) => /^\d+$/.test(text),
  isascii: (text) => !/[^\x00-\x7f]/.test(text),
  replace: (text, a, b) => text.replaceAll(a, b),
  split: (text, by) => (by === undefined ? text.trim().split(/\s+/).filter(Boolean) : text.split(by)),
  partition: (text, by) => ((n) => (n < 0 ? [text, "", ""] : [text.slice(0, n), by, text.slice(n + by.length)]))(text.indexOf(by)),
  join: (text, parts) => $list(parts).join(text),
  format: (text, ...values) => text.replace(/\{\}/g, () => $str(values.shift())),
  startswith: (text, start) => text.startsWith(start),
  endswith: (text, end) => text.endsWith(end),
  translate: (text, table) => [...text].map((c) => ((to) => (typeof to === "bigint" ? String.fromCodePoint(Number(to)) : to))(table.get(BigInt(c.codePointAt(0))) ?? c)).join(""),
  fullmatch: (pattern, text) => pattern.whole.exec(text),
  search: (pattern, text) => pattern.part.exec(text),
  read_text: (text) => text,
};
